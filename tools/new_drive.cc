#include "tools/new_drive.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "base/try.h"

namespace pinstripe {
namespace {

// Something in it, "" for nothing.
Result<std::string> SomethingIn(int directory) {
  FileDescriptor again(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> names(fdopendir(again.get()), &closedir);
  if (names == nullptr) {
    const int code = errno;
    return Fail(code, "{}", ErrnoText(code));
  }
  again.Release();
  errno = 0;
  while (const dirent* entry = readdir(names.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name != "lost+found") return std::string(name);
  }
  if (const int code = errno; code != 0) return Fail(code, "{}", ErrnoText(code));
  return std::string();
}

}  // namespace

Result<NewDrive> NewDrive::Open(const std::string& directory, const std::string& path) {
  FileDescriptor opened(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (opened.get() < 0) {
    const int code = errno;
    struct stat about {};
    if (lstat(path.c_str(), &about) == 0 && S_ISLNK(about.st_mode)) {
      return Fail(ELOOP, "it is a link: name the directory itself");
    }
    return Fail(code, "{}", ErrnoText(code));
  }
  const std::string something = TRY(SomethingIn(opened.get()));
  if (!something.empty()) {
    return Fail(ENOTEMPTY, "it is neither a drive nor empty: \"{}\" is in it", something);
  }
  return NewDrive(directory, std::move(opened));
}

Status NewDrive::GiveTo(const FileOwner& owner) const {
  if (fchown(opened_.get(), owner.user, owner.group) == 0) return {};
  const int code = errno;
  return Fail(code, "cannot change the owner of {}: {}", directory_, ErrnoText(code));
}

}  // namespace pinstripe
