// What is written to a file as a whole, and the names in a directory: so that a loss of power
// leaves them.

#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace pinstripe {

// "cannot write /some/file: No space left on device", by errno.
Failed BecauseOfErrno(std::string_view what, const std::string& path);

// All of it, from where the file is. `path` is for the message.
Status WriteAll(int file, const std::string& path, std::string_view contents);

// The names in the directory, of which "" is the current one, last from now on.
Status MakeNamesDurable(const std::string& directory);

}  // namespace pinstripe
