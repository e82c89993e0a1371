// KineticIo: the I/O that all drives behind sockets share in a process: a few threads that wait for
// sockets, and one, started when it is first needed, that asks the resolver for names.
//
// Made by whoever composes the program, after the Runtime and before the drives; outlives them.

#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "kinetic/io_loop.h"

namespace pinstripe {

inline constexpr uint16_t kKineticPort = 8123;

struct HostAndPort {
  std::string host;
  std::string port;  // decimal
};

// "host", "host:port", "address", "[address]:port", with IPv6 addresses in brackets; the port is
// 8123 where none is given. EINVAL, and what is wrong, otherwise.
Result<HostAndPort> ParseDriveAddress(std::string_view text);

struct SocketAddress {
  sockaddr_storage storage;
  socklen_t length;
};

class SharedConnections;

class KineticIo {
 public:
  struct Options {
    int threads = 1;  // each serves some of the drives
  };

  explicit KineticIo(Runtime& runtime);
  KineticIo(Runtime& runtime, Options options);
  ~KineticIo();  // every drive has been destroyed

  Runtime& runtime() { return runtime_; }

  // The loop for one more drive.
  IoLoop& NextLoop();

  // The connections that drives of this loop share. Loop thread.
  SharedConnections& SharedOf(IoLoop& loop);

  // The addresses of a host, at least one, or EHOSTUNREACH. The answer comes on the loop's thread,
  // never inside the call. A number is not looked up, so it costs no waiting.
  using Resolved = std::function<void(Result<std::vector<SocketAddress>>)>;
  void Resolve(const HostAndPort& host, IoLoop& loop, Resolved done);

 private:
  Runtime& runtime_;
  std::vector<std::unique_ptr<IoLoop>> loops_;
  std::vector<std::unique_ptr<SharedConnections>> shared_;  // of each
  std::atomic<size_t> next_ = 0;
  Mutex mutex_;
  // A thread with a queue, and no sockets.
  std::unique_ptr<IoLoop> resolver_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
