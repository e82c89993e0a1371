// Whereabouts: on which drives a file is, or whatever else has an inode, what of it cannot be had
// at the moment, and how many drives more it survives. Changes nothing and reads no data: it goes
// by the inode, the block map and the drive map, and asks each drive whether it answers. Whether
// shards are really there and sound is for the check and the scrub; the directories on the way to
// it, and what the cluster needs to be opened, are things of their own.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster.h"
#include "fs/names/inode.h"

namespace pinstripe {

struct Whereabouts {
  // Records that have the same purpose and form.
  struct Part {
    std::string what;                      // "name", "inode", "blocks", "patches", "map pages"
    std::string form;                      // "5 copies", "4+2"
    int shards = 0;                        // or copies: of each record, each on a drive of its own
    int needed = 0;                        // so many of them have to be there
    uint64_t bytes = 0;                    // of all of them, without parity and copies
    uint64_t count = 0;                    // of the records
    uint64_t spares = 0;                   // shards that are not where they belong
    std::map<int, uint64_t> lacking;       // of how many records how many shards cannot be had
    std::map<DriveId, uint64_t> on_drive;  // shards

    // That may be lost besides, whichever they are; negative: so many are missing.
    int Margin() const;
  };

  // One record of a block and where its shards are, for a picture.
  struct Stripe {
    struct Shard {
      DriveId drive = 0;      // 0: it was not stored anywhere
      bool is_there = false;  // as far as that is known: the drive answers
      bool is_spare = false;  // it is not where it belongs
    };
    std::string what;  // "blocks", "patches"
    uint64_t block = 0;
    int data_shards = 0;  // the first ones; the others are parity, or copies
    uint64_t bytes = 0;
    std::vector<Shard> shards;

    // Shards that may be lost besides; negative: so many are missing.
    int Margin() const;
  };

  FileKind kind = FileKind::kRegular;
  uint64_t size = 0;
  uint64_t inline_bytes = 0;    // in the inode
  std::string engine;           // that keeps name and inode; empty: drives do
  std::vector<Part> parts;      // none is without records
  std::set<DriveId> away;       // of the drives of all parts: they do not answer
  std::set<DriveId> damaged;    // and these only serve reads
  uint64_t unknown_blocks = 0;  // whose page of the block map cannot be read, holes included
  std::vector<Stripe> stripes;  // as many as were asked for
  uint64_t stripe_count = 0;    // of those that are known

  enum class State { kWhole, kShort, kUnreadable };
  State state() const;
  // Drives that may be lost besides, whichever they are; negative: so many, at least, would have to
  // come back.
  int Margin() const;
};

struct WhereaboutsOptions {
  // Where the name that is meant is; 0: where the inode was named last, if that is its name still.
  InodeId directory = 0;
  uint64_t most_blocks = UINT64_MAX;  // EFBIG: it has more
  // The stripes to be listed: so many, after so many others.
  uint64_t skipped_stripes = 0;
  uint64_t listed_stripes = 0;
  // Asked again and again; true: nobody waits for an answer any more. ECANCELED.
  std::function<bool()> is_ending = nullptr;
};
// As it was when `inode` was read; without one, as it is committed now. ENOENT.
Result<Whereabouts> FindWhereabouts(Cluster& cluster, InodeId id, Inode inode,
                                    const WhereaboutsOptions& options = {});
Result<Whereabouts> FindWhereabouts(Cluster& cluster, InodeId id,
                                    const WhereaboutsOptions& options = {});

// For people, in some lines, and for programs.
std::string WhereaboutsText(const Whereabouts& whereabouts);
std::string WhereaboutsJson(const Whereabouts& whereabouts);

}  // namespace pinstripe
