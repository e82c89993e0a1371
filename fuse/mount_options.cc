#include "fuse/mount_options.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/config.h"
#include "base/try.h"
#include "fs/file_system.h"
#include "metrics/address.h"
#include "upkeep/slow_operations.h"

namespace pinstripe {
namespace {

constexpr uint64_t kLeastCacheBytes = 1 << 20;
constexpr double kMostSeconds = 24 * 3600;

Result<uint64_t> CacheBytes(std::string_view name, std::string_view value, uint64_t least) {
  const auto bytes = ParseByteCount(value);
  if (bytes && *bytes >= least) return *bytes;
  return Fail(EINVAL, "mount option {}={}: a number of bytes is needed, like 512MiB; at least {}",
              name, value, least);
}

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<Duration> Seconds(std::string_view name, std::string_view value) {
  const auto seconds = ParseNumber<double>(value);
  if (seconds && *seconds >= 0 && *seconds <= kMostSeconds) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
  }
  return Fail(EINVAL, "mount option {}={}: a number of seconds is needed, like 1 or 0.5", name,
              value);
}

Result<uint32_t> Id(std::string_view name, std::string_view value) {
  const auto id = ParseNumber<uint32_t>(value);
  if (id && *id != UINT32_MAX) return *id;
  return Fail(EINVAL, "mount option {}={}: a number is needed, as `id` prints it", name, value);
}

// False: the option is not for us.
Result<bool> Take(std::string_view option, MountOptions& options) {
  const size_t equals = std::min(option.find('='), option.size());
  const std::string_view name = option.substr(0, equals);
  const std::string_view value = option.substr(std::min(equals + 1, option.size()));
  if (name == "subdir") {
    options.subdirectory = fmt::format("/{}", value);
  } else if (name == "cache_size") {
    options.cache_bytes = TRY(CacheBytes(name, value, kLeastCacheBytes));
  } else if (name == "cache_dir") {
    options.cache_directory = value;
  } else if (name == "cache_dir_size") {
    options.cache_directory_bytes = TRY(CacheBytes(name, value, kLeastDiskCacheBytes));
  } else if (name == "locks") {
    if (value != "local" && value != "none") {
      return Fail(EINVAL,
                  "mount option locks={}: it can be local (they hold among the processes of this "
                  "mount) or none (they are refused); between mounts there are none",
                  value);
    }
    options.locks = value == "local";
  } else if (name == "dirops") {
    if (value != "sync" && value != "async") {
      return Fail(EINVAL,
                  "mount option dirops={}: it can be sync (other hosts see a new file at once) or "
                  "async (when it is closed or synced, or a second later)",
                  value);
    }
    options.async_names = value == "async";
  } else if (option == "acl" || option == "noacl") {
    options.acls = option == "acl";
  } else if (name == "entry_timeout") {
    options.name_age = TRY(Seconds(name, value));
  } else if (name == "attr_timeout") {
    options.attribute_age = TRY(Seconds(name, value));
  } else if (name == "slow_request") {
    options.slow_request = TRY_CONTEXT(SlowOperations::ParseAfter(value), "mount options");
  } else if (name == "metrics") {
    TRY_CONTEXT(ParseMetricsAddress(value), "mount option metrics");
    options.metrics = value;
  } else if (name == "uid") {
    options.user = TRY(Id(name, value));
  } else if (name == "gid") {
    options.group = TRY(Id(name, value));
  } else if (option == "writeback") {
    return Fail(EINVAL,
                "mount option writeback: the kernel would go by sizes and times of its own, and "
                "not see what other hosts commit; leave it out");
  } else {
    return option == "writethrough";  // what it does anyway
  }
  return true;
}

}  // namespace

Result<MountOptions> ParseMountOptions(std::string_view options, std::string_view source) {
  MountOptions result;
  // With default_permissions the kernel checks modes and owners, so nobody else has to. `mount -a`
  // compares fsname with fstab, and so finds that the file system is mounted already.
  const bool can_be_told = source.find_first_of(",\\") == std::string_view::npos;
  result.kernel = fmt::format("default_permissions,subtype=pinstripe,fsname={}",
                              can_be_told ? source : "pinstripe");
  while (!options.empty()) {
    const size_t comma = std::min(options.find(','), options.size());
    const std::string_view option = options.substr(0, comma);
    options.remove_prefix(std::min(comma + 1, options.size()));
    if (option.empty() || IsForFstab(option) || TRY(Take(option, result))) continue;
    result.kernel += ',';
    result.kernel += option;
  }
  return result;
}

bool IsForFstab(std::string_view option) {
  constexpr std::array<std::string_view, 8> kNames = {"_netdev", "auto",   "defaults", "noauto",
                                                      "nofail",  "nouser", "user",     "users"};
  return option.starts_with("x-") || std::ranges::find(kNames, option) != kNames.end();
}

bool IsMountHelper(std::string_view program) {
  return program.substr(program.rfind('/') + 1).starts_with("mount.");
}

}  // namespace pinstripe
