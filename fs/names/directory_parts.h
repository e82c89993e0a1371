// DirectoryParts: where the entries of a directory that has grown are. A directory's entries lie in
// its own group at first. One with very many names is spread, once and for ever, over 2^bits
// groups, by a hash of the name: its parts. docs/format.md, "Directories that grow", has the rules
// and why they are safe; fs/names/spreader.h moves the entries.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "fs/names/inode.h"

namespace pinstripe {

// Which of 2^bits parts a name is in. Part of the format.
uint32_t PartOf(std::string_view name, uint8_t bits);
// The group of a part. That of part 0 is the directory's own.
uint32_t GroupOfPart(const DriveMap& map, InodeId directory, uint32_t part);
// So many a cluster of this map gives a directory: as many as it has groups, but not more than 512.
uint8_t BitsFor(const DriveMap& map);
// EBADMSG: the directory is said to have more parts than that.
Status CheckParts(const DriveMap& map, InodeId directory, const DirectoryParts& parts);

// An entry's slot in its part, where that is not the directory's own group, is told to users with
// this added. So a slot in which an entry was seen before it moved is never one in which it is
// since.
inline constexpr uint64_t kSlotsInParts = uint64_t{1} << 62;

// A process goes by what it has read of a directory's parts for so long, and asks again then. What
// it began by that and did not end in time is looked at again. So when a stage has begun for
// kStageLasts nobody goes by the one before, whose clock runs at half to twice the speed of ours.
inline constexpr Duration kPartsAreKnown = std::chrono::seconds(15);
inline constexpr Duration kUseOfPartsEnds = std::chrono::seconds(45);
inline constexpr Duration kStageLasts = std::chrono::seconds(200);

// What was read of directories' parts a moment ago. Thread-safe; of fixed size.
class KnownParts {
 public:
  explicit KnownParts(Runtime& runtime) : runtime_(runtime) {}

  struct Known {
    DirectoryParts parts;
    Time at{};             // before it was asked for
    bool is_gone = false;  // there is no such directory; this is not remembered
  };
  std::optional<Known> Find(InodeId directory) const;
  // It was found so, at some moment after `at`. Of anything else than a directory: nothing.
  void Learn(InodeId id, const Inode& inode, Time at);
  void Forget(InodeId directory);

 private:
  static constexpr size_t kSlots = 4096;
  struct Slot {
    InodeId id = 0;
    Known known;
  };
  Runtime& runtime_;
  mutable Mutex mutex_;
  std::array<Slot, kSlots> slots_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
