// StoreDirectory: the directory of a store on a disk before anything in it is read. Says whether
// there is a store, of which format and of which device, makes a new one, and holds the lock that
// keeps a second process out.

#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kinetic/io_loop.h"
#include "store/starts_file.h"

namespace pinstripe {

// What a device is known by, made once when its store is.
struct DeviceIdentity {
  std::string serial_number;
  std::string world_wide_name;
};

class StoreDirectory {
 public:
  // Makes the store when the directory is empty (but for lost+found) or not there yet;
  // `serial_number` is the new device's, or empty for one by chance. An existing store must have
  // that serial number when one is given. EBUSY: another process has it. ENOTSUP: of a newer
  // format. ENOTEMPTY: something else is there. EINVAL: another device. EBADMSG: its superblock is
  // damaged.
  static Result<StoreDirectory> Open(const std::string& path, const std::string& serial_number);

  // The same for a store that must exist already (ENOENT).
  static Result<StoreDirectory> OpenExisting(const std::string& path);

  // Whether a store was made in a directory, which need not be there.
  static Result<bool> HasStore(const std::string& path);

  // From now on the store in `path` is an empty one of the same device, whatever happens: what else
  // is in the directory is put aside when it is opened next. Whoever uses it now closes it after
  // this.
  static Status MarkErased(const std::string& path);

  const std::string& path() const { return path_; }
  std::string index_path() const { return path_ + "/index"; }
  std::string segments_path() const { return path_ + "/segments"; }
  const DeviceIdentity& identity() const { return identity_; }

  // Of a store that was opened to be served, by Open(): who opened it begins the start and ends it.
  StartsFile& starts() { return *starts_; }

  // A number that only grows: how much of the index is durable, kept beside it, so that an index
  // that has lost some of that can be told from one whose last changes power loss took. Writing
  // does not wait for the disk. 0 without one. EBADMSG: it is damaged. One thread at a time.
  Result<uint64_t> ReadMark() const;
  Status WriteMark(uint64_t mark);

 private:
  StoreDirectory(std::string path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  static Result<StoreDirectory> Lock(const std::string& path);
  Result<bool> ReadSuperblock();
  Status Create(const std::string& serial_number);
  Status MakeLayout();
  Result<bool> IsMarkedErased() const;
  Status FinishErase();

  std::string path_;
  FileDescriptor lock_;
  FileDescriptor mark_;  // open since it was first written
  DeviceIdentity identity_;
  std::unique_ptr<StartsFile> starts_;
};

// Removes files of erased stores in a store's directory, at most so many. True: there may be more.
Result<bool> RemoveErasedFiles(const std::string& path, size_t most);

// By chance, up to 32 bytes of it.
std::string RandomHex(size_t bytes);

// Makes a name that was added to a directory survive power loss.
Status SyncDirectory(const std::string& path);

// Writes a file anew, or makes it. Whatever happens it is the old one or the new one, and when this
// has succeeded the new one survives power loss.
Status ReplaceFileDurably(const std::string& path, std::string_view bytes, mode_t mode);

// The same, for a file that says something of itself: what is in it is made when it is there.
Status ReplaceFileDurably(const std::string& path,
                          const std::function<Result<std::string>(int fd)>& bytes, mode_t mode);

}  // namespace pinstripe
