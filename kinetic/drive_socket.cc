#include "kinetic/drive_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

// A peer that vanishes without a word is noticed within some ten seconds, busy or idle.
void SetSocketOptions(int socket) {
  const auto set = [socket](int level, int name, int value) {
    // Without one of them the connection is slower, or notices less; it is still right.
    setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 10000);
  // Buffer sizes are left to the kernel: it lets them grow further than it lets us ask for.
}

void WarnOfCertificate(TlsStream& tls, std::string_view drive) {
  const auto end = tls.EndOfPeersCertificate();
  if (!end) return;
  const std::string text =
      TextOfEnd(*end, std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  if (text.empty()) return;
  Log(LogLevel::kWarn, "a drive needs another certificate",
      {{"drive", drive}, {"certificate", text}});
}

}  // namespace

Result<DriveSocket> DriveSocket::Connect(const SocketAddress& address, const std::string& host,
                                         const TlsClient* tls) {
  FileDescriptor socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return Fail(EHOSTUNREACH, "no socket: {}", ErrnoText(errno));
  SetSocketOptions(socket.get());
  const int connected =
      connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length);
  if (connected != 0 && errno != EINPROGRESS) {
    return Fail(EHOSTUNREACH, "cannot connect: {}", ErrnoText(errno));
  }
  std::unique_ptr<TlsStream> stream;
  if (tls != nullptr) stream = TRY(tls->Connect(socket.get(), host));
  return DriveSocket(std::move(socket), std::move(stream));
}

void DriveSocket::Watch(IoLoop& loop, uint32_t epoll_events,
                        std::shared_ptr<IoLoop::Handler> handler) {
  loop_ = &loop;
  if (channel_ != nullptr) return channel_->Watch(epoll_events, std::move(handler));
  watch_id_ = loop.Add(fd(), epoll_events, std::move(handler));
}

void DriveSocket::Change(uint32_t epoll_events) {
  if (channel_ != nullptr) return channel_->Change(epoll_events);
  loop_->Change(watch_id_, fd(), epoll_events);
}

void DriveSocket::Unwatch() {
  if (channel_ != nullptr) return channel_->End();
  if (loop_ != nullptr) loop_->Remove(watch_id_, fd());
}

Result<TlsStream::Step> DriveSocket::GoOn(std::string_view drive) {
  if (is_ready_) return TlsStream::Step::kDone;
  if (!is_connected_) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return Fail(EHOSTUNREACH, "{}", ErrnoText(error));
    is_connected_ = true;
  }
  is_ready_ = tls_ == nullptr;
  if (is_ready_) return TlsStream::Step::kDone;
  const Result<TlsStream::Step> step = tls_->Handshake();
  if (!step) return Fail(EHOSTUNREACH, "{}", step.error().message());
  is_ready_ = *step == TlsStream::Step::kDone;
  if (is_ready_) WarnOfCertificate(*tls_, drive);
  return *step;
}

Result<TlsStream::Step> DriveSocket::Accept() {
  return tls_ == nullptr ? TlsStream::Step::kDone : tls_->Handshake();
}

void DriveSocket::Unread(Buffer bytes) {
  unread_ = std::move(bytes);
  unread_begin_ = 0;
}

ssize_t DriveSocket::Write(const iovec* parts, int count) {
  if (channel_ != nullptr) return channel_->Write(parts, count);
  if (tls_ != nullptr) return tls_->Write(parts, count);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(count);
  return sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t DriveSocket::Read(const iovec* places, int count) {
  if (!unread_.empty()) {
    const size_t left = unread_.size() - unread_begin_;
    const size_t bytes = std::min(left, places[0].iov_len);
    std::memcpy(places[0].iov_base, unread_.data() + unread_begin_, bytes);
    unread_begin_ += bytes;
    if (bytes == left) unread_ = Buffer();
    return static_cast<ssize_t>(bytes);
  }
  if (channel_ != nullptr) return channel_->Read(places, count);
  return tls_ != nullptr ? tls_->Read(places, count) : readv(fd(), places, count);
}

// A channel whose connection has failed hears of it from its trunk.
void DriveSocket::Shut() {
  if (channel_ == nullptr && fd() >= 0) shutdown(fd(), SHUT_RDWR);
}

void DriveSocket::End() {
  if (tls_ != nullptr) tls_->SayGoodbye();
  Shut();
}

}  // namespace pinstripe
