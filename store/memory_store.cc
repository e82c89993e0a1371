#include "store/memory_store.h"

#include <algorithm>
#include <iterator>

#include "store/space.h"

namespace pinstripe {
namespace {

uint64_t Footprint(std::string_view key, const StoredRecord& record) {
  return key.size() + record.head.version.size() + record.head.tag.size() + record.value.size();
}

}  // namespace

Result<StoredRecord> MemoryStore::Get(std::string_view key, ValueRange range) {
  const ReaderLock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return NoSuchKey();
  StoredRecord record = found->second;
  const ValuePart part = Clip(range, record.head.value_bytes);
  record.value = record.value.Slice(part.offset, part.length);
  return record;
}

Result<StoredHead> MemoryStore::Head(std::string_view key) {
  const ReaderLock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return NoSuchKey();
  return found->second.head;
}

Result<std::vector<std::string>> MemoryStore::Keys(const KeyRange& range, size_t max,
                                                   bool reverse) {
  const ReaderLock lock(mutex_);
  std::vector<std::string> keys;
  const bool nothing =
      range.last && (*range.last < range.first || (*range.last == range.first &&
                                                   !(range.first_included && range.last_included)));
  if (nothing) return keys;
  const auto begin =
      range.first_included ? records_.lower_bound(range.first) : records_.upper_bound(range.first);
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

Status MemoryStore::Put(std::string_view key, const StoredRecord& record, Room room) {
  const StoreChange change{key, &record, nullptr, room};
  return Apply({&change, 1});
}

Status MemoryStore::Delete(std::string_view key) {
  const WriterLock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return NoSuchKey();
  const StoreChange change{key, nullptr};
  Remember({&change, 1});
  used_ -= Footprint(key, found->second);
  records_.erase(found);
  return {};
}

Status MemoryStore::Apply(std::span<const StoreChange> changes) {
  std::vector<StoredRecord> kept(changes.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    if (changes[i].record == nullptr) continue;
    // A copy, as a disk makes one: the caller's buffer is its own again after the answer.
    const StoredRecord& record = *changes[i].record;
    kept[i] = {record.head, SharedBytes(Buffer::CopyOf(record.value))};
    kept[i].head.value_bytes = static_cast<uint32_t>(record.value.size());
  }
  const WriterLock lock(mutex_);
  uint64_t used = used_;
  Room room = Room::kFreeing;  // what all of them may take
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto found = records_.find(changes[i].key);
    if (found != records_.end()) used -= Footprint(changes[i].key, found->second);
    if (changes[i].record == nullptr) continue;
    used += Footprint(changes[i].key, kept[i]);
    room = std::min(room, changes[i].room);
  }
  if (used + KeptFree(room, reserve_) > capacity_ && used > used_) {
    return Fail(ENOSPC, "full: {} of {} bytes are used", used_, capacity_);
  }
  Remember(changes);
  used_ = used;
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto found = records_.find(changes[i].key);
    if (changes[i].record == nullptr) {
      if (found != records_.end()) records_.erase(found);
    } else if (found == records_.end()) {
      records_.emplace(changes[i].key, std::move(kept[i]));
    } else {
      found->second = std::move(kept[i]);
    }
  }
  return {};
}

void MemoryStore::Remember(std::span<const StoreChange> changes) {
  if (!remembers_) return;
  Former& former = unsynced_.emplace_back();
  for (const StoreChange& change : changes) {
    const auto found = records_.find(change.key);
    std::optional<StoredRecord> record;
    if (found != records_.end()) record = found->second;
    former.emplace_back(change.key, std::move(record));
  }
}

void MemoryStore::Set(const std::string& key, std::optional<StoredRecord> record) {
  if (const auto found = records_.find(key); found != records_.end()) {
    used_ -= Footprint(key, found->second);
    records_.erase(found);
  }
  if (!record) return;
  used_ += Footprint(key, *record);
  records_.emplace(key, *std::move(record));
}

Status MemoryStore::Flush() {
  const WriterLock lock(mutex_);
  unsynced_.clear();
  return {};
}

void MemoryStore::RememberUnsynced() {
  const WriterLock lock(mutex_);
  remembers_ = true;
}

size_t MemoryStore::CountUnsynced() {
  const ReaderLock lock(mutex_);
  return unsynced_.size();
}

void MemoryStore::LosePower(size_t kept) {
  const WriterLock lock(mutex_);
  while (unsynced_.size() > kept) {
    for (auto& [key, record] : unsynced_.back()) Set(key, std::move(record));
    unsynced_.pop_back();
  }
  unsynced_.clear();  // what was read back from the disk is on it
}

Status MemoryStore::Erase() {
  const WriterLock lock(mutex_);
  unsynced_.clear();
  records_.clear();
  used_ = 0;
  return {};
}

StoreUsage MemoryStore::Usage() {
  const ReaderLock lock(mutex_);
  return {capacity_, used_};
}

}  // namespace pinstripe
