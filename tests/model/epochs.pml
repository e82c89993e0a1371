/* The protocol of registers across an epoch of the drive map, for Spin: what registers.pml leaves out. A
 * directory entry's register has slots of its own in each epoch, drives refuse the requests of the epoch before
 * theirs, and what rests since that epoch is erased, after which the name is used again (docs/format.md, "Slots of an
 * epoch" and "Erasing"). TryChange(), MakeFinal() and Conclude() of cluster/registers/store.cc are here as
 * they are there, the rounds of call.cc as in registers.pml, and eraser.cc.
 *
 * There are two epochs. The second one exists from the beginning, and the drives come to know of it one after the
 * other, each at any time: of itself, or from the first request of that epoch. A proposer goes over to it between
 * two operations, or when a drive has refused it; then its change goes on as the same one if it was sent. The
 * first epoch has the slots up to F. It begins with a name that is new (START 0), in use (1), or was removed (2).
 *
 * The eraser looks at every drive under the second epoch, one after the other, and deletes what it has seen,
 * each record in the version in which it was, some or all, now or later, once or again.
 *
 * Requests are executed, lost, executed without an answer, or delayed and repeated, as in registers.pml; proposers
 * stop anywhere. What is asserted, whatever happens:
 *   - at most one value is chosen per slot; no change in two slots, but for one that was taken over;
 *   - a change takes effect only while what its caller had seen is current;
 *   - after somebody was refused, no other change of what he had seen takes effect;
 *   - what a call takes for chosen is chosen, and no call returns what is older than what one returned that ended
 *     before it began; the slot of what is absent never falls (a value that was proposed in the first epoch and
 *     chosen in the second one keeps its slot, so it may come after what is absent in slot F);
 *   - a slot that was told to anybody is never told with another value;
 *   - a change reported as applied is there, and one reported as refused never is.
 *
 * Weakenings, each of which Spin must refute: -DWEAK_FENCE (drives do not refuse the former epoch), -DWEAK_LATE_FENCE
 * (they look at a request's epoch when it comes, and may execute it later), -DWEAK_SLOTS (slots go on counting in
 * the new epoch), -DWEAK_ERASER (what was removed in the present epoch is erased, too), -DWEAK_UNHEARD_ERASER (replicas that
 * hold a value do not keep the others from being erased), -DWEAK_REMEMBERED (what was remembered from the former epoch
 * counts), -DWEAK_BARRIER (who is refused in the new epoch leaves it open whether others take effect), -DWEAK_MOVE (a change that goes
 * to the slot after one that was taken over does not say what it replaces), -DWEAK_BEYOND (promises in the new epoch show what
 * was chosen in the former one).
 */

#ifndef R
#define R 3          /* replicas */
#endif
#ifndef P
#define P 2          /* proposers */
#endif
#ifndef OPS
#define OPS 1        /* operations of each */
#endif
#ifndef TRIES
#define TRIES 2      /* classic rounds of each proposer, over all its operations */
#endif
#ifndef DELAYED
#define DELAYED 0    /* requests that may be delayed */
#endif
#ifndef LOSSES
#define LOSSES 1     /* requests or answers that are lost */
#endif
#ifndef START
#define START 0      /* the slot of what is there in the beginning */
#endif
#ifndef SLOTS
#define SLOTS 6      /* the last slot that is proposed */
#endif

#ifdef MAKER_AND_USER  /* the first proposer makes one change, and the others read and then make one */
#define OPS_OF(me) ((me) == 0 -> 1 : 2)
#define MAY_READ ((me) != 0 && ops == 1)
#define MAY_CHANGE (!MAY_READ)
#else
#define OPS_OF(me) OPS
#define MAY_READ 1
#define MAY_CHANGE 1
#endif

#define F 3          /* F(2) of docs/format.md: the last slot of the first epoch, never reached in it */
#define ABOVE(s, t) ((s) > (t) -> (s) : (t))
#ifdef WEAK_SLOTS
#define FLOOR(e) 0
#else
#define FLOOR(e) ((e) == 2 -> F : 0)
#endif
#define LIMIT(e) ((e) == 2 -> SLOTS : F - 1)

/* A value: the change that proposed it, and the slot of the former epoch from which it was taken over. */
#define NONCE(v) ((v) & 15)
#define FORMER(v) ((v) >> 4)
#define TAKEN_OVER(v, s) ((v) | ((s) << 4))
#if defined(WEAK_SLOTS) || defined(WEAK_BEYOND)
#define IN_ONE_EPOCH(s, t) 1
#else
#define IN_ONE_EPOCH(s, t) (((s) > F) == ((t) > F))
#endif
#include "rules.pml"

/* Changes, by number: those of the beginning, and two of each operation; the second one is the removal that
 * makes a refusal final. */
#define CHANGES (START + 2 * P * OPS)
#define IS_ABSENT(v) (NONCE(v) == 0 || ((removals >> NONCE(v)) & 1))
#define PROPOSED_FOR(s, v) (FORMER(v) != 0 -> FORMER(v) : (s))
#define VISIBLE(s, v, e) (IS_ABSENT(v) -> ABOVE(PROPOSED_FOR(s, v), FLOOR(e)) : PROPOSED_FOR(s, v))

/* The replicas, and which of them have heard of the second epoch. */
byte promised[R], accepted[R], value[R];
byte raised;
#ifdef WEAK_FENCE
#define REFUSES(at, e) 0
#else
#define REFUSES(at, e) ((e) == 1 && (raised & BIT(at)))
#endif
#ifdef WEAK_LATE_FENCE
#define REFUSES_LATE(at, e) 0
#else
#define REFUSES_LATE(at, e) REFUSES(at, e)
#endif

/* What is in proposals: which are removals, and the first of the nonces of the values before. */
unsigned removals : 16;
byte replaces[CHANGES + 1];

/* Requests on their way. */
byte late_to[DELAYED + 1], late_epoch[DELAYED + 1], late_promised[DELAYED + 1], late_accepted[DELAYED + 1];
byte late_p[DELAYED + 1], late_a[DELAYED + 1], late_v[DELAYED + 1];
byte late_count, losses;
byte begun;  /* proposers that did; who is the first makes no difference */

/* What is true, and no replica knows. */
byte fast_votes[(SLOTS + 1) * (CHANGES + 1)];
byte classic_votes[8];
byte chosen[SLOTS + 1];
byte told[SLOTS + 1];        /* what calls returned as the value of a slot: 1 + its change, or ABSENT_AT_F */
byte first[CHANGES + 1];     /* the slot in which a change was chosen first */
byte reported;               /* the latest that a finished call returned: the slot of what is absent, first[] else */
byte seen_by[CHANGES + 1];   /* the slot that the caller of a change had seen */
bit refused[CHANGES + 1];    /* changes reported as refused */
byte barred;                 /* slots whose seers were refused */
#define ABSENT_AT_F 16
#define PLACE(s, v) (IS_ABSENT(v) -> s : first[NONCE(v)])

inline note_vote(at, b, v) {
  if
  :: SLOT(b) == 0 || NONCE(chosen[SLOT(b)]) == NONCE(v) -> skip
  :: else ->
    if
    :: IS_FAST(b) ->
      fast_votes[SLOT(b) * (CHANGES + 1) + NONCE(v)] = fast_votes[SLOT(b) * (CHANGES + 1) + NONCE(v)] | BIT(at);
      votes = fast_votes[SLOT(b) * (CHANGES + 1) + NONCE(v)]
    :: else ->
      classic_votes[ATTEMPT(b)] = classic_votes[ATTEMPT(b)] | BIT(at);
      votes = classic_votes[ATTEMPT(b)]
    fi;
    votes = MANY(votes);
    if
    :: votes >= QUORUM(b) -> note_choice(SLOT(b), v)
    :: else -> skip
    fi;
    votes = 0
  fi
}

inline note_choice(s, v) {
  assert(chosen[s] == 0);            /* one value per slot */
  assert(!refused[NONCE(v)]);        /* what was refused never takes effect */
  n = 0; m = 0; j = 1;               /* n: the slot before it; m: where it was chosen already */
  do
  :: j <= SLOTS ->
    if
    :: chosen[j] == 0 || j == s -> skip
    :: chosen[j] != 0 && NONCE(chosen[j]) == NONCE(v) ->  /* no change twice, unless it was taken over */
      assert((j < s && s == F + 1 && FORMER(v) == j) || (s < j && j == F + 1 && FORMER(chosen[j]) == s));
      m = j
    :: chosen[j] != 0 && NONCE(chosen[j]) != NONCE(v) ->
      if
      :: j < s -> n = j
      :: else -> assert(s <= F && j > F + 1 && m == F + 1)
      fi
    fi;
    j++
  :: else -> break
  od;
  if
  :: !m ->
    j = seen_by[NONCE(v)];
    assert(j == VISIBLE(n, chosen[n], 1) || (s > FLOOR(2) && j == VISIBLE(n, chosen[n], 2)));
    assert(!(barred & BIT(j)));
    first[NONCE(v)] = s
  :: else -> assert(n < m)            /* what others have replaced is not taken over */
  fi;
  chosen[s] = v;
  j = 0; n = 0; m = 0
}

/* The drive's side of a put. */
inline execute(at, p, a, v) {
  if
  :: a != accepted[at] || v != value[at] ->
    promised[at] = p; accepted[at] = a; value[at] = v;
    note_vote(at, a, v)
  :: else -> promised[at] = p
  fi
}

#define REFUSED 0
#define DONE 1
#define UNKNOWN 2
#define OUTDATED 3

/* Who meets a drive of an earlier epoch raises it. */
#define RAISE(at) raised = (epoch == 2 -> raised | BIT(at) : raised)

inline put(at, if_promised, if_accepted, p, a, v) {
  RAISE(at);
  if
  :: REFUSES(at, epoch) -> answer = OUTDATED
  :: !REFUSES(at, epoch) && promised[at] == if_promised && accepted[at] == if_accepted ->
    execute(at, p, a, v); answer = DONE
  :: !REFUSES(at, epoch) && promised[at] == if_promised && accepted[at] == if_accepted && losses < LOSSES ->
    execute(at, p, a, v); answer = UNKNOWN; losses++  /* the answer is lost */
  :: !REFUSES(at, epoch) && (promised[at] != if_promised || accepted[at] != if_accepted) -> answer = REFUSED
  :: losses < LOSSES -> answer = UNKNOWN; losses++  /* the request is lost */
  :: late_count < DELAYED && !REFUSES(at, epoch) ->
    late_to[late_count] = at + 1; late_epoch[late_count] = epoch;
    late_promised[late_count] = if_promised; late_accepted[late_count] = if_accepted;
    late_p[late_count] = p; late_a[late_count] = a; late_v[late_count] = v;
    late_count++;
    answer = UNKNOWN
  fi
}

#define MAY_COME_LATE(i) \
  (late_to[i] != 0 && promised[late_to[i] - 1] == late_promised[i] && accepted[late_to[i] - 1] == late_accepted[i] && \
   !REFUSES_LATE(late_to[i] - 1, late_epoch[i]))

proctype Network() {
  byte j, n, m, votes;
end:
  do
  :: d_step { MAY_COME_LATE(0) -> execute(late_to[0] - 1, late_p[0], late_a[0], late_v[0]) }
#if DELAYED > 1
  :: d_step { MAY_COME_LATE(1) -> execute(late_to[1] - 1, late_p[1], late_a[1], late_v[1]) }
#endif
  :: d_step { raised != ALL ->  /* the next one; the others are told by requests */
      do
      :: raised & BIT(j) -> j++
      :: else -> raised = raised | BIT(j); break
      od;
      j = 0
    }
  od
}

#ifdef ERASING
#if defined(WEAK_ERASER) || defined(WEAK_SLOTS)
#define RESTS(at) 1
#else
#define RESTS(at) (SLOT(promised[at]) <= F)
#endif
#ifdef WEAK_UNHEARD_ERASER
#define MAY_GO(at) 1
#else
#define MAY_GO(at) (accepted[at] == 0 || IS_ABSENT(value[at]))
#endif

inline erase(at) {
  promised[at] == gp[at] && accepted[at] == ga[at] && gp[at] != 0 ->
  promised[at] = 0; accepted[at] = 0; value[at] = 0
}

proctype Eraser() {
  byte gp[R], ga[R], at;
  bit is_grave;
  do
  :: d_step {
      at < R && MAY_GO(at) && RESTS(at) ->
      raised = raised | BIT(at);
      if
      :: IS_ABSENT(value[at]) ->
        gp[at] = promised[at]; ga[at] = accepted[at];
        is_grave = is_grave | (accepted[at] != 0)
      :: else -> skip
      fi;
      at++
    }
  :: at == R && is_grave -> break
  od;
end:
  do
  :: d_step { erase(0) }
  :: d_step { erase(1) }
  :: d_step { erase(2) }
#if R > 3
  :: d_step { erase(3) }
  :: d_step { erase(4) }
#endif
  od
}
#endif

/* Whether the change `own`, proposed for own_slot, was chosen, as `v`, which was proposed for slot `s`, can tell:
 * WasChosenBefore() for a later slot. */
inline was_chosen_before(s, v) {
  n = replaces[NONCE(v)]; m = 0;  /* m: how many it names */
  j = 0;                          /* j: 1 + the place of what `own` replaces */
  do
  :: n != 0 && n != own ->
    m++;
    if
    :: n == replaces[own] -> j = m
    :: else -> skip
    fi;
    n = replaces[n]
  :: else -> break
  od;
  if
  :: n == own -> applied = YES
  :: n != own && IN_ONE_EPOCH(s, own_slot) ->
    if
    :: s - own_slot - 1 < m || (own_slot == 1 && m > 0) -> applied = NO
    :: else -> skip
    fi
  :: n != own && !IN_ONE_EPOCH(s, own_slot) ->
    if
    :: replaces[own] == 0 && m > 0 -> applied = NO
    :: replaces[own] != 0 && j > 1 -> applied = NO
    :: else -> skip
    fi
  fi;
  n = 0; m = 0; j = 0
}

/* WasChosen(): the same from what is chosen. */
inline was_chosen(s, v) {
  if
  :: s < own_slot -> applied = NO
  :: s >= own_slot && NONCE(v) == own -> applied = YES
  :: s == own_slot && NONCE(v) != own -> applied = NO
  :: s > own_slot && NONCE(v) != own ->
    was_chosen_before(s, v);
    if
    :: applied != NOT_KNOWN -> skip
    :: applied == NOT_KNOWN && replaces[own] == 0 -> applied = (replaces[NONCE(v)] == 0 -> NO : NOT_KNOWN)
    :: applied == NOT_KNOWN && replaces[own] != 0 ->
      applied = (NONCE(v) == replaces[own] || replaces[NONCE(v)] == replaces[own] -> NO : NOT_KNOWN)
    fi
  fi
}

/* A put that this call sends to replica `at` in the state it knows, or expects, it to be in. */
inline step(at, b_promised, b_accepted, v) {
  put(at, kp[at], ka[at], b_promised, b_accepted, v);
  todo = todo & (ALL - BIT(at));
  if
  :: answer == REFUSED || answer == OUTDATED ->
    known = known & (ALL - BIT(at)); expected = expected & (ALL - BIT(at));
    kp[at] = 0; ka[at] = 0; kv[at] = 0;
    outdated = outdated | (answer == OUTDATED)
  :: else ->
    if
    :: answer == DONE -> known = known | BIT(at); took = took | BIT(at)
    :: else -> known = known & (ALL - BIT(at)); unanswered = 1
    fi;
    expected = expected | BIT(at);
    kp[at] = b_promised; ka[at] = b_accepted; kv[at] = v
  fi;
  answer = 0
}

/* Where a proposer stands. Between any two steps anything else may happen. */
#define IDLE 0
#define FAST_ROUND 1
#define READING 2
#define PREPARING 3
#define ACCEPTING 4
#define CATCHING_UP 5
/* These follow at once. */
#define TO_SETTLE 6
#define TO_PREPARE 7
#define SETTLED 8
#define TO_PROPOSE 9
#define TO_FINISH 10
#define FAILED 11

/* What for: a read; the read before a change; a change; the removal that makes a refusal final; to see what came
 * instead of that; to make what is chosen durable. */
#define A_READ 0
#define BEFORE_CHANGE 1
#define A_CHANGE 2
#define CLOSING 3
#define AFTER_CLOSING 4
#define A_RENEWAL 5

/* OwnChange::Replaces() */
#define STILL_AS_SEEN (is_chosen && own != 0 && applied != NO && VISIBLE(c_slot, c_value, epoch) == own_seen)

inline learn(at) {
  RAISE(at);
  known = known | BIT(at); expected = expected | BIT(at);
  kp[at] = promised[at]; ka[at] = accepted[at]; kv[at] = value[at]
}

inline forget_states() {
  known = 0; expected = 0; took = 0; todo = 0; forget_replicas()
}

inline go_over() {
  epoch = 2; outdated = 0;
#ifndef WEAK_REMEMBERED
  remembered = 0
#endif
}

/* An operation, up to its first request. */
inline begin() {
  ops++; at_start = reported;
  if
  :: true -> skip
  :: epoch == 1 -> go_over()
  fi;
  if
  :: MAY_READ -> mode = A_READ; forget_states(); phase = READING
  :: !informed && !MAY_READ -> end_operation()
#ifdef RENEWALS
  :: true -> mode = A_RENEWAL; forget_states(); phase = READING
#endif
  :: informed && MAY_CHANGE ->
    mode = BEFORE_CHANGE;
    if
    :: remembered ->  /* Recall(): supposes the states in which the replicas were left */
      is_chosen = 1; c_slot = r_slot; c_value = r_value;
      at = 0;
      do
      :: at < R ->
        if
        :: r_slot == 0 -> expected = expected | BIT(at)  /* the others will have nothing either */
        :: r_slot != 0 -> skip
        :: !(expected & BIT(at)) && !REFUSES(at, epoch) -> learn(at)  /* an answer that came late */
        fi;
        at++
      :: else -> break
      od;
      at = 0; known = 0;
      phase = TO_PROPOSE
    :: else -> forget_states(); phase = READING
    fi
  fi
}

/* The replicas of which enough is known to have the fast round. */
inline ready_for_fast() {
  todo = 0; i = 0;
  do
  :: i < R ->
    if
    :: (expected & BIT(i)) && MAY_ACCEPT_FAST(kp[i], own_slot) -> todo = todo | BIT(i)
    :: else -> skip
    fi;
    i++
  :: else -> break
  od;
  i = 0
}

/* What the caller has seen is chosen, or was when it was remembered. */
inline propose() {
  own = START + 2 * (me * OPS + ops) - 1;
  own_slot = ABOVE(c_slot, FLOOR(epoch)) + 1; own_seen = seen;
  replaces[own] = NONCE(c_value); seen_by[own] = seen;
  if
  :: IS_ABSENT(c_value) -> removals = removals & ~(1 << own)
  :: else -> removals = removals | (1 << own)
  fi;
  mode = A_CHANGE; took = 0; unanswered = 0; ballot = 0; proposal = 0; c_ballot = 0;
  ready_for_fast();
  if
  :: own_slot > LIMIT(epoch) -> own = 0; phase = FAILED
  :: own_slot <= LIMIT(epoch) && MANY(todo) >= FAST ->
    is_chosen = 0; c_slot = 0; c_value = 0; known = 0; expected = todo;
    at = 0;
    do
    :: at < R ->
      if
      :: todo & BIT(at) -> skip
      :: else -> kp[at] = 0; ka[at] = 0; kv[at] = 0
      fi;
      at++
    :: else -> break
    od;
    at = 0;
    phase = FAST_ROUND
  :: own_slot <= LIMIT(epoch) && known != 0 && MANY(todo) < FAST -> todo = 0; phase = TO_PREPARE
  :: own_slot <= LIMIT(epoch) && known == 0 && c_slot != 0 && MANY(todo) < FAST ->
    /* What is remembered does not do: read. */
    own = 0; mode = BEFORE_CHANGE; is_chosen = 0; c_slot = 0; c_value = 0; forget_states(); phase = READING
  :: own_slot <= LIMIT(epoch) && known == 0 && c_slot == 0 && tries < TRIES ->
    /* Drives are away, so the fast round cannot succeed: a classic round supposes what it would read. */
    todo = 0; known = ALL; expected = ALL; forget_replicas(); phase = TO_PREPARE
  fi
}

/* ClassicRound(): chooses the ballot. The replicas that are known are asked for promises. */
inline prepare() {
  ballot = BALLOT(ABOVE((is_chosen && mode != A_RENEWAL -> c_slot : 0), FLOOR(epoch)) + 1, 0, 0);
  i = 0;
  do
  :: i < R ->
    if
    :: (known & BIT(i)) && (kp[i] & 248) > ballot -> ballot = kp[i] & 248
    :: else -> skip
    fi;
    i++
  :: else -> break
  od;
  i = 0;
  is_chosen = 0; c_slot = 0; c_value = 0; c_ballot = 0;
  if
  :: tries >= TRIES || ROUND(ballot) == 3 || SLOT(ballot) > LIMIT(epoch) -> phase = FAILED
  :: else ->
    ballot = ballot + BALLOT(0, 1, me * TRIES + tries + 1);
    tries++; took = 0;
    todo = known;
    phase = PREPARING
  fi
}

/* Whether a call that wants what is chosen to be durable has it accepted once more. */
#define RENEWS (mode == A_RENEWAL && c_slot != 0 && (SLOT(ballot) <= c_slot || SLOT(ballot) == FLOOR(epoch) + 1))

/* A majority promised. What is to be accepted? */
inline accept() {
  judge(took);  /* c_slot: also where nothing is chosen, the highest in which something was accepted */
  if
  :: is_chosen && STILL_AS_SEEN && SLOT(ballot) > c_slot ->
    may_v = own;
    if
    :: own_slot != SLOT(ballot) ->  /* OwnChange::MoveTo() */
      own_slot = SLOT(ballot);
#ifdef WEAK_MOVE
      replaces[own] = (own_slot == FLOOR(epoch) + 1 -> replaces[own] : 0)
#else
      replaces[own] = NONCE(c_value)
#endif
    :: else -> skip
    fi
  :: else ->
    if
    :: is_chosen && RENEWS -> may_v = c_value
    :: is_chosen && !RENEWS -> skip
    :: !is_chosen ->
      may_be_chosen(took, c_slot);
      if
      :: may_v == 0 && own != 0 && applied != NO && own_slot == c_slot && c_slot == SLOT(ballot) -> may_v = own
      :: else -> skip
      fi;
      if
      :: may_v == 0 -> most_accepted(took, c_slot)
      :: else -> skip
      fi;
      assert(may_v != 0)
    fi;
    if
    :: may_v != 0 && c_slot != SLOT(ballot) && FORMER(may_v) == 0 -> may_v = TAKEN_OVER(may_v, c_slot)
    :: else -> skip
    fi
  fi;
  if
  :: may_v == 0 -> phase = SETTLED
  :: else ->
    proposal = may_v;
    if
    :: proposal == own -> sent = 1
    :: else -> skip
    fi;
    is_chosen = 0; c_slot = 0; c_value = 0; c_ballot = 0;
    took = 0;
    at = 0;
    do
    :: at < R ->
      if
      :: (expected & BIT(at)) && kp[at] == ballot -> todo = todo | BIT(at)
      :: else -> skip
      fi;
      at++
    :: else -> break
    od;
    at = 0;
    phase = ACCEPTING
  fi;
  may_v = 0; may_b = 0; i = 0; j = 0; n = 0; m = 0
}

/* RegisterCall::Settle(), once a majority is known. */
inline settle() {
  if
  :: sent ->  /* OwnChange::LearnFrom() */
    at = 0;
    do
    :: at < R ->
      if
      :: (known & BIT(at)) && SLOT(ka[at]) > own_slot && applied == NOT_KNOWN ->
        was_chosen_before(SLOT(ka[at]), kv[at])
      :: else -> skip
      fi;
      at++
    :: else -> break
    od;
    at = 0
  :: else -> skip
  fi;
  if
  :: applied == YES -> is_chosen = 0; phase = SETTLED
  :: else ->
    judge(known);
    if
    :: is_chosen && !STILL_AS_SEEN && mode != A_RENEWAL -> phase = SETTLED
    :: else -> phase = TO_PREPARE
    fi
  fi
}

/* This attempt failed; the next one knows nothing. */
inline try_again() {
  is_chosen = 0; c_slot = 0; c_value = 0; c_ballot = 0;
  ballot = 0; proposal = 0; unanswered = 0; forget_states();
  phase = READING
}

/* EREMCHG: RegisterStore::Change() and Read() begin anew in the new epoch. */
inline begin_anew() {
  go_over();
  try_again();
  if
  :: mode == A_CHANGE && !sent -> own = 0; own_slot = 0; own_seen = 0; mode = BEFORE_CHANGE
  :: else -> skip
  fi
}

#ifdef WEAK_BARRIER
#define LEFT_OPEN 0
#else
#define LEFT_OPEN (IS_ABSENT(c_value) && c_slot <= FLOOR(epoch) && FLOOR(epoch) != 0)
#endif

/* It is known what is chosen, or that the change was. */
inline settled() {
  if
  :: mode == A_READ || mode == AFTER_CLOSING -> phase = TO_FINISH
  :: mode == A_RENEWAL -> try_again()
  :: mode == BEFORE_CHANGE && VISIBLE(c_slot, c_value, epoch) == seen -> phase = TO_PROPOSE
  :: (mode == BEFORE_CHANGE && VISIBLE(c_slot, c_value, epoch) != seen) || (mode == A_CHANGE && applied != YES) ->
    if
    :: LEFT_OPEN ->  /* MakeFinal() */
      mine = own; mine_slot = own_slot; mine_sent = sent; mine_applied = applied;
      own = START + 2 * (me * OPS + ops); own_slot = F + 1; own_seen = F; sent = 0; applied = NOT_KNOWN;
      replaces[own] = NONCE(c_value); seen_by[own] = F; removals = removals | (1 << own);
      mode = CLOSING;
      ballot = 0; proposal = 0; took = 0; c_ballot = 0;
      phase = TO_SETTLE
    :: else -> phase = TO_FINISH
    fi
  :: mode == A_CHANGE && applied == YES -> phase = TO_FINISH
  :: mode == CLOSING && applied == YES ->
    own = 0; own_slot = 0; own_seen = 0; sent = 0; applied = NOT_KNOWN; mode = AFTER_CLOSING;
    try_again()
  :: mode == CLOSING && applied != YES -> phase = TO_FINISH
  fi
}

inline end_operation() {
  if
  :: ops == OPS_OF(me) || !remembered -> expected = 0; remembered = 0; r_slot = 0; r_value = 0; forget_replicas()
  :: else -> skip
  fi;
  if
  :: ops == OPS_OF(me) -> seen = 0; informed = 0; tries = 0; epoch = 0
  :: else -> skip
  fi;
  is_chosen = 0; c_slot = 0; c_value = 0; c_ballot = 0; known = 0;
  took = 0; todo = 0; ballot = 0; at_start = 0; proposal = 0; outdated = 0;
  own = 0; own_slot = 0; own_seen = 0; applied = 0; sent = 0; unanswered = 0;
  mine = 0; mine_slot = 0; mine_sent = 0; mine_applied = 0; mode = 0;
  phase = IDLE
}

/* EIO: too few replicas answered, or the change may have happened. */
inline give_up() {
  informed = 0; remembered = 0; seen = 0;
  end_operation()
}

inline tell(s, v) {
  n = (IS_ABSENT(v) && s == F -> ABSENT_AT_F : NONCE(v) + 1);
  assert(told[s] == 0 || told[s] == n);
  told[s] = n;
  reported = ABOVE(reported, PLACE(s, v));
  n = 0
}

inline find_own() {
  n = 0; j = 1;
  do
  :: j <= SLOTS -> n = n | (chosen[j] != 0 && NONCE(chosen[j]) == own); j++
  :: else -> break
  od;
  j = 0
}

/* The call returns: Conclude(). */
inline finish() {
  assert(!is_chosen || c_slot == 0 || NONCE(chosen[c_slot]) == NONCE(c_value));
  if
  :: mode == CLOSING || mode == AFTER_CLOSING ->
    own = mine; own_slot = mine_slot; sent = mine_sent; applied = mine_applied
  :: else -> skip
  fi;
  if
  :: own != 0 && !sent -> applied = NO
  :: own != 0 && sent && applied == NOT_KNOWN -> was_chosen(c_slot, c_value)
  :: else -> skip
  fi;
  if
  :: own != 0 && applied == NOT_KNOWN -> phase = FAILED; outdated = 0
  :: own != 0 && applied == YES ->
    find_own();
    assert(n);
    at = (is_chosen && NONCE(c_value) == own -> VISIBLE(c_slot, c_value, epoch) : own_slot);
    assert(PLACE(at, own) > at_start);
    tell(at, own);
    informed = 1; seen = at;
    remembered = (is_chosen && VISIBLE(c_slot, c_value, epoch) == at)
  :: else ->
    assert(is_chosen);
    at = VISIBLE(c_slot, c_value, epoch);
    assert(PLACE(at, c_value) >= at_start);
    tell(at, c_value);
    if
    :: mode != A_READ ->
      assert(at != seen);
      barred = barred | BIT(seen);
      if
      :: own != 0 ->
        find_own();
        assert(!n);
        refused[own] = 1
      :: else -> skip
      fi
    :: else -> skip
    fi;
    informed = 1; seen = at; remembered = 1
  fi;
  n = 0; at = 0;
  if
  :: remembered -> r_slot = c_slot; r_value = c_value
  :: else -> skip
  fi;
  todo = 0;
  if
  :: phase == FAILED -> skip
  :: else ->
#ifdef CATCH_UP
    if
    :: mode == A_READ && c_slot > 0 ->  /* a reader gives those that are behind what is chosen */
      at = 0;
      do
      :: at < R ->
        if
        :: (known & BIT(at)) && ka[at] < c_ballot && kp[at] <= c_ballot -> todo = todo | BIT(at)
        :: else -> skip
        fi;
        at++
      :: else -> break
      od;
      at = 0
    :: else -> skip
    fi;
#endif
    if
    :: todo != 0 -> phase = CATCHING_UP
    :: else -> end_operation()
    fi
  fi
}

proctype Proposer(byte me) {
  byte phase, mode;
  byte epoch = 1;
  byte known, expected;        /* replicas whose state is a fact; whose state is supposed */
  byte kp[R], ka[R], kv[R];    /* those states */
  byte seen = START;           /* the slot that the last call returned */
  bit informed = 1;            /* there was one, and it is known */
  bit remembered;              /* `expected` says in which states the replicas were then, with this chosen: */
  byte r_slot, r_value;
  byte ops, tries, at_start;
  byte own, own_slot, own_seen, applied;
  byte mine, mine_slot, mine_applied;  /* the change, while its refusal is made final */
  bit sent, mine_sent, unanswered, outdated;
  byte took, todo, ballot, proposal;
  byte is_chosen, c_slot, c_value, c_ballot, may_v, may_b, beyond;
  byte answer, at, i, j, n, m, votes;

  atomic {
    if
    :: promised[0] == promised[R - 1] && accepted[0] == accepted[R - 1] ->
      expected = ALL; remembered = 1; r_slot = START; r_value = START;
      do
      :: at < R -> kp[at] = promised[at]; ka[at] = accepted[at]; kv[at] = value[at]; at++
      :: else -> break
      od;
      at = 0
    :: else -> skip
    fi
  };
  do
  :: atomic { phase == IDLE && ops == OPS_OF(me) -> break }
  :: atomic {
      if
      :: phase == IDLE && ops < OPS_OF(me) && me <= begun -> begun = (me == begun -> begun + 1 : begun); begin()
      :: phase == FAST_ROUND ->
        pick();
        step(at, BALLOT(own_slot, 0, 0), BALLOT(own_slot, 0, 0), own);
        at = 0;
        if
        :: todo != 0 -> skip
        :: todo == 0 && MANY(took) >= FAST ->
          sent = 1;
          is_chosen = 1; c_slot = own_slot; c_value = own; c_ballot = BALLOT(own_slot, 0, 0);
          phase = TO_FINISH
        :: todo == 0 && MANY(took) < FAST ->
          sent = (took != 0 || unanswered);
          took = 0; unanswered = 0;
          phase = READING;
          if
          :: MANY(known) >= MAJORITY -> phase = TO_SETTLE  /* nobody refused, so nothing is read again */
          :: true -> skip
          fi
        fi
      :: phase == READING && outdated -> begin_anew()
      :: phase == READING && known != ALL ->
        todo = ALL - known;
        pick();
        todo = 0;
        if
        :: REFUSES(at, epoch) -> outdated = 1
        :: else -> learn(at)
        fi;
        at = 0;
        if
        :: MANY(known) >= MAJORITY -> phase = TO_SETTLE
        :: known != ALL -> skip
        fi
      :: phase == PREPARING ->
        pick();
        step(at, ballot, ka[at], kv[at]);
        at = 0;
        if
        :: todo != 0 -> skip
        :: todo == 0 && MANY(took) >= MAJORITY -> unanswered = 0; accept()
        :: todo == 0 && MANY(took) < MAJORITY -> try_again()
        fi
      :: phase == ACCEPTING ->
        pick();
        step(at, ballot, ballot, proposal);
        at = 0;
        if
        :: todo != 0 -> skip
        :: todo == 0 && MANY(took) >= MAJORITY ->
          unanswered = 0;
          is_chosen = 1; c_slot = SLOT(ballot); c_value = proposal; c_ballot = ballot;
          if
          :: mode == A_RENEWAL -> end_operation()
          :: mode != A_RENEWAL && STILL_AS_SEEN -> try_again()
          :: mode != A_RENEWAL && !STILL_AS_SEEN -> phase = SETTLED
          fi
        :: todo == 0 && MANY(took) < MAJORITY -> try_again()
        fi
      :: phase == CATCHING_UP ->
        pick();
        step(at, c_ballot, c_ballot, c_value);
        at = 0;
        if
        :: todo != 0 -> skip
        :: todo == 0 -> end_operation()
        fi
      fi;
      do
      :: phase == TO_SETTLE -> settle()
      :: phase == TO_PREPARE -> prepare()
      :: phase == SETTLED -> settled()
      :: phase == TO_PROPOSE -> propose()
      :: phase == TO_FINISH -> finish()
      :: phase == FAILED && outdated -> begin_anew()
      :: phase == FAILED && !outdated -> give_up()
      :: else -> break
      od
    }
  od
}

init {
  atomic {
    byte p;
    /* What was made in slot 1 and removed in slot 2 is known everywhere, or not to the last replica. */
#if START > 0
    chosen[1] = 1;
    removals = 4;
    replaces[START] = START - 1;
    chosen[START] = START; first[1] = 1; first[START] = START;
    reported = START;
    do
    :: p < R - 1 ->
      promised[p] = BALLOT(START, 0, 0); accepted[p] = promised[p]; value[p] = START; p++
    :: else -> break
    od;
#if START == 2 && DELAYED > 0
    late_to[0] = 1; late_epoch[0] = 1;  /* the first request of all comes once more */
    late_p[0] = BALLOT(1, 0, 0); late_a[0] = late_p[0]; late_v[0] = 1; late_count = 1;
#endif
    if
    :: promised[p] = BALLOT(START, 0, 0); accepted[p] = promised[p]; value[p] = START
    :: promised[p] = BALLOT(START - 1, 0, 0); accepted[p] = promised[p]; value[p] = START - 1;
      p = 0;
      do
      :: p < R - 1 -> promised[p] = BALLOT(START, 1, 7); accepted[p] = promised[p]; p++
      :: else -> break
      od
    fi;
    p = 0;
#endif
    run Network();
#ifdef ERASING
    run Eraser();
#endif
    do
    :: p < P -> run Proposer(p); p++
    :: else -> break
    od
  }
}
