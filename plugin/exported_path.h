// ExportedPath: which paths are taken from clients. Pure.

#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace pinstripe {

// `path`, as XRootD hands it on. EACCES for one with "..": the server has checked what a client may
// do by the path's beginning, and not all of its protocols refuse these themselves. (What is
// exported none leaves anyway: FileSystem::Options::exported.)
Result<std::string> ExportedPath(std::string_view path);

}  // namespace pinstripe
