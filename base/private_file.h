// Files with secrets in them.

#pragma once

#include <string>

#include "base/status.h"

namespace pinstripe {

// EACCES, with the command that mends it, when others than the file's owner can reach it; otherwise
// why it cannot be looked at.
Status CheckPrivateFile(const std::string& path);

}  // namespace pinstripe
