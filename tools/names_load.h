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
};

struct NamesLoadResult {
  std::string_view op;  // create, stat, list (a name listed with its attributes), rename, delete
  int clients = 0;
  uint64_t operations = 0;
  double seconds = 0;
  double client_cpu_seconds = 0;
  double drives_cpu_seconds = 0;  // of those that run on this machine
};

// Works in a new directory below the root, which it removes at the end, and tells each result as it
// comes.
Status RunNamesLoad(Runtime& runtime, const NamesLoad& load,
                    const std::function<void(const NamesLoadResult&)>& tell);

}  // namespace pinstripe
