/* Removing a directory, or replacing it by a rename, while others put something into it (docs/format.md,
 * "Removing directories"), for Spin. Each register is one atomic variable here: registers.pml shows that they are as good
 * as that. A slot goes up with each change and never comes back, so a conditional change compares slots.
 *
 * The directory's inode is open, marked, or gone. Its name's entry names it, or something else since it was replaced
 * or removed. Each maker has one name in it. A lister looks at one name after the other.
 *
 *   maker     writes its entry, then reads the inode. Open: it is acknowledged. Marked: it gives way, as
 *             Names::TakeMarkOff does: it writes the name's entry anew, so that a rename that has not happened never
 *             will; then it changes the inode, without the mark. Gone, or replaced already: it takes its entry back.
 *             What was acknowledged it may remove again, and begin anew.
 *   remover   as Names::RemoveEmpty: marks the inode as it found it, lists, removes it as it was marked. It may stop
 *             after each step, which leaves the mark.
 *   renamer   replaces the directory: looks both up, marks, lists, changes the name's entry in the slot in which it was.
 *             Then the inode goes, whatever slot it is in.
 *   noter     changes the inode for its times, and leaves a mark there.
 *
 * What is asserted: while a maker was told that it has its name, the directory is there under its own.
 *
 * Weakenings, each of which Spin must refute: -DWEAK_LOOK (makers do not read the inode after their entry),
 * -DWEAK_ORDER (who removes lists before the mark), -DWEAK_REPLACE (who replaces lists before the mark),
 * -DWEAK_GIVE_WAY (makers take the mark off and leave the name's entry as it is), -DWEAK_MARK (who meets a mark goes on as if
 * there were none), -DWEAK_UNMARK (a rename takes another one's mark off).
 */

#ifndef MAKERS
#define MAKERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2     /* of each maker */
#endif
#ifndef TRIES
#define TRIES 2      /* of each remover, renamer and noter */
#endif

#define OPEN 0
#define CLOSED 1     /* marked by who removes it */
#define MARKED 2     /* by a rename that is to replace it */
#define GONE 3

byte inode = OPEN;
byte inode_slot = 1;
byte marked_by = 0;      /* the renamer whose mark it is: the nonce */
bool named = true;       /* its entry in its parent names it */
byte name_slot = 1;
bool entry[MAKERS];
bool told[MAKERS];       /* that it has its name */

inline Promise() {
  byte p = 0;
  do
  :: p < MAKERS -> assert(!told[p] || (inode != GONE && named)); p++
  :: p >= MAKERS -> p = 0; break
  od
}

/* Takes off the mark of somebody who died while he removed it, as Names::FinishMark does. */
inline FinishMark() {
  atomic {
    if
    :: inode == CLOSED && named -> inode = OPEN; inode_slot++
    :: else
    fi
  }
}

/* What is in the directory, seen one name after the other: in `found`. */
inline ListNames() {
  found = false;
  i = 0;
  do
  :: i < MAKERS -> atomic { found = found || entry[i]; i++ }
  :: i >= MAKERS -> i = 0; break
  od
}

proctype Maker(byte me) {
  byte round = 0;
  byte state = 0;
  byte slot = 0;
  byte seen_name = 0;
  bool is_named = false;
  do
  :: round >= ROUNDS -> break
  :: round < ROUNDS ->
    round++;
    entry[me] = true;
look:
#ifdef WEAK_LOOK
    atomic { told[me] = true; Promise(); goto has }
#endif
    atomic {
      state = inode;
      slot = inode_slot;
      if
      :: state == OPEN -> told[me] = true; Promise(); state = 0; slot = 0; goto has
      :: state == GONE -> state = 0; slot = 0; goto back
      :: else
      fi
    }
#ifdef WEAK_MARK
    atomic { told[me] = true; Promise(); goto has }
#endif
give_way:
    atomic { is_named = named; seen_name = name_slot }
    if
    :: !is_named -> goto back
    :: else
    fi;
#ifndef WEAK_GIVE_WAY
    atomic {
      if
      :: state == CLOSED                             /* no rename is to come */
      :: state != CLOSED && name_slot == seen_name && named -> name_slot++
      :: else -> goto give_way
      fi
    }
#endif
    atomic {
      if
      :: inode != GONE && inode_slot == slot ->
        inode = OPEN; inode_slot++; told[me] = true; Promise(); state = 0; slot = 0; goto has
      :: else -> state = 0; slot = 0; goto look
      fi
    }
back:
    atomic { entry[me] = false; is_named = false; seen_name = 0 }
    goto next;
has:
    atomic { is_named = false; seen_name = 0 }
    if
    :: atomic { told[me] = false; entry[me] = false }
    :: break     /* it stays */
    fi;
next:
    skip
  od
}

proctype Remover() {
  byte tries = 0;
  byte slot = 0;
  byte i = 0;
  bool found = false;
  do
  :: tries >= TRIES -> break
  :: tries < TRIES ->
    tries++;
    FinishMark();
    atomic {
      if
      :: inode == GONE || !named -> break
      :: inode == MARKED || inode == CLOSED -> goto again    /* finishes what it was first */
      :: else -> slot = inode_slot
      fi
    }
#ifdef WEAK_ORDER
    ListNames();
    if
    :: found -> goto again
    :: else
    fi;
#endif
    atomic {
      if
      :: inode_slot == slot && inode != GONE -> inode = CLOSED; inode_slot++; slot = inode_slot
      :: else -> goto again
      fi
    }
    if
    :: break     /* it dies */
    :: skip
    fi;
#ifndef WEAK_ORDER
    ListNames();
    if
    :: found ->
      atomic {
        if
        :: inode_slot == slot && inode != GONE -> inode = OPEN; inode_slot++
        :: else
        fi
      }
      goto again
    :: else
    fi;
#endif
    atomic {
      if
      :: inode_slot == slot && inode != GONE -> inode = GONE; inode_slot++; Promise()
      :: else -> goto again
      fi
    }
    atomic { named = false; name_slot++; Promise() }
    break;
again:
    atomic { slot = 0; found = false }
  od
}

proctype Renamer() {
  byte tries = 0;
  byte slot = 0;
  byte seen_name = 0;
  byte i = 0;
  bool found = false;
  do
  :: tries >= TRIES -> break
  :: tries < TRIES ->
    tries++;
    FinishMark();
    atomic {
      if
      :: inode == GONE || !named -> break
      :: inode == MARKED || inode == CLOSED -> goto again
      :: else -> slot = inode_slot; seen_name = name_slot
      fi
    }
#ifdef WEAK_REPLACE
    ListNames();
    if
    :: found -> goto again
    :: else
    fi;
#endif
    atomic {
      if
      :: inode_slot == slot && inode == OPEN -> inode = MARKED; marked_by = _pid; inode_slot++
      :: else -> goto again
      fi
    }
    if
    :: break     /* it dies */
    :: skip
    fi;
#ifndef WEAK_REPLACE
    ListNames();
    if
    :: found ->
      atomic {
        if
        :: name_slot == seen_name -> name_slot++    /* nobody writes it any more */
        :: else
        fi
      }
      atomic {
        if
#ifdef WEAK_UNMARK
        :: inode == MARKED -> inode = OPEN; inode_slot++
#else
        :: inode == MARKED && marked_by == _pid -> inode = OPEN; inode_slot++
#endif
        :: else
        fi
      }
      goto again
    :: else
    fi;
#endif
    atomic {
      if
      :: name_slot == seen_name && named -> named = false; name_slot++; Promise()
      :: else -> goto again
      fi
    }
    atomic { inode = GONE; inode_slot++; Promise() }
    break;
again:
    atomic { slot = 0; seen_name = 0; found = false }
  od
}

proctype Noter() {
  byte tries = 0;
  byte slot = 0;
  do
  :: tries >= TRIES -> break
  :: tries < TRIES ->
    tries++;
    slot = inode_slot;
    atomic {
      if
      :: inode != GONE && inode_slot == slot -> inode_slot++
      :: else
      fi
    }
  od
}

init {
  byte m = 0;
  atomic {
    do
    :: m < MAKERS -> run Maker(m); m++
    :: m >= MAKERS -> break
    od;
#ifdef REMOVERS
    run Remover();
#if REMOVERS > 1
    run Remover();
#endif
#endif
#ifdef RENAMERS
    run Renamer();
#if RENAMERS > 1
    run Renamer();
#endif
#endif
#ifdef NOTER
    run Noter();
#endif
  }
}
