#include "tools/file_writing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/file_descriptor.h"
#include "base/try.h"

namespace pinstripe {
namespace {

Failed Because(const char* what, const std::string& path) {
  const int code = errno;
  return Fail(code, "cannot {} {}: {}", what, path, ErrnoText(code));
}

Status WriteAll(int file, const std::string& path, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t written = write(file, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Because("write", path);
    contents.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// The mode widens at the end, and only when the contents belong to their owner.
Status Fill(int file, const std::string& path, std::string_view contents, mode_t mode,
            std::optional<FileOwner> owner) {
  TRY(WriteAll(file, path, contents));
  if (owner && fchown(file, owner->user, owner->group) != 0) {
    return Because("change the owner of", path);
  }
  if (fchmod(file, mode) != 0) return Because("change the mode of", path);
  if (fsync(file) != 0) return Because("sync", path);
  return {};
}

}  // namespace

Status WriteNewFile(const std::string& path, std::string_view contents, mode_t mode) {
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) return Because("make", path);
  return Fill(file.get(), path, contents, mode, std::nullopt);
}

Status ReplaceFile(const std::string& path, std::string_view contents, mode_t mode,
                   std::optional<FileOwner> owner) {
  std::string beside = path + ".XXXXXX";
  const FileDescriptor file(mkostemp(beside.data(), O_CLOEXEC));
  if (file.get() < 0) return Because("make a file beside", path);
  Status status = Fill(file.get(), beside, contents, mode, owner);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    status = Because("put into its place", path);
  }
  if (!status.ok()) {
    unlink(beside.c_str());
    return status;
  }
  return MakeNamesDurable(std::filesystem::path(path).parent_path().string());
}

Status MakeNamesDurable(const std::string& path) {
  const FileDescriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) return Because("sync", path);
  return {};
}

}  // namespace pinstripe
