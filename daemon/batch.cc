#include "daemon/batch.h"

#include <utility>

#include "base/try.h"

namespace pinstripe {
namespace {

// About what a change occupies, so that many empty ones are not for free.
size_t BytesOf(const Engine::Change& change) {
  size_t bytes = sizeof change + change.key.size();
  if (change.expected.version()) bytes += change.expected.version()->size();
  if (change.guard) bytes += change.guard->key.size() + change.guard->expected.version()->size();
  if (!change.record) return bytes;
  const StoredHead& head = change.record->head;
  return bytes + head.version.size() + head.tag.size() + change.record->value.size();
}

}  // namespace

Batch::~Batch() {
  Drop();
  budget_.RemoveBatch();
}

void Batch::Drop() {
  changes_.clear();
  budget_.RemoveBytes(std::exchange(bytes_, 0));
}

Status Batch::Hold(size_t bytes) {
  if (sequences_.size() > kMaxBatchOperations) {
    return Fail(EINVAL, "more than {} operations in a batch", kMaxBatchOperations);
  }
  if (bytes_ + bytes > kMaxBatchBytes) {
    return Fail(EINVAL, "more than {} bytes in a batch", kMaxBatchBytes);
  }
  if (!budget_.AddBytes(bytes)) {
    return Fail(EBUSY, "the open batches of this device hold {} bytes, as much as they may",
                budget_.bytes());
  }
  bytes_ += bytes;
  return {};
}

void Batch::Add(uint64_t sequence, Result<Engine::Change> change) {
  // What follows the first failure is known by number only, and not endlessly.
  if (sequences_.size() > kMaxBatchOperations) return;
  sequences_.push_back(sequence);
  if (!failure_.ok()) return;
  failure_ = change.has_value() ? Hold(BytesOf(*change)) : change.error();
  if (failure_.ok()) {
    changes_.push_back(*std::move(change));
    return;
  }
  failed_sequence_ = sequence;
  Drop();
}

Status OpenBatches::Start(uint32_t id) {
  if (batches_.contains(id)) return Fail(EEXIST, "batch {} is open already", id);
  if (!budget_.AddBatch()) {
    return Fail(EBUSY, "{} batches are open on this device, as many as may be", budget_.batches());
  }
  batches_.emplace(id, std::make_shared<Batch>(budget_));
  return {};
}

Batch* OpenBatches::Find(uint32_t id) {
  const auto found = batches_.find(id);
  return found == batches_.end() ? nullptr : found->second.get();
}

std::shared_ptr<Batch> OpenBatches::Take(uint32_t id) {
  const auto found = batches_.find(id);
  if (found == batches_.end()) return nullptr;
  std::shared_ptr<Batch> batch = std::move(found->second);
  batches_.erase(found);
  return batch;
}

}  // namespace pinstripe
