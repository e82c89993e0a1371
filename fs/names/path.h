// Names and paths. Pure.
//
// A name is 1 to kMaxNameBytes arbitrary bytes without '/' and NUL, and neither "." nor "..". In a
// path, repeated and trailing '/' and "." mean nothing; what ".." means, only the one who follows
// it knows.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pinstripe {

// EINVAL or ENAMETOOLONG.
Status CheckName(std::string_view name);

// EINVAL (NUL), ENOENT (empty) or ENAMETOOLONG.
Status CheckSymlinkTarget(std::string_view target);

// The names of a path, from the root down, and ".."; none for the root itself. EINVAL when it is
// not absolute or has a NUL, ENAMETOOLONG when it or a name in it is too long.
Result<std::vector<std::string>> SplitPath(std::string_view path);
// The same for one that may be relative, as the target of a symbolic link.
Result<std::vector<std::string>> SplitNames(std::string_view path);

}  // namespace pinstripe
