// Connection: a client's bytes, with or without TLS, counted and timed for each request.

#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/runtime.h"
#include "base/status.h"
#include "kinetic/tls.h"

namespace pinstripe {

// Used by one thread, which waits in its calls. Shutting the socket down from another one ends
// them. The socket outlives it, and does not block.
class Connection {
 public:
  Connection(Runtime& runtime, int socket) : runtime_(runtime), socket_(socket) {}

  // Before anything else, for a client that is to speak TLS.
  Status Encrypt(const TlsServer& tls, Duration patience);
  bool is_encrypted() const { return tls_ != nullptr; }

  // Waits for the first byte of a request. False: nothing came, or the client has gone.
  bool WaitForRequest(Duration patience);

  // From now on a request may have so many bytes, and take so long.
  void BeginRequest(size_t bytes, Duration time);

  // At least one byte; 0: the client has ended; -1: it took too long, sent too much, or is away.
  ssize_t Read(char* place, size_t size);
  // All of it, or false: it took longer in all, or the client is away.
  bool Write(std::string_view bytes, Duration patience);

  // Whether it sends nothing more, because it is gone or has said so.
  bool HasClientEnded() const;

  // Tells a client with TLS that nothing more comes.
  void SayGoodbye();

  int socket() const { return socket_; }

 private:
  // False: it is not ready by then.
  bool WaitFor(short events, Time until);
  ssize_t ReadSome(Time until);

  Runtime& runtime_;
  const int socket_;
  std::unique_ptr<TlsStream> tls_;
  // What was received and not read yet.
  std::array<char, 4096> received_{};
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t bytes_left_ = 0;
  Time deadline_{};
};

}  // namespace pinstripe
