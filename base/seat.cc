#include "base/seat.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pinstripe {
namespace {

FileDescriptor NewSocket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// bind(2) or connect(2); 0, or the error.
template <typename Call>
int WithName(Call call, const FileDescriptor& socket, const std::string& kind, size_t number) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The first byte of an abstract name is NUL.
  const std::string name =
      fmt::format("{}/{}", kind, number).substr(0, sizeof(address.sun_path) - 1);
  memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  return call(socket.get(), to, length) == 0 ? 0 : errno;
}

}  // namespace

Seat::Seat(std::string kind) : kind_(std::move(kind)), socket_(NewSocket()) {
  for (size_t i = 0; i < kSeats; i++) {
    const int error = WithName(bind, socket_, kind_, i);
    if (error == EADDRINUSE) continue;
    if (error == 0) number_ = i;
    return;
  }
}

// A name that nobody has refuses the connection. Nothing is ever sent.
size_t Seat::CountTaken() const {
  const FileDescriptor asking = NewSocket();
  size_t taken = 1;
  for (size_t i = 0; i < kSeats; i++) {
    if (i != number_ && WithName(connect, asking, kind_, i) == 0) taken++;
  }
  return taken;
}

}  // namespace pinstripe
