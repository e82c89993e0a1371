// Chores: work on the cluster that operators start here. Each is a process of `pinstripe` with a
// command line that only numbers of drives are added to, and no shell: so it is the same work, with
// the same words, as that of a terminal, and a console that dies takes nothing with it but this.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/map/drive_map.h"

namespace pinstripe {

struct ChoreKind {
  std::string_view name;  // of the command
  size_t least_drives = 0;
  size_t most_drives = 0;
  std::string_view what;  // for people
};
// All that may be started here.
const std::vector<ChoreKind>& ChoreKinds();

struct Chore {
  enum class State { kRunning, kStopping, kEnded };

  uint64_t id = 0;
  std::string kind;
  std::vector<DriveId> drives;
  std::string by;       // the operator
  int64_t started = 0;  // seconds since 1970, like the next one
  int64_t ended = 0;    // 0: it has not
  State state = State::kRunning;
  int exit_code = 0;         // when it has ended; -1: by a signal, or nobody knows
  std::string doing;         // the step that it is at
  double done = 0;           // of that step, 0..1
  double seconds_left = -1;  // negative: not known
  std::string said;          // the last lines
};
std::string_view NameOf(Chore::State state);

// Thread-safe.
class Chores {
 public:
  struct Options {
    std::string program;  // `pinstripe`
    std::string config;
    size_t most_running = 4;
    size_t most_kept = 50;
    size_t most_said = 16 << 10;  // bytes of each
    // How long what is interrupted may take to end, before it is ended by SIGTERM, and so long
    // again until it is killed.
    Duration patience = std::chrono::seconds(5);
  };
  Chores(Runtime& runtime, Options options);
  // Interrupts what runs, which says how to go on and ends, and waits for it; what does not end is
  // ended.
  ~Chores();

  // EINVAL: there is no such kind, or it wants another number of drives; EBUSY: too many run;
  // others: it cannot be started.
  Result<uint64_t> Start(std::string_view kind, const std::vector<DriveId>& drives,
                         const std::string& by);
  // ENOENT: there is none of that number. ESRCH: it has ended.
  Status Stop(uint64_t id);

  // Newest first.
  std::vector<Chore> List() const;

 private:
  void Follow(uint64_t id, pid_t pid, int output);
  void Note(uint64_t id, std::string_view line);
  void SayLocked(Chore& chore, std::string_view line) REQUIRES(mutex_);
  void NoteEnd(uint64_t id, pid_t pid);
  void ForgetOldLocked() REQUIRES(mutex_);
  bool EndAll(int signal, Time until);

  Runtime& runtime_;
  const Options options_;
  mutable Mutex mutex_;
  const std::shared_ptr<Signal> ended_;  // for who waits until nothing runs
  uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Chore> chores_ GUARDED_BY(mutex_);
  std::map<uint64_t, pid_t> running_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
