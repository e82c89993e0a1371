// SegmentFiles: the files of a LogStore's log, by number. Opens them when they are needed and keeps
// a bounded number of them open. Knows nothing about what is in them.
//
// That what was written has got to the disk must be asked of a descriptor that was open all the
// time: of a write that failed, the kernel tells only those descriptors that were open then, and
// forgets it with the last of them. So who writes is given the descriptor to hold until it is
// synced.
//
// Space for what will be appended is asked of the file system ahead of it, in large steps: that
// makes the appends a sixth cheaper and the files contiguous. It lies beyond a file's end and holds
// nothing.
//
// Thread-safe, except that nobody writes what another one writes or punches at the same time.

#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "store/disk_reader.h"
#include "store/file_calls.h"
#include "store/file_turns.h"

namespace pinstripe {

class SegmentFiles {
 private:
  struct File;

 public:
  // An open segment that was written. It stays open as long as this is held, removed or not.
  using Held = std::shared_ptr<const File>;

  // `calls` outlives it.
  SegmentFiles(FileCalls& calls, std::string directory)
      : calls_(calls), directory_(std::move(directory)) {}

  std::string PathOf(uint32_t segment) const;
  Result<std::vector<uint32_t>> List() const;  // ascending

  // An empty file, whose name survives power loss.
  Status Create(uint32_t segment);
  Status Remove(uint32_t segment);

  Result<uint64_t> Size(uint32_t segment);
  Result<uint64_t> AllocatedBytes(uint32_t segment);
  Status Truncate(uint32_t segment, uint64_t size);

  // Gives back what was asked for ahead. Nobody writes the segment any more, or at this time.
  Status Trim(uint32_t segment);

  // Both wholly, or they fail; EBADMSG: the file ends before.
  Result<Held> Write(uint32_t segment, uint64_t offset, std::span<iovec> pieces);
  Status Read(uint32_t segment, uint64_t offset, std::span<iovec> pieces);

  // As Read(), from the disk: what only the kernel has of the segment does not count
  // (disk_reader.h). For one thread.
  Status ReadFromDisk(uint32_t segment, uint64_t offset, std::span<const iovec> pieces);

  void EndReadingFromDisk();  // what was read is not remembered any more

  // As Read(), but EAGAIN unless all of it is in memory.
  Status ReadAtOnce(uint32_t segment, uint64_t offset, std::span<const iovec> pieces);

  // What is written to the segment from now on, Sync() will say.
  Result<Held> Hold(uint32_t segment);

  // The data written so far survives power loss, since this was held. `segment` for the message.
  Status Sync(uint32_t segment, const Held& held);

  // Gives the whole 4 KiB pages between two offsets back to the file system; they read as zeros
  // then. Where a file system cannot do that nothing happens. A thread that writes the segment
  // already comes first.
  Status Punch(uint32_t segment, uint64_t begin, uint64_t end);

 private:
  static constexpr size_t kMaxOpen = 64;
  struct File {
    explicit File(int descriptor) : fd(descriptor) {}
    const FileDescriptor fd;
    FileTurns turns;
    std::atomic<uint64_t> asked_to = 0;  // up to where space was asked for since it was opened
  };
  using OpenFile = std::shared_ptr<File>;

  Result<OpenFile> Open(uint32_t segment);
  void AskAhead(File& file, uint64_t begin, uint64_t end);
  Failed Fault(const char* what, uint32_t segment) const;

  FileCalls& calls_;
  const std::string directory_;
  Mutex mutex_;
  std::map<uint32_t, OpenFile> open_ GUARDED_BY(mutex_);
  // Of ReadFromDisk(): the segment that it has read last.
  std::optional<uint32_t> disk_segment_;
  std::optional<DiskReader> disk_reader_;
};

}  // namespace pinstripe
