#include "base/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_descriptor.h"

namespace pinstripe {

Failed BecauseOfErrno(std::string_view what, const std::string& path) {
  const int code = errno;
  return Fail(code, "cannot {} {}: {}", what, path, ErrnoText(code));
}

Status WriteAll(int file, const std::string& path, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t written = write(file, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return BecauseOfErrno("write", path);
    contents.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Status MakeNamesDurable(const std::string& directory) {
  const std::string path = directory.empty() ? "." : directory;
  const FileDescriptor names(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (names.get() < 0 || fsync(names.get()) != 0) return BecauseOfErrno("sync", path);
  return {};
}

}  // namespace pinstripe
