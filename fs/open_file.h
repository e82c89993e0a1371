// OpenFile: a handle on a file of a FileSystem (fs/file_system.h). fs/handle.h implements it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/runtime.h"
#include "base/status.h"
#include "fs/types.h"

namespace pinstripe {

// An open file. Any number of threads may use one, and any number of handles may be open on a file;
// within one FileSystem all of them see each write at once, committed or not. Other processes see a
// file as of the last commit before they opened it.
//
// A commit is one conditional change of the inode: before it, nothing of what was written is
// visible elsewhere, after it everything is. Sync() and Close() commit; Sync() also makes it safe
// from power loss. A write that failed in the background is reported by the next Sync() and by
// Close() of every handle that wrote.
class OpenFile {
 public:
  virtual ~OpenFile() = default;  // without Close(): what was not committed is dropped

  // Fills all of `out` unless the file ends before: the number of bytes read. 0 at or after the
  // end.
  virtual Result<size_t> Read(uint64_t offset, MutableBytes out) = 0;

  // As many reads, all at once, of one moment's contents; each as above.
  struct Part {
    uint64_t offset = 0;
    MutableBytes out;
    size_t length = 0;  // that was read, when the call succeeds
    // None, or one for each page of the file that `out` touches: the sum with which it was stored,
    // and which its bytes in `out` were found to have. Of many it is not known.
    std::span<PageSum> sums = {};
  };
  virtual Status ReadParts(std::span<Part> parts) = 0;

  // All or nothing. EFBIG beyond kMaxFileBytes; EBADF if opened for reading only. `page_sums`:
  // none, or the CRC32C of each page of the file (kFilePageBytes) that the bytes touch; of the
  // first and the last page as far as they touch it. The bytes are compared with them when they are
  // stored, and these are the sums that are stored. Where they differ nothing can be committed
  // (EDOM) until those bytes are written again, or cut off.
  virtual Status Write(uint64_t offset, Bytes data, std::span<const uint32_t> page_sums = {}) = 0;

  // It is likely to be read, and soon. What is small is asked for now, and nobody waits for it.
  virtual void ExpectReading() {}

  // Atomic at the end of the file as this FileSystem sees it; the answer is where it went.
  virtual Result<uint64_t> Append(Bytes data) = 0;

  virtual Status Truncate(uint64_t size) = 0;

  enum class Size { kStays, kGrows };  // kGrows: to the end of what is asked for, if that is beyond

  // As if zeros were written there: with kStays, up to the end of the file. Blocks of which nothing
  // else is left become holes, which take no space.
  virtual Status Zero(uint64_t offset, uint64_t length, Size size) = 0;

  // Nothing is reserved: only if there is no room for the holes in this range now, it is ENOSPC.
  virtual Status Allocate(uint64_t offset, uint64_t length, Size size) = 0;

  // Where there is data (which may be zeros), or a hole, next, from `offset` on; behind the file is
  // a hole. ENXIO: nowhere, or `offset` is not within the file.
  enum class Contents { kData, kHole };
  virtual Result<uint64_t> Seek(uint64_t offset, Contents contents) = 0;

  // Has `target` share blocks with this file, from these places on, instead of copying them, and
  // commits both: the number of bytes, which may be less than `length`; 0: they are to be copied.
  // Blocks can be shared when both places begin one, in files of the same layout, the range has a
  // whole block or goes to the end of both files, and it is worth it.
  virtual Result<uint64_t> ShareBlocks(uint64_t offset, uint64_t length, OpenFile& target,
                                       uint64_t target_offset) = 0;

  virtual Status SetAttributes(const AttributeChange& change) = 0;
  // With uncommitted size and times. `age` as for FileSystem::GetAttributes().
  virtual Result<Attributes> Stat(Duration age = {}) = 0;
  // As this process last saw them, when it opened the file say: nobody is asked.
  virtual Attributes Known() = 0;

  virtual Status Sync() = 0;    // commit, durably
  virtual Status Commit() = 0;  // commit: what close does; the handle stays open
  virtual Status Close() = 0;   // commit and end; call once. Durable if the cluster says so

  virtual InodeId inode() const = 0;
  // The version of what is committed, as reads find it. Each change of the inode by anybody gives
  // it another one, and none comes back. 0: reads find what is not committed, and may never be, as
  // when a commit has failed and somebody still has the file open.
  virtual uint64_t Version() = 0;
};

}  // namespace pinstripe
