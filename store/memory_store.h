// MemoryStore: a Store that lives as long as its process. Under MemoryDrive, and in every test that
// wants a real engine without a disk.

#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "store/store.h"

namespace pinstripe {

class MemoryStore : public Store {
 public:
  static constexpr uint64_t kDefaultCapacity = uint64_t{1} << 40;

  // `reserve_bytes` of the capacity are held back, as store/space.h says.
  explicit MemoryStore(uint64_t capacity_bytes = kDefaultCapacity, uint64_t reserve_bytes = 0)
      : capacity_(capacity_bytes), reserve_(reserve_bytes) {}

  Result<StoredRecord> Get(std::string_view key, ValueRange range) override;
  Result<StoredHead> Head(std::string_view key) override;
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override;
  Status Put(std::string_view key, const StoredRecord& record, Room room = Room::kData) override;
  Status Delete(std::string_view key) override;
  Status Apply(std::span<const StoreChange> changes) override;
  Status Flush() override;
  StoreUsage Usage() override;
  Status Erase() override;

  // For tests of what a loss of power leaves. From the first call of RememberUnsynced() on, all
  // changes since the last Flush() are remembered, and can be forgotten but for the first `kept`.
  void RememberUnsynced();
  size_t CountUnsynced();
  void LosePower(size_t kept);

 private:
  using Records = std::map<std::string, StoredRecord, std::less<>>;
  // What the keys of one change had before it.
  using Former = std::vector<std::pair<std::string, std::optional<StoredRecord>>>;

  void Remember(std::span<const StoreChange> changes) REQUIRES(mutex_);
  void Set(const std::string& key, std::optional<StoredRecord> record) REQUIRES(mutex_);

  const uint64_t capacity_;
  const uint64_t reserve_;
  SharedMutex mutex_;
  Records records_ GUARDED_BY(mutex_);
  uint64_t used_ GUARDED_BY(mutex_) = 0;
  bool remembers_ GUARDED_BY(mutex_) = false;
  std::vector<Former> unsynced_ GUARDED_BY(mutex_);  // in their order
};

}  // namespace pinstripe
