// BackgroundThread: one thread for work that nobody waits for, which exists while there is work,
// and whose end is waited for before what it works on goes.
//
//   BackgroundThread thread(runtime, "janitor", [this] { DoWhatIsThere(); });
//   thread.Wake();                  // starts it; if it runs, the body runs once more after it
//   thread.End();                   // tells it, and waits
//
// A body that wants to stay waits with WaitUntil(), and returns when IsEnding(). Whatever was there
// to do before a Wake() is seen by the body: by a run that begins after it, or by one that returns
// from WaitUntil() after it. So whoever owns the work needs no flag that says whether somebody is
// at it.

#pragma once

#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/runtime.h"

namespace pinstripe {

// Thread-safe, but for the two that end it and the destructor, which belong to one thread that is
// not its own.
class BackgroundThread {
 public:
  // Starts nothing. `runtime` outlives it.
  BackgroundThread(Runtime& runtime, std::string name, Task body);
  ~BackgroundThread() { End(); }
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Has the body see what there is now. Once it was told to end: nothing.
  void Wake();

  // Whether the body runs, or is about to.
  bool IsRunning() const;

  // For the body. True: woken, or told to end; false: the time came first.
  bool WaitUntil(Time until);
  bool IsEnding() const;

  // Tells the body to end; it is not started any more. End() waits for that, too. An owner of
  // several tells all of them before it waits for one.
  void TellToEnd();
  void End();

 private:
  struct State;
  Runtime& runtime_;
  const std::shared_ptr<State> state_;  // shared with the thread's last moment
};

}  // namespace pinstripe
