// The options of `-o`, as mount(8) and fstab hand them over. Pure.

#pragma once

#include <string>
#include <string_view>

namespace pinstripe {

// What the kernel and libfuse are to be given for `options`: ours, then the user's without those
// that only mean something in fstab ("nofail", "_netdev", "x-systemd.requires=...", "noauto").
std::string MountOptions(std::string_view options);

}  // namespace pinstripe
