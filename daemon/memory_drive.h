// MemoryDrive: a Drive in this process that forgets everything when it is destroyed. Not an
// imitation: the daemon's own engine, on a map instead of a disk, so that what holds here holds
// there.
//
// Operations are executed inside the call, in the order of the calls, and answered through the
// runtime at once; under a simulated runtime everything is deterministic. Never times out.
//
// Thread-safe. The runtime outlives it.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "daemon/engine.h"
#include "drive/drive.h"
#include "store/memory_store.h"

namespace pinstripe {

class MemoryDrive final : public Drive {
 public:
  MemoryDrive(Runtime& runtime, std::string name,
              uint64_t capacity_bytes = MemoryStore::kDefaultCapacity, uint64_t reserve_bytes = 0);
  ~MemoryDrive() override;

  std::string_view name() const override { return name_; }
  DriveCapabilities capabilities() const override {
    return {.range_get = true,
            .version_part = true,
            .range_records = true,
            .rooms = true,
            .guards = true,
            .then_gets = true};
  }
  bool IsUp() const override { return true; }
  uint64_t CountLosses() const override { return 0; }
  void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) override;
  void Head(std::string key, Terms terms, Callback<RecordHead> done) override;
  void Put(PutRequest request, Terms terms, StatusCallback done) override;
  // The read is executed at the end of the innermost SendTogether of this thread, if there is one.
  void PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                  Callback<Record> read) override;
  void Delete(std::string key, Expected expected, Durability durability, Terms terms,
              StatusCallback done) override;
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
             Callback<std::vector<std::string>> done) override;
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Terms terms, Callback<RangeRecords> done) override;
  void Flush(Terms terms, StatusCallback done) override;
  void Info(Terms terms, Callback<DriveInfo> done) override;
  void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) override;

  int64_t cluster_version() const;

  // As of MemoryStore.
  void RememberUnsynced() { store_.RememberUnsynced(); }
  size_t CountUnsynced() const { return store_.CountUnsynced(); }
  void LosePower(size_t kept) { store_.LosePower(kept); }

  // What Info() says of its starts from now on; at first it does not say. `start_count` 0: as many
  // as these.
  void SetStarts(std::vector<DriveStart> starts, std::optional<Duration> up = std::nullopt,
                 uint64_t start_count = 0);

 private:
  class Answers;
  class ThenGets;

  template <typename T>
  Result<T> Named(Result<T> result) const;
  Status Named(const Status& status) const;
  template <typename R>
  void Answer(std::function<void(R)> done, R result);
  Result<Record> Read(const std::string& key, ValueRange range);
  Status Make(PutRequest request, const Terms& terms);
  // EREMCHG.
  Status Admit(const Terms& terms);

  Runtime& runtime_;
  MemoryDrive(Runtime& runtime, std::string name, std::unique_ptr<MemoryStore> store);
  // Makes what a change that succeeded has done safe, if it is to be.
  Status Durably(Status status, Durability durability);

  const std::string name_;
  MemoryStore& store_;  // of the engine
  Engine engine_;
  mutable Mutex mutex_;
  int64_t cluster_version_ GUARDED_BY(mutex_) = 0;
  std::vector<DriveStart> starts_ GUARDED_BY(mutex_);
  uint64_t start_count_ GUARDED_BY(mutex_) = 0;
  std::optional<Duration> up_ GUARDED_BY(mutex_);
  const std::shared_ptr<Answers> answers_;     // shared with the tasks that give them
  const std::shared_ptr<ThenGets> then_gets_;  // shared with those who tell it
};

}  // namespace pinstripe
