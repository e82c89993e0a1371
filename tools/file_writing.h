// Files with secrets in them, written so that nobody else can read them at any moment, and so that
// a loss of power leaves either the old or the new one.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pinstripe {

struct FileOwner {
  uid_t user = 0;
  gid_t group = 0;
};

// A file that is not there yet: EEXIST. It is durable; its name is when MakeNamesDurable() was
// called (base/write_file.h).
Status WriteNewFile(const std::string& path, std::string_view contents, mode_t mode);

// In the place of one that is there, or not. Without an owner it is the caller's.
Status ReplaceFile(const std::string& path, std::string_view contents, mode_t mode,
                   std::optional<FileOwner> owner);

}  // namespace pinstripe
