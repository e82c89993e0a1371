// MemoryEngine: a NameEngine in this process, which does what engines/engine.h says and misbehaves
// on command. The model of the others.
//
//   const auto store = std::make_shared<MemoryEngineStore>(runtime);
//   EngineDrive drive(runtime, std::make_unique<MemoryEngine>(runtime, store), {});
//
// Several engines may share a store, as processes do. Answers come through the runtime, so it works
// in simulations. A request is executed when half of its time is over.
//
// Thread-safe. The runtime outlives both.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "engines/engine.h"

namespace pinstripe {

class MemoryEngineStore {
 public:
  explicit MemoryEngineStore(Runtime& runtime);

  // From now on it is another one, without records, of cluster version 0.
  void Empty();

  std::string id() const;
  int64_t cluster_version() const;
  // A record as it is kept (EncodeEngineRecord()), and instead of it something else.
  std::optional<std::string> Find(const std::string& key) const;
  void Set(const std::string& key, std::string bytes);

  void SetFull(bool full);           // puts fail with ENOSPC
  void SetPageBytes(size_t bytes);   // a page of a list ends where it has more
  void SetState(EngineState state);  // without members: what it says of itself

  // What engines do. `id`: the store that was reached; EHOSTUNREACH: this is another one.
  Result<EngineAnswer> Do(const std::string& id, const EngineBatch& batch, const Terms& terms);
  Result<RangeRecords> List(const std::string& id, const EngineRange& range, const Terms& terms);
  Status SetClusterVersion(const std::string& id, int64_t version, const Terms& terms);
  EngineState LookAt() const;

 private:
  std::string NewId() REQUIRES(mutex_);
  Status AdmitLocked(const std::string& id, const Terms& terms) REQUIRES(mutex_);
  Status ChangeLocked(const EngineChange& change) REQUIRES(mutex_);
  Result<Record> ReadLocked(const std::string& key) const REQUIRES(mutex_);
  Result<std::string> VersionLocked(const std::string& key) const REQUIRES(mutex_);

  Runtime& runtime_;
  mutable Mutex mutex_;
  std::string id_ GUARDED_BY(mutex_);
  int64_t cluster_version_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::string> records_ GUARDED_BY(mutex_);
  bool full_ GUARDED_BY(mutex_) = false;
  size_t page_bytes_ GUARDED_BY(mutex_) = 2 << 20;
  EngineState state_ GUARDED_BY(mutex_);
};

struct EngineFaults {
  Duration delay{};         // of what is asked, and until it is reached
  double lose_request = 0;  // probability: never executed, ETIMEDOUT at its deadline
  double lose_answer = 0;   // probability: executed, EHOSTUNREACH
};

// That were made, whatever became of them.
struct EngineRequests {
  uint64_t batches = 0;
  uint64_t changes = 0;  // in batches
  uint64_t reads = 0;
  uint64_t largest = 0;  // batch: changes and reads
  uint64_t lists = 0;
  uint64_t looks = 0;
};

class MemoryEngine final : public NameEngine {
 public:
  MemoryEngine(Runtime& runtime, std::shared_ptr<MemoryEngineStore> store);
  ~MemoryEngine() override;

  // May be set at any time; {} is a quick, healthy engine.
  void Set(const EngineFaults& faults);
  // The store cannot be reached any more, for this reason. What is outstanding fails.
  void GoAway(std::string why);
  void ComeBack();

  EngineRequests requests() const;
  void ForgetRequests();

  void Start(Listener& listener) override;
  void StopTelling() override;
  void Do(EngineBatch batch, Terms terms, Callback<EngineAnswer> done) override;
  void List(EngineRange range, Terms terms, Callback<RangeRecords> done) override;
  void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) override;
  void LookAt(Terms terms, Callback<EngineState> done) override;

 private:
  class Core;
  const std::shared_ptr<Core> core_;  // shared with what is on its way
};

}  // namespace pinstripe
