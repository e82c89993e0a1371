// FileSystemOptions: what a FileSystem is opened with (fs/file_system.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/runtime.h"
#include "cluster/config.h"
#include "fs/caretaker.h"
#include "fs/types.h"

namespace pinstripe {

struct FileSystemOptions {
  // For dirty blocks, data under way, the cache and read-ahead, together.
  uint64_t memory_bytes = 256 << 20;
  // How much of a file's block map is kept in its inode, and how much in a page: docs/format.md.
  size_t inline_map_bytes = 24 << 10;
  size_t map_page_bytes = 32 << 10;
  // Cells that come from drives are also kept on a local disk, in a directory of the cluster's
  // own in this one, up to so many bytes. Empty: they are not.
  std::string disk_cache_directory;
  uint64_t disk_cache_bytes = kUsualDiskCacheBytes;
  // What Reload() sets memory_bytes to; null: it leaves it alone.
  std::function<uint64_t(const ClusterConfig& config)> memory_by = [](const ClusterConfig& config) {
    return config.memory_bytes;
  };
  // Makes the one who looks after files that were committed here (fs/caretaker.h); none: nobody
  // does. Programs give upkeep/host_care.h.
  MakeCaretaker* caretaker = nullptr;
  // How long GetExtended() may answer by a listing that brought the inode, with its attributes: the
  // time for which the caller goes by these. Zero: it does not.
  Duration listed_age{};
  // A smaller range is copied, not shared: to share it takes some changes of inodes, which are to
  // be safe from power loss.
  uint64_t least_shared_bytes = 1 << 20;
  // Where so many names were made, or listed, in one directory here, it is spread over all drives
  // in the background, if the cluster's map allows it (fs/names/growth.h). 0: none is.
  uint64_t grow_at_names = 1 << 18;
  // The directory that paths begin at, and that none of them leaves, whatever symbolic links say.
  // It is looked for with each path; the way to it has neither links (ELOOP) nor "..".
  std::string exported = "/";
};

}  // namespace pinstripe
