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

// Asks what drives do, unless that was asked just now.
std::shared_ptr<const Activity> Watch::LookAtUse(const Picture& picture) {
  if (last_use_ && runtime_.Now() < last_use_->when + options_.use_every) {
    const MutexLock lock(mutex_);
    return newest_->activity;
  }
  auto activity = std::make_shared<Activity>();
  activity->taken_at = picture.taken_at;
  auto use = picture.survey.has_value()
                 ? view_.Use(*picture.survey)
                 : Result<ClusterUse>(tl::unexpected(picture.survey.error()));
  if (!use.has_value()) {
    activity->unknown = use.error();
    last_use_.reset();
    use_of_sample_.reset();
    return activity;
  }
  if (last_use_) {
    activity->unknown = Status();
    activity->over = use->when - last_use_->when;
    activity->drives = WorkSince(*last_use_, *use);
    activity->clients = ClientsSince(*last_use_, *use);
    activity->client_count = activity->clients.size();
    if (activity->clients.size() > Activity::kMostClients) {
      activity->clients.resize(Activity::kMostClients);
    }
  }
  last_use_ = *std::move(use);
  return activity;
}

void Watch::LookOnce() {
  const Time began = runtime_.Now();
  auto picture = std::make_shared<Picture>();
  picture->survey = view_.Look();
  picture->taken_at = runtime_.WallClock() / 1'000'000;
  picture->took = (runtime_.Now() - began) / std::chrono::milliseconds(1);
  picture->activity = LookAtUse(*picture);
  if (picture->survey.has_value()) Remember(picture->taken_at / 1000, *picture->survey);
  auto work = view_.Work();
  if (work.has_value()) picture->work = *std::move(work);
  auto events = view_.NewEvents();
  looks_took_.Add(runtime_.Now() - began);
  const bool is_good = picture->survey.has_value() && picture->survey->opened.ok();
  const MutexLock lock(mutex_);
  failed_looks_ += is_good ? 0 : 1;
  if (is_good) last_good_look_ = runtime_.Now();
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

// What was done since the last sample, where one is due.
void Watch::Remember(int64_t now, const Survey& survey) {
  std::vector<DriveWorkReport> work;
  if (history_.IsDue(now) && last_use_) {
    if (use_of_sample_) work = WorkSince(*use_of_sample_, *last_use_);
    use_of_sample_ = last_use_;
    for (ClusterUse::OfDrive& drive : use_of_sample_->drives) {
      if (drive.use.has_value()) drive.use->clients.clear();  // the history tells of none
    }
  }
  history_.Add(now, survey, work);
}

Watch::Looks Watch::CountLooks() const {
  const MutexLock lock(mutex_);
  Looks looks{.took = looks_took_.Load(), .failed = failed_looks_};
  if (last_good_look_) looks.last_good = runtime_.Now() - *last_good_look_;
  return looks;
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
