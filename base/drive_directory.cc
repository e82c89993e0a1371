#include "base/drive_directory.h"

#include <dirent.h>

#include <memory>
#include <string_view>

#include "base/try.h"

namespace pinstripe {

Result<std::vector<std::string>> NamesIn(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), &closedir);
  if (directory == nullptr) {
    const int code = errno;
    return Fail(code, "cannot read directory {}: {}", path, ErrnoText(code));
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name != "lost+found") names.emplace_back(name);
  }
  if (const int code = errno; code != 0) {
    return Fail(code, "cannot read directory {}: {}", path, ErrnoText(code));
  }
  return names;
}

Result<std::string> SomethingIn(const std::string& path) {
  const std::string left = std::string(kDriveMarkName) + ".new";
  for (std::string& name : TRY(NamesIn(path))) {
    if (name != left) return std::move(name);
  }
  return std::string();
}

}  // namespace pinstripe
