#include "fs/cache/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "base/try.h"

namespace pinstripe {
namespace {

Failed Because(std::string_view what, const std::string& path) {
  const int code = errno;
  return Fail(code, "{} {}: {}", what, path, ErrnoText(code));
}

class LocalFile final : public CacheFile {
 public:
  LocalFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status Write(uint64_t position, Bytes bytes) override {
    while (!bytes.empty()) {
      const ssize_t done =
          pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(position));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return Because("write", path_);
      bytes = bytes.subspan(static_cast<size_t>(done));
      position += static_cast<uint64_t>(done);
    }
    return {};
  }

  Result<size_t> Read(uint64_t position, MutableBytes out) override {
    size_t got = 0;
    while (got < out.size()) {
      const ssize_t more =
          pread(fd_.get(), out.data() + got, out.size() - got, static_cast<off_t>(position + got));
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) return Because("read", path_);
      if (more == 0) break;
      got += static_cast<size_t>(more);
    }
    return got;
  }

  bool ReadFromMemory(uint64_t position, MutableBytes out) override {
    const iovec part{out.data(), out.size()};
    const ssize_t got = preadv2(fd_.get(), &part, 1, static_cast<off_t>(position), RWF_NOWAIT);
    return got == static_cast<ssize_t>(out.size());
  }

  Result<uint64_t> Size() override {
    struct stat about {};
    if (fstat(fd_.get(), &about) != 0) return Because("stat", path_);
    return static_cast<uint64_t>(about.st_size);
  }

  bool IsRemoved() override {
    struct stat about {};
    return fstat(fd_.get(), &about) != 0 || about.st_nlink == 0;
  }

 private:
  const FileDescriptor fd_;
  const std::string path_;
};

class LocalDirectory final : public CacheDirectory {
 public:
  LocalDirectory(std::string parent, const std::string& name)
      : parent_(std::move(parent)), path_(parent_ + "/" + name) {}

  Status Claim() override {
    lock_ = FileDescriptor();
    for (const std::string& path : {parent_, path_}) {
      if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Because("mkdir", path);
    }
    struct stat about {};
    if (lstat(path_.c_str(), &about) != 0) return Because("stat", path_);
    // It holds contents of files, of all users.
    if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077) != 0) {
      return Fail(EACCES, "{} is not a directory of this user's, mode 0700: remove it", path_);
    }
    const std::string file = LockFile();
    FileDescriptor lock(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (lock.get() < 0) return Because("open", file);
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return Because("lock", file);
      return Fail(EBUSY, "{} is used by another process: give each a cache_dir of its own", path_);
    }
    lock_ = std::move(lock);
    if (!IsClaimed()) return Fail(EBUSY, "{} was removed in this moment", path_);
    return {};
  }

  bool IsClaimed() override {
    struct stat ours {};
    struct stat there {};
    return lock_.get() >= 0 && fstat(lock_.get(), &ours) == 0 &&
           stat(LockFile().c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
  }

  Result<std::vector<std::string>> List() override {
    struct Close {
      void operator()(DIR* one) const { closedir(one); }
    };
    const std::unique_ptr<DIR, Close> directory(opendir(path_.c_str()));
    if (directory == nullptr) return Because("list", path_);
    std::vector<std::string> names;
    while (const dirent* entry = readdir(directory.get())) names.emplace_back(entry->d_name);
    return names;
  }

  Result<std::unique_ptr<CacheFile>> Open(const std::string& name) override {
    return OpenWith(name, 0);
  }
  Result<std::unique_ptr<CacheFile>> Create(const std::string& name) override {
    return OpenWith(name, O_CREAT | O_EXCL);
  }

  Status Remove(const std::string& name) override {
    const std::string path = path_ + "/" + name;
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return Because("remove", path);
    return {};
  }

  const std::string& path() const override { return path_; }

 private:
  std::string LockFile() const { return path_ + "/lock"; }

  Result<std::unique_ptr<CacheFile>> OpenWith(const std::string& name, int flags) {
    std::string path = path_ + "/" + name;
    FileDescriptor fd(
        open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600));
    if (fd.get() < 0) return Because("open", path);
    return std::make_unique<LocalFile>(std::move(fd), std::move(path));
  }

  const std::string parent_;
  const std::string path_;
  FileDescriptor lock_;
};

}  // namespace

std::unique_ptr<CacheDirectory> LocalCacheDirectory(const std::string& parent,
                                                    const std::string& name) {
  return std::make_unique<LocalDirectory>(parent, name);
}

}  // namespace pinstripe
