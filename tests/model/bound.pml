/* A bound change of a register, for Spin: docs/format.md, "Bound values". A proposer sends each replica a companion
 * together with its value, in the fast round of one slot. A replica takes the value only after the companion. The
 * companion may fail for itself (a drive that is full), and so may each message. Another proposer may send an ordinary
 * value in the same slot.
 *
 * Classic rounds finish what they find: those of the two, and of anybody who looks. Each of them is a process that asks
 * any replicas in any order, and puts what it proposes at any later time. So a proposer that stops, and requests that
 * are late, are orders of the same steps. Puts compare the version that was read, as in registers.pml. Somebody who
 * knows what is chosen brings it to replicas that are behind.
 *
 * What is asserted: at most one value is chosen, and a bound one that is chosen has the companions it needs.
 *
 * Weakenings, each of which Spin must refute: -DWEAK_GUARD (replicas take the value without the companion),
 * -DWEAK_COUNT (a classic round proposes a bound value however few have voted for it), -DWEAK_GIVE_UP (it proposes what
 * is to be there instead though the value may have been chosen).
 */

#ifndef R
#define R 3        /* replicas */
#endif
#ifndef ROUNDS
#define ROUNDS 2   /* classic rounds */
#endif

#define NONCE(v) (v)
#define IN_ONE_EPOCH(s, t) 1
#include "rules.pml"

#define LEAST MAJORITY
#define FAST_BALLOT BALLOT(1, 0, 0)
#define BOUND 1
#define INSTEAD 2
#define OTHER 3    /* an ordinary value */

/* The replicas. A companion stays: whoever removes it knows that the value was not chosen. */
byte promised[R], accepted[R], value[R];
byte companions;  /* of which replicas */

/* What is true, and no replica knows. */
byte votes_of[(ROUNDS + 1) * 4];
byte chosen, chosen_in;

inline note_vote(r, b, v) {
  votes_of[ATTEMPT(b) * 4 + v] = votes_of[ATTEMPT(b) * 4 + v] | BIT(r);
  if
  :: MANY(votes_of[ATTEMPT(b) * 4 + v]) >= QUORUM(b) && chosen != v ->
    assert(chosen == 0);
    chosen = v; chosen_in = b
  :: else -> skip
  fi;
  assert(chosen != BOUND || MANY(companions) >= LEAST)
}

inline accept_at(r, b, v) {
  promised[r] = b; accepted[r] = b; value[r] = v;
  note_vote(r, b, v)
}

/* The message of a fast round to replica r: it arrives once, at any time, or never. */
proctype FastPut(byte r; byte v) {
  if
  :: atomic {
      v == BOUND ->
      if
      :: true -> companions = companions | BIT(r)
      :: true -> skip  /* the drive refuses the companion */
      fi;
      if
#ifdef WEAK_GUARD
      :: promised[r] == 0 ->
#else
      :: promised[r] == 0 && (companions & BIT(r)) ->
#endif
        accept_at(r, FAST_BALLOT, v)
      :: else -> skip
      fi
    }
  :: atomic { v != BOUND && promised[r] == 0 -> accept_at(r, FAST_BALLOT, v) }
  :: true -> skip
  fi
}

/* What a classic round proposes, from the states of those that promised, into `proposal`. 0: nothing. */
inline decide() {
  may_be_chosen(took, 1);
  proposal = may_v;
  if
  :: proposal == 0 && own != 0 -> proposal = own
  :: proposal == 0 && own == 0 -> most_accepted(took, 1); proposal = may_v
  :: else -> skip
  fi;
#ifndef WEAK_COUNT
  if
  :: proposal == BOUND && IS_FAST(may_b) ->
    n = 0; i = 0;
    do
    :: i < R ->
      if
      :: (took & BIT(i)) && ka[i] == FAST_BALLOT && kv[i] == BOUND -> n++
      :: else -> skip
      fi;
      i++
    :: else -> break
    od;
    if
    :: n >= LEAST -> skip
#ifdef WEAK_GIVE_UP
    :: n < LEAST -> proposal = INSTEAD
#else
    :: n < LEAST && may_b != 0 -> proposal = 0  /* the promises of others decide */
    :: n < LEAST && may_b == 0 -> proposal = INSTEAD
#endif
    fi
  :: else -> skip
  fi;
#endif
  may_v = 0; may_b = 0; i = 0; j = 0; n = 0; m = 0
}

/* One classic round, of somebody who has a value to propose himself, or of anybody. */
proctype Classic(byte number; byte own) {
  byte ballot = BALLOT(1, 1, number), took, todo = ALL, proposal, at;
  byte kp[R], ka[R], kv[R];
  byte may_v, may_b, i, j, n, m;

  /* The larger number has the larger ballot: rounds that begin in another order are the same with others' numbers. */
  do
  :: atomic {
      todo != 0 ->
      pick();
      todo = todo & (ALL - BIT(at));
      if
      :: promised[at] < ballot ->
        kp[at] = promised[at]; ka[at] = accepted[at]; kv[at] = value[at];
        promised[at] = ballot;
        took = took | BIT(at)
      :: true -> skip  /* the request is lost, or somebody else was there */
      fi;
      at = 0
    }
  :: atomic {
      MANY(took) >= MAJORITY ->
      decide();
      if
      :: proposal != 0 -> todo = took; break
      :: proposal == 0 && todo != 0 -> skip
      :: else -> goto done
      fi
    }
  :: todo == 0 && MANY(took) < MAJORITY -> goto done
  od;
  do
  :: atomic {
      todo != 0 ->
      pick();
      todo = todo & (ALL - BIT(at));
      if
      :: promised[at] == ballot && accepted[at] != ballot -> accept_at(at, ballot, proposal)
      :: true -> skip
      fi;
      at = 0
    }
  :: todo == 0 -> break
  od;
done:
  skip
}

/* Brings what is chosen to a replica that is behind. */
proctype Learner(byte r) {
  if
  :: atomic {
      chosen != 0 && accepted[r] < chosen_in && promised[r] <= chosen_in ->
      accept_at(r, chosen_in, chosen)
    }
  :: true -> skip
  fi
}

init {
  atomic {
    byte r;
    do
    :: r < R ->
      run FastPut(r, BOUND);
#ifdef RIVAL
      run FastPut(r, OTHER);
#endif
      r++
    :: else -> break
    od;
    run Learner(0);
    run Learner(R - 1);
    r = 1;
    do
    :: r <= ROUNDS ->
#ifdef RIVAL
      if
      :: r == ROUNDS -> run Classic(r, OTHER)
      :: else -> run Classic(r, 0)
      fi;
#else
      run Classic(r, 0);
#endif
      r++
    :: else -> break
    od;
    r = 0
  }
}
