// Names and paths. Pure.
//
// A name is 1 to kMaxNameBytes arbitrary bytes without '/' and NUL, and neither "." nor "..". A
// path is absolute; it is normalised literally: repeated and trailing '/' and "." vanish, ".."
// takes away the name before it (at the root: nothing). No name is looked up for that.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pinstripe {

// EINVAL or ENAMETOOLONG.
Status CheckName(std::string_view name);

// The names of a path, from the root down; none for the root itself. EINVAL when it is not absolute
// or has a NUL, ENAMETOOLONG when it or a name in it is too long.
Result<std::vector<std::string>> SplitPath(std::string_view path);

}  // namespace pinstripe
