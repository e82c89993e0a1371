// Inodes that are lost: of so many copies that nobody can tell any more what they were. Their names
// and shards are left, and look much like what died clients leave; these tell them apart:
//
//   - one that was removed has left a removal on its drives, until nothing names it any more;
//   - one that was never written, as that of an upload that died, has left nothing on any of its
//     drives but a removal in its first slot, and neither an entry nor another inode names it:
//     these are written after it, or on no drive that has not got it first;
//   - one of which a few drives have the first value, and which nothing names but, perhaps, an
//     entry that was written with it, is one whose writer died just then, or one that was lost:
//     nobody can tell;
//   - one whose first slot has what was to be there instead of its first value was never there, and
//     nothing names it but, perhaps, an entry that was written with it;
//   - any other one that reads as never written is lost.
//
// Checker finds them; Collector keeps what is left of them; upkeep/recovery.h brings it back.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/stripes/listing.h"
#include "fs/names/inode.h"
#include "fs/names/records.h"
#include "upkeep/tree_check.h"

namespace pinstripe {

struct LostInode {
  InodeId id = 0;
  std::vector<EntryFact> names;     // entries that name it
  std::vector<EntryFact> contents;  // of a directory: its entries
  bool is_keeper = false;           // files say that it keeps blocks which they share
  // As the newest copy has it that is left; it may be older than the inode was.
  std::optional<Inode> copy;
  // Nothing names it but the entry that it was made with, if any, and the copy is its first: it may
  // never have been there.
  bool may_be_unfinished = false;
  // From its shards, as far as they tell:
  uint64_t shards = 0;
  uint64_t bytes = 0;  // size of the file

  bool IsDirectory() const;
  // Whether anything but shards says that there was such an inode.
  bool IsNamed() const { return !names.empty() || !contents.empty() || is_keeper || copy; }
  // Whether it is as one leaves it who makes or uploads a file, and dies while he writes the inode
  // together with its entry, within a day. `first` is the copy that is left, of its first value.
  bool MayBeJustMade(const Inode& first, int64_t now) const;
  // In one sentence, for people.
  std::string Text() const;
};

// The fate of an inode.
enum class InodeFate {
  kThere,
  kRemoved,
  kNoTrace,  // of its drives, all of which answered, none has ever heard of a value of it
  kLost,     // a few drives have a copy, and too few to be believed
  kBegun,    // so, too, and it is of the first that was ever written of it
  kGivenUp,  // whoever wrote it for the first time died, and somebody has seen to it that it is not
};
struct InodeFound {
  InodeFate fate = InodeFate::kThere;
  std::optional<Inode> copy;  // of a lost one
};
// Element i is about ids[i]. EHOSTUNREACH: not all of its drives answer, so it cannot be told; or
// as of RegisterStore::Read, or EBADMSG as of Inode::Decode.
std::vector<Result<InodeFound>> FindFates(Records& records, std::span<const InodeId> ids);

// How large the blocks of a file may be that has stripes of these forms; `usual`: how files are
// stored that nothing else is said of.
uint64_t GuessBlockBytes(const StripeLayout& usual, std::span<const StripeStore::Form> forms);

// How large a file is, as its stripes tell; they are all that is left of it, in the order of their
// blocks. Asks for the descriptors of the first and the last block.
uint64_t GuessSize(StripeStore& store, const StripeLayout& usual,
                   std::span<const ListedStripe> stripes);

}  // namespace pinstripe
