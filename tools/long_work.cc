#include "tools/long_work.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "tools/check_report.h"
#include "tools/commands.h"

namespace pinstripe {
namespace {

// How long a process waits for the cluster to take what it tells at its end.
constexpr Duration kPatience = std::chrono::seconds(5);

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

LongWork::LongWork(Cluster& cluster, RunningWorkOptions what, std::string how_to_go_on)
    : how_to_go_on_(std::move(how_to_go_on)),
      events_(cluster),
      work_(cluster, events_, std::move(what)),
      progress_(cluster.runtime(), {.when_interrupted = how_to_go_on_, .on_interrupt = [this] {
                                      Finish(WorkResult::kStopped,
                                             "interrupted where it was started");
                                    }}) {}

LongWork::~LongWork() { Finish(WorkResult::kFailed, "it did not come to its end"); }

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
