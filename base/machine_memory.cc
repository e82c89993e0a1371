#include "base/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/read_file.h"

namespace pinstripe {
namespace {

// "max" is none.
std::optional<uint64_t> LimitIn(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.has_value()) return std::nullopt;
  uint64_t limit = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), limit);
  if (error != std::errc()) return std::nullopt;
  return limit;
}

void Lower(std::optional<uint64_t>& least, std::optional<uint64_t> limit) {
  if (limit) least = std::min(least.value_or(*limit), *limit);
}

bool HasMemory(std::string_view controllers) {
  return ("," + std::string(controllers) + ",").find(",memory,") != std::string::npos;
}

}  // namespace

// A line is "NUMBER:CONTROLLERS:/PATH"; of version 2 it names no controllers. A container may see
// its own group as the root of the hierarchy, whatever the path says, so the root counts as well.
std::optional<uint64_t> GroupMemoryLimit(std::string_view groups, const std::string& root) {
  std::optional<uint64_t> least;
  while (!groups.empty()) {
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(line.size() + 1, groups.size()));
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !HasMemory(controllers)) continue;
    const std::string hierarchy = controllers.empty() ? root : root + "/memory";
    const char* const file = controllers.empty() ? "/memory.max" : "/memory.limit_in_bytes";
    std::string_view path = line.substr(second + 1);
    while (!path.empty()) {
      Lower(least, LimitIn(hierarchy + std::string(path) + file));
      path = path.substr(0, std::min(path.rfind('/'), path.size() - 1));
    }
    Lower(least, LimitIn(hierarchy + file));
  }
  return least;
}

uint64_t MachineMemory() {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const uint64_t machine = pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  const auto groups = ReadFile("/proc/self/cgroup");
  const auto limit = GroupMemoryLimit(groups.value_or(""), "/sys/fs/cgroup");
  return std::min(machine, limit.value_or(machine));
}

}  // namespace pinstripe
