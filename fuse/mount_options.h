// Mount options: parses `-o cache_dir=...,acl,...` as mount(8) and fstab hand it over.
// docs/man/pinstripe-fuse.8 lists the options. Pure.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

struct MountOptions {
  // Options for the kernel and libfuse: those that we always set, then the user's. Options that are
  // for us are left out, and so are those that only mean something in fstab ("nofail", "_netdev",
  // "x-systemd.requires=...", "noauto").
  std::string kernel;

  std::string subdirectory = "/";       // the directory of the file system that is mounted
  std::optional<uint64_t> cache_bytes;  // FileSystem::Options::memory_bytes
  // A second level of the cache: FileSystem::Options::disk_cache_directory. Without a value the
  // cluster's configuration counts.
  std::optional<std::string> cache_directory;
  std::optional<uint64_t> cache_directory_bytes;
  // How long the kernel may use names, and attributes, without asking again.
  Duration name_age = std::chrono::seconds(1);
  Duration attribute_age = std::chrono::seconds(1);
  // Whether flock(2) and the locks of fcntl(2) work among the processes of this mount. Otherwise
  // they are refused (ENOLCK), because programs on other hosts would not respect them.
  bool locks = true;
  // Whether a new file may appear for other hosts only when it is closed or synced, or about a
  // second after it was created: FileSystem::CreateOptions::appears_later.
  bool async_names = false;
  // Whether the kernel goes by ACLs, where it can. Otherwise they can be neither seen nor set.
  bool acls = true;
  // Where metrics are served (metrics/address.h); empty: nowhere.
  std::string metrics;
  // Requests that take so long are told of (upkeep/slow_operations.h); 0: none is.
  Duration slow_request = std::chrono::seconds(1);
  // The owner that everything seems to have, and that new files have.
  std::optional<uint32_t> user;
  std::optional<uint32_t> group;
};

// `source` is what mount(8) and df(1) shall call the mounted file system. EINVAL: the message names
// the option and what it takes.
Result<MountOptions> ParseMountOptions(std::string_view options, std::string_view source);

// Whether an option only means something in fstab(5).
bool IsForFstab(std::string_view option);

// Whether mount(8) has called the program as its helper (`mount.fuse.pinstripe SOURCE TARGET
// [-sfnv]
// [-o OPTIONS] ...`). Then -f means to do everything but mount.
bool IsMountHelper(std::string_view program);

}  // namespace pinstripe
