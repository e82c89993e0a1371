#include "store/index_files.h"

#include <fcntl.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "store/descriptor_reserve.h"

namespace pinstripe {
namespace {

using rocksdb::IOStatus;

thread_local bool may_wait = true;
thread_local int* opened_for_question = nullptr;
std::atomic<int> opened_for_questions = 0;

IOStatus WouldWait() { return IOStatus::Busy("the kernel has it not in memory"); }

IOStatus Failure(const std::string& what, const std::string& path) {
  return IOStatus::IOError(what + " " + path, ErrnoText(errno));
}

class Table final : public rocksdb::FSRandomAccessFile {
 public:
  Table(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  // Less than was asked for only at the end of the file.
  IOStatus Read(uint64_t offset, size_t size, const rocksdb::IOOptions&, rocksdb::Slice* result,
                char* scratch, rocksdb::IODebugContext*) const override {
    *result = rocksdb::Slice(scratch, 0);
    size_t done = 0;
    while (done < size) {
      const iovec rest{scratch + done, size - done};
      const ssize_t got = preadv2(fd_.get(), &rest, 1, static_cast<off_t>(offset + done),
                                  may_wait ? 0 : RWF_NOWAIT);
      if (got > 0) {
        done += static_cast<size_t>(got);
      } else if (!may_wait) {  // EAGAIN; or a file system that always waits
        return WouldWait();
      } else if (got == 0) {
        break;
      } else if (errno != EINTR) {
        return Failure("read", path_);
      }
    }
    *result = rocksdb::Slice(scratch, done);
    return IOStatus::OK();
  }

  IOStatus Prefetch(uint64_t offset, size_t size, const rocksdb::IOOptions&,
                    rocksdb::IODebugContext*) override {
    if (!may_wait) return WouldWait();
    if (readahead(fd_.get(), static_cast<off_t>(offset), size) == 0) return IOStatus::OK();
    if (errno == EINVAL) return IOStatus::NotSupported();
    return Failure("read ahead in", path_);
  }

  void Hint(AccessPattern pattern) override {
    switch (pattern) {
      case kNormal: return Advise(POSIX_FADV_NORMAL);
      case kRandom: return Advise(POSIX_FADV_RANDOM);
      case kSequential: return Advise(POSIX_FADV_SEQUENTIAL);
      case kWillNeed: return Advise(POSIX_FADV_WILLNEED);
      case kWontNeed: return Advise(POSIX_FADV_DONTNEED);
    }
  }

  IOStatus InvalidateCache(size_t offset, size_t length) override {
    const int failed = posix_fadvise(fd_.get(), static_cast<off_t>(offset),
                                     static_cast<off_t>(length), POSIX_FADV_DONTNEED);
    if (failed == 0) return IOStatus::OK();
    return IOStatus::IOError("forget " + path_, ErrnoText(failed));
  }

 private:
  void Advise(int advice) const { (void)posix_fadvise(fd_.get(), 0, 0, advice); }

  const FileDescriptor fd_;
  const std::string path_;
};

// Everything but reading tables is as RocksDB does it, with a descriptor of the reserve where there
// is no other.
class Files final : public rocksdb::FileSystemWrapper {
 public:
  Files() : FileSystemWrapper(FileSystem::Default()) {}
  const char* Name() const override { return "pinstripe.IndexFiles"; }

  IOStatus NewRandomAccessFile(const std::string& path, const rocksdb::FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                               rocksdb::IODebugContext* context) override {
    // A table whose filter cannot be read when it is opened would be without one for good.
    if (!may_wait) return WouldWait();
    if (opened_for_question != nullptr) {
      ++*opened_for_question;
      ++opened_for_questions;
    }
    if (options.use_direct_reads || options.use_mmap_reads) {
      return FileSystemWrapper::NewRandomAccessFile(path, options, file, context);
    }
    int fd = -1;
    do fd = OpenFile(path, O_RDONLY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0 && errno == ENOENT) return IOStatus::PathNotFound("open " + path, ErrnoText(errno));
    if (fd < 0) return Failure("open", path);
    *file = std::make_unique<Table>(FileDescriptor(fd), path);
    return IOStatus::OK();
  }

  IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             rocksdb::IODebugContext* context) override {
    return Open([&] { return FileSystemWrapper::NewSequentialFile(path, options, file, context); });
  }
  IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           rocksdb::IODebugContext* context) override {
    return Open([&] { return FileSystemWrapper::NewWritableFile(path, options, file, context); });
  }
  IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              rocksdb::IODebugContext* context) override {
    return Open(
        [&] { return FileSystemWrapper::ReopenWritableFile(path, options, file, context); });
  }
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                             const rocksdb::FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* file,
                             rocksdb::IODebugContext* context) override {
    return Open([&] {
      return FileSystemWrapper::ReuseWritableFile(path, old_path, options, file, context);
    });
  }
  IOStatus NewRandomRWFile(const std::string& path, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                           rocksdb::IODebugContext* context) override {
    return Open([&] { return FileSystemWrapper::NewRandomRWFile(path, options, file, context); });
  }
  IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* directory,
                        rocksdb::IODebugContext* context) override {
    return Open([&] { return FileSystemWrapper::NewDirectory(path, options, directory, context); });
  }
  IOStatus GetChildren(const std::string& path, const rocksdb::IOOptions& options,
                       std::vector<std::string>* names, rocksdb::IODebugContext* context) override {
    return Open([&] { return FileSystemWrapper::GetChildren(path, options, names, context); });
  }

 private:
  // RocksDB's own files leave errno as the call that has failed has set it.
  template <typename Call>
  static IOStatus Open(const Call& call) {
    for (;;) {
      errno = 0;
      IOStatus status = call();
      if (status.ok() || !DescriptorReserve::OfProcess().Yield(errno)) return status;
    }
  }
};

}  // namespace

rocksdb::Env* IndexFiles::Env() {
  // RocksDB's threads may look at it until the very end.
  static rocksdb::Env* const env = rocksdb::NewCompositeEnv(std::make_shared<Files>()).release();
  return env;
}

IndexFiles::NoWait::NoWait() {
  assert(may_wait && opened_for_question == nullptr);
  may_wait = false;
}
IndexFiles::NoWait::~NoWait() { may_wait = true; }

IndexFiles::Wait::Wait() {
  assert(may_wait && opened_for_question == nullptr);
  opened_for_question = &opened_;
}
IndexFiles::Wait::~Wait() {
  opened_for_questions -= opened_;
  opened_for_question = nullptr;
}

bool IndexFiles::IsOpening() { return opened_for_questions > 0; }

}  // namespace pinstripe
