#include "kinetic/drive_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
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

Result<TlsStream::Step> DriveSocket::GoOn(std::string_view drive) {
  if (!is_connected_) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return Fail(EHOSTUNREACH, "{}", ErrnoText(error));
    is_connected_ = true;
  }
  if (tls_ == nullptr) return TlsStream::Step::kDone;
  const Result<TlsStream::Step> step = tls_->Handshake();
  if (!step) return Fail(EHOSTUNREACH, "{}", step.error().message());
  if (*step == TlsStream::Step::kDone) WarnOfCertificate(*tls_, drive);
  return *step;
}

ssize_t DriveSocket::Write(const iovec* parts, int count) {
  if (tls_ != nullptr) return tls_->Write(parts, count);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(count);
  return sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t DriveSocket::Read(const iovec* places, int count) {
  return tls_ != nullptr ? tls_->Read(places, count) : readv(fd(), places, count);
}

void DriveSocket::Shut() { shutdown(fd(), SHUT_RDWR); }

void DriveSocket::End() {
  if (tls_ != nullptr) tls_->SayGoodbye();
  Shut();
}

}  // namespace pinstripe
