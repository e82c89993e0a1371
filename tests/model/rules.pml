/* What the models of registers share: quorums, ballots, and the rules of cluster/registers/rules.cc, over what a
 * proposer knows of the replicas (kp, ka, kv: promised, accepted, value). Before it is included, R is how many
 * replicas there are, NONCE(v) names the change of a value, and IN_ONE_EPOCH(s, t) says whether two slots are.
 */

#define ALL ((1 << R) - 1)
#define MANY(mask) (((mask) & 1) + (((mask) >> 1) & 1) + (((mask) >> 2) & 1) + \
                    (((mask) >> 3) & 1) + (((mask) >> 4) & 1))
#define BIT(i) (1 << (i))
#define MAJORITY (R / 2 + 1)
#ifdef WEAK_FAST_MAJORITY
#define FAST MAJORITY
#else
#define FAST ((3 * R + 3) / 4)
#endif

/* A ballot: slot, round, attempt. Round 0 is the fast one; every attempt has a number of its own. */
#define BALLOT(s, r, a) (((s) << 5) | ((r) << 3) | (a))
#define SLOT(b) ((b) >> 5)
#define ROUND(b) (((b) >> 3) & 3)
#define ATTEMPT(b) ((b) & 7)
#define IS_FAST(b) (ROUND(b) == 0)
#define QUORUM(b) (IS_FAST(b) -> FAST : MAJORITY)
#ifdef WEAK_FAST_EQUAL
#define MAY_ACCEPT_FAST(promised, s) ((promised) <= BALLOT(s, 0, 0))
#else
#define MAY_ACCEPT_FAST(promised, s) ((promised) < BALLOT(s, 0, 0))
#endif

/* How many accepted what replica `like` did, into n. */
inline party(mask, like) {
  n = 0; j = 0;
  do
  :: j < R ->
    if
    :: (mask & BIT(j)) && ka[j] == ka[like] && NONCE(kv[j]) == NONCE(kv[like]) -> n++
    :: else -> skip
    fi;
    j++
  :: else -> break
  od
}

/* cluster/registers/rules.cc, of the replicas in `mask`: MayBeChosen in slot `s`. Sets may_v (0: nothing), may_b. */
inline may_be_chosen(mask, s) {
  may_v = 0; may_b = 0;
  m = MANY(mask);
  i = 0;
  do
  :: i < R ->
    if
    :: (mask & BIT(i)) && SLOT(ka[i]) == s && !IS_FAST(ka[i]) && ka[i] > may_b ->
      may_b = ka[i]; may_v = kv[i]
    :: else -> skip
    fi;
    i++
  :: else -> break
  od;
  if
  :: may_v == 0 ->
    i = 0;
    do
    :: i < R && may_v == 0 ->
      if
      :: (mask & BIT(i)) && ka[i] == BALLOT(s, 0, 0) && s > 0 ->
        party(mask, i);
        if
        :: n + R - m >= FAST -> may_b = ka[i]; may_v = kv[i]
        :: else -> skip
        fi
      :: else -> skip
      fi;
      i++
    :: else -> break
    od
  :: else -> skip
  fi
}

/* Judge(). Sets is_chosen, c_slot, c_value, c_ballot; without is_chosen, c_slot is the highest slot. */
inline judge(mask) {
  d_step {
    is_chosen = 0; c_slot = 0; c_value = 0; c_ballot = 0;
    i = 0;
    do
    :: i < R ->
      if
      :: (mask & BIT(i)) && SLOT(ka[i]) > c_slot -> c_slot = SLOT(ka[i])
      :: else -> skip
      fi;
      i++
    :: else -> break
    od;
    m = MANY(mask);
    if
    :: m < MAJORITY -> skip
    :: m >= MAJORITY && c_slot == 0 -> is_chosen = 1
    :: else ->
      i = 0;
      do
      :: i < R ->
        if
        :: (mask & BIT(i)) && SLOT(ka[i]) == c_slot ->
          party(mask, i);
          if
          :: n >= QUORUM(ka[i]) -> is_chosen = 1; c_value = kv[i]; c_ballot = ka[i]
          :: else -> skip
          fi
        :: else -> skip
        fi;
        i++
      :: else -> break
      od;
      if
      :: !is_chosen ->
        beyond = 0; i = 0;
        do
        :: i < R ->
          if
          :: (mask & BIT(i)) && SLOT(kp[i]) > c_slot && IN_ONE_EPOCH(SLOT(kp[i]), c_slot) -> beyond = beyond | BIT(i)
          :: else -> skip
          fi;
          i++
        :: else -> break
        od;
        m = MANY(beyond);
        if
        :: m >= MAJORITY ->
          may_be_chosen(beyond, c_slot);
          assert(may_v != 0);  /* else replicas forgot what they had accepted */
          is_chosen = 1; c_value = may_v; c_ballot = may_b
        :: else -> skip
        fi;
        may_v = 0; may_b = 0; beyond = 0
      :: else -> skip
      fi
    fi;
    i = 0; j = 0; n = 0; m = 0
  }
}

/* MostAccepted() in slot `s`, into may_v. */
inline most_accepted(mask, s) {
  i = 0; m = 0;
  do
  :: i < R ->
    if
    :: (mask & BIT(i)) && SLOT(ka[i]) == s ->
      party(mask, i);
      if
      :: n > m -> m = n; may_v = kv[i]
      :: else -> skip
      fi
    :: else -> skip
    fi;
    i++
  :: else -> break
  od
}

#define NOT_KNOWN 0
#define YES 1
#define NO 2

/* Any of the replicas to which a request is to be sent. */
#ifdef IN_ORDER
#define FIRST(r) ((todo & (BIT((r) + 1) - 1)) == BIT(r))
#else
#define FIRST(r) (todo & BIT(r))
#endif
inline pick() {
  if
  :: FIRST(0) -> at = 0
#if R > 1
  :: FIRST(1) -> at = 1
  :: FIRST(2) -> at = 2
#endif
#if R > 3
  :: FIRST(3) -> at = 3
  :: FIRST(4) -> at = 4
#endif
  fi
}

inline forget_replicas() {
  i = 0;
  do
  :: i < R -> kp[i] = 0; ka[i] = 0; kv[i] = 0; i++
  :: else -> break
  od;
  i = 0
}
