// Whom a client counts as, where each may have only so much.

#pragma once

#include <string>

namespace pinstripe {

// An address of IPv4 is itself. Whoever has one address of IPv6 has the 2^64 of its network, which
// count as one. What is no address is itself.
std::string NetworkOf(const std::string& address);

}  // namespace pinstripe
