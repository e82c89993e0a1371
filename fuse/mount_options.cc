#include "fuse/mount_options.h"

#include <algorithm>
#include <array>

namespace pinstripe {
namespace {

// default_permissions: the kernel checks modes and owners, so that nobody else has to.
constexpr std::string_view kOurs = "default_permissions,fsname=pinstripe,subtype=pinstripe";

bool IsForFstab(std::string_view option) {
  constexpr std::array<std::string_view, 8> kNames = {"_netdev", "auto",   "defaults", "noauto",
                                                      "nofail",  "nouser", "user",     "users"};
  return option.starts_with("x-") || std::ranges::find(kNames, option) != kNames.end();
}

}  // namespace

std::string MountOptions(std::string_view options) {
  std::string result(kOurs);
  while (!options.empty()) {
    const size_t comma = std::min(options.find(','), options.size());
    const std::string_view option = options.substr(0, comma);
    options.remove_prefix(std::min(comma + 1, options.size()));
    if (option.empty() || IsForFstab(option)) continue;
    result += ',';
    result += option;
  }
  return result;
}

}  // namespace pinstripe
