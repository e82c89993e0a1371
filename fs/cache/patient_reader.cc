#include "fs/cache/patient_reader.h"

#include <utility>

namespace pinstripe {

PatientReader::~PatientReader() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    for (const auto& waiting : waiting_) waiting->Set();
  }
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (threads_ == 0) return;
    }
    ended_->WaitUntil(Time::max());
  }
}

std::optional<Result<Buffer>> PatientReader::Read(std::shared_ptr<CacheFile> file,
                                                  uint64_t position, uint64_t bytes, Time until) {
  const auto reading = std::make_shared<Reading>();
  reading->file = std::move(file);
  reading->position = position;
  reading->buffer = Buffer(bytes);
  reading->ended = runtime_.NewSignal();
  bool one_more = false;
  {
    const MutexLock lock(mutex_);
    queue_.push_back(reading);
    if (!waiting_.empty()) {
      waiting_.back()->Set();
      waiting_.pop_back();
    } else if (threads_ < kMostThreads) {
      one_more = true;
      ++threads_;
    }
  }
  if (one_more) runtime_.Spawn("disk reader", [this] { Run(); });
  for (;;) {
    const bool in_time = runtime_.Now() < until;
    {
      const MutexLock lock(mutex_);
      if (reading->got && !reading->got->has_value()) {
        return Result<Buffer>(tl::unexpected(reading->got->error()));
      }
      if (reading->got) {
        reading->buffer.Resize(**reading->got);
        return Result<Buffer>(std::move(reading->buffer));
      }
      if (!in_time) {
        std::erase(queue_, reading);  // or somebody has begun it, and keeps it
        return std::nullopt;
      }
    }
    reading->ended->WaitUntil(until);
  }
}

void PatientReader::Run() {
  const std::shared_ptr<Signal> work = runtime_.NewSignal();
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (queue_.empty()) {
      waiting_.push_back(work);
      lock.Unlock();
      work->WaitUntil(Time::max());  // who sets it has taken it from the list
      lock.Lock();
      continue;
    }
    const std::shared_ptr<Reading> reading = std::move(queue_.front());
    queue_.pop_front();
    lock.Unlock();
    Result<size_t> got = reading->file->Read(reading->position, reading->buffer);
    lock.Lock();
    reading->got = std::move(got);
    reading->ended->Set();
  }
  --threads_;
  const std::shared_ptr<Signal> ended = ended_;  // *this is gone as soon as the lock is
  ended->Set();
}

}  // namespace pinstripe
