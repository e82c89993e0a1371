#include "plugin/exported_path.h"

#include <algorithm>
#include <cerrno>

namespace pinstripe {

Result<std::string> ExportedPath(std::string_view path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (path.substr(begin, end - begin) == "..") {
      return Fail(EACCES, "'{}': a path with '..' is not taken from clients", path);
    }
    begin = end + 1;
  }
  return std::string(path);
}

}  // namespace pinstripe
