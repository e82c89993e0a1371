#include "console/peer_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

namespace pinstripe {

std::string NetworkOf(const std::string& address) {
  in6_addr six{};
  if (inet_pton(AF_INET6, address.c_str(), &six) != 1) return address;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    inet_ntop(AF_INET, &six.s6_addr[12], text.data(), text.size());
    return text.data();
  }
  std::fill(std::begin(six.s6_addr) + 8, std::end(six.s6_addr), 0);
  inet_ntop(AF_INET6, &six, text.data(), text.size());
  return std::string(text.data()) + "/64";
}

}  // namespace pinstripe
