// DriveSocket: a TCP connection between what serves a drive and who uses it, with TLS or without,
// or a channel of one that several drives share (trunk.h). It does not wait.
//
// One thread may read while another one writes.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "kinetic/channel.h"
#include "kinetic/io.h"
#include "kinetic/io_loop.h"
#include "kinetic/tls.h"

namespace pinstripe {

class DriveSocket {
 public:
  DriveSocket() = default;  // none yet

  // Starts connecting to `address`, which is one of `host`. EPOLLOUT tells that this has ended. A
  // peer that vanishes without a word is noticed within some ten seconds. EHOSTUNREACH.
  static Result<DriveSocket> Connect(const SocketAddress& address, const std::string& host,
                                     const TlsClient* tls);

  // One that has connected to us; `tls` is of `socket`, or null.
  DriveSocket(FileDescriptor socket, std::unique_ptr<TlsStream> tls)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}
  explicit DriveSocket(std::shared_ptr<Channel> channel)
      : channel_(std::move(channel)), is_ready_(true) {}
  DriveSocket(DriveSocket&&) = default;
  DriveSocket& operator=(DriveSocket&&) = default;

  int fd() const { return channel_ != nullptr ? channel_->fd() : socket_.get(); }
  bool has_tls() const { return channel_ != nullptr ? channel_->has_tls() : tls_ != nullptr; }

  bool is_ready() const { return is_ready_; }  // GoOn() has said kDone

  // Tells `handler` what the socket is ready for, until Unwatch(), as IoLoop::Add() does. Loop
  // thread.
  void Watch(IoLoop& loop, uint32_t epoll_events, std::shared_ptr<IoLoop::Handler> handler);
  void Change(uint32_t epoll_events);  // any thread
  void Unwatch();                      // a channel ends with it

  // The peer has shown who it is. Loop thread.
  void Trust() {
    if (channel_ != nullptr) channel_->Trust();
  }

  // When the socket is ready, until it has said kDone: goes on, and says what it waits for. A
  // certificate of `drive` that ends soon is told in the log. EHOSTUNREACH, and why.
  Result<TlsStream::Step> GoOn(std::string_view drive);
  // The same for one that has connected to us.
  Result<TlsStream::Step> Accept();

  // As writev() and readv(). A write to a peer that has gone raises no signal.
  ssize_t Write(const iovec* parts, int count);
  ssize_t Read(const iovec* places, int count);
  // Of the last Read(): it has to wait until the socket can be written.
  bool read_wants_write() const { return tls_ != nullptr && tls_->read_wants_write(); }
  // What has been taken from the socket and not been read yet, nothing tells of.
  bool reads_ahead() const { return tls_ != nullptr || !unread_.empty(); }
  // After a Read(): there may be something of that.
  bool may_have_more() const {
    return !unread_.empty() || (tls_ != nullptr && tls_->may_have_more());
  }

  // What Read() answers first: somebody has read it already.
  void Unread(Buffer bytes);

  // Any thread: nothing more comes or goes. The reader hears of it.
  void Shut();
  // Likewise, with a word to the peer.
  void End();

 private:
  FileDescriptor socket_;
  std::unique_ptr<TlsStream> tls_;    // null: without
  std::shared_ptr<Channel> channel_;  // null: it has a socket
  bool is_connected_ = false;
  bool is_ready_ = false;  // and TLS is agreed on
  Buffer unread_;
  size_t unread_begin_ = 0;
  IoLoop* loop_ = nullptr;  // while it is watched
  uint64_t watch_id_ = 0;
};

}  // namespace pinstripe
