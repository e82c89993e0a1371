// The long work of a cluster (repairs, drains, scrubs, collections, ...), as all hosts see it: who
// does what, how far it is, and what others ask of it. Registers in the group of the drive map have
// it (docs/format.md, "Work").
//
//   RunningWork work(cluster, {.work = "scrub", .takes_rate = true});
//   while (work.GoOn()) { ... work.Show("scrubbing", 0.5, bytes); ... }    // waits while paused
//   work.End(WorkResult::kDone, "");
//
//   const auto all = ReadWork(cluster);                                    // from anywhere
//   AskOfWork(cluster, all->front(), {.ask = WorkAsk::kPause});
//
// It is for people. Two may do the same at once, where nothing else forbids it: claims on drives do
// (cluster/membership/drive_claim.h). Work goes on where none of this can be read or written.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "upkeep/actor.h"
#include "upkeep/events.h"

namespace pinstripe {

// At random, for each process that works.
using WorkRun = std::array<uint8_t, 16>;

// Part of the format: what a process that works does, and what it is asked to do.
enum class WorkAsk : uint8_t {
  kGoOn = 1,
  kPause = 2,
  kStop = 3,
};

// How far it is, as the process itself says.
struct WorkRecord {
  WorkRun run{};
  Actor actor;
  std::string work;       // the command
  std::string arguments;  // behind the configuration: "3 4 --force"
  std::vector<DriveId> drives;
  int64_t since = 0;    // by the clock of the host, nanoseconds since 1970
  int64_t renewed = 0;  // so, too: the last sign of life
  WorkAsk state = WorkAsk::kGoOn;
  bool takes_rate = false;
  uint64_t rate = 0;   // bytes a second at most; 0: as fast as it goes
  std::string doing;   // "looking for shards"
  uint32_t done = 0;   // millionths of that
  uint64_t bytes = 0;  // that were moved for it
  uint64_t bytes_per_second = 0;
  uint64_t seconds_left = 0;  // of it; 0: nobody knows

  std::string Encode() const;
  static Result<WorkRecord> Decode(std::string_view bytes);  // EBADMSG
};

// What somebody asks of it.
struct WorkOrder {
  WorkRun run{};  // whom
  WorkAsk ask = WorkAsk::kGoOn;
  std::optional<uint64_t> rate;  // null: as it was begun
  Actor actor;
  int64_t at = 0;

  std::string Encode() const;
  static Result<WorkOrder> Decode(std::string_view bytes);  // EBADMSG
};

// So many can be shown at once.
inline constexpr uint8_t kWorkPlaces = 16;
std::string WorkKey(uint8_t place);       // "P" U8
std::string WorkOrderKey(uint8_t place);  // "Q" U8

inline constexpr Duration kWorkIsDeadAfter = std::chrono::seconds(30);
// By as much the clock of a process that works may be ahead of that of who looks.
inline constexpr Duration kWorkClocksDiffer = std::chrono::minutes(5);

struct WorkSeen {
  uint8_t place = 0;  // by which people name it, with the first as 1
  WorkRecord record;
  std::optional<WorkOrder> order;  // that was given to it
  uint64_t slot = 0;               // of the register of its place: each sign of life moves it
  // By the clocks of two machines, as far as these agree; by our own alone after WatchWork().
  bool is_alive = false;

  int Number() const { return place + 1; }
  // "running", "paused", "pausing", "stopping", "died"
  std::string_view State() const;
  // "scrub", "drain 3 4"
  std::string Name() const;
};

// In the order of places. EIO.
Result<std::vector<WorkSeen>> ReadWork(Cluster& cluster);

// Whether these are alive by our own clock alone: those that show a sign of life now are, which
// takes seconds. Who stands still is watched for kWorkIsDeadAfter; `waiting` is told, once, of the
// first of them. What ends meanwhile is left out. EIO.
Result<std::vector<WorkSeen>> WatchWork(
    Cluster& cluster, std::vector<WorkSeen> all,
    const std::function<void(const WorkSeen& silent)>& waiting = nullptr);

// A change of what is asked of work. What is not given stays as it was asked before.
struct WorkChange {
  std::optional<WorkAsk> ask;
  std::optional<uint64_t> rate;
};
// Its process sees it within a few seconds. ESRCH: its process died. EINVAL: it knows no rate. EIO.
Status AskOfWork(Cluster& cluster, const WorkSeen& seen, const WorkChange& change,
                 const Actor& actor = ThisProcess());

std::string TextOf(const WorkChange& change);  // "stop"

// The same, as people do it: an event tells of it, and care does not begin anew for
// kCareWaitsAfterStop what was stopped.
Status SteerWork(Cluster& cluster, const WorkSeen& seen, const WorkChange& change,
                 const Actor& actor = ThisProcess());

// Takes away what is left of one that died, as WatchWork() has seen. EBUSY: it is alive. ESRCH:
// somebody else was first. EIO.
Status ForgetWork(Cluster& cluster, const WorkSeen& seen);
// Puts it back, as nobody could go on with it. EBUSY: its place is another's by now. EIO.
Status RestoreWork(Cluster& cluster, const WorkSeen& dead);

// Judges by our own clock alone whether work is alive, for who looks again and again: it is while
// its register moves between two looks. Used by one thread.
class WorkWatch {
 public:
  explicit WorkWatch(Runtime& runtime) : runtime_(runtime) {}

  // What is seen for the first time is taken for alive, until it has stood still for
  // kWorkIsDeadAfter.
  void Judge(std::vector<WorkSeen>& all);

 private:
  struct Watched {
    WorkRun run{};
    uint64_t slot = 0;
    Time since{};
  };
  Runtime& runtime_;
  std::map<uint8_t, Watched> watched_;  // by place
};

// That does the work of one that died, or null: it cannot be begun anew by itself. What a register
// says is no reason to run anything but such work. `rate`, if there is one, replaces that of the
// dead.
std::optional<std::vector<std::string>> CommandToTakeOver(const std::string& config,
                                                          const WorkRecord& dead,
                                                          std::optional<uint64_t> rate);

// What is told of one that died. `goes_on`: another process does the same now.
Event EventOfDeath(const WorkRecord& died, bool goes_on);

// For people, and for programs.
std::string WorkText(const std::vector<WorkSeen>& all, int64_t now);
std::string WorkJson(const std::vector<WorkSeen>& all);

struct RunningWorkOptions {
  std::string work;
  std::string arguments;
  std::vector<DriveId> drives;
  bool takes_rate = false;
  uint64_t rate = 0;
  Duration every = std::chrono::seconds(3);  // signs of life, and looks for orders
  Actor actor = ThisProcess();
  // Fails when the work has to end for another reason; called by GoOn(). Null: never.
  std::function<Status()> may_go_on = nullptr;
};

// Thread-safe, but for Show(), which one thread calls, and for End().
class RunningWork {
 public:
  using Options = RunningWorkOptions;

  // Never waits. `log`, which outlives it, is told of the beginning and the end.
  RunningWork(Cluster& cluster, EventLog& log, Options options);
  ~RunningWork();  // as if it had failed, unless it has ended

  // `done` is 0..1; `bytes` were moved since this kind of work began, if it is about bytes. Cheap.
  void Show(std::string_view doing, double done, uint64_t bytes = 0);

  // Waits for as long as it is paused. False: somebody, or `may_go_on`, has stopped it, from now
  // on.
  bool GoOn();
  bool IsStopped() const;
  // ECANCELED, with who or what has stopped it, if it is stopped.
  Status Check() const;

  const std::string& work() const { return options_.work; }
  uint64_t rate() const;  // bytes a second; 0: as fast as it goes

  // Takes it away, and says how it ended.
  void End(WorkResult result, const std::string& text);

 private:
  void Run();
  void Renew();
  void TakeAPlace();
  void LeavePlace();
  void Obey(const Result<RegisterValue>& order);
  bool StandsStill(uint8_t place, const RegisterValue& value);
  void BuryTwins();
  WorkRecord Now();

  Cluster& cluster_;
  Runtime& runtime_;
  EventLog& log_;
  const Options options_;
  WorkRecord ours_;  // what does not change
  // The thread's alone:
  std::optional<uint8_t> place_;
  RegisterValue seen_;  // the register of the place, as we left it
  // Places of others: the slot that was seen last, and since when, by our own clock.
  std::map<uint8_t, std::pair<uint64_t, Time>> watched_;
  std::set<uint8_t> twins_;  // of these, those with the same work, as long as they stand still
  mutable Mutex mutex_;
  WorkAsk asked_ GUARDED_BY(mutex_) = WorkAsk::kGoOn;
  std::string stopped_by_ GUARDED_BY(mutex_);
  uint64_t rate_ GUARDED_BY(mutex_) = 0;
  std::string doing_ GUARDED_BY(mutex_);
  double done_ GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
  Time doing_since_ GUARDED_BY(mutex_){};
  uint64_t bytes_before_ GUARDED_BY(mutex_) = 0;
  double done_before_ GUARDED_BY(mutex_) = 0;
  bool ended_ GUARDED_BY(mutex_) = false;
  BackgroundThread thread_;  // the last member: it uses the others
};

}  // namespace pinstripe
