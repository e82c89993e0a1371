// How a record stands in a Redis store: as one string,
//
//   value | version | tag | CRC32C of version and tag (4) | bytes of the version (2) |
//   bytes of the tag (1) | 1
//
// with big-endian numbers. So a part of the value is at its own offset, and all else is found from
// the end. The scripts (redis/scripts.h) read the last four bytes, and nobody but us the rest.

#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "drive/drive.h"

namespace pinstripe {

inline constexpr size_t kStoredEndBytes = 8;
inline constexpr uint8_t kStoredForm = 1;

// What follows the value.
std::string StoredEnd(std::string_view version, std::string_view tag);

// Of the string, or of what follows the value in it: where `value` is empty whatever that was.
// EBADMSG: it is not what StoredEnd() made.
Result<Record> ParseStored(const SharedBytes& bytes);

}  // namespace pinstripe
