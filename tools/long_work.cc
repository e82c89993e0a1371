#include "tools/long_work.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "tools/check_report.h"
#include "tools/commands.h"

namespace pinstripe {
namespace {

// How long a process waits for the cluster to take what it tells at its end.
constexpr Duration kPatience = std::chrono::seconds(5);
constexpr std::string_view kInterrupted = "interrupted where it was started";

WorkResult ResultOf(int exit_code) {
  switch (exit_code) {
    case 0: return WorkResult::kDone;
    case kExitUsage:  // not everything could be looked at
    case kExitShort: return WorkResult::kShort;
    case kExitStopped: return WorkResult::kStopped;
    default: return WorkResult::kFailed;
  }
}

}  // namespace

// Between the thread that works and the one that a signal has woken.
struct LongWork::Interruption {
  explicit Interruption(Runtime& runtime) : left(runtime.NewSignal()) {}
  std::atomic<bool> asked = false;
  const std::shared_ptr<Signal> left;  // set when the work has ended
};

LongWork::LongWork(Cluster& cluster, RunningWorkOptions what, std::string how_to_go_on,
                   bool ends_itself)
    : how_to_go_on_(std::move(how_to_go_on)),
      interruption_(ends_itself ? std::make_shared<Interruption>(cluster.runtime()) : nullptr),
      events_(cluster),
      work_(cluster, events_, Interruptible(std::move(what))),
      progress_(cluster.runtime(), {.when_interrupted = how_to_go_on_, .on_interrupt = [this] {
                                      if (interruption_) {
                                        interruption_->asked = true;
                                        interruption_->left->WaitUntil(Time::max());
                                      }
                                      Finish(WorkResult::kStopped, std::string(kInterrupted));
                                    }}) {}

LongWork::~LongWork() {
  if (interruption_) interruption_->left->Set();
  Finish(WorkResult::kFailed, "it did not come to its end");
}

RunningWorkOptions LongWork::Interruptible(RunningWorkOptions what) const {
  if (!interruption_) return what;
  what.may_go_on = [before = std::move(what.may_go_on), how = interruption_]() -> Status {
    if (how->asked) return Fail(ECANCELED, "{}", kInterrupted);
    return before == nullptr ? Status() : before();
  };
  return what;
}

void LongWork::Show(std::string_view doing, double done, uint64_t bytes) {
  work_.Show(doing, done, bytes);
  progress_.Show(doing, done, bytes);
}

void LongWork::Say(const std::string& line) {
  progress_.Clear();
  fmt::print(stderr, "{}\n", line);
}

std::optional<int> LongWork::Stopped() {
  const Status stopped = work_.Check();
  if (stopped.ok()) return std::nullopt;
  if (interruption_ && interruption_->asked) {  // the signal has said so, and ends the process
    interruption_->left->Set();
    for (;;) pause();
  }
  Say(fmt::format("pinstripe: {}. {}", stopped.message(), how_to_go_on_));
  return End(kExitStopped, std::string(stopped.message()));
}

int LongWork::End(int exit_code, const std::string& text) {
  progress_.Clear();
  Finish(ResultOf(exit_code), text);
  return exit_code;
}

Status LongWork::End(Status failure) {
  progress_.Clear();
  Finish(WorkResult::kFailed, std::string(failure.message()));
  return failure;
}

void LongWork::Finish(WorkResult result, const std::string& text) {
  work_.End(result, text);
  (void)events_.Flush(kPatience);
}

}  // namespace pinstripe
