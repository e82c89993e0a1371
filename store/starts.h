// Starts: what a store knows of its starts, and so of what it may have forgotten. Its rules as pure
// functions, and its bytes in a file (docs/format.md, "Starts of a drive").
//
// A drive answers many changes before they are on its disk. What it had answered so is lost with
// the kernel's memory: when the machine loses its power, or when the disk did not take it. A start
// is clean where nothing of that kind can have happened since the drive answered last, and unclean
// where it can. Each start has an id of its own, by chance, so that a drive that goes on from a
// copy of what another one was is told by its list.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "drive/drive.h"

namespace pinstripe {

// What a store tells of its starts.
struct StoreStarts {
  std::vector<DriveStart> starts;  // as in DriveInfo, like the others
  uint64_t count = 0;
  std::optional<Duration> up;
};

// Which file it is: that of a copy is another one.
struct FileIdentity {
  uint64_t inode = 0;
  uint64_t born = 0;  // nanoseconds since 1970; 0: its file system does not know

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// What the file says.
struct Starts {
  enum class Run : uint8_t {
    kUnderWay = 0,     // or it ended without a word
    kEnded = 1,        // cleanly: everything was durable
    kSyncFailed = 2,   // the disk did not take something
    kUntold = 3,       // as kUnderWay, and nobody was told of this start
    kEndedUntold = 4,  // as kEnded, and nobody was
  };
  std::string boot_id;           // of the machine in the run that is the last one; empty: not known
  Run run = Run::kUnderWay;      // how far that has come
  FileIdentity file;             // that this was written into
  Duration forgot_at{};          // see UpOf(); whole milliseconds
  uint64_t count = 0;            // of all starts
  std::vector<DriveStart> list;  // newest first, min(count, kMaxDriveStarts) of them
};

std::string EncodeStarts(const Starts& starts);

// EBADMSG: these bytes say no such thing. ENOTSUP: they are of a newer program.
Result<Starts> DecodeStarts(std::string_view bytes);

// What is known when a store is started.
struct StartSituation {
  std::string boot_id;             // of now; empty: not known
  FileIdentity file;               // in which what the last run has left was found
  Duration uptime{};               // of the machine
  bool kernel_kept_pages = false;  // what the run before wrote to the file system, if it was killed
  std::string lost;                // what the store misses that it should have; empty: nothing
  uint64_t new_id = 0;
};

// Why a start is unclean, for people; empty: it is clean. `before` is what the last run has left,
// or nothing where that is missing or damaged.
std::string WhyUnclean(const std::optional<Starts>& before, const StartSituation& now);

// Whether the store's files may show more than its disk has.
bool KernelMayShowMore(const std::optional<Starts>& before, const std::string& boot_id);

// What the file says once the store has been started.
Starts NextStart(const std::optional<Starts>& before, const StartSituation& now);

// For how long nothing has been forgotten: what an unclean start has forgotten was answered before,
// so the answers were given longer ago than this. As a rule it is lost with the machine's memory,
// and this is how long the machine is up. Where it was lost otherwise (a sync that failed) it is
// how long ago the start was that this made unclean: `forgot_at` is the uptime of then.
Duration UpOf(const Starts& starts, Duration uptime);

}  // namespace pinstripe
