// CheckLogStore: reads everything that a LogStore keeps, and changes nothing.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/store_resources.h"

namespace pinstripe {

struct LogCheckReport {
  uint64_t records = 0;
  uint64_t value_bytes = 0;
  uint64_t unfinished = 0;  // entries that power loss tore; opening the store removes them
  uint64_t damaged = 0;
  std::vector<std::string> sentences;  // about the first kMaxSentences damages
  static constexpr size_t kMaxSentences = 100;
};

// The store is closed (EBUSY otherwise).
Result<LogCheckReport> CheckLogStore(const std::string& path, StoreResources& resources);

}  // namespace pinstripe
