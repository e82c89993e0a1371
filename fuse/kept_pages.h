// KeptPages: which files' pages the kernel may keep when they are opened once more.
//
// The kernel drops the pages that it has of a file at each open, unless it is told to keep them. It
// is told so when all of them are of the version that the file has now: the slot of its inode,
// which every change of it by anybody moves on, and which never comes back. That is known of an
// open
//
//   - at which the kernel dropped all pages: what it has since then was read from the file as it
//     was at that open or later, as reads under way hold on to their pages until they are answered,
//     and are waited for; whoever asks for bytes with the handle of that open is past that point;
//   - while nobody has the file open for writing here, and nothing is left of one who failed to
//     commit: the pages have what is not committed, too, and may never be.
//
// What was read later than that open may be of a later version. Then the next open finds another
// slot than the one that is remembered, and all is dropped again.
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
    bool keep = false;     // what the kernel is to be told
    uint64_t version = 0;  // of the file
    uint64_t writers = 0;  // that had come and gone before
  };
  // How many have come and gone so far.
  uint64_t Writers();
  // For a handle that only reads, when it is made; `version` is of the file as its reads find it,
  // and nothing that is not committed. It was asked for after `writers` was.
  Opened OpenToRead(InodeId file, uint64_t version, uint64_t writers);
  // The first read through that handle.
  void ReadBegins(InodeId file, const Opened& opened);

  // Of each handle that may write.
  void OpenToWrite(InodeId file);
  void CloseWritten(InodeId file);
  // Around what writes without a handle.
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
  std::unordered_map<InodeId, uint64_t> versions_ GUARDED_BY(mutex_);  // of which all pages are
  std::unordered_map<InodeId, uint64_t> writing_ GUARDED_BY(mutex_);   // handles
  uint64_t writers_ GUARDED_BY(mutex_) = 0;  // handles that came, and went
};

}  // namespace pinstripe
