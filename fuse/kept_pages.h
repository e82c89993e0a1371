// KeptPages: which files' pages the kernel may keep when they are opened once more.
//
// The kernel drops a file's pages at each open, unless the answer says to keep them. It says so
// when all of them are of the version that the file has now. A version is the slot of the inode:
// every change by anybody moves it on, and it never comes back. We know the version of the pages
// after an open
//
//   - at which the kernel dropped all pages. The pages that it has since then were read from the
//     file as it was at that open or later. Reads under way hold on to their pages until they are
//     answered, and the kernel waits for them, so a read with the handle of that open comes later;
//   - while nobody has the file open for writing here, and nobody has failed to commit. Otherwise
//     the pages may have data that is not committed, and never will be.
//
// Pages that were read later than that open may be of a later version. Then the next open finds
// another slot than the remembered one, and the kernel drops all pages again.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/mutex.h"
#include "fs/file_system.h"

namespace pinstripe {

class KeptPages {
 public:
  explicit KeptPages(size_t most_files = 100'000) : most_files_(most_files) {}

  struct Opened {
    bool keep = false;     // whether the kernel may keep the pages
    uint64_t version = 0;  // of the file
    uint64_t writers = 0;  // as Writers() was before
  };
  // How many handles that write have come and gone so far.
  uint64_t Writers();
  // For a new handle that only reads. `version` is that of the file as its reads find it, without
  // anything that is not committed. The caller took `writers` first, and `version` then.
  Opened OpenToRead(InodeId file, uint64_t version, uint64_t writers);
  // The first read through that handle.
  void ReadBegins(InodeId file, const Opened& opened);

  // For each handle that may write.
  void OpenToWrite(InodeId file);
  void CloseWritten(InodeId file);
  // Around a change without a handle.
  class Writing {
   public:
    Writing(KeptPages& pages, InodeId file) : pages_(pages), file_(file) {
      pages_.OpenToWrite(file_);
    }
    ~Writing() { pages_.CloseWritten(file_); }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    KeptPages& pages_;
    const InodeId file_;
  };

 private:
  const size_t most_files_;
  Mutex mutex_;
  std::unordered_map<InodeId, uint64_t> versions_ GUARDED_BY(mutex_);  // of all pages of a file
  std::unordered_map<InodeId, uint64_t> writing_ GUARDED_BY(mutex_);   // handles
  uint64_t writers_ GUARDED_BY(mutex_) = 0;  // handles that came, and went
};

}  // namespace pinstripe
