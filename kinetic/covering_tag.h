// The tag that binds a value to the signed command it comes with: docs/protocol.md.

#pragma once

#include <string>

#include "base/bytes.h"

namespace pinstripe {

// The tag of a put of this value, with algorithm CRC32C: four bytes, big-endian.
std::string CoveringTag(Bytes value);

}  // namespace pinstripe
