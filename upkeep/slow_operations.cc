#include "upkeep/slow_operations.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/utf8.h"
#include "kinetic/drive_slow.h"

namespace pinstripe {
namespace {

constexpr Duration kBetweenLines = std::chrono::seconds(1);
constexpr Duration kTellWithin = std::chrono::seconds(5);

int64_t Milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

// What all drives know of the operation's requests, slowest first.
std::vector<SlowOperation::Request> RequestsOf(Cluster& cluster, const OperationTrace& trace) {
  const std::vector<uint64_t> ids = trace.Ids();
  std::vector<SlowOperation::Request> requests;
  for (const MappedDrive& mapped : cluster.map().drives) {
    const Drive* const drive = cluster.FindDrive(mapped.id);
    if (drive == nullptr) continue;
    for (const WaitedRequest& waited : drive->WaitedFor(ids)) {
      if (waited.took >= OperationTrace::kLong) requests.push_back({mapped.id, waited});
    }
  }
  std::ranges::sort(requests, std::ranges::greater(),
                    [](const SlowOperation::Request& each) { return each.waited.took; });
  if (requests.size() > SlowOperation::kMostRequests) requests.resize(SlowOperation::kMostRequests);
  return requests;
}

// "drive 3: write 4100 ms, drive 1: read 900 ms unanswered"
std::string TextOf(const std::vector<SlowOperation::Request>& requests) {
  std::vector<std::string> texts;
  for (const SlowOperation::Request& each : requests) {
    texts.push_back(fmt::format("drive {}: {} {} ms{}", each.drive, RequestWord(each.waited.type),
                                Milliseconds(each.waited.took),
                                each.waited.answered ? "" : " unanswered"));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

// Tells drives, by a timer that may outlive the owner.
struct SlowOperations::Teller {
  explicit Teller(Cluster& cluster_in) : cluster(&cluster_in), runtime(cluster_in.runtime()) {}

  struct Ended {
    SlowOperation operation;
    Time when{};
  };

  static void Add(const std::shared_ptr<Teller>& self, SlowOperation operation);
  void TellSome() REQUIRES(mutex);
  std::vector<Drive*> WhomToTell() REQUIRES(mutex);

  Mutex mutex;
  Cluster* cluster GUARDED_BY(mutex);  // null: the owner is gone
  Runtime& runtime;
  std::vector<Ended> untold GUARDED_BY(mutex);  // the slowest, at most kMostToldOperations
  bool is_due GUARDED_BY(mutex) = false;        // the timer will tell
  Time next GUARDED_BY(mutex){};                // not before
};

void SlowOperations::Teller::Add(const std::shared_ptr<Teller>& self, SlowOperation operation) {
  const MutexLock lock(self->mutex);
  self->untold.push_back({std::move(operation), self->runtime.Now()});
  if (self->untold.size() > kMostToldOperations) {
    self->untold.erase(std::ranges::min_element(
        self->untold, {}, [](const Ended& each) { return each.operation.took; }));
  }
  if (std::exchange(self->is_due, true)) return;
  self->runtime.RunAt(std::max(self->next, self->runtime.Now()), [self] {
    const MutexLock telling(self->mutex);
    self->is_due = false;
    if (self->cluster != nullptr) self->TellSome();
  });
}

// As many as may be lost and one more, those last of which it is told: they may stand still.
std::vector<Drive*> SlowOperations::Teller::WhomToTell() {
  std::set<DriveId> involved;
  for (const Ended& each : untold) {
    for (const SlowOperation::Request& request : each.operation.requests) {
      involved.insert(static_cast<DriveId>(request.drive));
    }
  }
  std::vector<std::pair<bool, Drive*>> all;
  for (const MappedDrive& mapped : cluster->map().drives) {
    Drive* const drive = cluster->FindDrive(mapped.id);
    if (drive == nullptr || !drive->IsUp() || !drive->capabilities().slow) continue;
    all.emplace_back(involved.contains(mapped.id), drive);
  }
  if (all.empty()) return {};
  const auto first = static_cast<ptrdiff_t>(runtime.Random() % all.size());
  std::rotate(all.begin(), all.begin() + first, all.end());
  std::ranges::stable_sort(all, {}, &std::pair<bool, Drive*>::first);
  const auto most = static_cast<size_t>(cluster->config().layout.parity_shards) + 1;
  std::vector<Drive*> drives;
  for (size_t i = 0; i < std::min(most, all.size()); ++i) drives.push_back(all[i].second);
  return drives;
}

void SlowOperations::Teller::TellSome() {
  const Time now = runtime.Now();
  const std::vector<Drive*> drives = WhomToTell();
  next = now + kBetweenLines;
  std::vector<SlowOperation> told;
  for (Ended& each : std::exchange(untold, {})) {
    each.operation.ago = now - each.when;
    told.push_back(std::move(each.operation));
  }
  for (Drive* const drive : drives) drive->Tell(told, now + kTellWithin);
}

SlowOperations::SlowOperations(Cluster& cluster, Duration after)
    : cluster_(cluster), after_(after), teller_(std::make_shared<Teller>(cluster)) {}

SlowOperations::~SlowOperations() {
  const MutexLock lock(teller_->mutex);
  teller_->cluster = nullptr;
}

Result<Duration> SlowOperations::ParseAfter(std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !(seconds >= 0 && seconds <= 24 * 3600)) {
    return Fail(EINVAL, "slow_request={}: a number of seconds is needed, like 1 or 0.5; 0: never",
                text);
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

void SlowOperations::Add(const OperationTrace& trace, std::string_view operation,
                         std::string_view subject, Duration took) {
  using Wait = OperationTrace::Wait;
  SlowOperation slow{.id = trace.id(),
                     .operation = std::string(operation),
                     .subject = Printable(subject, SlowOperation::kMostSubjectBytes),
                     .took = took,
                     .memory = trace.waited(Wait::kMemory),
                     .drives = trace.waited(Wait::kDrives),
                     .turn = trace.waited(Wait::kTurn),
                     .requests = RequestsOf(cluster_, trace)};
  Log(LogLevel::kWarn, "slow operation",
      {{"operation", slow.operation},
       {"subject", slow.subject},
       {"took_ms", Milliseconds(slow.took)},
       {"drives_ms", Milliseconds(slow.drives)},
       {"memory_ms", Milliseconds(slow.memory)},
       {"turn_ms", Milliseconds(slow.turn)},
       {"slowest", TextOf(slow.requests)}});
  Teller::Add(teller_, std::move(slow));
}

}  // namespace pinstripe
