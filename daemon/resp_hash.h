// A hash of the Redis protocol as the value of a record: its fields in their order, each a name and
// a value with their lengths before them (docs/format.md, "Hashes of the Redis protocol").

#pragma once

#include <map>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

using RespHash = std::map<std::string, std::string, std::less<>>;  // values by names

std::string EncodeHash(const RespHash& hash);

// EBADMSG: it is not one.
Result<RespHash> DecodeHash(Bytes bytes);

}  // namespace pinstripe
