// FailingDisk: a file system (ext4) on a disk that does not take what is written to it, for as long
// as a test wants: a file in a file system in memory that has no room for another byte. What the
// disk had taken before can be written again, so the file system itself goes on as if all was well,
// as with thin disks, and a sync of a file fails. The kernel tells of it and forgets it.
//
//   std::string why;
//   const auto disk = FailingDisk::Make(&why);   // null where this cannot be done; `why` says why
//
// Its mounts are of this process and its children, and are gone with them.

#pragma once

#include <memory>
#include <string>

#include "base/file_descriptor.h"

namespace pinstripe {

class FailingDisk {
 public:
  static std::unique_ptr<FailingDisk> Make(std::string* why);
  ~FailingDisk();
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;

  const std::string& path() const { return path_; }  // where it is mounted

  // From now on it takes nothing new, or everything again.
  void Fail();
  void Mend();

  // Whether this was told of a write that has failed. Somebody else in the machine does this:
  // whoever opens the file system later is not told of it.
  bool SyncBySomebodyElse();

  // What the disk did not take is gone. Nobody may use the file system.
  void Remount();

  // The file system takes itself for broken, as it does when its journal cannot be written: nothing
  // can be written to it until it is mounted again.
  void ShutDown();

 private:
  explicit FailingDisk(std::string directory);
  bool Prepare(std::string* why);

  const std::string directory_;
  const std::string path_;
  std::string device_;
  FileDescriptor holder_;  // of the device, which goes with the last who has it open
  FileDescriptor somebody_;
};

}  // namespace pinstripe
