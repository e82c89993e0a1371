#include "tools/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include "base/try.h"

namespace pinstripe {
namespace {

struct PortRange {
  uint32_t first = 10000;
  uint32_t end = 32768;  // not included
};

Result<PortRange> Range() {
  PortRange range;
  if (const char* const wanted = getenv("PINSTRIPE_PORTS"); wanted != nullptr) {
    unsigned first = 0;
    unsigned last = 0;
    int end = 0;
    const bool is_range = sscanf(wanted, "%5u-%5u%n", &first, &last, &end) == 2 && wanted[end] == 0;
    if (is_range && first > 0 && first < last && last < 65536) return PortRange{first, last + 1};
    return Fail(EINVAL, "PINSTRIPE_PORTS={}: a range of ports is needed, like 20000-20999", wanted);
  }
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  uint32_t first = 0;
  if (file >> first && first > range.first + 1000) range.end = first;
  return range;
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
  const PortRange range = TRY(Range());
  const uint32_t size = range.end - range.first;
  std::set<uint16_t> tried;
  std::vector<uint16_t> ports;
  while (ports.size() < count) {
    if (tried.size() >= size / 2) {
      return Fail(EADDRINUSE, "only {} of {} free TCP ports found between {} and {}", ports.size(),
                  count, range.first, range.end);
    }
    const auto port = static_cast<uint16_t>(range.first + runtime.Random() % size);
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
