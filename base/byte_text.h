// Bytes for people: an amount of them, and those of a UUID.

#pragma once

#include <cstdint>
#include <string>

namespace pinstripe {

// "1.5 GB": decimal units, as on the label of a drive.
std::string BytesText(uint64_t bytes);

// 16 bytes as 8-4-4-4-12 hexadecimal digits.
std::string UuidText(const std::string& uuid);

}  // namespace pinstripe
