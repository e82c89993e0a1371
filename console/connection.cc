#include "console/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/try.h"

namespace pinstripe {

bool Connection::WaitFor(short events, Time until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - runtime_.Now()).count();
    pollfd one{.fd = socket_, .events = events, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (runtime_.Now() >= until) return false;
  }
}

Status Connection::Encrypt(const TlsServer& tls, Duration patience) {
  std::unique_ptr<TlsStream> stream = TRY(tls.Accept(socket_));
  const Time until = runtime_.Now() + patience;
  for (;;) {
    const TlsStream::Step step = TRY(stream->Handshake());
    if (step == TlsStream::Step::kDone) break;
    if (!WaitFor(step == TlsStream::Step::kWantsRead ? POLLIN : POLLOUT, until)) {
      return Fail(ETIMEDOUT, "the handshake took too long");
    }
  }
  tls_ = std::move(stream);
  return {};
}

// -1: it has failed, or nothing came until then.
ssize_t Connection::ReadSome(Time until) {
  for (;;) {
    ssize_t got = 0;
    if (tls_ != nullptr) {
      const iovec place{received_.data(), received_.size()};
      got = tls_->Read(&place, 1);
    } else {
      got = recv(socket_, received_.data(), received_.size(), 0);
    }
    if (got >= 0) {
      begin_ = 0;
      end_ = static_cast<size_t>(got);
      return got;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return -1;
    const bool wants_write = tls_ != nullptr && tls_->read_wants_write();
    if (!WaitFor(wants_write ? POLLOUT : POLLIN, until)) return -1;
  }
}

bool Connection::WaitForRequest(Duration patience) {
  return begin_ < end_ || ReadSome(runtime_.Now() + patience) > 0;
}

void Connection::BeginRequest(size_t bytes, Duration time) {
  bytes_left_ = bytes;
  deadline_ = runtime_.Now() + time;
}

ssize_t Connection::Read(char* place, size_t size) {
  if (size == 0 || bytes_left_ == 0 || runtime_.Now() >= deadline_) return -1;
  if (begin_ == end_) {
    const ssize_t got = ReadSome(deadline_);
    if (got <= 0) return got;
  }
  const size_t bytes = std::min({size, end_ - begin_, bytes_left_});
  std::memcpy(place, received_.data() + begin_, bytes);
  begin_ += bytes;
  bytes_left_ -= bytes;
  return static_cast<ssize_t>(bytes);
}

bool Connection::Write(std::string_view bytes, Duration patience) {
  const Time until = runtime_.Now() + patience;
  while (!bytes.empty()) {
    ssize_t sent = 0;
    if (tls_ != nullptr) {
      const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
      sent = tls_->Write(&piece, 1);
    } else {
      sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    if (!WaitFor(POLLOUT, until)) return false;
  }
  return true;
}

bool Connection::HasClientEnded() const {
  pollfd one{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  return poll(&one, 1, 0) > 0;
}

void Connection::SayGoodbye() {
  if (tls_ != nullptr) tls_->SayGoodbye();
}

}  // namespace pinstripe
