/* The protocol of registers, for Spin: what cluster/registers/rules.h, call.h and
 * store.h do to one register, transition by transition. ./dev model checks it in the bounds
 * that tests/model/run.sh states; docs/testing.md says what that proves and what not.
 *
 * A drive keeps (promised, accepted, value). A put is a compare-and-swap on (promised, accepted),
 * which is the version of the record; the value is not compared, as on a real drive. Each put is
 * either executed and answered, executed without an answer, lost, or delayed: then it is executed at
 * any later time, any number of times. Requests of one round reach the replicas in any order. A
 * proposer that stops for ever, or for any time, is one that Spin does not schedule: no assertion
 * depends on anybody going on.
 *
 * What is asserted, whatever happens:
 *   - at most one value is chosen per slot, and no change in two slots;
 *   - what a call takes for chosen is chosen (so all calls agree);
 *   - a call returns no older slot than one that returned before it began. With the first two that is
 *     linearizability: the chosen values, in the order of their slots, are the history;
 *   - a change reported as applied is the value of its slot; one reported as a conflict never is.
 *
 * Weakenings, each of which Spin must refute: -DWEAK_FAST_MAJORITY (a mere majority chooses in the fast
 * round), -DWEAK_FAST_EQUAL (a replica that promised the fast ballot may accept in it again),
 * -DWEAK_BLIND_ACCEPT (a classic round proposes its own value without looking at what the promises
 * show), -DWEAK_UNREAD_PREPARE (a prepare is sent to replicas whose value was not read).
 */

#ifndef R
#define R 3          /* replicas */
#endif
#ifndef P
#define P 2          /* proposers */
#endif
#ifndef OPS
#define OPS 2        /* operations of each */
#endif
#ifndef TRIES
#define TRIES 2      /* classic rounds of each proposer, over all its operations */
#endif
#ifndef DELAYED
#define DELAYED 1    /* requests that may be delayed */
#endif
#ifndef LOSSES
#define LOSSES 3     /* requests or answers that are lost */
#endif
#ifndef SLOTS
#define SLOTS 2      /* the last slot that is proposed */
#endif

#define NONCE(v) (v)
#define IN_ONE_EPOCH(s, t) 1  /* there is one only: see epochs.pml */
#include "rules.pml"
/* Changes, by number (the nonce); 0 is what is chosen in slot 0: never written. */
#define CHANGES (P * OPS)

/* The replicas. */
byte promised[R], accepted[R], value[R];

/* What each change replaces: the nonces of the values before it, of which a proposal names the last. */
byte replaces[CHANGES + 1];

/* Requests on their way: replica + 1, the version they require, what they write. */
byte late_to[DELAYED + 1], late_promised[DELAYED + 1], late_accepted[DELAYED + 1];
byte late_p[DELAYED + 1], late_a[DELAYED + 1], late_v[DELAYED + 1];
byte late_count, losses;
byte begun;  /* proposers that did; who is the first makes no difference */

/* What is true, and no replica knows: who ever accepted what, what is chosen, what was reported. */
byte fast_votes[(SLOTS + 1) * (CHANGES + 1)];
byte classic_votes[8];
byte chosen[SLOTS + 1];
byte reported;               /* the highest slot that a finished call returned */
bit refused[CHANGES + 1];    /* changes reported as conflicts */

inline note_vote(at, b, v) {
  if
  :: SLOT(b) == 0 || chosen[SLOT(b)] == v -> skip
  :: else ->
    if
    :: IS_FAST(b) ->
      fast_votes[SLOT(b) * (CHANGES + 1) + v] = fast_votes[SLOT(b) * (CHANGES + 1) + v] | BIT(at);
      votes = fast_votes[SLOT(b) * (CHANGES + 1) + v]
    :: else ->
      classic_votes[ATTEMPT(b)] = classic_votes[ATTEMPT(b)] | BIT(at);
      votes = classic_votes[ATTEMPT(b)]
    fi;
    votes = MANY(votes);
    if
    :: votes >= QUORUM(b) ->
      assert(chosen[SLOT(b)] == 0);  /* one value per slot */
      assert(!refused[v]);           /* a conflict never takes effect */
      j = 1;
      do
      :: j <= SLOTS -> assert(chosen[j] != v); j++  /* no change twice */
      :: else -> break
      od;
      chosen[SLOT(b)] = v
    :: else -> skip
    fi;
    votes = 0; j = 0
  fi
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

inline put(at, if_promised, if_accepted, p, a, v) {
    if
    :: promised[at] == if_promised && accepted[at] == if_accepted ->
      execute(at, p, a, v); answer = DONE
    :: losses < LOSSES && promised[at] == if_promised && accepted[at] == if_accepted ->
      execute(at, p, a, v); answer = UNKNOWN; losses++  /* the answer is lost */
    :: promised[at] != if_promised || accepted[at] != if_accepted -> answer = REFUSED
    :: losses < LOSSES -> answer = UNKNOWN; losses++  /* the request is lost */
    :: late_count < DELAYED ->
        late_to[late_count] = at + 1;
        late_promised[late_count] = if_promised; late_accepted[late_count] = if_accepted;
        late_p[late_count] = p; late_a[late_count] = a; late_v[late_count] = v;
        late_count++;
        answer = UNKNOWN
    fi
}

active proctype Network() {
  byte j, votes;
end:
  do
  :: d_step {
      late_to[0] != 0 && promised[late_to[0] - 1] == late_promised[0] &&
      accepted[late_to[0] - 1] == late_accepted[0] ->
      execute(late_to[0] - 1, late_p[0], late_a[0], late_v[0])
    }
#if DELAYED > 1
  :: d_step {
      late_to[1] != 0 && promised[late_to[1] - 1] == late_promised[1] &&
      accepted[late_to[1] - 1] == late_accepted[1] ->
      execute(late_to[1] - 1, late_p[1], late_a[1], late_v[1])
    }
#endif
  od
}

/* WasChosen(), of the change `own` in own_slot, by a value `v` that was proposed for the later slot `s`. */
inline was_chosen(s, v) {
  d_step {
    n = s; m = v;
    do
    :: n > own_slot -> m = replaces[m]; n--
    :: else -> break
    od;
    applied = (m == own -> YES : NO);
    n = 0; m = 0
  }
}
/* A put that this call sends to replica `at` in the state it knows, or expects, it to be in. */
inline step(at, b_promised, b_accepted, v) {
  put(at, kp[at], ka[at], b_promised, b_accepted, v);
  todo = todo & (ALL - BIT(at));
  if
  :: answer == REFUSED ->
    known = known & (ALL - BIT(at)); expected = expected & (ALL - BIT(at));
    kp[at] = 0; ka[at] = 0; kv[at] = 0
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

/* Whether what is chosen is what the caller of a change has seen, so that the change can be made. */
#define STILL_AS_SEEN (is_chosen && own != 0 && applied != NO && c_slot == own_slot - 1)

/* Answers that came when the call before knew enough. */
inline learn_late() {
  at = 0;
  do
  :: at < R ->
    if
    :: true -> skip
    :: !(expected & BIT(at)) ->
      expected = expected | BIT(at);
      kp[at] = promised[at]; ka[at] = accepted[at]; kv[at] = value[at]
    fi;
    at++
  :: else -> break
  od;
  at = 0
}

/* The first half of RegisterStore's Change(), or a read. */
inline begin() {
  ops++; at_start = reported;
  if
  :: true -> expected = 0; forget_replicas(); phase = READING  /* a read */
  :: remembered && seen < SLOTS ->
    own = me * OPS + ops; own_slot = seen + 1; replaces[own] = seen_value;
    learn_late();
    i = 0;
    do
    :: i < R ->
      if
      :: (expected & BIT(i)) && MAY_ACCEPT_FAST(kp[i], own_slot) -> todo = todo | BIT(i)
      :: else -> skip
      fi;
      i++
    :: else -> break
    od;
    i = 0;
    if
    :: MANY(todo) >= FAST -> expected = todo; phase = FAST_ROUND
    :: else -> todo = 0; expected = 0; forget_replicas(); phase = READING
    fi
  :: remembered && seen == 0 && tries < TRIES ->
    /* Drives are away, so the fast round cannot succeed: a classic round supposes what it would read. */
    own = me * OPS + ops; own_slot = 1; replaces[own] = 0;
    known = ALL; expected = ALL; forget_replicas();
    is_chosen = 1;
    prepare()
  fi
}

/* ClassicRound(): chooses the ballot. The replicas that are known are asked for promises. */
inline prepare() {
  ballot = (is_chosen -> BALLOT(c_slot + 1, 0, 0) : 0);
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
  :: tries >= TRIES || ROUND(ballot) == 3 || SLOT(ballot) > SLOTS -> give_up()
  :: else ->
    ballot = ballot + BALLOT(0, 1, me * TRIES + tries + 1);
    tries++; took = 0;
#ifdef WEAK_UNREAD_PREPARE
    todo = expected;
#else
    todo = known;
#endif
    phase = PREPARING
  fi
}

/* EIO: too few replicas answered, or the change may have happened. */
inline give_up() {
  remembered = 0; seen = 0; seen_value = 0; is_chosen = 0;
  end_operation()
}

inline end_operation() {
  if
  :: ops == OPS || !remembered -> expected = 0; forget_replicas()
  :: else -> skip
  fi;
  if
  :: ops == OPS -> seen = 0; seen_value = 0; remembered = 0; tries = 0
  :: else -> skip
  fi;
  is_chosen = 0; c_slot = 0; c_value = 0; c_ballot = 0; known = 0;
  took = 0; todo = 0; ballot = 0; at_start = 0; proposal = 0;
  own = 0; own_slot = 0; applied = 0; sent = 0; unanswered = 0;
  phase = IDLE
}

/* Reading is over: RegisterCall::Settle(). */
inline settle() {
  if
  :: sent ->  /* OwnChange::LearnFrom() */
    at = 0;
    do
    :: at < R ->
      if
      :: (known & BIT(at)) && SLOT(ka[at]) > own_slot && applied == NOT_KNOWN ->
        was_chosen(SLOT(ka[at]), kv[at])
      :: else -> skip
      fi;
      at++
    :: else -> break
    od;
    at = 0
  :: else -> skip
  fi;
  if
  :: applied == YES -> is_chosen = 0; finish()
  :: else ->
    judge(known);
    if
    :: is_chosen && !STILL_AS_SEEN -> finish()
    :: else -> prepare()
    fi
  fi
}

/* A majority promised. What is to be accepted? */
inline accept() {
  judge(took);
  if
  :: is_chosen && !(STILL_AS_SEEN && SLOT(ballot) > c_slot) -> finish()
  :: else ->
    if
    :: is_chosen -> assert(SLOT(ballot) == own_slot); may_v = own
    :: else ->
#ifndef WEAK_BLIND_ACCEPT
      may_be_chosen(took, SLOT(ballot));
#endif
      if
      :: may_v == 0 && own != 0 && applied != NO && own_slot == SLOT(ballot) -> may_v = own
      :: else -> skip
      fi;
      if
      :: may_v == 0 -> most_accepted(took, SLOT(ballot))
      :: else -> skip
      fi;
      assert(may_v != 0)
    fi;
    proposal = may_v;
    if
    :: proposal == own -> sent = 1
    :: else -> skip
    fi;
    is_chosen = 0; c_slot = 0; c_value = 0; c_ballot = 0;
    may_v = 0; may_b = 0; i = 0; j = 0; n = 0; m = 0; took = 0;
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
  fi
}

/* This attempt failed; the next one knows nothing. */
inline try_again() {
  known = 0; expected = 0; took = 0; todo = 0; ballot = 0; proposal = 0; forget_replicas();
  phase = READING
}

/* The call returns: RegisterStore's Conclude(). */
inline finish() {
  assert(!is_chosen || c_slot == 0 || chosen[c_slot] == c_value);
  if
  :: own != 0 && !sent -> applied = NO
  :: own != 0 && sent && applied == NOT_KNOWN && c_slot < own_slot -> applied = NO
  :: own != 0 && sent && applied == NOT_KNOWN && c_slot >= own_slot -> was_chosen(c_slot, c_value)
  :: else -> skip
  fi;
  if
  :: own != 0 && applied == YES ->
    assert(chosen[own_slot] == own);
    assert(own_slot > at_start);
    seen = own_slot; seen_value = own;
    remembered = (is_chosen && c_slot == own_slot)
  :: else ->
    assert(is_chosen && c_slot >= at_start);
    if
    :: own != 0 -> assert(chosen[own_slot] != own); refused[own] = 1
    :: else -> skip
    fi;
    seen = c_slot; seen_value = c_value; remembered = 1
  fi;
  if
  :: seen > reported -> reported = seen
  :: else -> skip
  fi;
  todo = 0;
#ifdef CATCH_UP
  if
  :: own == 0 && c_slot > 0 ->  /* a reader gives those that are behind what is chosen */
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
}

proctype Proposer(byte me) {
  byte phase;
  byte known, expected = ALL;  /* replicas whose state is a fact; whose state is supposed */
  byte kp[R], ka[R], kv[R];    /* those states; at first: a register known to be new */
  byte seen, seen_value;       /* the slot that the last call returned, and its value */
  bit remembered = 1;          /* `expected` says in which states the replicas were then */
  byte ops, tries, at_start;
  byte own, own_slot, applied;
  bit sent, unanswered;
  byte took, todo, ballot, proposal;
  byte is_chosen, c_slot, c_value, c_ballot, may_v, may_b, beyond;
  byte answer, at, i, j, n, m, votes;

  do
  :: atomic { phase == IDLE && ops < OPS && me <= begun -> begun = (me == begun -> begun + 1 : begun); begin() }
  :: atomic { phase == IDLE && ops == OPS -> break }
  :: atomic {
      phase == FAST_ROUND ->
      pick();
      step(at, BALLOT(own_slot, 0, 0), BALLOT(own_slot, 0, 0), own);
      at = 0;
      if
      :: todo != 0 -> skip
      :: todo == 0 && MANY(took) >= FAST ->
        sent = 1; applied = YES;
        is_chosen = 1; c_slot = own_slot; c_value = own; c_ballot = BALLOT(own_slot, 0, 0);
        finish()
      :: todo == 0 && MANY(took) < FAST ->
        sent = (took != 0 || unanswered);
        took = 0; unanswered = 0;
        phase = READING;
        if
        :: MANY(known) >= MAJORITY -> settle()  /* nobody refused, so nothing is read again */
        :: true -> skip
        fi
      fi
    }
  :: atomic {
      phase == READING && known != ALL ->
      todo = ALL - known;
      pick();
      todo = 0;
      known = known | BIT(at); expected = expected | BIT(at);
      kp[at] = promised[at]; ka[at] = accepted[at]; kv[at] = value[at];
      at = 0;
      if
      :: MANY(known) >= MAJORITY -> settle()
      :: known != ALL -> skip
      fi
    }
  :: atomic {
      phase == PREPARING ->
      pick();
      step(at, ballot, ka[at], kv[at]);
      at = 0;
      if
      :: todo != 0 -> skip
      :: todo == 0 && MANY(took) >= MAJORITY -> unanswered = 0; accept()
      :: todo == 0 && MANY(took) < MAJORITY -> unanswered = 0; try_again()
      fi
    }
  :: atomic {
      phase == ACCEPTING ->
      pick();
      step(at, ballot, ballot, proposal);
      at = 0;
      if
      :: todo != 0 -> skip
      :: todo == 0 && MANY(took) >= MAJORITY ->
        unanswered = 0;
        is_chosen = 1; c_slot = SLOT(ballot); c_value = proposal; c_ballot = ballot;
        if
        :: STILL_AS_SEEN -> is_chosen = 0; c_slot = 0; c_value = 0; c_ballot = 0; try_again()
        :: else -> finish()
        fi
      :: todo == 0 && MANY(took) < MAJORITY -> unanswered = 0; try_again()
      fi
    }
  :: atomic {
      phase == CATCHING_UP ->
      pick();
      step(at, c_ballot, c_ballot, c_value);
      at = 0;
      if
      :: todo != 0 -> skip
      :: todo == 0 -> end_operation()
      fi
    }
  od
}

init {
  atomic {
    byte p;
    do
    :: p < P -> run Proposer(p); p++
    :: else -> break
    od
  }
}
