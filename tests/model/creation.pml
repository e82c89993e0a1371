/* Making a file together with its name (docs/format.md, "Making files"), for Spin. The entry and the inode of it are
 * registers, one atomic variable each, as in directories.pml. Their changes travel together, yet nothing says that they
 * take effect at once, or in which order: a drive may answer late, and a request may be lost.
 *
 *   maker     looks the name up. Where there is none he chooses a new inode and writes both registers, in either order: the
 *             entry in the slot in which he saw it, the inode as one that was never written. Where the entry names an
 *             inode that was never written, he writes a removal there first, and looks again if it was written meanwhile.
 *             Where the entry went to somebody else, he removes his inode; where the inode was removed, the entry. He may
 *             stop after each step. What he was told is his he may unlink: the entry first, then the inode.
 *   reader    looks the name up at any moment.
 *
 * What is asserted: of makers that were told that they made the name, and did not unlink it, there is one. The name is
 * there then, for every reader.
 *
 * Weakenings, each of which Spin must refute: -DWEAK_FENCE (whoever wants the name passes over an inode that was never
 * written), -DWEAK_INODE (makers do not care whether their inode was written).
 */

#ifndef MAKERS
#define MAKERS 2
#endif
#ifndef TRIES
#define TRIES 2       /* of each maker */
#endif
#define NONE 0        /* of the entry: names nothing */
#define INODES (MAKERS * TRIES + 1)

#define NEW 0         /* states of an inode */
#define THERE 1
#define REMOVED 2

byte entry = NONE;
byte entry_slot = 0;
byte inode[INODES];
byte owner = 0;       /* how many makers have the name */
byte told = NONE;     /* the inode that they were told of */
byte next_inode = 1;

inline Tell() {
  owner++;
  told = mine;
  assert(owner == 1)
}

proctype Maker() {
  byte tries = 0;
  byte seen = NONE;
  byte slot = 0;
  byte mine = NONE;
  bool has_entry = false;
  bool has_inode = false;
  bool entry_done = false;
  bool inode_done = false;
  do
  :: tries >= TRIES -> break
  :: break                                     /* dies */
  :: tries < TRIES ->
    tries++;
    atomic { seen = entry; slot = entry_slot }
    if
    :: seen != NONE ->
      if
      :: inode[seen] == THERE -> goto next     /* EEXIST */
      :: else
      fi;
#ifndef WEAK_FENCE
      atomic {
        if
        :: inode[seen] == NEW -> inode[seen] = REMOVED
        :: inode[seen] == REMOVED
        :: inode[seen] == THERE -> goto next   /* it was born */
        fi
      }
#endif
    :: else
    fi;
    atomic { mine = next_inode; next_inode++; entry_done = false; inode_done = false; has_entry = false; has_inode = false }
    do
    :: entry_done && inode_done -> break
    :: !entry_done ->
      atomic {
        entry_done = true;
        if
        :: entry_slot == slot -> entry = mine; entry_slot++; has_entry = true; slot = entry_slot
        :: else
        fi
      }
    :: !inode_done ->
      atomic {
        inode_done = true;
        if
        :: inode[mine] == NEW -> inode[mine] = THERE; has_inode = true
        :: else
        fi
      }
    :: goto dead
    od;
#ifdef WEAK_INODE
    has_inode = true;
#endif
    if
    :: has_entry && has_inode -> atomic { Tell() }
      if
      :: atomic { owner--; told = NONE; if :: entry == mine && entry_slot == slot -> entry = NONE; entry_slot++ :: else fi }
        inode[mine] = REMOVED
      :: goto dead                             /* it stays */
      fi
    :: has_entry && !has_inode ->
      atomic { if :: entry_slot == slot -> entry = NONE; entry_slot++ :: else fi }
    :: !has_entry && has_inode -> inode[mine] = REMOVED
    :: else
    fi;
next:
    atomic { seen = NONE; slot = 0 }
  od;
dead:
  skip
}

/* At any moment. */
proctype Reader() {
  atomic {
    if
    :: told != NONE -> assert(entry == told && inode[told] == THERE)
    :: else
    fi
  }
}

init {
  byte m = 0;
  atomic {
    do
    :: m < MAKERS -> run Maker(); m++
    :: m >= MAKERS -> break
    od;
    run Reader()
  }
}
