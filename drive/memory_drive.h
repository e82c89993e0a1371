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
#include <mutex>
#include <string>

#include "base/runtime.h"
#include "drive/drive.h"
#include "drive/engine.h"
#include "drive/memory_store.h"

namespace pinstripe {

class MemoryDrive final : public Drive {
 public:
  MemoryDrive(Runtime& runtime, std::string name,
              uint64_t capacity_bytes = MemoryStore::kDefaultCapacity);
  ~MemoryDrive() override;

  std::string_view name() const override { return name_; }
  DriveCapabilities capabilities() const override {
    return {.range_get = true, .range_records = true};
  }
  bool IsUp() const override { return true; }
  uint64_t CountLosses() const override { return 0; }
  void Get(std::string key, ValueRange range, Time deadline, Callback<Record> done) override;
  void Head(std::string key, Time deadline, Callback<RecordHead> done) override;
  void Put(PutRequest request, Time deadline, StatusCallback done) override;
  void Delete(std::string key, Expected expected, Durability durability, Time deadline,
              StatusCallback done) override;
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Time deadline,
             Callback<std::vector<std::string>> done) override;
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Time deadline, Callback<RangeRecords> done) override;
  void Flush(Time deadline, StatusCallback done) override;
  void Info(Time deadline, Callback<DriveInfo> done) override;

 private:
  class Answers;

  template <typename T>
  Result<T> Named(Result<T> result) const;
  Status Named(const Status& status) const;
  template <typename R>
  void Answer(std::function<void(R)> done, R result);

  Runtime& runtime_;
  const std::string name_;
  Engine engine_;
  const std::shared_ptr<Answers> answers_;  // shared with the tasks that give them
};

}  // namespace pinstripe
