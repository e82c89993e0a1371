// ExportedPath: where in the file system a client's path leads. Pure.

#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace pinstripe {

// `path`, as XRootD hands it on, below the directory that clients see as "/" (`root`: empty, or
// absolute and without '/' at its end). EACCES for one with "..": the server has checked what a
// client may do by the path's beginning, and not all of its protocols refuse these themselves.
Result<std::string> ExportedPath(std::string_view root, std::string_view path);

}  // namespace pinstripe
