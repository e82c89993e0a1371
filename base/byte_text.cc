#include "base/byte_text.h"

#include <fmt/format.h>

#include <array>

#include "base/bytes.h"

namespace pinstripe {

std::string BytesText(uint64_t bytes) {
  constexpr std::array kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (amount >= 999.95 && unit + 1 < kUnits.size()) {
    amount /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string UuidText(const std::string& uuid) {
  std::string text = Hex(AsBytes(uuid));
  for (const size_t place : {8, 13, 18, 23}) {
    if (place < text.size()) text.insert(place, "-");
  }
  return text;
}

}  // namespace pinstripe
