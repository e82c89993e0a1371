#include "base/signal_watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

namespace pinstripe {
namespace {

constexpr uint64_t kEnd = uint64_t{1} << 32;  // added to the count by who ends the watch

// By signal: what its handler writes to, or -1.
std::array<std::atomic<int>, NSIG>& EventFds() {
  static auto* const fds = [] {
    auto* const made = new std::array<std::atomic<int>, NSIG>;
    for (auto& fd : *made) fd = -1;
    return made;
  }();
  return *fds;
}
static_assert(std::atomic<int>::is_always_lock_free);

void Add(int event_fd, uint64_t count) {
  while (write(event_fd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

extern "C" void NoteSignal(int signal) {
  const int error = errno;
  const int event_fd = EventFds()[static_cast<size_t>(signal)].load();
  if (event_fd >= 0) Add(event_fd, 1);
  errno = error;
}

}  // namespace

Result<std::unique_ptr<SignalWatch>> SignalWatch::Start(int signal, std::function<void()> react) {
  struct sigaction before {};
  if (sigaction(signal, nullptr, &before) != 0) {
    return Fail(errno, "signal {}: {}", signal, ErrnoText(errno));
  }
  const bool is_free = (before.sa_flags & SA_SIGINFO) == 0 &&
                       (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN);
  if (!is_free) return Fail(EBUSY, "signal {} has another use in this process", signal);
  const int event_fd = eventfd(0, EFD_CLOEXEC);
  if (event_fd < 0) return Fail(errno, "eventfd: {}", ErrnoText(errno));
  EventFds()[static_cast<size_t>(signal)] = event_fd;
  std::unique_ptr<SignalWatch> watch(new SignalWatch(signal, event_fd, std::move(react)));
  struct sigaction action {};
  action.sa_handler = NoteSignal;
  action.sa_flags = SA_RESTART;
  if (sigaction(signal, &action, nullptr) != 0) {
    return Fail(errno, "signal {}: {}", signal, ErrnoText(errno));
  }
  return watch;
}

SignalWatch::SignalWatch(int signal, int event_fd, std::function<void()> react)
    : signal_(signal), event_fd_(event_fd), react_(std::move(react)), thread_([this] { Run(); }) {}

SignalWatch::~SignalWatch() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(signal_, &action, nullptr);
  EventFds()[static_cast<size_t>(signal_)] = -1;
  Add(event_fd_, kEnd);
  thread_.join();
}

void SignalWatch::Run() {
  for (;;) {
    uint64_t count = 0;
    if (read(event_fd_, &count, sizeof(count)) < 0) continue;  // EINTR
    if (count % kEnd != 0) react_();  // also to one that came just before the end
    if (count >= kEnd) return;
  }
}

}  // namespace pinstripe
