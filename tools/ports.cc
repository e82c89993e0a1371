#include "tools/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace pinstripe {
namespace {

constexpr uint32_t kFirstPort = 10000;

uint32_t FirstEphemeralPort() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  uint32_t first = 0;
  return file >> first && first > kFirstPort + 1000 ? first : 32768;
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool CanBind(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in address = Loopback(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return bound;
}

}  // namespace

Result<std::vector<uint16_t>> PickFreePorts(Runtime& runtime, size_t count,
                                            const std::set<uint16_t>& except) {
  const uint32_t range = FirstEphemeralPort() - kFirstPort;
  std::set<uint16_t> tried;
  std::vector<uint16_t> ports;
  while (ports.size() < count) {
    if (tried.size() >= range / 2) {
      return Fail(EADDRINUSE, "only {} of {} free TCP ports found between {} and {}", ports.size(),
                  count, kFirstPort, kFirstPort + range);
    }
    const auto port = static_cast<uint16_t>(kFirstPort + runtime.Random() % range);
    if (tried.insert(port).second && !except.contains(port) && CanBind(port)) {
      ports.push_back(port);
    }
  }
  return ports;
}

bool PortAnswers(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const sockaddr_in address = Loopback(port);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

}  // namespace pinstripe
