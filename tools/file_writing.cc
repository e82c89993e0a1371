#include "tools/file_writing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/file_descriptor.h"
#include "base/try.h"
#include "base/write_file.h"

namespace pinstripe {
namespace {

// The mode widens at the end, and only when the contents belong to their owner.
Status Fill(int file, const std::string& path, std::string_view contents, mode_t mode,
            std::optional<FileOwner> owner) {
  TRY(WriteAll(file, path, contents));
  if (owner && fchown(file, owner->user, owner->group) != 0) {
    return BecauseOfErrno("change the owner of", path);
  }
  if (fchmod(file, mode) != 0) return BecauseOfErrno("change the mode of", path);
  if (fsync(file) != 0) return BecauseOfErrno("sync", path);
  return {};
}

}  // namespace

Status WriteNewFile(const std::string& path, std::string_view contents, mode_t mode) {
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) return BecauseOfErrno("make", path);
  return Fill(file.get(), path, contents, mode, std::nullopt);
}

Status ReplaceFile(const std::string& path, std::string_view contents, mode_t mode,
                   std::optional<FileOwner> owner) {
  std::string beside = path + ".XXXXXX";
  const FileDescriptor file(mkostemp(beside.data(), O_CLOEXEC));
  if (file.get() < 0) return BecauseOfErrno("make a file beside", path);
  Status status = Fill(file.get(), beside, contents, mode, owner);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    status = BecauseOfErrno("put into its place", path);
  }
  if (!status.ok()) {
    unlink(beside.c_str());
    return status;
  }
  return MakeNamesDurable(std::filesystem::path(path).parent_path().string());
}

}  // namespace pinstripe
