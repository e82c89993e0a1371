// How far a scrub is, as all hosts know it: which groups nobody has read yet, who reads which of
// them, and what was found that the end of the scrub has to look at again. So a scrub goes on where
// it was when its process ended, and several hosts may share one. A register in the group of the
// drive map has it (docs/format.md, "A scrub"); upkeep/scrubber.h uses it.
//
// A scrub reads each group of inodes once: all files of the group, whatever groups their data lies
// in. Groups are handed out as ranges. Who comes and finds no free range takes the upper half of
// the largest one that another is at; of a single group, that of the numbers that inodes may have,
// which are random. Then come, once more, groups of which something was out of
// reach. The last range is none of groups: whoever takes it looks at everything and ends the scrub.
//
// All functions here are about one value of the register, and change nothing but it.

#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "fs/types.h"

namespace pinstripe {

// At random, for each scrub and for each process that takes part in one.
using ScrubId = std::array<uint8_t, 16>;

// Where a reader is: all before it was read. Within a group, files are read in the order of their
// numbers, and their blocks in theirs.
struct ScrubPlace {
  uint32_t group = 0;
  InodeId file = 0;    // 0: nothing of the group was read
  uint64_t block = 0;  // of the file
  friend auto operator<=>(const ScrubPlace&, const ScrubPlace&) = default;
};

// Groups that are still to be read.
struct ScrubPart {
  ScrubPlace next;  // the first
  ScrubPlace end;   // all from here on is not of it; more than `next`; block 0

  ScrubId reader{};    // who is at it; zeros: nobody
  uint32_t signs = 0;  // of life that the reader has given
  bool IsFree() const { return reader == ScrubId{}; }
  friend bool operator==(const ScrubPart&, const ScrubPart&) = default;
};

struct GroupRange {
  uint32_t first = 0;
  uint32_t end = 0;
  friend bool operator==(const GroupRange&, const GroupRange&) = default;
};

using FileBlock = std::pair<InodeId, uint64_t>;

// What processes have found and done. All but the lists are sums, for people.
struct ScrubFound {
  uint64_t blocks = 0;
  uint64_t damaged = 0;
  uint64_t missing = 0;
  uint64_t written = 0;
  uint64_t relocated = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  // Shards, and what else was to be read, that were out of reach, also in the second round.
  uint64_t unread = 0;
  // Blocks that were not whole, and could not be made so: they are read again at the end.
  std::set<FileBlock> not_whole;
  uint64_t more_not_whole = 0;  // for which there was no room
  // Shards whose checksums are right, but that the others contradict, each by its file and the rest
  // of its line in RepairReport::contradicted.
  std::vector<std::pair<InodeId, std::string>> contradicted;
  uint64_t more_contradicted = 0;

  // As much of it as there is room for.
  void Add(const ScrubFound& other);
  friend bool operator==(const ScrubFound&, const ScrubFound&) = default;
};

inline constexpr size_t kMostScrubParts = 64;
inline constexpr size_t kMostScrubBlocks = 1000;
inline constexpr size_t kMostScrubRanges = 1000;
inline constexpr size_t kMostScrubTexts = 50;
inline constexpr size_t kMostScrubDrives = 1000;

struct ScrubNote {
  ScrubId id{};
  int64_t began = 0;            // by the clock of who began it, nanoseconds since 1970
  int64_t touched = 0;          // by the clock of who changed this last
  uint32_t groups = 0;          // of the cluster
  uint8_t round = 1;            // 2: of the groups of which something was out of reach in the first
  std::vector<ScrubPart> left;  // ascending; one of {groups, groups + 1} is the end of all
  std::vector<GroupRange> again;  // for the second round; ascending, not touching each other
  // About these: shards that were out of reach, and the drives that were away, with 0 for what was
  // out of reach while all were up.
  uint64_t unread_at_first = 0;
  std::set<DriveId> away;
  ScrubFound found;

  static ScrubNote Begin(const ScrubId& id, int64_t now, uint32_t groups);

  //   // Gives `reader` a part: one that is nobody's or was that of one of `dead`, else the upper
  //   half of
  // the largest one. Null: there is none that is worth it.

  std::optional<ScrubPart> Take(const ScrubId& reader, const std::set<ScrubId>& dead);
  // The reader has read all before `next`, and lives. Null: its part is somebody else's by now, as
  // it gave no sign of life. Else where its part ends, which may be before `next`; then, or when
  // there is nothing left of it, it is the reader's no more. `one_is_back`, of the drives that were
  // away: else there is no second round.
  std::optional<ScrubPlace> Advance(const ScrubId& reader, const ScrubPlace& next,
                                    bool one_is_back = true);
  // It stops where it is.
  void Release(const ScrubId& reader);
  // Something of these was out of reach. In the second round nobody comes back to them.
  void ReadAgain(GroupRange groups, uint64_t unread = 0, const std::set<DriveId>& drives = {});

  bool IsEnd(const ScrubPart& part) const { return part.next.group == groups; }
  bool IsTakenByOthers(const ScrubId& reader) const;
  // Of all groups, 0..1.
  double Done() const;

  std::string Encode() const;
  static Result<ScrubNote> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const ScrubNote&, const ScrubNote&) = default;

 private:
  // What comes when all of a round was read.
  void GoToNextRound(bool one_is_back);
};

std::string ScrubNoteKey();  // "C" U8(7)

}  // namespace pinstripe
