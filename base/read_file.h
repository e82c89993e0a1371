// ReadFile: a small file as text.

#pragma once

#include <string>

#include "base/status.h"

namespace pinstripe {

// The whole file. A file that cannot be read, or is a directory, is not mistaken for an empty one.
Result<std::string> ReadFile(const std::string& path);

}  // namespace pinstripe
