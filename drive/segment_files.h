// SegmentFiles: the files of a LogStore's log, by number. Opens them when they are needed and keeps a
// bounded number of them open. Knows nothing about what is in them.
//
// Thread-safe, except that nobody writes what another one writes or punches at the same time.

#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "drive/io_loop.h"

namespace pinstripe {

class SegmentFiles {
 public:
  explicit SegmentFiles(std::string directory) : directory_(std::move(directory)) {}

  std::string PathOf(uint32_t segment) const;
  Result<std::vector<uint32_t>> List() const;  // ascending

  // An empty file, whose name survives power loss.
  Status Create(uint32_t segment);
  Status Remove(uint32_t segment);

  Result<uint64_t> Size(uint32_t segment);
  Result<uint64_t> AllocatedBytes(uint32_t segment);
  Status Truncate(uint32_t segment, uint64_t size);

  // Both wholly, or they fail; EBADMSG: the file ends before.
  Status Write(uint32_t segment, uint64_t offset, std::span<iovec> pieces);
  Status Read(uint32_t segment, uint64_t offset, std::span<iovec> pieces);

  // The data written so far survives power loss.
  Status Sync(uint32_t segment);

  // Gives the whole 4 KiB pages between two offsets back to the file system; they read as zeros then.
  // Where a file system cannot do that nothing happens.
  Status Punch(uint32_t segment, uint64_t begin, uint64_t end);

 private:
  static constexpr size_t kMaxOpen = 64;
  using OpenFile = std::shared_ptr<const FileDescriptor>;

  Result<OpenFile> Open(uint32_t segment);
  Failed Fault(const char* what, uint32_t segment) const;

  const std::string directory_;
  std::mutex mutex_;
  std::map<uint32_t, OpenFile> open_;  // guarded by mutex_
};

}  // namespace pinstripe
