#include "daemon/engine.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/try.h"

namespace pinstripe {
namespace {

Status CheckLimit(std::string_view what, size_t size, size_t limit) {
  if (size <= limit) return {};
  return Fail(EINVAL, "{} of {} bytes is over the limit of {}", what, size, limit);
}

Status CheckKey(std::string_view key) { return CheckLimit("key", key.size(), kMaxKeyBytes); }

Status CheckExpected(const Expected& expected) {
  return CheckLimit("expected version", expected.version() ? expected.version()->size() : 0,
                    kMaxVersionBytes);
}

Status CheckRecord(const StoredRecord& record) {
  TRY(CheckLimit("value", record.value.size(), kMaxValueBytes));
  TRY(CheckLimit("version", record.head.version.size(), kMaxVersionBytes));
  return CheckLimit("tag", record.head.tag.size(), kMaxTagBytes);
}

// The limits of a put.
Status CheckLimits(std::string_view key, const StoredRecord& record, const Expected& expected) {
  TRY(CheckKey(key));
  TRY(CheckRecord(record));
  return CheckExpected(expected);
}

}  // namespace

Engine::Engine(std::unique_ptr<Store> store) : store_(std::move(store)) {}

Result<StoredRecord> Engine::Get(std::string_view key, ValueRange range) {
  CountAttempt(Operation::kGet);
  TRY(CheckKey(key));
  StoredRecord record = TRY(store_->Get(key, range));
  CountBytes(Operation::kGet, record.value.size());
  return record;
}

Result<StoredRecord> Engine::GetAtOnce(std::string_view key, ValueRange range) {
  if (key.size() > kMaxKeyBytes) return WouldWait();  // to be refused
  Result<StoredRecord> record = store_->GetAtOnce(key, range);
  if (!record.has_value() && record.error().code() == EAGAIN) return record;
  CountAttempt(Operation::kGet);
  if (record.has_value()) CountBytes(Operation::kGet, record->value.size());
  return record;
}

Result<StoredHead> Engine::Head(std::string_view key) {
  CountAttempt(Operation::kHead);
  TRY(CheckKey(key));
  return store_->Head(key);
}

Result<Engine::Neighbour> Engine::GetNext(std::string_view key, ValueRange range) {
  CountAttempt(Operation::kGetNext);
  TRY(CheckKey(key));
  Neighbour found =
      TRY(Find({.first = std::string(key), .first_included = false}, /*reverse=*/false, range));
  CountBytes(Operation::kGetNext, found.record.value.size());
  return found;
}

Result<Engine::Neighbour> Engine::GetPrevious(std::string_view key, ValueRange range) {
  CountAttempt(Operation::kGetPrevious);
  TRY(CheckKey(key));
  Neighbour found =
      TRY(Find({.last = std::string(key), .last_included = false}, /*reverse=*/true, range));
  CountBytes(Operation::kGetPrevious, found.record.value.size());
  return found;
}

Result<Engine::Neighbour> Engine::Find(const KeyRange& from, bool reverse, ValueRange range) {
  while (true) {
    std::vector<std::string> keys = TRY(store_->Keys(from, 1, reverse));
    if (keys.empty()) return Fail(ENOENT, "no key {} the given one", reverse ? "below" : "above");
    Result<StoredRecord> record = store_->Get(keys[0], range);
    if (record.has_value()) return Neighbour{std::move(keys[0]), *std::move(record)};
    // Deleted since its key was found: then another one is the neighbour now.
    if (record.error().code() != ENOENT) return Failed(std::move(record).error());
  }
}

Status Engine::CheckRange(const KeyRange& range) {
  TRY(CheckKey(range.first));
  return range.last ? CheckKey(*range.last) : Status();
}

Status Engine::CheckKeys(const KeyRange& range, uint32_t max) {
  TRY(CheckRange(range));
  if (max == 0 || max > kMaxRangeKeys) {
    return Fail(EINVAL, "{} keys were asked for; 1 to {} can be", max, kMaxRangeKeys);
  }
  return {};
}

Result<std::vector<std::string>> Engine::Keys(const KeyRange& range, uint32_t max, bool reverse) {
  CountAttempt(Operation::kKeys);
  TRY(CheckKeys(range, max));
  return store_->Keys(range, max, reverse);
}

Status Engine::CheckItems(const KeyRange& range, const RangeLimits& limits) {
  TRY(CheckRange(range));
  if (limits.entries > 0 && limits.entries <= kMaxRangeRecords) return {};
  return Fail(EINVAL, "{} entries were asked for; 1 to {} can be", limits.entries,
              kMaxRangeRecords);
}

Result<RangeItems> Engine::Items(const KeyRange& range, const RangeLimits& limits, bool reverse) {
  CountAttempt(Operation::kKeys);
  TRY(CheckItems(range, limits));
  RangeItems found = TRY(store_->Items(range, limits, reverse));
  uint64_t value_bytes = 0;
  for (const RangeItem& item : found.items) value_bytes += item.value.size();
  CountBytes(Operation::kKeys, value_bytes);
  return found;
}

Status Engine::CheckDeletion(std::string_view key, const Expected& expected) {
  const StoredHead head = TRY(store_->Head(key));
  return CheckVersion(head.version, expected);
}

Status Engine::Put(std::string_view key, const StoredRecord& record, const Expected& expected,
                   Room room) {
  CountAttempt(Operation::kPut);
  TRY(CheckLimits(key, record, expected));
  const KeyLocks::Hold hold(locks_, key);
  const StoreChange put{key, &record, &expected, room};
  TRY(store_->PutEach({&put, 1})[0]);
  CountBytes(Operation::kPut, record.value.size());
  return {};
}

std::vector<Status> Engine::PutEach(std::span<const Change> puts) {
  std::vector<Status> statuses(puts.size());
  std::vector<StoreChange> chosen;
  std::vector<Status*> theirs;
  std::set<std::string_view> keys;
  const auto put_chosen = [&] {
    PutDifferent(chosen, theirs);
    chosen.clear();
    theirs.clear();
    keys.clear();
  };
  for (size_t i = 0; i < puts.size(); ++i) {
    CountAttempt(Operation::kPut);
    statuses[i] = CheckLimits(puts[i].key, *puts[i].record, puts[i].expected);
    if (!statuses[i].ok()) continue;
    if (keys.contains(puts[i].key)) put_chosen();
    keys.insert(puts[i].key);
    chosen.push_back({puts[i].key, &*puts[i].record, &puts[i].expected, puts[i].room});
    theirs.push_back(&statuses[i]);
  }
  put_chosen();
  return statuses;
}

// Each key once, and nothing over a limit.
void Engine::PutDifferent(std::span<const StoreChange> puts, std::span<Status* const> statuses) {
  std::vector<std::string_view> keys;
  keys.reserve(puts.size());
  for (const StoreChange& put : puts) keys.push_back(put.key);
  const KeyLocks::Hold hold(locks_, std::move(keys));
  const std::vector<Status> results = store_->PutEach(puts);
  for (size_t i = 0; i < puts.size(); ++i) {
    *statuses[i] = results[i];
    if (results[i].ok()) CountBytes(Operation::kPut, puts[i].record->value.size());
  }
}

bool Engine::PutAllAtOnce(std::span<const Change> puts) {
  std::vector<StoreChange> changes;
  std::vector<std::string_view> keys;
  changes.reserve(puts.size());
  keys.reserve(puts.size());
  for (const Change& put : puts) {
    if (!CheckLimits(put.key, *put.record, put.expected).ok()) return false;
    if (std::find(keys.begin(), keys.end(), put.key) != keys.end()) return false;
    keys.push_back(put.key);
    changes.push_back({put.key, &*put.record, &put.expected, put.room});
  }
  const KeyLocks::Hold hold(locks_, std::move(keys), KeyLocks::Wait::kMayNot);
  if (!hold.holds() || !store_->PutAllAtOnce(changes)) return false;
  for (const Change& put : puts) {
    CountAttempt(Operation::kPut);
    CountBytes(Operation::kPut, put.record->value.size());
  }
  return true;
}

Status Engine::Delete(std::string_view key, const Expected& expected) {
  CountAttempt(Operation::kDelete);
  TRY(CheckKey(key));
  TRY(CheckExpected(expected));
  const KeyLocks::Hold hold(locks_, key);
  TRY(CheckDeletion(key, expected));
  return store_->Delete(key);
}

std::optional<Engine::BatchFailure> Engine::Apply(std::span<const Change> changes) {
  std::set<std::string_view> keys;
  for (size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    CountAttempt(change.record ? Operation::kPut : Operation::kDelete);
    const Status valid = [&]() -> Status {
      TRY(CheckKey(change.key));
      if (change.record) TRY(CheckRecord(*change.record));
      return CheckExpected(change.expected);
    }();
    if (!valid.ok()) return BatchFailure{valid, i};
    keys.insert(change.key);
  }
  const KeyLocks::Hold hold(locks_, std::vector(keys.begin(), keys.end()));
  std::unordered_map<std::string_view, size_t> last;
  for (size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    Status may = change.record ? store_->CheckThere(change.key, change.expected)
                               : CheckDeletion(change.key, change.expected);
    const bool gone_already = may.code() == ENOENT && !change.record && !change.expected.version();
    if (!may.ok() && !gone_already) return BatchFailure{std::move(may), i};
    last[change.key] = i;
  }
  std::vector<StoreChange> made;
  made.reserve(last.size());
  for (const auto& [key, i] : last) {
    made.push_back(
        {key, changes[i].record ? &*changes[i].record : nullptr, nullptr, changes[i].room});
  }
  Status applied = store_->Apply(made);
  if (!applied.ok()) return BatchFailure{std::move(applied), std::nullopt};
  for (const Change& change : changes) {
    if (change.record) CountBytes(Operation::kPut, change.record->value.size());
  }
  return std::nullopt;
}

Status Engine::Compact(const KeyRange& range, std::atomic<bool>& cancelled) {
  TRY(CheckRange(range));
  return store_->CompactRange(range, cancelled);
}

Status Engine::Flush() {
  CountAttempt(Operation::kFlush);
  const Status flushed = store_->Flush();
  // What was to be made safe is there, or is not. Another code, as of a full disk, would deny it.
  return flushed.ok() ? flushed : Fail(EIO, "{}", flushed.message());
}

void Engine::CountAttempt(Operation operation) {
  counts_[static_cast<size_t>(operation)].operations.fetch_add(1, std::memory_order_relaxed);
}

void Engine::CountBytes(Operation operation, uint64_t value_bytes) {
  counts_[static_cast<size_t>(operation)].value_bytes.fetch_add(value_bytes,
                                                                std::memory_order_relaxed);
}

Engine::Count Engine::CountOf(Operation operation) const {
  const AtomicCount& count = counts_[static_cast<size_t>(operation)];
  return {count.operations.load(std::memory_order_relaxed),
          count.value_bytes.load(std::memory_order_relaxed)};
}

}  // namespace pinstripe
