// Scrubber: this process' part of a scrub, which may have been begun by another process and may be
// shared with others (upkeep/scrub_note.h).
//
//   Scrubber scrubber(cluster, {...});
//   if (TRY(scrubber.Read()) == Scrubber::Ended::kAllIsRead) {
//     ... look at everything, with scrubber.note().found, and scrubber.ShowLife() now and then ...
//     TRY(scrubber.Forget());
//   }
//
// It may be killed at any time: another one takes its part over when it has given no sign of life
// for kScrubReaderIsDeadAfter, by the clock of that one, and reads a minute's work once more. Two
// that take each other for dead read the same, which does no harm.
//
// Used by one thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/registers/store.h"
#include "upkeep/repairer.h"
#include "upkeep/scrub_note.h"

namespace pinstripe {

inline constexpr Duration kScrubReaderIsDeadAfter = std::chrono::seconds(30);
// A scrub that nobody has gone on with for so long is begun anew.
inline constexpr Duration kScrubIsStaleAfter = std::chrono::hours(24 * 7);

class Scrubber {
 public:
  struct Options {
    Repairer::Options repair;
    bool anew = false;       // whatever others have read
    bool only_join = false;  // begins none
    // Told once, before anything is read, when the scrub was begun by another process.
    std::function<void(const ScrubNote& note)> goes_on = nullptr;
  };

  Scrubber(Cluster& cluster, Options options);
  ~Scrubber();  // leaves the rest to others
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  enum class Ended {
    kAllIsRead,   // and nobody but us looks at everything now
    kOthersRead,  // the rest, or somebody has begun it anew: one of them ends it
    kStopped,     // as go_on() told
  };
  // EIO: what others read cannot be found out. EBUSY, of one that is to be begun anew: others are
  // at it.
  Result<Ended> Read();

  // As of the last sign of life.
  const ScrubNote& note() const { return note_; }
  // What this process has found and done.
  const ScrubFound& own() const { return own_; }
  // While the rest is done. Cheap to call often.
  void ShowLife();
  void SetRate(uint64_t bytes_per_second) { repairer_.SetRate(bytes_per_second); }

  // It has come to its end. EIO: the next one looks at everything once more.
  Status Forget();

 private:
  // What becomes of the note; false: it stays.
  using Edit = std::function<bool(ScrubNote& note)>;
  // ESTALE: it is another scrub's by now, or gone.
  Status Change(const Edit& edit);
  Status Join();
  Result<Ended> TryToRead();
  Status ReadPart();
  Status GiveSign();
  bool HasSomethingToTell() const;
  std::set<DriveId> DrivesAway() const;
  // Whether a reader lives. Null: that is not known yet.
  std::optional<bool> OneLives();
  void Watch();
  std::set<ScrubId> Dead() const;
  bool AllLive() const;
  bool GoOn(std::string_view phase);

  Cluster& cluster_;
  Runtime& runtime_;
  Options options_;
  ScrubId ours_{};
  ScrubNote note_;
  std::optional<ScrubPart> part_;  // that we are at
  ScrubFound own_;
  ScrubFound untold_;  // of it, what the note lacks
  // That the note lacks, too, of the first round:
  std::optional<GroupRange> read_again_;
  uint64_t unread_ = 0;
  std::set<DriveId> away_;
  Time next_sign_{};
  bool stopped_ = false;
  // Another reader, by our own clock.
  struct Watched {
    uint32_t signs = 0;  // of life
    Time since{};        // when that was so first
    bool lives = false;  // there was one since we look
  };
  std::map<ScrubId, Watched> watched_;
  Repairer repairer_;
};

}  // namespace pinstripe
