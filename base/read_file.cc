#include "base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/file_descriptor.h"

namespace pinstripe {

Result<std::string> ReadFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  ssize_t got = file.get() < 0 ? -1 : 1;
  for (char buffer[4096]; got > 0;) {
    got = read(file.get(), buffer, sizeof buffer);
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  if (got < 0) return Fail(errno, "cannot read {}: {}", path, ErrnoText(errno));
  return text;
}

}  // namespace pinstripe
