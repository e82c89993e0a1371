#include "daemon/engine.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "kinetic/key_text.h"

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

// Of a put of this key.
Status CheckLimitsOf(const std::optional<Guard>& guard, std::string_view key) {
  if (!guard) return {};
  TRY(CheckLimit("key of a guard", guard->key.size(), kMaxKeyBytes));
  if (guard->key.empty()) return Fail(EINVAL, "a guard without a key");
  if (guard->key == key) {
    return Fail(EINVAL, "a record cannot be its own guard: say which version of it is expected");
  }
  if (!guard->expected.version()) return Fail(EINVAL, "a guard that may have any version");
  return CheckLimit("version of a guard", guard->expected.version()->size(), kMaxVersionBytes);
}

// The limits of a put.
Status CheckLimits(std::string_view key, const StoredRecord& record, const Expected& expected,
                   const std::optional<Guard>& guard) {
  TRY(CheckKey(key));
  TRY(CheckRecord(record));
  TRY(CheckExpected(expected));
  return CheckLimitsOf(guard, key);
}

std::vector<std::string_view> List(const std::set<std::string_view>& keys) {
  return {keys.begin(), keys.end()};
}

// Which of these puts makes the guard what it must be.
std::optional<size_t> FindPut(std::span<const StoreChange> puts, const Guard& guard) {
  const auto found = std::ranges::find(puts, guard.key, &StoreChange::key);
  if (found == puts.end()) return std::nullopt;
  if (!CheckVersion(found->record->head.version, guard.expected).ok()) return std::nullopt;
  return static_cast<size_t>(found - puts.begin());
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
                   Room room, const std::optional<Guard>& guard) {
  CountAttempt(Operation::kPut);
  TRY(CheckLimits(key, record, expected, guard));
  std::vector<std::string_view> guarding;
  if (guard) guarding.push_back(guard->key);
  const KeyLocks::Hold hold(locks_, {key}, KeyLocks::Wait::kMay, std::move(guarding));
  const StoreChange put{key, &record, &expected, room};
  TRY(CheckGuardOf(put, guard));
  TRY(store_->PutEach({&put, 1})[0]);
  CountBytes(Operation::kPut, record.value.size());
  return {};
}

// Success or ECANCELED. Nobody changes the guard meanwhile, as with the next ones.
Status Engine::CheckGuard(const std::optional<Guard>& guard) {
  if (!guard) return {};
  const Status there = store_->CheckThere(guard->key, guard->expected);
  switch (there.code()) {
    case 0: return {};
    case ESTALE:
      return Fail(ECANCELED, "the record {} that it depends on was changed: {}",
                  KeyText(guard->key), there.message());
    default:  // as a damaged one, which says nothing of the record that is to be put
      return Fail(EIO, "the record {} that it depends on cannot be read: {}", KeyText(guard->key),
                  there.message());
  }
}

// What keeps the put from being made because of its guard. Its own condition comes first.
Status Engine::CheckGuardOf(const StoreChange& put, const std::optional<Guard>& guard) {
  Status guarded = CheckGuard(guard);
  if (guarded.ok()) return guarded;
  TRY(store_->CheckThere(put.key, *put.expected));
  return guarded;
}

bool Engine::IsAtOnceAsExpected(const Guard& guard) {
  const Result<StoredRecord> found = store_->GetAtOnce(guard.key, {0, 0});
  if (!found.has_value() && found.error().code() != ENOENT) return false;
  return CheckVersion(found.has_value() ? std::string_view(found->head.version) : "",
                      guard.expected)
      .ok();
}

bool Engine::Group::Takes(const Change& put) const {
  if (keys.contains(put.key) || guarding.contains(put.key)) return false;
  return !put.guard || !keys.contains(put.guard->key) || FindPut(puts, *put.guard).has_value();
}

void Engine::Group::Add(const Change& put, Status* status) {
  StoreChange change{put.key, &*put.record, &put.expected, put.room};
  if (put.guard) change.needs = FindPut(puts, *put.guard);
  if (put.guard && !change.needs) guarding.insert(put.guard->key);
  keys.insert(put.key);
  puts.push_back(change);
  guards.push_back(&put.guard);
  statuses.push_back(status);
}

std::vector<Status> Engine::PutEach(std::span<const Change> puts) {
  std::vector<Status> statuses(puts.size());
  Group group;
  for (size_t i = 0; i < puts.size(); ++i) {
    CountAttempt(Operation::kPut);
    statuses[i] = CheckLimits(puts[i].key, *puts[i].record, puts[i].expected, puts[i].guard);
    if (!statuses[i].ok()) continue;
    if (!group.Takes(puts[i])) PutDifferent(std::exchange(group, {}));
    group.Add(puts[i], &statuses[i]);
  }
  PutDifferent(std::move(group));
  return statuses;
}

void Engine::PutDifferent(Group group) {
  const KeyLocks::Hold hold(locks_, List(group.keys), KeyLocks::Wait::kMay, List(group.guarding));
  std::vector<StoreChange> made;
  std::vector<size_t> made_of;                                   // which of `group.puts` each is
  std::vector<std::optional<size_t>> places(group.puts.size());  // and the other way round
  made.reserve(group.puts.size());
  made_of.reserve(group.puts.size());
  for (size_t i = 0; i < group.puts.size(); ++i) {
    StoreChange put = group.puts[i];
    if (put.needs) {
      if (!places[*put.needs]) continue;
      put.needs = places[*put.needs];
    } else {
      *group.statuses[i] = CheckGuardOf(put, *group.guards[i]);
      if (!group.statuses[i]->ok()) continue;
    }
    places[i] = made.size();
    made.push_back(put);
    made_of.push_back(i);
  }
  std::vector<Status> results;
  if (!made.empty()) results = store_->PutEach(made);
  for (size_t at = 0; at < made.size(); ++at) {
    if (results[at].ok()) CountBytes(Operation::kPut, made[at].record->value.size());
    *group.statuses[made_of[at]] = results[at];
  }
  // What these needed was not put; but what is there may have that very version.
  for (size_t i = 0; i < group.puts.size(); ++i) {
    StoreChange put = group.puts[i];
    if (!put.needs) continue;
    const std::optional<size_t> place = places[*put.needs];
    if (place && results[*place].ok()) continue;
    put.needs.reset();
    Status& status = *group.statuses[i];
    status = CheckGuardOf(put, *group.guards[i]);
    if (!status.ok()) continue;
    status = std::move(store_->PutEach({&put, 1})[0]);
    if (status.ok()) CountBytes(Operation::kPut, put.record->value.size());
  }
}

// A few, so that lists are quicker than sets.
bool Engine::PutAllAtOnce(std::span<const Change> puts) {
  std::vector<StoreChange> changes;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> guarding;
  changes.reserve(puts.size());
  keys.reserve(puts.size());
  const auto has = [](const std::vector<std::string_view>& list, std::string_view key) {
    return std::ranges::find(list, key) != list.end();
  };
  for (const Change& put : puts) {
    if (!CheckLimits(put.key, *put.record, put.expected, put.guard).ok()) return false;
    if (has(keys, put.key) || has(guarding, put.key)) return false;
    if (put.guard && has(keys, put.guard->key)) {
      if (!FindPut(changes, *put.guard)) return false;  // as it would be now
    } else if (put.guard && !has(guarding, put.guard->key)) {
      guarding.push_back(put.guard->key);
    }
    keys.push_back(put.key);
    changes.push_back({put.key, &*put.record, &put.expected, put.room});
  }
  const KeyLocks::Hold hold(locks_, std::move(keys), KeyLocks::Wait::kMayNot, std::move(guarding));
  if (!hold.holds()) return false;
  for (const Change& put : puts) {
    if (!put.guard || FindPut(changes, *put.guard)) continue;
    if (!IsAtOnceAsExpected(*put.guard)) return false;
  }
  if (!store_->PutAllAtOnce(changes)) return false;
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
  std::set<std::string_view> guarding;
  for (size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    CountAttempt(change.record ? Operation::kPut : Operation::kDelete);
    const Status valid = [&]() -> Status {
      TRY(CheckKey(change.key));
      if (change.record) TRY(CheckRecord(*change.record));
      TRY(CheckExpected(change.expected));
      return CheckLimitsOf(change.guard, change.key);
    }();
    if (!valid.ok()) return BatchFailure{valid, i};
    keys.insert(change.key);
    if (change.guard) guarding.insert(change.guard->key);
  }
  for (const std::string_view key : keys) guarding.erase(key);
  const KeyLocks::Hold hold(locks_, List(keys), KeyLocks::Wait::kMay, List(guarding));
  std::unordered_map<std::string_view, size_t> last;
  for (size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    Status may = change.record ? store_->CheckThere(change.key, change.expected)
                               : CheckDeletion(change.key, change.expected);
    const bool gone_already = may.code() == ENOENT && !change.record && !change.expected.version();
    if (!may.ok() && !gone_already) return BatchFailure{std::move(may), i};
    may = CheckGuard(change.guard);
    if (!may.ok()) return BatchFailure{std::move(may), i};
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
