// The options of `-o`, as mount(8) and fstab hand them over; docs/man/pinstripe-fuse.8 has them.
// Pure.

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
  // What the kernel and libfuse are to be given: ours, then the user's without those that are for
  // us or only mean something in fstab ("nofail", "_netdev", "x-systemd.requires=...", "noauto").
  std::string kernel;

  std::string subdirectory = "/";       // the directory of the file system that is mounted
  std::optional<uint64_t> cache_bytes;  // FileSystem::Options::memory_bytes
  // A second level of the cache: FileSystem::Options::disk_cache_directory. Not given: as the
  // cluster's configuration says.
  std::optional<std::string> cache_directory;
  std::optional<uint64_t> cache_directory_bytes;
  // How long the kernel may use names, and attributes, without asking again.
  Duration name_age = std::chrono::seconds(1);
  Duration attribute_age = std::chrono::seconds(1);
  // Whether flock(2) and the locks of fcntl(2) can be had, among the processes of this mount; else
  // they are refused (ENOLCK), for who must not believe that others respect them.
  bool locks = true;
  // Whether the kernel goes by ACLs, where it can; else they can be neither seen nor set.
  bool acls = true;
  // To whom everything seems to belong, and what is made does.
  std::optional<uint32_t> user;
  std::optional<uint32_t> group;
};

// `source` is what is mounted, as mount(8) and df(1) shall call it. EINVAL: says which option, and
// what it takes.
Result<MountOptions> ParseMountOptions(std::string_view options, std::string_view source);

// How mount(8) calls a helper (`mount.fuse.pinstripe SOURCE TARGET [-sfnv] [-o OPTIONS] ...`), in
// which -f is to do everything but mount.
bool IsMountHelper(std::string_view program);

}  // namespace pinstripe
