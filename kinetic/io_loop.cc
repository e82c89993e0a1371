#include "kinetic/io_loop.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <future>
#include <limits>
#include <system_error>

namespace pinstripe {
namespace {

constexpr uint64_t kWakeId = 0;

int CheckedDescriptor(int fd, const char* what) {
  // Without these there is no I/O at all; a process that has no descriptors left at its start
  // cannot run.
  if (fd < 0) throw std::system_error(errno, std::generic_category(), what);
  return fd;
}

}  // namespace

void IoLoop::Timer::Arm(Time when) {
  Cancel();
  place_ = loop_.timers_.emplace(when, this);
  armed_ = true;
}

void IoLoop::Timer::Cancel() {
  if (armed_) loop_.timers_.erase(place_);
  armed_ = false;
}

IoLoop::IoLoop(Runtime& runtime, const std::string& name)
    : runtime_(runtime),
      epoll_(CheckedDescriptor(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_(CheckedDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeId}};
  CheckedDescriptor(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event), "epoll_ctl");
  // Held while the thread starts, so that it sees thread_ complete.
  const MutexLock lock(mutex_);
  thread_ = std::thread([this, name] {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    { const MutexLock started(mutex_); }
    Run();
  });
}

IoLoop::~IoLoop() {
  assert(!on_loop_thread());
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
}

void IoLoop::Post(Task task) {
  bool first;
  {
    const MutexLock lock(mutex_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first && !on_loop_thread()) Wake();
}

void IoLoop::PostAndWait(Task task) {
  assert(!on_loop_thread());
  // Shared: the loop may be in the middle of set_value() when this returns.
  const auto ran = std::make_shared<std::promise<void>>();
  Post([&task, ran] {
    task();
    ran->set_value();
  });
  ran->get_future().wait();
}

void IoLoop::Wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full: then the loop is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

uint64_t IoLoop::Add(int fd, uint32_t epoll_events, std::shared_ptr<Handler> handler) {
  assert(on_loop_thread());
  const uint64_t id = ++last_id_;
  handlers_.emplace(id, std::move(handler));
  epoll_event event{.events = epoll_events, .data = {.u64 = id}};
  CheckedDescriptor(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
  return id;
}

void IoLoop::Change(uint64_t id, int fd, uint32_t epoll_events) {
  epoll_event event{.events = epoll_events, .data = {.u64 = id}};
  [[maybe_unused]] const int changed = epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  assert(changed == 0 || errno == ENOENT);  // ENOENT: removed
}

void IoLoop::Remove(uint64_t id, int fd) {
  assert(on_loop_thread());
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(id);
}

void IoLoop::RunTasks() {
  std::vector<Task> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) {
    task();
    task = nullptr;  // what it captured goes before the next one runs
  }
}

void IoLoop::RunTimers() {
  const Time now = runtime_.Now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Timer* timer = timers_.begin()->second;
    timer->Cancel();
    timer->task_();  // may destroy the timer
  }
}

// How long the thread may sleep; -1: until something happens. Rounded up, so that it does not wake
// just before a timer is due.
int IoLoop::WaitMilliseconds() {
  {
    const MutexLock lock(mutex_);
    if (!tasks_.empty() || stopping_) return 0;
  }
  if (timers_.empty()) return -1;
  const Duration left = timers_.begin()->first - runtime_.Now();
  if (left <= Duration::zero()) return 0;
  const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<int64_t>(ms, std::numeric_limits<int>::max()));
}

void IoLoop::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 WaitMilliseconds());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[i];
      events_left_ = count - i - 1;
      const uint64_t id = event.data.u64;  // a copy: it is packed, so nothing may refer to it
      if (id == kWakeId) {
        uint64_t wakes;
        [[maybe_unused]] const ssize_t got = read(wake_.get(), &wakes, sizeof wakes);
        continue;
      }
      // An earlier one of these events may have removed it. Kept while it is told.
      const auto found = handlers_.find(id);
      if (found == handlers_.end()) continue;
      const std::shared_ptr<Handler> handler = found->second;
      handler->OnReady(event.events);
    }
    RunTasks();
    RunTimers();
    const MutexLock lock(mutex_);
    if (stopping_ && tasks_.empty()) return;
  }
}

}  // namespace pinstripe
