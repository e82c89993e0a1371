#include "fs/files/file_context.h"

#include <algorithm>

namespace pinstripe {
namespace {

// For cells that wait to be written.
constexpr uint64_t kMostQueueBytes = 16 << 20;
constexpr uint64_t kQueuePart = 8;  // of the memory

std::unique_ptr<DiskCache> OpenDiskCache(Cluster& cluster, const FileSystemOptions& options) {
  if (options.disk_cache_directory.empty()) return nullptr;
  return std::make_unique<DiskCache>(
      cluster.runtime(),
      LocalCacheDirectory(options.disk_cache_directory,
                          "pinstripe-" + Hex(AsBytes(cluster.uuid()))),
      DiskCache::Options{
          .cluster = cluster.uuid(),
          .bytes = options.disk_cache_bytes,
          .queue_bytes = std::min(kMostQueueBytes, options.memory_bytes / kQueuePart)});
}

}  // namespace

FileContext::FileContext(Cluster& cluster_in, const FileSystemOptions& options)
    : cluster(cluster_in),
      records(cluster_in),
      reaper(cluster_in),
      budget(options.memory_bytes),
      reader(cluster_in.runtime(), cluster_in.stripes(), budget,
             OpenDiskCache(cluster_in, options)),
      names(records, [this](InodeId id, const Inode& inode,
                            uint64_t losses) { dispose(id, inode, losses); }),
      layout(FileLayout::Default(cluster_in.config())),
      map_limits{options.inline_map_bytes, options.map_page_bytes},
      least_shared_bytes(options.least_shared_bytes),
      growth(cluster_in, records, names, options.grow_at_names) {}

}  // namespace pinstripe
