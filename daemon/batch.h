// Batches: puts and deletes of one connection that are collected, without an answer to any, and
// then made together. What they may hold is bounded, for one batch and for all of a device.
//
// A Batch belongs to its connection's loop until it is taken out to be executed; a BatchBudget is
// shared by all connections of a device, and thread-safe.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/engine.h"

namespace pinstripe {

// What a device allows and announces.
inline constexpr size_t kMaxBatchOperations = 4096;
inline constexpr size_t kMaxBatchBytes = 32 << 20;    // keys, versions, tags and values
inline constexpr size_t kMaxBatchesPerDevice = 1000;  // open at a time
inline constexpr size_t kMaxBatchBytesPerDevice = 128 << 20;

// What the open batches of a device hold.
class BatchBudget {
 public:
  bool AddBatch() { return Add(batches_, 1, kMaxBatchesPerDevice); }
  void RemoveBatch() { --batches_; }
  bool AddBytes(size_t bytes) { return Add(bytes_, bytes, kMaxBatchBytesPerDevice); }
  void RemoveBytes(size_t bytes) { bytes_ -= bytes; }

  size_t batches() const { return batches_; }
  size_t bytes() const { return bytes_; }

 private:
  static bool Add(std::atomic<size_t>& sum, size_t more, size_t most) {
    if (sum.fetch_add(more) + more <= most) return true;
    sum -= more;
    return false;
  }
  std::atomic<size_t> batches_ = 0;
  std::atomic<size_t> bytes_ = 0;
};

// One open batch. A change that must not be is kept as the reason why the batch fails in the end;
// the values that were collected are dropped then.
class Batch {
 public:
  // The budget has one batch more, and outlives this one, which gives it back.
  explicit Batch(BatchBudget& budget) : budget_(budget) {}
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // One more change, or why it is none.
  void Add(uint64_t sequence, Result<Engine::Change> change);

  const std::vector<Engine::Change>& changes() const { return changes_; }
  // Of all changes that were added, until one too many.
  const std::vector<uint64_t>& sequences() const { return sequences_; }
  // Why the batch must fail, because of the change that was added last to sequences(); success: it
  // need not.
  const Status& failure() const { return failure_; }
  uint64_t failed_sequence() const { return failed_sequence_; }

 private:
  Status Hold(size_t bytes);
  void Drop();

  BatchBudget& budget_;
  std::vector<Engine::Change> changes_;
  std::vector<uint64_t> sequences_;
  size_t bytes_ = 0;
  Status failure_;
  uint64_t failed_sequence_ = 0;
};

// The open batches of one connection, by the client's numbers.
class OpenBatches {
 public:
  explicit OpenBatches(BatchBudget& budget) : budget_(budget) {}

  // EEXIST: it is open already. EBUSY: the device has as many as it may.
  Status Start(uint32_t id);

  // Null: no such batch.
  Batch* Find(uint32_t id);
  std::shared_ptr<Batch> Take(uint32_t id);

  void Clear() { batches_.clear(); }

 private:
  BatchBudget& budget_;
  std::map<uint32_t, std::shared_ptr<Batch>> batches_;
};

}  // namespace pinstripe
