// StartsFile: the file of a store's directory in which its starts are written down (starts.h). It
// is replaced as a whole: after a kill or power loss at any moment it is the one from before or the
// one after.
//
// A daemon that was killed has lost nothing as long as the kernel has what it wrote. That is so as
// long as the machine is up, unless the file system was unmounted since, or its disk taken away:
// then the kernel has dropped the pages of its files, of this one as of all others, and that is how
// it is found out. A sync that failed is written into this very page. So even where the disk takes
// nothing any more the mark is there, or the page is gone, and either makes the next start unclean.
//
// Thread-safe.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "store/starts.h"

namespace pinstripe {

class StartsFile {
 public:
  static constexpr std::string_view kFileName = "starts";

  // For a store that is made now, in this directory: it was never started.
  static Status Create(const std::string& directory);

  // Reads what there is, and changes nothing. A file that is missing or damaged makes the start
  // unclean; ENOTSUP: it is of a newer program.
  static Result<std::unique_ptr<StartsFile>> Open(const std::string& directory);

  // What the last run has left may not all be on the disk, though the kernel shows it: it did not
  // end cleanly, and the machine has not been restarted since, as far as is known. Before Begin().
  bool kernel_may_show_more() const;

  // The store is about to answer. `lost`: what it misses that it should have, for people; empty:
  // nothing. When this succeeds the start is written down durably.
  Status Begin(std::string lost);

  // The disk did not take something: the next start is unclean.
  void NoteFailedSync();

  // Everything that was ever answered is durable, and nothing will be changed any more: the next
  // start is clean, whatever the machine does. EIO: a sync had failed.
  Status End();

  // Those until now, of which the first is this run's. None before Begin(). The first call writes
  // down that somebody was told.
  StoreStarts starts();

 private:
  // The file, and its first page, which is all of it.
  class Page {
   public:
    explicit Page(FileDescriptor file);
    ~Page();
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;
    Result<std::string> Read() const;
    FileIdentity identity() const;
    bool IsInMemory() const;  // false also where the file system cannot tell
    void StayInMemory() const;
    Status Overwrite(std::string_view bytes) const;  // as many as there are
    Status Sync() const;
    void LeaveMemory() const;

   private:
    const FileDescriptor file_;
    void* address_ = nullptr;
  };

  explicit StartsFile(const std::string& directory);
  Result<std::shared_ptr<const Page>> OpenPage() const;
  Status Write(Starts starts) const;
  Status Load();
  void NoteTold();

  const std::string path_;
  const std::string boot_id_;
  bool kernel_kept_pages_ = false;  // when it was opened
  FileIdentity found_in_;           // the file then
  Mutex telling_;                   // held while it is written down; taken before mutex_
  mutable Mutex mutex_;
  std::optional<Starts> said_ GUARDED_BY(mutex_);        // what the file says
  std::shared_ptr<const Page> page_ GUARDED_BY(mutex_);  // null: there is no file
  bool begun_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;
};

}  // namespace pinstripe
