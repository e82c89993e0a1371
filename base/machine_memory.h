// MachineMemory: how much memory this process may have, by the machine and by the control group
// that it is in (a container, a systemd unit with MemoryMax=).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pinstripe {

uint64_t MachineMemory();

// The least limit of the groups that `groups` names, which is the text of /proc/self/cgroup, and of
// those that they are in. `root` is where the hierarchies are mounted, of version 1 or 2. Null:
// there is none.
std::optional<uint64_t> GroupMemoryLimit(std::string_view groups, const std::string& root);

}  // namespace pinstripe
