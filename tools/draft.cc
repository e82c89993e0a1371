#include "tools/draft.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByChance = "XXXXXX";

// Null: somebody is at work on it, or it is not ours.
FileDescriptor Lock(const std::string& path) {
  FileDescriptor lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  const bool is_ours =
      lock.get() >= 0 && fstat(lock.get(), &about) == 0 && about.st_uid == geteuid();
  if (!is_ours || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return FileDescriptor(-1);
  return lock;
}

// What processes that were killed have left. What cannot be removed stays: it is in nobody's way.
void RemoveLeftovers(const std::string& name) {
  const fs::path begins(name);
  const std::string prefix = begins.filename();
  const fs::path directory = begins.has_parent_path() ? begins.parent_path() : fs::path(".");
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string found = at->path().filename();
    if (!found.starts_with(prefix) || found.size() != prefix.size() + kByChance.size()) continue;
    const FileDescriptor lock = Lock(at->path());
    std::error_code ignored;
    if (lock.get() >= 0) fs::remove_all(at->path(), ignored);
  }
}

}  // namespace

Result<Draft> Draft::Make(const std::string& name) {
  RemoveLeftovers(name);
  std::string path = name + std::string(kByChance);
  if (mkdtemp(path.data()) == nullptr) {
    const int code = errno;
    return Fail(code, "cannot make a directory {}: {}", path, ErrnoText(code));
  }
  FileDescriptor lock = Lock(path);
  if (lock.get() < 0) return Fail(EBUSY, "somebody else is at work on {}: try again", path);
  return Draft(std::move(path), std::move(lock));
}

Draft::Draft(std::string path, FileDescriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

Draft::Draft(Draft&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}

Draft::~Draft() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace pinstripe
