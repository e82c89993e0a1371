// DataLoad: what the contents of files cost: bytes moved to and from the drives for each byte that
// was given or asked for, latencies and CPU. Behind `pinstripe bench data`.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

struct DataLoad {
  std::string config;  // cluster.toml
  std::vector<std::string> patterns{"read",   "read-1m",      "read-64k", "read-4k",
                                    "vector", "overwrite-4k", "small-4k"};
  uint64_t file_bytes = 256 << 20;
  uint64_t operations = 500;  // of each pattern, at most: fewer where the file has no more places
};

struct DataLoadResult {
  std::string pattern;  // "upload" first, then as in DataLoad
  uint64_t operations = 0;
  uint64_t bytes = 0;       // that were asked for, or given
  uint64_t cell_bytes = 0;  // of the different cells that reads touched; 0 for writes
  // On all connections to the drives: values, registers and the protocol.
  uint64_t received_bytes = 0;
  uint64_t sent_bytes = 0;
  uint64_t daemons_written_bytes = 0;  // to the disks of this machine
  uint64_t read_requests = 0;          // for shards
  // Reads that needed a shard they had not asked for first: since one was slow, missing or damaged.
  uint64_t degraded_reads = 0;
  double seconds = 0;
  double p50 = 0;  // microseconds
  double p99 = 0;
  double client_cpu_seconds = 0;
  double daemons_cpu_seconds = 0;
};

// Works in a new directory below the root, which it removes at the end, and tells each result as it
// comes. Each pattern begins with empty caches. EINVAL, and nothing was made: there is no such
// pattern, or the file is too small for them.
Status RunDataLoad(Runtime& runtime, const DataLoad& load,
                   const std::function<void(const DataLoadResult&)>& tell);

}  // namespace pinstripe
