#include "console/watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace pinstripe {

Watch::Watch(Runtime& runtime, ClusterView& view, Options options)
    : runtime_(runtime),
      view_(view),
      options_(options),
      thread_(runtime, "console watch", [this] { Run(); }) {
  {
    const MutexLock lock(mutex_);
    last_asked_ = runtime_.Now() - options_.attention;
  }
  thread_.Wake();
}

Watch::~Watch() { End(); }

void Watch::End() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    for (const auto& signal : waiting_) signal->Set();
  }
  thread_.End();
}

Time Watch::NextLook() {
  const MutexLock lock(mutex_);
  const bool is_watched = runtime_.Now() < last_asked_ + options_.attention;
  return last_look_ + (is_watched ? options_.every : options_.unwatched);
}

void Watch::Run() {
  LookOnce();
  while (!thread_.IsEnding()) {
    // Woken when somebody begins to look, which makes the next look come sooner.
    const Time next = NextLook();
    if (runtime_.Now() < next) {
      thread_.WaitUntil(next);
    } else {
      LookOnce();
    }
  }
}

void Watch::LookOnce() {
  const Time began = runtime_.Now();
  auto picture = std::make_shared<Picture>();
  picture->survey = view_.Look();
  picture->taken_at = runtime_.WallClock() / 1'000'000;
  picture->took = (runtime_.Now() - began) / std::chrono::milliseconds(1);
  if (picture->survey.has_value()) {
    history_.Add(picture->taken_at / 1000, *picture->survey);
  }
  auto work = view_.Work();
  if (work.has_value()) picture->work = *std::move(work);
  auto events = view_.NewEvents();
  const MutexLock lock(mutex_);
  picture->events = newest_->events;
  if (events.has_value()) {
    picture->events += events->size();
    std::ranges::move(*events, std::back_inserter(events_));
    while (events_.size() > kMostEvents) events_.pop_front();
  }
  if (!picture->survey.has_value() &&
      (newest_->survey.has_value() ||
       newest_->survey.error().message() != picture->survey.error().message())) {
    Log(LogLevel::kError, "the cluster cannot be looked at", {{"why", picture->survey.error()}});
  }
  picture->number = newest_->number + 1;
  newest_ = std::move(picture);
  last_look_ = runtime_.Now();
  for (const auto& signal : waiting_) signal->Set();
}

std::vector<Event> Watch::Events() {
  const MutexLock lock(mutex_);
  return {events_.begin(), events_.end()};
}

PicturePtr Watch::Newest() {
  bool is_first = false;
  PicturePtr newest;
  {
    const MutexLock lock(mutex_);
    const Time now = runtime_.Now();
    is_first = now >= last_asked_ + options_.attention;
    last_asked_ = now;
    newest = newest_;
  }
  if (is_first) thread_.Wake();
  return newest;
}

PicturePtr Watch::WaitForOther(uint64_t number, Duration patience) {
  const Time until = runtime_.Now() + patience;
  const std::shared_ptr<Signal> signal = runtime_.NewSignal();
  PicturePtr newest = Newest();
  {
    const MutexLock lock(mutex_);
    newest = newest_;
    if (newest->number != number || ending_) return newest;
    waiting_.push_back(signal);
  }
  signal->WaitUntil(until);
  const MutexLock lock(mutex_);
  std::erase(waiting_, signal);
  return newest_;
}

}  // namespace pinstripe
