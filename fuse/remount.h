// `mount -o remount,ro DIRECTORY`, and with other options of the kernel's: changes how a mount may
// be used while it is. Options that are ours take a new mount, so a change of these is refused.
//
// mount(8) runs its helper for a remount, too. It hands over all options that the mount is to have,
// from fstab, /proc/self/mountinfo and its command line. So an option that the mount has already
// asks for nothing. "exec", "async" and the like it tells only by leaving the opposite out.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pinstripe {

// Whether mount options ask for one.
bool IsRemount(std::string_view options);

// How a directory is mounted now.
struct MountedAs {
  unsigned long flags = 0;           // MS_RDONLY and others of mount(2)
  std::vector<std::string> options;  // of the file system, as user_id=0
};
// From the lines of /proc/self/mountinfo. `directory` is an absolute path. ENOENT: nothing is
// mounted there; EINVAL: no mount of ours.
Result<MountedAs> FindMounted(std::string_view mountinfo, std::string_view directory);

// Flags after a remount, and the options that it cannot change.
struct Remounted {
  unsigned long flags = 0;
  std::vector<std::string> others;
};
enum class Asks { kPerson, kMountHelper };
Remounted AfterRemount(const MountedAs& mounted, std::string_view options, Asks asks);

// EINVAL: the message names the options that take a new mount; EBUSY: a file is open for writing.
Status Remount(const std::string& directory, std::string_view options, Asks asks);

}  // namespace pinstripe
