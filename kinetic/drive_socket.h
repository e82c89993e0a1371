// DriveSocket: a TCP connection that is being opened to what serves a drive, with TLS or without,
// and then read from and written to. It does not wait.
//
// One thread may read while another one writes.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "kinetic/io.h"
#include "kinetic/tls.h"

namespace pinstripe {

class DriveSocket {
 public:
  // Starts connecting to `address`, which is one of `host`. EPOLLOUT tells that this has ended. A
  // peer that vanishes without a word is noticed within some ten seconds. EHOSTUNREACH.
  static Result<DriveSocket> Connect(const SocketAddress& address, const std::string& host,
                                     const TlsClient* tls);

  int fd() const { return socket_.get(); }

  // When the socket is ready, until it has said kDone: goes on, and says what it waits for. A
  // certificate of `drive` that ends soon is told in the log. EHOSTUNREACH, and why.
  Result<TlsStream::Step> GoOn(std::string_view drive);

  // As writev() and readv(). A write to a peer that has gone raises no signal.
  ssize_t Write(const iovec* parts, int count);
  ssize_t Read(const iovec* places, int count);
  // Of the last Read(): it has to wait until the socket can be written.
  bool read_wants_write() const { return tls_ != nullptr && tls_->read_wants_write(); }
  // What has been taken from the socket and not been read yet, nothing tells of.
  bool reads_ahead() const { return tls_ != nullptr; }

  // Any thread: nothing more comes or goes. The reader hears of it.
  void Shut();
  // Likewise, with a word to the peer.
  void End();

 private:
  DriveSocket(FileDescriptor socket, std::unique_ptr<TlsStream> tls)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}

  FileDescriptor socket_;
  std::unique_ptr<TlsStream> tls_;  // null: without
  bool is_connected_ = false;
};

}  // namespace pinstripe
