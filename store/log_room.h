// LogRoom: how much a LogStore may still take, by what its file system has and by the capacity that
// it was given.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "store/log_ledger.h"
#include "store/store.h"

namespace pinstripe {

class LogRoom {
 public:
  struct Options {
    std::string path;
    uint64_t capacity_bytes = 0;  // 0: what the file system has
    uint64_t reserve_bytes = 0;   // that puts leave free (store/space.h)
  };

  // `ledger` outlives it.
  LogRoom(Options options, const LogLedger& ledger)
      : options_(std::move(options)), ledger_(ledger) {}

  // Whether so many bytes more may be taken; ENOSPC: not.
  Status Check(uint64_t more, Room room);

  StoreUsage Usage() const;  // without its failure

 private:
  const Options options_;
  const LogLedger& ledger_;
  Mutex mutex_;
  uint64_t known_bytes_ GUARDED_BY(mutex_) = 0;  // of room, for which Check() need not look again
  int known_changes_ GUARDED_BY(mutex_) = 0;     // likewise, how many may believe it
};

}  // namespace pinstripe
