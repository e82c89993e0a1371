#include "tools/new_drive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/drive_directory.h"
#include "base/try.h"

namespace pinstripe {
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
  // Whatever has its name by now.
  const std::string something = TRY(SomethingIn(fmt::format("/proc/self/fd/{}", opened.get())));
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
