/* How a maker looks at the directory in the message that puts his entry, and how who removes the directory lists
 * then, for Spin. All registers are atomic in directories.pml. Here the inode and one name's entry are told replica by
 * replica, on the same R drives.
 *
 *   maker     sends each replica one message: put the entry in the fast round, then tell the inode. Somebody else may
 *             come between the two. He has the name if a fast quorum took it and those that did, asked afterwards, show
 *             that an open inode is chosen. Else, once the entry is chosen (in the fast round, or in a classic one of
 *             his), he reads the inode as ever, a whole read. Open: he has the name. Marked: he takes the mark off, and
 *             has it. Gone: he has not.
 *   remover   changes the inode from open to marked, and knows that this is chosen. Then he asks replicas for the entry,
 *             and counts those that had accepted the mark before he asked. If a majority of them has accepted nothing,
 *             there is none. If one has, he takes it for there, or settles: a classic round finishes what may be
 *             chosen, or its promises show that nothing is and that no fast round will be. Without an entry he removes the
 *             inode in the slot after the mark, else he takes the mark off there. A mark that he meets he takes off.
 *   noter     changes the inode for its times, and leaves a mark there.
 *
 * Requests reach each replica at any time after they were sent, in any order, or never: also those of somebody who went
 * on, gave up or died. To die, or to be slow, is not to be scheduled: no assertion depends on anybody going on.
 *
 * The entry has all of the protocol that registers.pml has: promised and accepted ballots, the fast round, classic rounds
 * in any order of their ballots. It was never written at first; its slots are one. The inode goes from slot to slot, and
 * the change of a slot that reaches a quorum first is chosen, in its fast ballot or its one classic ballot. That it is
 * the only one registers.pml shows; it also allows to read, here, what is chosen in one step. What a replica of it accepts
 * is told one by one: replicas lag, at first too, accept changes that lose, and learn what was chosen, lately or long ago.
 * Votes for others in a slot that is decided are left out. They only raise the slot of a replica that lags, and learning
 * does so as well; to whoever reads or lists, such a replica is of less use than one that lags, or has learnt.
 *
 * -DONE_CHANGE leaves out all votes for changes that lose, and the fast round, for the same reason: a maker who trusts
 * none but chosen inodes, and a remover who can wait, get nowhere with them that they cannot without. It makes room for
 * more of everything else.
 *
 * Replicas can be told apart by what they hold and what others know of them only, so that they are kept sorted.
 *
 * What is asserted: while a maker was told that he has the name the inode is not removed. One maker at most is told.
 *
 * Rules that ask less, which hold as well:
 *   -DKNOWN_OPEN  the maker knows, from wherever, that an open inode is chosen in some slot, and a majority that took the
 *                 entry told no slot above it. This is implied by what the rule above wants.
 *   -DCLASSIC_TELLS  whoever accepts the entry in a classic round tells the inode too, and counts likewise.
 *   -DANY_VALUE   the remover counts replicas that had accepted anything in the mark's slot, or in a later one.
 *
 * Weakenings, each of which Spin must refute: -DWEAK_LISTERS (he counts any replicas), -DWEAK_SETTLE (what only some of
 * the listed have accepted is taken for absent, without a classic round), -DWEAK_CHOSEN (he lists before he knows that
 * the mark is chosen), -DWEAK_ORDER (replicas tell the inode before they put the entry), -DWEAK_QUORUM (the maker takes the
 * word of one replica that the inode is open), -DWEAK_PUT (he takes a majority of puts for a fast quorum), -DWEAK_OPEN (a
 * majority tells open inodes in any slots).
 */

#ifndef R
#define R 3          /* replicas */
#endif
#ifndef MAKERS
#define MAKERS 1     /* of the one name, with different values: up to 2 */
#endif
#ifndef TRIES
#define TRIES 1      /* classic rounds of each maker */
#endif
#ifndef REMOVERS
#define REMOVERS 1
#endif
#ifndef MARKS
#define MARKS 1      /* of each remover; to take off somebody's mark is one of them */
#endif
#ifndef SETTLES
#define SETTLES 1    /* classic rounds of each remover */
#endif
#ifndef NOTES
#define NOTES 0      /* times noted in the inode */
#endif

#define MAJORITY (R / 2 + 1)
#define FAST ((3 * R + 3) / 4)
#define BIT(i) (1 << (i))

#if R > 3
#define FOR_EACH(action) action(0) action(1) action(2) action(3) action(4)
#else
#define FOR_EACH(action) action(0) action(1) action(2)
#endif

/* The inode. In slot 0 replicas lag; slot 1 is chosen and open at first. */

#define OPEN 1
#define MARKED 2
#define GONE 3
#define SLOTS 12

/* Who changes the inode: 0 did before; the makers, from 1; the removers; the noter. */
#define REMOVER(i) (MAKERS + 1 + (i))
#define NOTER (MAKERS + REMOVERS + 1)
#if NOTES > 0
#define ACTORS (MAKERS + REMOVERS + 2)
#else
#define ACTORS (MAKERS + REMOVERS + 1)
#endif

/* What a replica accepted: a slot, its fast ballot or the classic one of `who`, and whose change it is. */
#define STATE(slot, classic, who) (((slot) << 4) | ((classic) << 3) | (who))
#define SLOT(state) ((state) >> 4)
#define IS_CLASSIC(state) (((state) >> 3) & 1)
#define BALLOT(state) (IS_CLASSIC(state) -> (state) : ((state) & 248))
#define WHO(state) ((state) & 7)

byte inode[R];
byte top = 1;               /* the highest slot in which something is chosen */
byte decided[SLOTS + 1];    /* in each: the kind of what is chosen, and the rest as in STATE */
#define KIND(slot) (decided[slot] >> 4)
#define CHOSEN(slot) STATE(slot, IS_CLASSIC(decided[slot]), WHO(decided[slot]))
#define OWNER(slot) WHO(decided[slot])

byte proposed[ACTORS];      /* for the slot after it, by each: its kind */
byte winner;                /* with ONE_CHANGE: the one that is going to be chosen */

/* The entry. Ballots: 0 none, 1 the fast one, 2.. the classic ones. Values: the makers, from 1. */

#define BALLOTS (MAKERS * TRIES + REMOVERS * SETTLES)
#if BALLOTS > 5 || MAKERS > 2 || REMOVERS > 2
#error "this many are not written out below"
#endif
byte promised[R], accepted[R], value[R];
byte started, waiting;      /* makers that sent their puts; that still count the answers */
byte used, counted;         /* classic ballots that somebody took; whose proposers count the answers */
byte carries[BALLOTS + 2];  /* the value that is to be accepted in a classic ballot */

byte told;                  /* the maker that was told that he has the name */

/* What others know of each replica. */
int known[R];
#define TOOK_PUT(maker) (maker)                /* 1, 2: it took his put */
#define TOLD(maker) (2 + (maker))              /* 3, 4: it told him the inode */
#define ACCEPTED(ballot) (3 + (ballot))        /* 5..10: it accepted in the ballot */
#define PROMISED(who) (10 + (who))             /* 11..14: it promised what he asked for */
#define LISTED(who) (13 + (who))               /* 15..17: it answered the remover */
#define VOTED(who) (17 + (who))                /* 18..22: it accepted his change in the fast ballot */
#define VOTED_CLASSIC(who) (22 + (who))        /* 23..27: in the classic one */
#ifndef KNOWN_OPEN
byte reply[R * MAKERS];                        /* what it told */
#define REPLY(x, maker) reply[(x) * MAKERS + (maker) - 1]
#endif

#define HAS(x, bit) ((known[x] >> (bit)) & 1)
#define NOTE(x, bit) known[x] = known[x] | BIT(bit)
#if R > 3
#define MANY(bit) (HAS(0, bit) + HAS(1, bit) + HAS(2, bit) + HAS(3, bit) + HAS(4, bit))
#else
#define MANY(bit) (HAS(0, bit) + HAS(1, bit) + HAS(2, bit))
#endif
#define FORGET_OF(x) known[x] = known[x] & forgotten;
inline Forget(what) {
  forgotten = ~BIT(what);
  FOR_EACH(FORGET_OF)
  forgotten = 0
}
hidden int forgotten, s, a_key, b_key;

/* Keeps the replicas in order. */
#define KEY(x) ((((inode[x] << 4) | promised[x]) << 6) | (accepted[x] << 2) | value[x])
#define EXCHANGE(array, a, b) s = array[a]; array[a] = array[b]; array[b] = s
#ifdef KNOWN_OPEN
#define REPLIES(x) 0
#define EXCHANGE_REPLIES(a, b) skip
#elif MAKERS > 1
#define REPLIES(x) ((REPLY(x, 1) << 8) | REPLY(x, 2))
#define EXCHANGE_REPLIES(a, b) EXCHANGE(reply, (a) * 2, (b) * 2); EXCHANGE(reply, (a) * 2 + 1, (b) * 2 + 1)
#else
#define REPLIES(x) REPLY(x, 1)
#define EXCHANGE_REPLIES(a, b) EXCHANGE(reply, a, b)
#endif
#define ORDER(a, b) \
  a_key = KEY(a); b_key = KEY(b); \
  if \
  :: a_key > b_key || (a_key == b_key && (known[a] > known[b] || (known[a] == known[b] && REPLIES(a) > REPLIES(b)))) -> \
    EXCHANGE(inode, a, b); EXCHANGE(promised, a, b); EXCHANGE(accepted, a, b); EXCHANGE(value, a, b); \
    EXCHANGE(known, a, b); EXCHANGE_REPLIES(a, b) \
  :: else \
  fi;
inline Sort() {
#if R > 3
  ORDER(0, 1) ORDER(1, 2) ORDER(2, 3) ORDER(3, 4)
  ORDER(0, 1) ORDER(1, 2) ORDER(2, 3)
#endif
  ORDER(0, 1) ORDER(1, 2)
  ORDER(0, 1)
  a_key = 0; b_key = 0; s = 0
}

inline Tell() {
  assert(told == 0);        /* one value is chosen */
  told = me;
  assert(KIND(top) != GONE)
}

/* A replica voted for the change of `who`. */
inline Decide(votes, quorum, classic, who) {
  if
  :: votes >= quorum ->
    top++;
    assert(top < SLOTS);
    decided[top] = (proposed[who] << 4) | ((classic) << 3) | (who);
    assert(KIND(top) != GONE || told == 0);
    i = 0;
    do
    :: i < ACTORS -> proposed[i] = 0; Forget(VOTED(i)); Forget(VOTED_CLASSIC(i)); i++
    :: else -> break
    od;
    i = 0; winner = 0
  :: else
  fi;
  Sort()
}

/* What a replica does. */
#define PUT(maker) \
  :: d_step { \
      (started & BIT(maker)) && promised[x] == 0 -> \
      promised[x] = 1; accepted[x] = 1; value[x] = maker; \
      if :: waiting & BIT(maker) -> NOTE(x, TOOK_PUT(maker)) :: else fi; \
      Sort() \
    }
#define ACCEPT(ballot) \
  :: d_step { \
      carries[ballot] != 0 && promised[x] <= ballot && accepted[x] < ballot -> \
      promised[x] = ballot; accepted[x] = ballot; value[x] = carries[ballot]; \
      if :: counted & BIT(ballot) -> NOTE(x, ACCEPTED(ballot)) :: else fi; \
      Sort() \
    }
#ifdef ONE_CHANGE
#define CHANGE(who) \
  :: d_step { \
      proposed[who] != 0 && SLOT(inode[x]) <= top && (winner == 0 || winner == who) -> \
      winner = who; \
      inode[x] = STATE(top + 1, 1, who); NOTE(x, VOTED_CLASSIC(who)); \
      Decide(MANY(VOTED_CLASSIC(who)), MAJORITY, 1, who) \
    }
#else
#define CHANGE(who) \
  :: d_step { \
      proposed[who] != 0 && SLOT(inode[x]) <= top -> \
      inode[x] = STATE(top + 1, 0, who); NOTE(x, VOTED(who)); \
      Decide(MANY(VOTED(who)), FAST, 0, who) \
    } \
  :: d_step { \
      proposed[who] != 0 && BALLOT(inode[x]) < STATE(top + 1, 1, who) -> \
      inode[x] = STATE(top + 1, 1, who); NOTE(x, VOTED_CLASSIC(who)); \
      Decide(MANY(VOTED_CLASSIC(who)), MAJORITY, 1, who) \
    }
#endif
#define LEARN(slot) \
  :: d_step { slot <= top && BALLOT(inode[x]) < BALLOT(CHOSEN(slot)) -> inode[x] = CHOSEN(slot); Sort() }

proctype Replica(byte x) {
  byte i;
end:
  do
  PUT(1)
#if MAKERS > 1
  PUT(2)
#endif
#if BALLOTS > 0
  ACCEPT(2)
#endif
#if BALLOTS > 1
  ACCEPT(3)
#endif
#if BALLOTS > 2
  ACCEPT(4)
#endif
#if BALLOTS > 3
  ACCEPT(5)
#endif
#if BALLOTS > 4
  ACCEPT(6)
#endif
  CHANGE(1)
  CHANGE(2)
#if ACTORS > 3
  CHANGE(3)
#endif
#if ACTORS > 4
  CHANGE(4)
#endif
#if ACTORS > 5
  CHANGE(5)
#endif
  LEARN(1) LEARN(2) LEARN(3) LEARN(4) LEARN(5) LEARN(6) LEARN(7) LEARN(8) LEARN(9) LEARN(10) LEARN(11)
  od
}

/* A classic round for the entry. */

#define TAKE(n) :: BALLOTS > n && !(used & BIT(n)) -> ballot = n + 2; used = used | BIT(n)
inline TakeBallot() {
  if
  TAKE(0) TAKE(1) TAKE(2) TAKE(3) TAKE(4)
  fi
}

#define PROMISE(x) \
  :: d_step { \
      ballot != 0 && promised[x] < ballot -> \
      promised[x] = ballot; NOTE(x, PROMISED(me)); \
      if \
      :: accepted[x] > 1 && accepted[x] > best -> best = accepted[x]; best_value = value[x] \
      :: accepted[x] == 1 && value[x] == 1 -> ones++ \
      :: accepted[x] == 1 && value[x] == 2 -> twos++ \
      :: else \
      fi; \
      Sort() \
    }
#define HAVE_PROMISED (MANY(PROMISED(me)) >= MAJORITY)
#define MAY_BE(n) ((n) > 0 && (n) + R - MANY(PROMISED(me)) >= FAST)

inline ForgetPromises() {
  best = 0; best_value = 0; ones = 0; twos = 0; Forget(PROMISED(me)); Sort()
}

/* Into `choice`: what may be chosen. Else `own` or anything seen; a remover may leave it absent (0). */
inline Choose(own) {
  if
  :: best != 0 -> choice = best_value
  :: best == 0 && MAY_BE(ones) -> assert(!MAY_BE(twos)); choice = 1
  :: best == 0 && MAY_BE(twos) -> choice = 2
  :: best == 0 && !MAY_BE(ones) && !MAY_BE(twos) ->
    if
    :: choice = own
    :: ones > 0 -> choice = 1
    :: twos > 0 -> choice = 2
    fi
  fi;
  ForgetPromises()
}

inline Propose() {
  carries[ballot] = choice; counted = counted | BIT(ballot); choice = 0
}
#define IS_ACCEPTED (MANY(ACCEPTED(ballot)) >= MAJORITY)
inline StopCounting() {
  counted = counted & (255 - BIT(ballot)); Forget(ACCEPTED(ballot)); Sort(); ballot = 0
}

/* Makers. */

#ifdef WEAK_ORDER
#define MAY_TELL(x, took) (!HAS(x, TOLD(me)))
#else
#define MAY_TELL(x, took) (HAS(x, took) && !HAS(x, TOLD(me)))
#endif

#ifdef KNOWN_OPEN
#define READ(x, took) \
  :: d_step { \
      MAY_TELL(x, took) -> \
      NOTE(x, TOLD(me)); \
      if :: SLOT(inode[x]) > highest -> highest = SLOT(inode[x]) :: else fi; \
      Sort() \
    }
inline Judge() {
  if
  :: MANY(TOLD(me)) >= MAJORITY ->
    i = highest;
    do
    :: i <= top -> is_open = is_open || KIND(i) == OPEN; i++
    :: else -> break
    od;
    i = 0
  :: else
  fi
}
#define FORGET_REPLY(x)
#else
#define READ(x, took) :: d_step { MAY_TELL(x, took) -> NOTE(x, TOLD(me)); REPLY(x, me) = inode[x]; Sort() }
inline Judge() {
  i = 0;
  do
  :: i < R ->
    if :: HAS(i, TOLD(me)) && SLOT(REPLY(i, me)) > highest -> highest = SLOT(REPLY(i, me)) :: else fi;
    i++
  :: else -> break
  od;
#if defined(WEAK_QUORUM)
  is_open = MANY(TOLD(me)) > 0 && highest <= top && KIND(highest) == OPEN;
#elif defined(WEAK_OPEN)
  is_open = MANY(TOLD(me)) >= MAJORITY;
  i = 0;
  do
  :: i < R ->
    if
    :: HAS(i, TOLD(me)) && SLOT(REPLY(i, me)) <= top && WHO(REPLY(i, me)) == OWNER(SLOT(REPLY(i, me))) ->
      is_open = is_open && KIND(SLOT(REPLY(i, me))) == OPEN
    :: HAS(i, TOLD(me)) && SLOT(REPLY(i, me)) > top -> is_open = is_open && proposed[WHO(REPLY(i, me))] == OPEN
    :: else
    fi;
    i++
  :: else -> break
  od;
#else
  i = 0;
  do
  :: i < R && highest > 0 ->
    if
    :: HAS(i, TOLD(me)) && SLOT(REPLY(i, me)) == highest ->
      same = 0; j = 0;
      do
      :: j < R -> same = same + (HAS(j, TOLD(me)) && REPLY(j, me) == REPLY(i, me)); j++
      :: else -> break
      od;
      if
      :: same >= (IS_CLASSIC(REPLY(i, me)) -> MAJORITY : FAST) ->
        assert(highest <= top && WHO(REPLY(i, me)) == OWNER(highest));
        is_open = KIND(highest) == OPEN
      :: else
      fi
    :: else
    fi;
    i++
  :: else -> break
  od;
#endif
  i = 0; j = 0; same = 0; highest = 0
}
#define FORGET_REPLY(x) REPLY(x, me) = 0;
#endif
#define READ_AFTER_PUT(x) READ(x, TOOK_PUT(me))
#define READ_AFTER_ACCEPT(x) READ(x, ACCEPTED(ballot))

inline ForgetReplies() {
  FOR_EACH(FORGET_REPLY)
  Forget(TOLD(me)); highest = 0; Sort()
}
inline StopWaiting() {
  waiting = waiting & (255 - BIT(me)); Forget(TOOK_PUT(me)); ForgetReplies()
}

#ifdef WEAK_PUT
#define IS_PUT (MANY(TOOK_PUT(me)) >= MAJORITY)
#else
#define IS_PUT (MANY(TOOK_PUT(me)) >= FAST)
#endif

proctype Maker(byte me) {
  byte i, j, same, highest;
  bool is_open;
  byte tries, ballot, best, best_value, ones, twos, choice, slot;

  d_step { started = started | BIT(me); waiting = waiting | BIT(me) }
  do
  FOR_EACH(READ_AFTER_PUT)
  :: atomic {
      IS_PUT ->
      Judge();
      if
      :: is_open -> is_open = false; StopWaiting(); Tell(); goto done
      :: true -> is_open = false; StopWaiting(); goto look
      fi
    }
  :: atomic { TRIES > 0 -> StopWaiting(); break }
  od;
again:
  atomic { tries < TRIES -> tries++; TakeBallot() }
  do
  FOR_EACH(PROMISE)
  :: atomic { HAVE_PROMISED -> Choose(me); Propose(); break }
  :: atomic { tries < TRIES -> ForgetPromises(); ballot = 0; goto again }
  od;
  do
#ifdef CLASSIC_TELLS
  FOR_EACH(READ_AFTER_ACCEPT)
  :: atomic {
      IS_ACCEPTED && carries[ballot] == me ->
      Judge();
      if
      :: is_open -> is_open = false; ForgetReplies(); StopCounting(); Tell(); goto done
      :: else
      fi
    }
#endif
  :: atomic { IS_ACCEPTED && carries[ballot] == me -> ForgetReplies(); StopCounting(); break }
  :: atomic { IS_ACCEPTED && carries[ballot] != me -> ForgetReplies(); StopCounting(); goto done }
  :: atomic { tries < TRIES -> ForgetReplies(); StopCounting(); goto again }
  od;
look:
  atomic {
    if
    :: KIND(top) == OPEN -> Tell(); goto done
    :: KIND(top) == GONE -> goto done
    :: KIND(top) == MARKED -> proposed[me] = OPEN; slot = top + 1
    fi
  }
  atomic {
    top >= slot ->
    if
    :: OWNER(slot) == me -> slot = 0; Tell()
    :: else -> slot = 0; goto look
    fi
  }
done:
  atomic { tries = 0; ballot = 0 }
}

/* Removers. */

#if defined(WEAK_LISTERS)
#define COUNTS(x) true
#elif defined(ANY_VALUE)
#define COUNTS(x) (SLOT(inode[x]) >= slot)
#else
#define COUNTS(x) (SLOT(inode[x]) > slot || (SLOT(inode[x]) == slot && WHO(inode[x]) == me))
#endif
#define LIST(x) \
  :: d_step { \
      !HAS(x, LISTED(me)) && COUNTS(x) -> \
      NOTE(x, LISTED(me)); \
      if :: accepted[x] != 0 -> seen++ :: else fi; \
      Sort() \
    }
#define HAVE_LISTED (MANY(LISTED(me)) >= MAJORITY)
#define MARK_IS_CHOSEN (top >= slot && OWNER(slot) == me && KIND(slot) == MARKED)
inline StopListing() {
  Forget(LISTED(me)); seen = 0; Sort()
}

proctype Remover(byte me) {
  byte marks, slot, seen, settles, ballot, best, best_value, ones, twos, choice;

begin:
  atomic {
    if
    :: marks == MARKS || KIND(top) == GONE -> goto done
    :: marks < MARKS && KIND(top) == OPEN -> proposed[me] = MARKED
    :: marks < MARKS && KIND(top) == MARKED -> proposed[me] = OPEN
    fi;
    marks++; slot = top + 1
  }
  if
#ifdef WEAK_CHOSEN
  :: proposed[me] == MARKED     /* it has to be chosen before he goes on */
#endif
  :: atomic { MARK_IS_CHOSEN }
  :: atomic { top >= slot && !MARK_IS_CHOSEN -> slot = 0; goto begin }
  fi;
  do
  FOR_EACH(LIST)
  :: atomic { HAVE_LISTED && seen == 0 && MARK_IS_CHOSEN -> StopListing(); goto remove }
#ifdef WEAK_SETTLE
  :: atomic { HAVE_LISTED && MANY(LISTED(me)) > seen && MARK_IS_CHOSEN -> StopListing(); goto remove }
#endif
  :: atomic { seen != 0 -> StopListing(); goto found }
  :: atomic { HAVE_LISTED && seen != 0 -> StopListing(); break }
  od;
settle:
  atomic { settles < SETTLES -> settles++; TakeBallot() }
  do
  FOR_EACH(PROMISE)
  :: atomic {
      HAVE_PROMISED ->
      Choose(0);
      if
      :: choice == 0 -> ballot = 0; goto remove
      :: else -> Propose(); break
      fi
    }
  :: atomic { settles < SETTLES -> ForgetPromises(); ballot = 0; goto settle }
  od;
  if
  :: atomic { IS_ACCEPTED -> StopCounting(); goto found }
  :: atomic { settles < SETTLES -> StopCounting(); goto settle }
  fi;
found:
  atomic {
    if
    :: top == slot -> proposed[me] = OPEN; slot++
    :: else -> slot = 0; goto begin
    fi
  }
  atomic { top >= slot -> slot = 0; goto begin }
remove:
  atomic {
    if
    :: top == slot -> proposed[me] = GONE; slot++
    :: else -> slot = 0; goto begin
    fi
  }
  atomic { top >= slot -> slot = 0; goto begin }
done:
  atomic { slot = 0; marks = 0; settles = 0 }
}

proctype Noter() {
  byte notes, slot;
  do
  :: atomic {
      notes < NOTES && KIND(top) != GONE && slot == 0 ->
      notes++; proposed[NOTER] = KIND(top); slot = top + 1
    }
  :: atomic { slot != 0 && top >= slot -> slot = 0 }
  od
}

init {
  byte n = 0;
  atomic {
    decided[0] = OPEN << 4;
    if
#ifndef ONE_CHANGE
    :: decided[1] = OPEN << 4
#endif
    :: decided[1] = (OPEN << 4) | 8
    fi;
    do
    :: n < R ->
      if
      :: inode[n] = CHOSEN(1)
      :: n >= (IS_CLASSIC(decided[1]) -> MAJORITY : FAST)     /* it lags */
      fi;
      n++
    :: else -> break
    od;
    Sort();
    n = 0;
    do
    :: n < R -> run Replica(n); n++
    :: else -> break
    od;
    n = 0;
    do
    :: n < MAKERS -> n++; run Maker(n)
    :: else -> break
    od;
    n = 0;
    do
    :: n < REMOVERS -> run Remover(REMOVER(n)); n++
    :: else -> break
    od;
    n = 0;
#if NOTES > 0
    run Noter();
#endif
  }
}
