// Electorate: which drives have a say in registers. A drive that lost its power may have forgotten
// what it had answered, and one that goes on from a copy of its disk certainly has. What such a
// drive has was true once. If it has nothing, or something older, that means nothing. So it is left
// out of all decisions until its registers were compared with the others'
// (cluster/membership/comparison.h).
//
// A drive tells its last starts, each with an id by chance, and which of them were clean
// (DriveInfo::starts). The cluster knows by which start it knew the drive last: a register in the
// group of the drive map notes it (docs/format.md, "Drives that have forgotten"). No answer counts
// that a drive gave after a start that is not noted. So a drive that has the noted start in its
// list, and nothing unclean after it, has everything that ever counted.
//
// Foreign devices tell no starts and always have a say: docs/protocol.md.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "drive/drive.h"

namespace pinstripe {

// How much a drive's word about registers counts.
enum class Say : uint8_t {
  kFull,       // it has all that it ever answered, as far as that counted
  kUnnoted,    // so, too, but that it was started anew has to be noted before it has a say
  kForgetful,  // it was started anew after its machine went down, and may have forgotten something
  kStale,      // it goes on from a copy or a backup: what it ever answered since does not count
};

// The contents of the register of a drive's start. Absent: nobody has noted any.
std::string StartKey(DriveId drive);  // "T" U16
std::string EncodeStart(uint64_t start);
Result<uint64_t> DecodeStart(std::string_view bytes);  // EBADMSG

// That others have decided without the drive: it is compared first, whatever it says.
inline constexpr uint64_t kNoStart = 0;

// `starts` as in DriveInfo; `noted` null: none is.
Say JudgeStarts(const std::vector<DriveStart>& starts, uint64_t start_count,
                std::optional<uint64_t> noted);

// Thread-safe; shared with the drives, which report to it after each connect.
class Electorate {
 public:
  // The last words of a drive that is connected, or was.
  struct Voter {
    std::vector<DriveStart> starts;  // newest first; empty: it does not say
    uint64_t start_count = 0;
    Time met_at{};
    std::optional<Duration> up;  // as in DriveInfo, when it was met
    std::optional<uint64_t> noted;
    Say say = Say::kForgetful;

    uint64_t start() const { return starts.empty() ? kNoStart : starts.front().id; }
  };

  // What a drive has told at `now`, when it was connected to.
  void Meet(DriveId drive, const Result<DriveInfo>& info, Time now);

  // The contents of the registers. Drives that are not named have none. Until this is called for
  // the first time no drive has a say but in the group of the drive map.
  void Note(const std::map<DriveId, uint64_t>& starts);
  void Note(DriveId drive, uint64_t start);

  bool HasSay(DriveId drive) const;
  // In the group of the drive map all that counts is written through, so that no loss of power
  // takes it: only what goes on from a copy is left out there.
  bool HasSayInMap(DriveId drive) const;
  // Why it has no say, for people: "lost its power ...".
  std::string WhyNot(DriveId drive) const;

  // A drive that this process has compared with the others, and why: for whoever tells people of
  // it. Taken once; a drive that is compared again meanwhile is there once.
  void NoteCompared(DriveId drive, Say was);
  std::map<DriveId, Say> TakeCompared();

  // Null: it was never met.
  std::optional<Voter> Find(DriveId drive) const;
  // Those that were met and have no say.
  std::vector<DriveId> Doubtful() const;
  // Raised with each connection to one of them.
  uint64_t news() const;

 private:
  void Judge(Voter& voter) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  bool knows_notes_ GUARDED_BY(mutex_) = false;
  std::map<DriveId, uint64_t> notes_ GUARDED_BY(mutex_);
  std::map<DriveId, Voter> voters_ GUARDED_BY(mutex_);
  std::map<DriveId, Say> compared_ GUARDED_BY(mutex_);  // that nobody has told of
  uint64_t news_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinstripe
