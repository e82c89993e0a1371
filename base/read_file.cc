#include "base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/file_descriptor.h"

namespace pinstripe {

namespace {

// Whatever is read whole is written by people.
constexpr size_t kMaxFileBytes = size_t{16} << 20;

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  ssize_t got = file.get() < 0 ? -1 : 1;
  for (char buffer[4096]; got > 0;) {
    got = read(file.get(), buffer, sizeof buffer);
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxFileBytes) return Fail(EFBIG, "{}: it is longer than 16 MiB", path);
  }
  if (got < 0) return Fail(errno, "cannot read {}: {}", path, ErrnoText(errno));
  return text;
}

}  // namespace pinstripe
