// DiskReader: reads a file from the disk, past what the kernel remembers of it.
//
// What the kernel shows of a file may never have got to the disk: it keeps showing what it could
// not write until it needs the memory. Whoever has to know asks the disk, after a sync that has
// succeeded.
//
// Reads well ahead, so it is for who goes through a file forwards, and for one thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "store/file_calls.h"

namespace pinstripe {

class DiskReader {
 public:
  // `calls` outlives it.
  static Result<DiskReader> Open(FileCalls& calls, std::string path);

  // Fills `into`, or fails; EBADMSG: the file ends before.
  Status Read(uint64_t offset, std::span<std::byte> into);

 private:
  static constexpr size_t kWindow = 1 << 20;
  struct alignas(FileCalls::kDirectBlock) Block {
    std::byte bytes[FileCalls::kDirectBlock];
  };

  DiskReader(FileCalls& calls, std::string path, FileDescriptor file);
  Status Fill(uint64_t offset);

  FileCalls* calls_;
  std::string path_;
  FileDescriptor file_;
  std::unique_ptr<Block[]> window_;
  uint64_t begin_ = 0;  // of the window in the file
  size_t size_ = 0;     // what is in it
};

}  // namespace pinstripe
