// Watch: looks at the cluster every few seconds while somebody looks at the console, and once a
// minute otherwise, for the history. However many look, the cluster is asked once.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "console/cluster_view.h"
#include "console/history.h"

namespace pinstripe {

struct WatchOptions {
  Duration every = std::chrono::seconds(2);
  Duration unwatched = std::chrono::seconds(60);
  // Somebody counts as looking for so long after he has asked.
  Duration attention = std::chrono::seconds(12);
};

// How the cluster was at one moment. Does not change any more.
struct Picture {
  uint64_t number = 0;   // one more each time; 0: there is none yet
  int64_t taken_at = 0;  // milliseconds since 1970
  int64_t took = 0;      // milliseconds
  Result<Survey> survey = Fail(EAGAIN, "the cluster was not looked at yet");
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

  // The last ones, in the order in which they became known.
  static constexpr size_t kMostEvents = 1000;
  std::vector<Event> Events();

  // Waits no more.
  void End();

 private:
  void Run();
  void LookOnce();
  Time NextLook();

  Runtime& runtime_;
  ClusterView& view_;
  const Options options_;
  History history_;
  Mutex mutex_;
  PicturePtr newest_ GUARDED_BY(mutex_) = std::make_shared<Picture>();
  Time last_look_ GUARDED_BY(mutex_){};
  Time last_asked_ GUARDED_BY(mutex_){};
  bool ending_ GUARDED_BY(mutex_) = false;
  std::deque<Event> events_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Signal>> waiting_ GUARDED_BY(mutex_);
  BackgroundThread thread_;
};

}  // namespace pinstripe
