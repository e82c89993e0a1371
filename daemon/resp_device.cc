#include "daemon/resp_device.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"
#include "daemon/rights.h"
#include "store/gate.h"

namespace pinstripe {
namespace {

constexpr int kCrc32c = 4;  // the protocol's number of the algorithm
constexpr int kMostAttempts = 1000;

// Longer than where it begins, what is there is something else.
constexpr size_t kVersionBytes = 9;

}  // namespace

uint64_t RespCursors::Add(std::string key, uint64_t chance) {
  constexpr uint64_t kExactInEveryLanguage = (uint64_t{1} << 53) - 1;
  const MutexLock lock(mutex_);
  uint64_t number = chance & kExactInEveryLanguage;
  while (number == 0 || keys_.contains(number)) number = (number + 1) & kExactInEveryLanguage;
  constexpr size_t kAround = 200;  // what the containers take
  bytes_ += key.size() + kAround;
  keys_.emplace(number, std::move(key));
  order_.push_back(number);
  while (bytes_ > kMostBytes && order_.size() > 1) {
    const auto oldest = keys_.find(order_.front());
    bytes_ -= oldest->second.size() + kAround;
    keys_.erase(oldest);
    order_.pop_front();
  }
  return number;
}

std::optional<std::string> RespCursors::Find(uint64_t number) const {
  const MutexLock lock(mutex_);
  const auto found = keys_.find(number);
  return found == keys_.end() ? std::nullopt : std::optional(found->second);
}

Result<std::string> RespDevice::RecordOf(std::string_view key) {
  if (key.size() > kMaxRespKeyBytes) {
    return Fail(EINVAL, "a key of {} bytes; the limit is {}", key.size(), kMaxRespKeyBytes);
  }
  std::string record;
  record.reserve(kRespPrefix.size() + key.size());
  record += kRespPrefix;
  record += key;
  return record;
}

// What a Kinetic client has put there is a text.
Result<RespDevice::Entry> RespDevice::EntryOf(Result<StoredRecord> record) {
  if (!record.has_value()) return Failed(std::move(record).error());
  const std::string& version = record->head.version;
  const bool is_hash =
      version.size() == kVersionBytes && version[0] == static_cast<char>(Type::kHash);
  return Entry{.type = is_hash ? Type::kHash : Type::kText,
               .version = std::move(record->head.version),
               .value = std::move(record->value),
               .value_bytes = record->head.value_bytes};
}

// What the transaction has made of it. ENODATA: nothing so far.
Result<std::optional<RespDevice::Entry>> RespDevice::StagedEntry(const RespCaller& caller,
                                                                 const std::string& record,
                                                                 ValueRange range) {
  if (caller.staged == nullptr) return Fail(ENODATA, "no transaction");
  const auto found = caller.staged->changes.find(record);
  if (found == caller.staged->changes.end()) return Fail(ENODATA, "not changed");
  if (!found->second.record) return std::nullopt;
  StoredRecord staged = *found->second.record;
  const size_t size = staged.value.size();
  const size_t offset = std::min<size_t>(range.offset, size);
  staged.head.value_bytes = static_cast<uint32_t>(size);
  staged.value = staged.value.Slice(offset, std::min<size_t>(range.length, size - offset));
  return TRY(EntryOf(std::move(staged)));
}

Result<std::optional<RespDevice::Entry>> RespDevice::Read(const RespCaller& caller,
                                                          std::string_view key, ValueRange range,
                                                          bool at_once) {
  const std::string record = TRY(RecordOf(key));
  TRY(Allow(caller.identity->rights, Permission::kRead, record, caller.tls));
  Result<std::optional<Entry>> staged = StagedEntry(caller, record, range);
  if (staged.has_value() || staged.error().code() != ENODATA) return staged;
  Engine& engine = service_.inside().engine;
  Result<Entry> entry =
      EntryOf(at_once ? engine.GetAtOnce(record, range) : engine.Get(record, range));
  if (entry.has_value()) return *std::move(entry);
  if (entry.error().code() == ENOENT) return std::nullopt;
  return Failed(std::move(entry).error());
}

Result<std::optional<RespDevice::Entry>> RespDevice::Get(const RespCaller& caller,
                                                         std::string_view key, ValueRange range) {
  return Read(caller, key, range, /*at_once=*/false);
}

Result<std::optional<RespDevice::Entry>> RespDevice::GetAtOnce(const RespCaller& caller,
                                                               std::string_view key) {
  return Read(caller, key, {}, /*at_once=*/true);
}

Result<Engine::Change> RespDevice::ChangeOf(const RespCaller& caller, std::string_view key,
                                            std::optional<Value> value) {
  Engine::Change change;
  change.key = TRY(RecordOf(key));
  const Permission permission = value ? Permission::kWrite : Permission::kDelete;
  TRY(Allow(caller.identity->rights, permission, change.key, caller.tls));
  if (!value) return change;
  if (value->bytes.size() > kMaxValueBytes) {
    return Fail(EINVAL, "a value of {} bytes; the limit is {}", value->bytes.size(),
                kMaxValueBytes);
  }
  // Never used before, so that of two conditional changes only one finds what it expects.
  StoredRecord record;
  record.head.version = Writer()
                            .U8(static_cast<uint8_t>(value->type))
                            .U64(next_version_.fetch_add(1, std::memory_order_relaxed))
                            .Take();
  record.value_crc = Crc32c(value->bytes);
  record.head.tag = Writer().U32(*record.value_crc).Take();
  record.head.algorithm = kCrc32c;
  record.value = std::move(value->bytes);
  change.record = std::move(record);
  return change;
}

Status RespDevice::Make(const RespCaller& caller, std::vector<Engine::Change> changes) {
  Engine& engine = service_.inside().engine;
  if (caller.staged == nullptr && changes.size() == 1) {
    const Engine::Change& only = changes[0];
    return only.record ? engine.Put(only.key, *only.record, only.expected)
                       : engine.Delete(only.key, only.expected);
  }
  if (caller.staged == nullptr) {
    const std::optional<Engine::BatchFailure> failure = engine.Apply(changes);
    return failure ? failure->status : Status();
  }
  return Stage(*caller.staged, std::move(changes));
}

Status RespDevice::MakeAll(RespCaller::Staged staged) {
  std::vector<Engine::Change> changes;
  for (auto& [record, change] : staged.changes) changes.push_back(std::move(change));
  const std::optional<Engine::BatchFailure> failure = service_.inside().engine.Apply(changes);
  return failure ? failure->status : Status();
}

// Nobody else is at work, so that what is there now is there when all of it is made. All are looked
// at before any is staged.
Status RespDevice::Stage(RespCaller::Staged& staged, std::vector<Engine::Change> changes) {
  for (const Engine::Change& change : changes) {
    if (change.record && !change.expected.version()) continue;
    std::string version;
    bool is_there = false;
    if (const auto found = staged.changes.find(change.key); found != staged.changes.end()) {
      is_there = found->second.record.has_value();
      if (is_there) version = found->second.record->head.version;
    } else {
      const Result<StoredHead> head = service_.inside().engine.Head(change.key);
      if (!head.has_value() && head.error().code() != ENOENT) return head.error();
      is_there = head.has_value();
      if (is_there) version = head->version;
    }
    if (!is_there && !change.record) return NoSuchKey();
    TRY(CheckVersion(version, change.expected));
  }
  for (Engine::Change& change : changes) {
    change.expected = Expected::Any();
    std::string record = change.key;
    if (change.record) staged.bytes += change.record->value.size();
    staged.changes.insert_or_assign(std::move(record), std::move(change));
  }
  return {};
}

Status RespDevice::Change(const RespCaller& caller, std::string_view key, const Decide& decide) {
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const std::optional<Entry> there = TRY(Get(caller, key));
    std::optional<Decision> decision = TRY(decide(there));
    if (!decision || (!there && !decision->value)) return {};
    Engine::Change change = TRY(ChangeOf(caller, key, std::move(decision->value)));
    change.expected = there ? Expected::Version(there->version) : Expected::Absent();
    const Status made = Make(caller, {std::move(change)});
    if (made.code() != ESTALE && made.code() != ENOENT) return made;
  }
  return Fail(EBUSY, "others have changed this key {} times meanwhile; try again", kMostAttempts);
}

Status RespDevice::Put(const RespCaller& caller, std::string_view key, Value value) {
  Engine::Change change = TRY(ChangeOf(caller, key, std::move(value)));
  return Make(caller, {std::move(change)});
}

Result<bool> RespDevice::Create(const RespCaller& caller, std::string_view key, Value value) {
  Engine::Change change = TRY(ChangeOf(caller, key, std::move(value)));
  change.expected = Expected::Absent();
  // What has no version, as Kinetic clients may put it, looks like nothing to a condition.
  if (caller.staged == nullptr) {
    const Result<StoredHead> head = service_.inside().engine.Head(change.key);
    if (head.has_value()) return false;
    if (head.error().code() != ENOENT) return Failed(head.error());
  }
  const Status put = Make(caller, {std::move(change)});
  if (put.code() == ESTALE) return false;
  TRY(put);
  return true;
}

Result<bool> RespDevice::Delete(const RespCaller& caller, std::string_view key) {
  Engine::Change change = TRY(ChangeOf(caller, key, std::nullopt));
  const Status deleted = Make(caller, {std::move(change)});
  if (deleted.code() == ENOENT) return false;
  TRY(deleted);
  return true;
}

Result<int64_t> RespDevice::DeleteEach(const RespCaller& caller,
                                       std::span<const std::string_view> keys) {
  int64_t deleted = 0;
  if (caller.staged != nullptr || keys.size() == 1) {
    for (const std::string_view key : keys) deleted += TRY(Delete(caller, key)) ? 1 : 0;
    return deleted;
  }
  std::map<std::string, Engine::Change> deletions;
  for (const std::string_view key : keys) {
    Engine::Change deletion = TRY(ChangeOf(caller, key, std::nullopt));
    const Result<StoredHead> head = service_.inside().engine.Head(deletion.key);
    if (!head.has_value() && head.error().code() == ENOENT) continue;
    // One that is damaged goes, too.
    std::string record = deletion.key;
    deletions.emplace(std::move(record), std::move(deletion));
  }
  if (deletions.empty()) return 0;
  deleted = static_cast<int64_t>(deletions.size());
  TRY(MakeAll({.changes = std::move(deletions), .bytes = 0}));
  return deleted;
}

// The parts of the range in which there can be keys for this caller.
Result<std::vector<KeyRange>> RespDevice::PartsOf(const RespCaller& caller, const Keys& keys,
                                                  bool reverse) const {
  KeyRange range{.first_included = keys.first_included};
  range.first = TRY(RecordOf(keys.first));
  if (keys.last) {
    range.last = TRY(RecordOf(*keys.last));
    range.last_included = keys.last_included;
  } else {
    range.last = EndOfPrefix(std::string(kRespPrefix));
    range.last_included = false;
  }
  if (range.first > *range.last) return std::vector<KeyRange>();
  const Rights& rights = caller.identity->rights;
  TRY(Allow(rights, Permission::kRange, std::nullopt, caller.tls));
  std::vector<KeyRange> parts = PartsToList(rights, range, caller.tls);
  if (reverse) std::reverse(parts.begin(), parts.end());
  return parts;
}

Status RespDevice::CheckStays(const RespCaller& caller) const {
  if (caller.gone == nullptr || !caller.gone->load(std::memory_order_relaxed)) return {};
  return Fail(ECANCELED, "the client has gone");
}

Result<std::vector<std::string>> RespDevice::SomeKeys(const RespCaller& caller,
                                                      const KeyRange& range, bool reverse) {
  const Gate::Visit visit(service_.inside().executing);
  if (!service_.security().IsCurrent(*caller.identity)) {
    return Fail(EACCES, "the device was erased meanwhile");
  }
  return service_.inside().engine.Keys(range, kMaxRangeKeys, reverse);
}

Status RespDevice::EachKey(const RespCaller& caller, const Keys& keys, bool reverse,
                           const std::function<bool(std::string_view)>& take) {
  if (caller.staged != nullptr) return Fail(EINVAL, "a transaction cannot list keys");
  for (KeyRange& part : TRY(PartsOf(caller, keys, reverse))) {
    while (true) {
      std::vector<std::string> found = TRY(SomeKeys(caller, part, reverse));
      for (const std::string& record : found) {
        TRY(CheckStays(caller));
        const Rights& rights = caller.identity->rights;
        if (!MayDo(rights, Permission::kRange, record, caller.tls)) continue;
        if (!take(std::string_view(record).substr(kRespPrefix.size()))) return {};
      }
      if (found.size() < kMaxRangeKeys) break;
      if (reverse) {
        part.last = std::move(found.back());
        part.last_included = false;
      } else {
        part.first = std::move(found.back());
        part.first_included = false;
      }
    }
  }
  return {};
}

Status RespDevice::DeleteSome(const RespCaller& caller, std::vector<Engine::Change> deletions) {
  turns_.EnterAndWait(RespTurns::Kind::kBeside);
  Status made;
  {
    const Gate::Visit visit(service_.inside().executing);
    made = service_.security().IsCurrent(*caller.identity)
               ? Make(caller, std::move(deletions))
               : Status(EACCES, "the device was erased meanwhile");
  }
  turns_.Leave(RespTurns::Kind::kBeside);
  return made.code() == ENOENT ? Status() : made;  // somebody else was quicker
}

Status RespDevice::DeleteAll(const RespCaller& caller) {
  const Rights& rights = caller.identity->rights;
  const std::string last = std::string(kRespPrefix) + '\xff';
  for (const Permission needed : {Permission::kRange, Permission::kDelete}) {
    if (!MayDoAll(rights, needed, kRespPrefix, last, caller.tls)) {
      return Fail(EACCES, "permission denied");
    }
  }
  // Once from the first to the last, since others may add some for ever.
  std::vector<Engine::Change> deletions;
  Status failure;
  TRY(EachKey(caller, {}, /*reverse=*/false, [&](std::string_view key) {
    deletions.push_back({.key = std::string(kRespPrefix).append(key)});
    if (deletions.size() < kMaxRangeKeys) return true;
    failure = DeleteSome(caller, std::exchange(deletions, {}));
    return failure.ok();
  }));
  TRY(failure);
  return DeleteSome(caller, std::move(deletions));
}

}  // namespace pinstripe
