// Asking all drives of a cluster the same thing, patiently: a drive that is away is asked again
// until it answers, there is enough, or the time is up. For opening and formatting, where drives
// may still be starting; work goes through Gather alone.

#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/gather.h"
#include "cluster/map/drive_map.h"
#include "drive/drive.h"

namespace pinstripe {

using DriveSet = std::map<DriveId, std::unique_ptr<Drive>>;

template <typename T>
class AskDrives {
 public:
  struct Question {
    std::function<void(Drive&, Time deadline, Callback<T> done)> ask;
    Duration timeout;  // of one attempt
    Time deadline;     // of everything
    // Whether an answer is final; the others are asked for again. By default: unless the drive is
    // away.
    std::function<bool(DriveId, const Result<T>&)> is_final = [](DriveId, const Result<T>& result) {
      return result.has_value() ||
             (result.error().code() != EHOSTUNREACH && result.error().code() != ETIMEDOUT);
    };
    // Whether the final answers so far are enough; then the rest is given `grace`.
    std::function<bool()> is_enough = [] { return false; };
    Duration grace = std::chrono::seconds(1);
  };

  // By drive: the final answer, or the last failure.
  static std::map<DriveId, Result<T>> Run(Runtime& runtime, const DriveSet& drives,
                                          const Question& question) {
    AskDrives asking(runtime, drives, question);
    asking.Loop();
    return std::move(asking.answers_);
  }

 private:
  static constexpr Duration kPause =
      std::chrono::milliseconds(100);  // before a drive is asked again

  AskDrives(Runtime& runtime, const DriveSet& drives, const Question& question)
      : runtime_(runtime),
        drives_(drives),
        question_(question),
        pause_(runtime.NewSignal()),
        gather_(runtime),
        deadline_(question.deadline) {
    for (const auto& [id, drive] : drives) {
      next_try_[id] = runtime.Now();
      answers_.emplace(
          id, tl::unexpected(Status(ETIMEDOUT, "no answer in time").OfDrive(drive->name())));
    }
  }

  void Loop() {
    while (!next_try_.empty() && runtime_.Now() < deadline_) {
      AskThoseDue();
      const Time wake = std::min(deadline_, NextTry());
      if (gather_.outstanding() == 0) {
        pause_->WaitUntil(wake);
      } else if (auto answer = gather_.Next(wake)) {
        Take(static_cast<DriveId>(answer->index), std::move(answer->value));
      }
    }
  }

  void AskThoseDue() {
    const Time now = runtime_.Now();
    for (auto& [id, when] : next_try_) {
      if (when > now) continue;
      when = Time::max();  // until it has answered
      question_.ask(*drives_.at(id), std::min(question_.deadline, now + question_.timeout),
                    gather_.Ask(id));
    }
  }

  Time NextTry() const {
    Time next = Time::max();
    for (const auto& [id, when] : next_try_) next = std::min(next, when);
    return next;
  }

  void Take(DriveId id, Result<T> answer) {
    const bool is_final = question_.is_final(id, answer);
    answers_.insert_or_assign(id, std::move(answer));
    if (!is_final) {
      next_try_[id] = runtime_.Now() + kPause;
      return;
    }
    next_try_.erase(id);
    if (question_.is_enough()) deadline_ = std::min(deadline_, runtime_.Now() + question_.grace);
  }

  Runtime& runtime_;
  const DriveSet& drives_;
  const Question& question_;
  const std::shared_ptr<Signal> pause_;
  Gather<Result<T>> gather_;
  Time deadline_;
  std::map<DriveId, Time> next_try_;  // of drives without a final answer
  std::map<DriveId, Result<T>> answers_;
};

}  // namespace pinstripe
