#include "drive/memory_store.h"

#include <iterator>
#include <mutex>

namespace pinstripe {
namespace {

uint64_t Footprint(std::string_view key, const StoredRecord& record) {
  return key.size() + record.head.version.size() + record.head.tag.size() + record.value.size();
}

Failed NoSuchKey() { return Fail(ENOENT, "no such key"); }

}  // namespace

Result<StoredRecord> MemoryStore::Get(std::string_view key, ValueRange range) {
  std::shared_lock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return NoSuchKey();
  StoredRecord record = found->second;
  const ValuePart part = Clip(range, record.head.value_bytes);
  record.value = record.value.Slice(part.offset, part.length);
  return record;
}

Result<StoredHead> MemoryStore::Head(std::string_view key) {
  std::shared_lock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return NoSuchKey();
  return found->second.head;
}

Result<std::vector<std::string>> MemoryStore::Keys(const KeyRange& range, size_t max,
                                                   bool reverse) {
  std::shared_lock lock(mutex_);
  std::vector<std::string> keys;
  const bool nothing =
      range.last && (*range.last < range.first || (*range.last == range.first &&
                                                   !(range.first_included && range.last_included)));
  if (nothing) return keys;
  const auto begin = range.first_included ? records_.lower_bound(range.first)
                                          : records_.upper_bound(range.first);
  const auto end = !range.last           ? records_.end()
                   : range.last_included ? records_.upper_bound(*range.last)
                                         : records_.lower_bound(*range.last);
  if (reverse) {
    for (auto at = end; at != begin && keys.size() < max;) keys.push_back((--at)->first);
  } else {
    for (auto at = begin; at != end && keys.size() < max; ++at) keys.push_back(at->first);
  }
  return keys;
}

Status MemoryStore::Put(std::string_view key, const StoredRecord& record) {
  // A copy, as a disk makes one: the caller's buffer is its own again after the answer.
  StoredRecord kept{record.head, SharedBytes(Buffer::CopyOf(record.value))};
  kept.head.value_bytes = static_cast<uint32_t>(record.value.size());
  const std::unique_lock lock(mutex_);
  const auto found = records_.find(key);
  const uint64_t freed = found == records_.end() ? 0 : Footprint(key, found->second);
  const uint64_t used = used_ - freed + Footprint(key, kept);
  if (used > capacity_ && used > used_) {
    return Fail(ENOSPC, "full: {} of {} bytes are used", used_, capacity_);
  }
  used_ = used;
  if (found == records_.end()) {
    records_.emplace(key, std::move(kept));
  } else {
    found->second = std::move(kept);
  }
  return {};
}

Status MemoryStore::Delete(std::string_view key) {
  const std::unique_lock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return NoSuchKey();
  used_ -= Footprint(key, found->second);
  records_.erase(found);
  return {};
}

StoreUsage MemoryStore::Usage() {
  std::shared_lock lock(mutex_);
  return {capacity_, used_};
}

}  // namespace pinstripe
