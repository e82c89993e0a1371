#include "base/private_file.h"

#include <sys/stat.h>

namespace pinstripe {

Status CheckPrivateFile(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) {
    const int code = errno;
    return Fail(code, "cannot read {}: {} (it holds the keys of the drives)", path,
                ErrnoText(code));
  }
  const unsigned mode = about.st_mode & 07777;
  if ((mode & 077) != 0) {
    return Fail(EACCES,
                "{} has mode {:04o}, so others can reach the keys in it: run "
                "`chmod 0600 {}`",
                path, mode, path);
  }
  return {};
}

}  // namespace pinstripe
