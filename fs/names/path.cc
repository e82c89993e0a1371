#include "fs/names/path.h"

#include <algorithm>

#include "base/try.h"
#include "fs/types.h"

namespace pinstripe {
namespace {

Status CheckLength(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return Fail(ENAMETOOLONG, "a name of {} bytes: at most {} are allowed", name.size(),
                kMaxNameBytes);
  }
  return {};
}

}  // namespace

Status CheckName(std::string_view name) {
  if (name.empty()) return Fail(EINVAL, "a name must not be empty");
  if (name == "." || name == "..") return Fail(EINVAL, "'{}' cannot be a name", name);
  if (name.find('/') != name.npos) return Fail(EINVAL, "a name must not have a '/'");
  if (name.find('\0') != name.npos) return Fail(EINVAL, "a name must not have a NUL");
  return CheckLength(name);
}

Status CheckSymlinkTarget(std::string_view target) {
  if (target.empty()) return Fail(ENOENT, "a symbolic link must lead somewhere");
  if (target.find('\0') != target.npos) {
    return Fail(EINVAL, "a symbolic link's target must not have a NUL");
  }
  if (target.size() > kMaxSymlinkBytes) {
    return Fail(ENAMETOOLONG, "a symbolic link's target of {} bytes: at most {} are allowed",
                target.size(), kMaxSymlinkBytes);
  }
  return {};
}

Result<std::vector<std::string>> SplitPath(std::string_view path) {
  if (path.size() > kMaxPathBytes) {
    return Fail(ENAMETOOLONG, "a path of {} bytes: at most {} are allowed", path.size(),
                kMaxPathBytes);
  }
  if (path.empty() || path.front() != '/') return Fail(EINVAL, "a path must begin with '/'");
  if (path.find('\0') != path.npos) return Fail(EINVAL, "a path must not have a NUL");
  return SplitNames(path);
}

Result<std::vector<std::string>> SplitNames(std::string_view path) {
  std::vector<std::string> names;
  for (size_t first = 0; first < path.size();) {
    const size_t end = std::min(path.find('/', first), path.size());
    const std::string_view name = path.substr(first, end - first);
    first = end + 1;
    if (name.empty() || name == ".") continue;
    TRY(CheckLength(name));
    names.emplace_back(name);
  }
  return names;
}

}  // namespace pinstripe
