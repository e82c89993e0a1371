// Bytes written in hexadecimal, as golden files have them.

#pragma once

#include <cassert>
#include <string>
#include <string_view>

namespace pinstripe {

inline std::string Unhex(std::string_view hex) {
  assert(hex.size() % 2 == 0);
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(16 * digit(hex[i]) + digit(hex[i + 1]));
  }
  return bytes;
}

}  // namespace pinstripe
