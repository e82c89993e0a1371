// Directories that are drives, or are to become some: what pinstriped and `pinstripe join` have to
// agree on.

#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace pinstripe {

// Of the file that makes a directory a drive's (store/drive_mark.h).
inline constexpr char kDriveMarkName[] = "pinstripe-drive";

// What is in a directory, but for lost+found.
Result<std::vector<std::string>> NamesIn(const std::string& path);

// Something that keeps a directory from becoming a drive, as it is not empty; "" for nothing. What
// is left of `pinstriped --init` that was interrupted does not.
Result<std::string> SomethingIn(const std::string& path);

}  // namespace pinstripe
