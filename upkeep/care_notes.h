// What `pinstripe care` has to know for longer than events are kept: since when drives are away,
// what of them was moved, and which work somebody has stopped. Registers in the group of the drive
// map have it (docs/format.md, "Notes of care").

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"

namespace pinstripe {

// Of a drive that is away, or has failed.
struct AwayNote {
  // A host whose care watches it, by the clock of that host, nanoseconds since 1970.
  struct Watcher {
    std::string host;
    int64_t since = 0;  // when it saw that first
    int64_t seen = 0;   // and last
    friend bool operator==(const Watcher&, const Watcher&) = default;
  };

  std::string failure;  // empty: the drive cannot be reached
  int64_t moved = 0;    // when what it held was written elsewhere; 0: it was not
  std::vector<Watcher> watchers;

  // Who has not looked for a week may have missed that the drive was back.
  static constexpr Duration kStaleAfter = std::chrono::hours(24 * 7);
  const Watcher* Find(const std::string& host, int64_t now) const;  // null: it has not, or not now
  // `host` sees at `now` that the drive is away since then. The one who looked least lately makes
  // room.
  void See(const std::string& host, int64_t since, int64_t now);

  std::string Encode() const;
  static Result<AwayNote> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const AwayNote&, const AwayNote&) = default;
};

inline constexpr size_t kMaxWatchers = 16;
std::string AwayNoteKey(DriveId drive);  // "C" U8(5) U16

using AwayNotes = std::map<DriveId, AwayNote>;

// What cannot be understood is left out, and is replaced by the next one. EIO.
Result<AwayNotes> FindAwayNotes(Cluster& cluster);
// Has `edit` change what is noted of a drive; an empty note, where there was none. It may be called
// several times. False: the note stays as it is. EIO.
Status EditAwayNote(Cluster& cluster, DriveId drive, const std::function<bool(AwayNote&)>& edit);
Status ForgetAwayNote(Cluster& cluster, DriveId drive);
// Of those of these drives that some care watches.
Status NoteMoved(Cluster& cluster, const std::vector<DriveId>& drives);

// Care does not begin again what somebody has stopped, for so long.
inline constexpr Duration kCareWaitsAfterStop = std::chrono::hours(12);

// When somebody had work stopped, by the command: "scrub". The clock is that of who asked.
using WorkStops = std::map<std::string, int64_t>;

std::string EncodeWorkStops(const WorkStops& stops);
Result<WorkStops> DecodeWorkStops(std::string_view bytes);  // EBADMSG
std::string WorkStopsKey();                                 // "C" U8(6)

// What cannot be understood is none. EIO.
Result<WorkStops> FindWorkStops(Cluster& cluster);
// Of what care does; of other work it notes nothing.
Status NoteWorkStop(Cluster& cluster, const std::string& work);
bool CareWouldDo(std::string_view work);

}  // namespace pinstripe
