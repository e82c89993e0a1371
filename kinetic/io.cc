#include "kinetic/io.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>

#include "base/try.h"
#include "kinetic/shared_connections.h"

namespace pinstripe {
namespace {

Result<std::vector<SocketAddress>> LookUp(const HostAndPort& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.host.c_str(), host.port.c_str(), &hints, &found);
  if (error != 0)
    return Fail(EHOSTUNREACH, "no address for {}: {}", host.host, gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SocketAddress address{};
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

bool IsPort(std::string_view text) {
  if (text.empty() || text.size() > 5 || text[0] == '0') return false;
  int port = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    port = 10 * port + (c - '0');
  }
  return port <= 65535;
}

}  // namespace

Result<HostAndPort> ParseDriveAddress(std::string_view text) {
  HostAndPort result{.host = "", .port = std::to_string(kKineticPort)};
  std::string_view rest;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return Fail(EINVAL, "drive address \"{}\": no ']'", text);
    result.host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else {
    const size_t colon = text.find(':');
    result.host = text.substr(0, colon);
    if (colon != std::string_view::npos) rest = text.substr(colon);
    if (std::count(text.begin(), text.end(), ':') > 1) {
      return Fail(EINVAL, "drive address \"{}\": write IPv6 addresses in brackets, as [::1]:8123",
                  text);
    }
  }
  if (result.host.empty()) return Fail(EINVAL, "drive address \"{}\": no host", text);
  if (rest.empty()) return result;
  if (rest[0] != ':' || !IsPort(rest.substr(1))) {
    return Fail(EINVAL, "drive address \"{}\": the port is not a number from 1 to 65535", text);
  }
  result.port = rest.substr(1);
  return result;
}

KineticIo::KineticIo(Runtime& runtime) : KineticIo(runtime, Options()) {}

KineticIo::KineticIo(Runtime& runtime, Options options) : runtime_(runtime) {
  for (int i = 0; i < options.threads; ++i) {
    loops_.push_back(std::make_unique<IoLoop>(runtime, fmt::format("pin-io-{}", i)));
    shared_.push_back(std::make_unique<SharedConnections>(*loops_.back()));
  }
}

// The resolver answers on loops, so it ends first.
KineticIo::~KineticIo() {
  resolver_.reset();
  for (size_t i = 0; i < loops_.size(); ++i) {
    loops_[i]->PostAndWait([this, i] { shared_[i].reset(); });
  }
}

SharedConnections& KineticIo::SharedOf(IoLoop& loop) {
  const auto found = std::ranges::find(loops_, &loop, [](const auto& each) { return each.get(); });
  return *shared_[static_cast<size_t>(found - loops_.begin())];
}

IoLoop& KineticIo::NextLoop() { return *loops_[next_++ % loops_.size()]; }

void KineticIo::Resolve(const HostAndPort& host, IoLoop& loop, Resolved done) {
  if (auto numeric = LookUp(host, AI_NUMERICHOST)) {
    loop.Post([done = std::move(done), numeric = *std::move(numeric)] { done(numeric); });
    return;
  }
  const MutexLock lock(mutex_);
  if (!resolver_) resolver_ = std::make_unique<IoLoop>(runtime_, "pin-resolver");
  resolver_->Post([host, &loop, done = std::move(done)]() mutable {
    loop.Post([done = std::move(done), found = LookUp(host, 0)] { done(found); });
  });
}

}  // namespace pinstripe
