// NamesLoad: how many names a second a cluster makes, looks at, lists, renames and removes, and
// what that costs. Behind `pinstripe bench names`.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

struct NamesLoad {
  std::string config;                  // cluster.toml
  std::vector<int> clients{1, 4, 16};  // hosts of their own, each with one operation at a time
  uint32_t files = 1000;               // that each client makes
  uint32_t file_bytes = 1024;
  bool shared = false;  // all in one directory, instead of one for each client
  // Only if it is shared: empty files that are there before, made by all clients together. To be
  // left there at the end, for they take as long to go.
  uint64_t fill = 0;
  bool keep = false;
};

struct NamesLoadResult {
  // fill, create, stat, list (a name listed with its attributes; one client lists what is shared),
  // rename, delete, clear (what was filled)
  std::string_view op;
  int clients = 0;
  uint64_t operations = 0;
  double seconds = 0;
  double client_cpu_seconds = 0;
  double drives_cpu_seconds = 0;  // of those that run on this machine
};

struct NamesLoadTold {
  std::function<void(const NamesLoadResult&)> result;              // of each operation, as it comes
  std::function<void(std::string_view op, double done)> progress;  // a few times a second
};

// Works in a new directory below the root, whose name it returns, and which it removes at the end
// unless it is to be kept. EINVAL: such a load is not possible.
Result<std::string> RunNamesLoad(Runtime& runtime, const NamesLoad& load,
                                 const NamesLoadTold& tell);

}  // namespace pinstripe
