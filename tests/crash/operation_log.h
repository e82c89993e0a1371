// OperationLog: what was asked of a store and what it has acknowledged, so that after a crash can
// be said whether what is left is right.
//
// A key is changed by one thread, one change after the other. A change has a number, and what a put
// stores follows from key and number. After a crash a key must be as one of its changes left it: at
// the earliest the last one that the store had promised to keep, at the latest the last one that
// was begun. Changes of a batch are there together or not at all.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "store/store.h"

namespace pinstripe {

class OperationLog {
 public:
  // The next change of each of these keys, made together: their numbers.
  std::vector<uint64_t> Begin(const std::vector<std::string>& keys, bool remove);

  // The last change of the key was acknowledged; `durable`: it has to survive power loss.
  void Acknowledge(const std::string& key, bool durable);

  // For a flush: everything acknowledged before it is durable after it.
  std::map<std::string, uint64_t> Acknowledged() const;
  void Flushed(const std::map<std::string, uint64_t>& acknowledged);

  // What a put of this number stores.
  static StoredRecord RecordOf(const std::string& key, uint64_t number);

  // Of each key, from which change on it may be as it is.
  enum class Crash { kKill, kPowerLoss };
  std::map<std::string, uint64_t> Floors(Crash crash) const;
  std::map<std::string, uint64_t> Ceilings() const;

  // What is wrong with what was found, or nothing. `look`: the record of a key, or ENOENT.
  using Look = std::function<Result<StoredRecord>(const std::string& key)>;
  std::string Complaint(const std::map<std::string, uint64_t>& floors,
                        const std::map<std::string, uint64_t>& ceilings, const Look& look) const;

  // The changes go on from what was found after a kill.
  void GoOnFrom(const Look& look);

  uint64_t changes() const;

 private:
  struct Change {
    bool remove = false;
    uint64_t batch = 0;  // 0: alone
  };
  struct History {
    std::vector<Change> changes;  // number n is at n - 1
    uint64_t acknowledged = 0;
    uint64_t durable = 0;
  };

  std::optional<uint64_t> NumberOf(const StoredRecord& record) const;

  mutable std::mutex mutex_;
  std::map<std::string, History> histories_;                                   // guarded by mutex_
  std::map<uint64_t, std::vector<std::pair<std::string, uint64_t>>> batches_;  // guarded by mutex_
  uint64_t changes_ = 0;                                                       // guarded by mutex_
};

}  // namespace pinstripe
