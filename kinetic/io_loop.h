// IoLoop: one thread that waits for many sockets, runs timers and the tasks that others hand it.
//
// Everything it calls runs on its thread, one thing at a time, without a lock, and does not wait.
// What says "loop thread" below may only be called there. Real I/O: it owns a thread and an epoll
// of its own; time is the Runtime's.

#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/runtime.h"

namespace pinstripe {

class IoLoop {
 public:
  // Told when its file descriptor is ready.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnReady(uint32_t epoll_events) = 0;
  };

  // Runs its task once each time it was armed. Loop thread, except that an idle one may be made and
  // destroyed anywhere.
  class Timer {
   public:
    Timer(IoLoop& loop, Task task) : loop_(loop), task_(std::move(task)) {}
    ~Timer() { Cancel(); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    void Arm(Time when);  // instead of when it was armed for
    void Cancel();

   private:
    friend class IoLoop;
    IoLoop& loop_;
    Task task_;
    bool armed_ = false;
    std::multimap<Time, Timer*>::iterator place_;  // while armed
  };

  IoLoop(Runtime& runtime, const std::string& name);

  // Runs what has been posted, then ends the thread. Not on the loop thread.
  ~IoLoop();

  Runtime& runtime() { return runtime_; }

  // Any thread. Tasks run in the order in which they were posted.
  void Post(Task task);

  // Posts the task and waits until it has run. Not on the loop thread.
  void PostAndWait(Task task);

  bool on_loop_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Watches `fd`, level-triggered, and keeps the handler until Remove(). Loop thread.
  uint64_t Add(int fd, uint32_t epoll_events, std::shared_ptr<Handler> handler);
  void Remove(uint64_t id, int fd);

  // Whether other handlers are known to be ready, and wait for their turn. Loop thread.
  bool others_wait() const { return events_left_ > 0; }

  // Any thread; nothing happens when it has been removed. `fd` is still open.
  void Change(uint64_t id, int fd, uint32_t epoll_events);

 private:
  void Run();
  void Wake();
  void RunTasks();
  void RunTimers();
  int WaitMilliseconds();

  Runtime& runtime_;
  FileDescriptor epoll_;
  FileDescriptor wake_;  // an eventfd

  Mutex mutex_;
  std::vector<Task> tasks_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  // Used by the loop thread alone:
  std::multimap<Time, Timer*> timers_;
  std::unordered_map<uint64_t, std::shared_ptr<Handler>> handlers_;
  uint64_t last_id_ = 0;
  int events_left_ = 0;  // of those that epoll has told last

  std::thread thread_;
};

}  // namespace pinstripe
