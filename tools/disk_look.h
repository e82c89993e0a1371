// A look at the directories that are drives' or are to become so: whether each is a disk of its
// own, on a file system that keeps what it was given, with room, and with an fsync that is one.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "tools/diagnosis.h"

namespace pinstripe {

struct DiskReading {
  std::string directory;
  Status looked;  // why it cannot be looked at
  bool is_mount_point = false;
  uint64_t file_system_id = 0;  // st_dev: the same for directories of one file system
  std::set<std::string> disks;  // "sda" ..., on which it lies; empty: not known
  std::string file_system;      // "xfs"
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  Result<Duration> sync = Duration();  // how long an fsync of 4 KiB takes, in the middle
  bool is_drive = false;  // it has the mark of one, or a store from before there were marks
};

// The disks that a block device is, is a part of, or is made of (LVM, LUKS, MD), as `sys` ("/sys")
// knows it. Empty: it is none.
std::set<std::string> DisksOf(dev_t device, const std::string& sys);

// What /proc/self/mountinfo says of the file system that a path lies on. Null: nothing.
struct MountedAt {
  std::string point;
  std::string type;    // "xfs"
  std::string source;  // "/dev/sda1", or of zfs "pool/dataset"
};
std::optional<MountedAt> FindMount(std::string_view mountinfo, const std::string& path);

// Writes a few blocks to a file without a name. `directory` is what messages say, and lies at
// `path`.
DiskReading ReadDisk(Runtime& runtime, const std::string& directory, const std::string& path);

// What is wrong with each and with all of them together; one that is fine has a diagnosis, too.
// `shared_disks`: directories that are no disks of their own are not refused.
std::vector<Diagnosis> JudgeDisks(const std::vector<DiskReading>& readings, bool shared_disks);

}  // namespace pinstripe
