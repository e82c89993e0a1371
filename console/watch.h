// Watch: looks at the cluster every few seconds while somebody looks at the console, and once a
// minute otherwise, for the history. However many look, the cluster is asked once.
//
// What drives do is asked by some of the looks: one question more to each drive every six seconds
// while somebody looks, and one a minute otherwise. A drive's answer takes about a hundred bytes
// for each of its connections.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/background_thread.h"
#include "base/latency_histogram.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "console/cluster_view.h"
#include "console/history.h"

namespace pinstripe {

struct WatchOptions {
  Duration every = std::chrono::seconds(2);
  Duration unwatched = std::chrono::seconds(60);
  // Looks that come sooner after the last one that asked what drives do, do not ask that.
  Duration use_every = std::chrono::seconds(5);
  // Somebody counts as looking for so long after he has asked.
  Duration attention = std::chrono::seconds(12);
};

// What drives did in a few seconds.
struct Activity {
  static constexpr size_t kMostClients = 5;

  Status unknown = Status(EAGAIN, "the drives were not asked twice yet");  // success: it is known
  int64_t taken_at = 0;  // milliseconds since 1970
  Duration over{};       // that time
  std::vector<DriveWorkReport> drives;
  std::vector<ClientReport> clients;  // the busiest ones
  size_t client_count = 0;            // of all
};

// How the cluster was at one moment. Does not change any more.
struct Picture {
  uint64_t number = 0;   // one more each time; 0: there is none yet
  int64_t taken_at = 0;  // milliseconds since 1970
  int64_t took = 0;      // milliseconds
  Result<Survey> survey = Fail(EAGAIN, "the cluster was not looked at yet");
  std::shared_ptr<const Activity> activity = std::make_shared<Activity>();
  std::vector<WorkSeen> work;  // none also where it could not be read
  uint64_t events = 0;         // that were seen until then
};
using PicturePtr = std::shared_ptr<const Picture>;

// Thread-safe.
class Watch {
 public:
  using Options = WatchOptions;

  // Begins at once. `view` outlives it.
  Watch(Runtime& runtime, ClusterView& view, Options options = Options());
  ~Watch();

  // The newest picture. Whoever asks is looking: there will be newer ones.
  PicturePtr Newest();
  // Waits for one with another number than this. The newest in any case, when the time is over or
  // the watch ends.
  PicturePtr WaitForOther(uint64_t number, Duration patience);

  const History& history() const { return history_; }

  // How looks went so far.
  struct Looks {
    LatencyCounts took;
    uint64_t failed = 0;                // there was no survey, or the cluster could not be opened
    std::optional<Duration> last_good;  // how long ago it ended
  };
  Looks CountLooks() const;

  // The last ones, in the order in which they became known.
  static constexpr size_t kMostEvents = 1000;
  std::vector<Event> Events();

  // Waits no more.
  void End();

 private:
  void Run();
  void LookOnce();
  std::shared_ptr<const Activity> LookAtUse(const Picture& picture);
  void Remember(int64_t now, const Survey& survey);
  Time NextLook();

  Runtime& runtime_;
  ClusterView& view_;
  const Options options_;
  History history_;
  // Of the thread that looks.
  std::optional<ClusterUse> last_use_;
  std::optional<ClusterUse> use_of_sample_;  // when the history kept its last sample
  LatencyHistogram looks_took_;
  mutable Mutex mutex_;
  PicturePtr newest_ GUARDED_BY(mutex_) = std::make_shared<Picture>();
  Time last_look_ GUARDED_BY(mutex_){};
  uint64_t failed_looks_ GUARDED_BY(mutex_) = 0;
  std::optional<Time> last_good_look_ GUARDED_BY(mutex_);
  Time last_asked_ GUARDED_BY(mutex_){};
  bool ending_ GUARDED_BY(mutex_) = false;
  std::deque<Event> events_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Signal>> waiting_ GUARDED_BY(mutex_);
  BackgroundThread thread_;
};

}  // namespace pinstripe
