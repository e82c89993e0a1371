// ErasableStore: a Store that can be emptied while it is served. It puts another, empty one into
// the place of the one that it holds; everybody else goes on with what they have of the interface.
//
// How a store in a directory is erased so that a kill at any moment leaves everything or nothing is
// StoreDirectory's (directory.h): the store is marked, closed, and opened again. When that
// fails there is no store any more, and every call says why (EIO) until the process is started
// again.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "store/gate.h"
#include "store/store.h"

namespace pinstripe {

class ErasableStore final : public Store {
 public:
  using Opener = std::function<Result<std::unique_ptr<Store>>()>;

  // `store` keeps its records in the StoreDirectory `path`; `open` opens that again, when it is
  // closed.
  ErasableStore(std::string path, std::unique_ptr<Store> store, Opener open);

  // One that could not be opened: every call says why.
  ErasableStore(std::string path, Status why);

  Result<StoredRecord> Get(std::string_view key, ValueRange range) override;
  Result<StoredRecord> GetAtOnce(std::string_view key, ValueRange range) override;
  Result<StoredHead> Head(std::string_view key) override;
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override;
  Result<RangeItems> Items(const KeyRange& range, const RangeLimits& limits, bool reverse) override;
  Status Put(std::string_view key, const StoredRecord& record, Room room = Room::kData) override;
  std::vector<Status> PutEach(std::span<const StoreChange> puts) override;
  bool PutAllAtOnce(std::span<const StoreChange> puts) override;
  Status Delete(std::string_view key) override;
  Status Apply(std::span<const StoreChange> changes) override;
  Status Flush() override;
  StoreUsage Usage() override;
  StoreStarts Starts() override;
  Status EndCleanly() override;
  Result<bool> Tidy() override;
  Status CompactRange(const KeyRange& range, std::atomic<bool>& cancelled) override;
  Status Erase() override;
  Status RemoveErased() override;

 private:
  // Calls the store, while nobody erases it.
  template <typename Call>
  auto With(Call call) -> decltype(call(std::declval<Store&>()));

  const std::string path_;
  const Opener open_;
  Gate gate_;
  std::unique_ptr<Store> store_ GUARDED_BY(gate_);  // null when it could not be opened
  Status lost_ GUARDED_BY(gate_);                   // why

  Mutex mutex_;
  bool erasing_ GUARDED_BY(mutex_) = false;                      // about to close the gate
  std::set<std::atomic<bool>*> compactions_ GUARDED_BY(mutex_);  // under way, each to be cancelled
};

}  // namespace pinstripe
