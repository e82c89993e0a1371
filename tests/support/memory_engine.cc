#include "tests/support/memory_engine.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>
#include <variant>

#include "base/try.h"

namespace pinstripe {

// --- The store

MemoryEngineStore::MemoryEngineStore(Runtime& runtime) : runtime_(runtime) {
  const MutexLock lock(mutex_);
  id_ = NewId();
  state_.software = "memory 1.0";
  state_.limit_bytes = uint64_t{1} << 30;
}

std::string MemoryEngineStore::NewId() {
  constexpr size_t kIdBytes = 16;
  std::string id(kIdBytes, '\0');
  for (char& each : id) each = static_cast<char>(runtime_.Random());
  return id;
}

void MemoryEngineStore::Empty() {
  const MutexLock lock(mutex_);
  id_ = NewId();
  cluster_version_ = 0;
  records_.clear();
}

std::string MemoryEngineStore::id() const {
  const MutexLock lock(mutex_);
  return id_;
}

int64_t MemoryEngineStore::cluster_version() const {
  const MutexLock lock(mutex_);
  return cluster_version_;
}

std::optional<std::string> MemoryEngineStore::Find(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return std::nullopt;
  return found->second;
}

void MemoryEngineStore::Set(const std::string& key, std::string bytes) {
  const MutexLock lock(mutex_);
  records_[key] = std::move(bytes);
}

void MemoryEngineStore::SetFull(bool full) {
  const MutexLock lock(mutex_);
  full_ = full;
}

void MemoryEngineStore::SetPageBytes(size_t bytes) {
  const MutexLock lock(mutex_);
  page_bytes_ = bytes;
}

void MemoryEngineStore::SetState(EngineState state) {
  const MutexLock lock(mutex_);
  state_ = std::move(state);
}

Status MemoryEngineStore::AdmitLocked(const std::string& id, const Terms& terms) {
  if (id != id_) return Fail(EHOSTUNREACH, "the store was emptied or replaced");
  if (!terms.cluster_version) return {};
  if (*terms.cluster_version < cluster_version_) {
    return Fail(EREMCHG, "it has cluster version {}", cluster_version_);
  }
  cluster_version_ = *terms.cluster_version;
  return {};
}

Result<Record> MemoryEngineStore::ReadLocked(const std::string& key) const {
  const auto found = records_.find(key);
  if (found == records_.end()) return Fail(ENOENT, "no such key");
  return DecodeEngineRecord(SharedBytes(found->second));
}

// Empty of a record that is not there.
Result<std::string> MemoryEngineStore::VersionLocked(const std::string& key) const {
  Result<Record> record = ReadLocked(key);
  if (!record && record.error().code() == ENOENT) return std::string();
  if (!record) return tl::unexpected(record.error());
  return std::move(record->version);
}

Status MemoryEngineStore::ChangeLocked(const EngineChange& change) {
  if (const auto& expected = change.expected.version()) {
    if (!change.put && !records_.contains(change.key)) return Fail(ENOENT, "no such key");
    const std::string version = TRY(VersionLocked(change.key));
    if (version != *expected) return Fail(ESTALE, "the record has another version");
  }
  if (change.guard) {
    const Result<std::string> version = VersionLocked(change.guard->key);
    if (!version) return Fail(EIO, "the guard cannot be read: {}", version.error().message());
    if (*version != change.guard->expected.version()) {
      return Fail(ECANCELED, "the guard has another version");
    }
  }
  if (!change.put) {
    records_.erase(change.key);
    return {};
  }
  if (full_) return Fail(ENOSPC, "it is full");
  records_[change.key] = EncodeEngineRecord(*change.put);
  return {};
}

Result<EngineAnswer> MemoryEngineStore::Do(const std::string& id, const EngineBatch& batch,
                                           const Terms& terms) {
  const MutexLock lock(mutex_);
  TRY(AdmitLocked(id, terms));
  EngineAnswer answer;
  for (const EngineChange& each : batch.changes) answer.changes.push_back(ChangeLocked(each));
  for (const std::string& each : batch.reads) answer.reads.push_back(ReadLocked(each));
  return answer;
}

Result<RangeRecords> MemoryEngineStore::List(const std::string& id, const EngineRange& range,
                                             const Terms& terms) {
  const MutexLock lock(mutex_);
  TRY(AdmitLocked(id, terms));
  RangeRecords found;
  const size_t page_bytes = page_bytes_;
  size_t bytes = 0;
  const auto take = [&](const std::string& key, const std::string& kept) {
    if (found.records.size() == range.max || bytes > page_bytes) {
      found.more = true;
      return false;
    }
    RangeRecord listed;
    listed.key = key;
    Result<Record> record = DecodeEngineRecord(SharedBytes(kept));
    listed.damaged = !record;
    if (record) {
      listed.record = *std::move(record);
      listed.has_value = listed.record.value.size() <= range.value_limit;
      if (!listed.has_value) listed.record.value = {};
    }
    bytes += key.size() + listed.record.version.size() + listed.record.value.size();
    found.records.push_back(std::move(listed));
    return true;
  };
  if (range.first > range.last) return found;
  const auto begin = records_.lower_bound(range.first);
  const auto end = records_.upper_bound(range.last);
  if (range.reverse) {
    for (auto at = end; at != begin;) {
      --at;
      if (!take(at->first, at->second)) break;
    }
  } else {
    for (auto at = begin; at != end && take(at->first, at->second); ++at) {
    }
  }
  return found;
}

Status MemoryEngineStore::SetClusterVersion(const std::string& id, int64_t version,
                                            const Terms& terms) {
  const MutexLock lock(mutex_);
  TRY(AdmitLocked(id, terms));
  cluster_version_ = version;
  return {};
}

EngineState MemoryEngineStore::LookAt() const {
  const MutexLock lock(mutex_);
  EngineState state = state_;
  for (const auto& [key, bytes] : records_) state.used_bytes += key.size() + bytes.size();
  return state;
}

// --- The engine

class MemoryEngine::Core final : public std::enable_shared_from_this<Core> {
 public:
  Core(Runtime& runtime, std::shared_ptr<MemoryEngineStore> store)
      : runtime_(runtime), store_(std::move(store)) {}

  MemoryEngineStore& store() { return *store_; }

  void Set(const EngineFaults& faults) {
    const MutexLock lock(mutex_);
    faults_ = faults;
  }
  EngineRequests requests() const {
    const MutexLock lock(mutex_);
    return requests_;
  }
  void ForgetRequests() {
    const MutexLock lock(mutex_);
    requests_ = {};
  }
  template <typename Note>
  void Count(Note note) {
    const MutexLock lock(mutex_);
    note(requests_);
  }
  bool is_away() const {
    const MutexLock lock(mutex_);
    return !away_.ok();
  }

  void Start(Listener& listener);
  void StopTelling();
  void Stop();
  void GoAway(const std::string& why);
  void ComeBack();

  // `execute` is given the id of the store that was reached. One that asks the engine itself is
  // executed wherever the store is.
  enum class Whom { kStore, kEngine };
  template <typename T>
  void Ask(Whom whom, const Terms& terms, std::function<Result<T>(const std::string&)> execute,
           Callback<T> done);

 private:
  struct Request {
    uint64_t number = 0;
    std::string store;  // that was reached
    Duration delay{};
    bool lose_answer = false;
  };

  void Finish(uint64_t number, const std::function<void()>& answer) EXCLUDES(mutex_);
  void FinishAt(Time when, uint64_t number, std::function<void()> answer) {
    runtime_.RunAt(when, [self = shared_from_this(), number, answer = std::move(answer)] {
      self->Finish(number, answer);
    });
  }
  // Whether it comes to the store.
  bool Arrives(const Request& request) const {
    const MutexLock lock(mutex_);
    return away_.ok() && !stopped_ && reached_ == request.store;
  }
  void ReachLocked() REQUIRES(mutex_);
  void OnEmptied(const std::string& store) EXCLUDES(mutex_);
  void TellLocked(std::function<void(Listener&)> what) REQUIRES(mutex_);
  void TellAll() EXCLUDES(mutex_);
  bool ChanceLocked(double probability) REQUIRES(mutex_) {
    constexpr double kAll = 18446744073709551616.0;  // 2^64
    return probability > 0 && static_cast<double>(runtime_.Random()) < probability * kAll;
  }

  Runtime& runtime_;
  const std::shared_ptr<MemoryEngineStore> store_;

  mutable Mutex mutex_;
  Condition quiet_;
  EngineFaults faults_ GUARDED_BY(mutex_);
  EngineRequests requests_ GUARDED_BY(mutex_);
  Status away_ GUARDED_BY(mutex_);  // success: it is not
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::string reached_ GUARDED_BY(mutex_);  // the store; empty: none
  uint64_t attempt_ GUARDED_BY(mutex_) = 0;

  Listener* listener_ GUARDED_BY(mutex_) = nullptr;
  std::deque<std::function<void(Listener&)>> news_ GUARDED_BY(mutex_);
  bool telling_ GUARDED_BY(mutex_) = false;

  uint64_t next_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, StatusCallback> outstanding_ GUARDED_BY(mutex_);  // to fail them
  int answering_ GUARDED_BY(mutex_) = 0;
};

void MemoryEngine::Core::Start(Listener& listener) {
  const MutexLock lock(mutex_);
  listener_ = &listener;
  if (away_.ok()) return ReachLocked();
  TellLocked([why = away_](Listener& told) { told.OnLost(why); });
}

void MemoryEngine::Core::StopTelling() {
  const MutexLock lock(mutex_);
  listener_ = nullptr;
  news_.clear();
  while (telling_) quiet_.Wait(lock);
}

void MemoryEngine::Core::Stop() {
  StopTelling();
  MutexLock lock(mutex_);
  stopped_ = true;
  const auto left = std::exchange(outstanding_, {});
  lock.Unlock();
  for (const auto& [number, fail] : left) fail(Fail(EHOSTUNREACH, "closed"));
  lock.Lock();
  while (answering_ > 0) quiet_.Wait(lock);
}

void MemoryEngine::Core::GoAway(const std::string& why) {
  const MutexLock lock(mutex_);
  away_ = Fail(EHOSTUNREACH, "{}", why);
  reached_.clear();
  ++attempt_;
  TellLocked([away = away_](Listener& told) { told.OnLost(away); });
  for (const auto& [number, fail] : outstanding_) {
    FinishAt(runtime_.Now(), number, [fail = fail, away = away_] { fail(away); });
  }
}

void MemoryEngine::Core::ComeBack() {
  const MutexLock lock(mutex_);
  away_ = {};
  ReachLocked();
}

void MemoryEngine::Core::ReachLocked() {
  const uint64_t attempt = ++attempt_;
  runtime_.RunAt(runtime_.Now() + faults_.delay, [self = shared_from_this(), attempt] {
    const std::string store = self->store_->id();
    const MutexLock lock(self->mutex_);
    if (self->attempt_ != attempt) return;
    self->reached_ = store;
    self->TellLocked([store](Listener& told) { told.OnReached(store); });
  });
}

void MemoryEngine::Core::OnEmptied(const std::string& store) {
  const MutexLock lock(mutex_);
  if (reached_ != store) return;
  reached_.clear();
  TellLocked(
      [](Listener& told) { told.OnLost(Fail(EHOSTUNREACH, "the store was emptied or replaced")); });
  ReachLocked();
}

void MemoryEngine::Core::TellLocked(std::function<void(Listener&)> what) {
  if (listener_ == nullptr) return;
  news_.push_back(std::move(what));
  runtime_.RunAt(runtime_.Now(), [self = shared_from_this()] { self->TellAll(); });
}

void MemoryEngine::Core::TellAll() {
  MutexLock lock(mutex_);
  if (telling_) return;  // that thread goes on
  telling_ = true;
  while (!news_.empty()) {
    const auto what = std::move(news_.front());
    news_.pop_front();
    Listener& listener = *listener_;
    lock.Unlock();
    what(listener);
    lock.Lock();
  }
  telling_ = false;
  quiet_.WakeAll();
}

template <typename T>
void MemoryEngine::Core::Ask(Whom whom, const Terms& terms,
                             std::function<Result<T>(const std::string&)> execute,
                             Callback<T> done) {
  const Time now = runtime_.Now();
  const MutexLock lock(mutex_);
  Request request{.number = next_++, .store = reached_, .delay = faults_.delay};
  outstanding_.emplace(request.number, [done](const Status& why) { done(tl::unexpected(why)); });
  const auto fail = [&](Time when, Status why) {
    FinishAt(when, request.number, [done, why = std::move(why)] { done(tl::unexpected(why)); });
  };
  if (whom == Whom::kStore && reached_.empty()) {
    return fail(now, away_.ok() ? Fail(EHOSTUNREACH, "not reached yet") : away_);
  }
  const Status late = Fail(ETIMEDOUT, "no answer in time");
  if (ChanceLocked(faults_.lose_request)) return fail(terms.deadline, late);
  request.lose_answer = ChanceLocked(faults_.lose_answer);
  if (request.delay > Duration()) fail(terms.deadline, late);
  runtime_.RunAt(now + request.delay / 2,
                 [self = shared_from_this(), whom, request, done, execute = std::move(execute)] {
                   Result<T> result = Fail(EHOSTUNREACH, "lost on its way");
                   if (whom == Whom::kEngine || self->Arrives(request)) {
                     result = execute(request.store);
                     const bool is_other = !result && result.error().code() == EHOSTUNREACH;
                     if (is_other) self->OnEmptied(request.store);
                     if (request.lose_answer) result = Fail(EHOSTUNREACH, "its answer was lost");
                   }
                   const auto answer = [done, result = std::move(result)] { done(result); };
                   if (request.delay == Duration()) return self->Finish(request.number, answer);
                   self->FinishAt(self->runtime_.Now() + request.delay / 2, request.number, answer);
                 });
}

// Once for each.
void MemoryEngine::Core::Finish(uint64_t number, const std::function<void()>& answer) {
  {
    const MutexLock lock(mutex_);
    if (outstanding_.erase(number) == 0) return;
    ++answering_;
  }
  answer();
  const MutexLock lock(mutex_);
  if (--answering_ == 0) quiet_.WakeAll();
}

MemoryEngine::MemoryEngine(Runtime& runtime, std::shared_ptr<MemoryEngineStore> store)
    : core_(std::make_shared<Core>(runtime, std::move(store))) {}

MemoryEngine::~MemoryEngine() { core_->Stop(); }

void MemoryEngine::Set(const EngineFaults& faults) { core_->Set(faults); }
void MemoryEngine::GoAway(std::string why) { core_->GoAway(why); }
void MemoryEngine::ComeBack() { core_->ComeBack(); }
EngineRequests MemoryEngine::requests() const { return core_->requests(); }
void MemoryEngine::ForgetRequests() { core_->ForgetRequests(); }
void MemoryEngine::Start(Listener& listener) { core_->Start(listener); }
void MemoryEngine::StopTelling() { core_->StopTelling(); }

void MemoryEngine::Do(EngineBatch batch, Terms terms, Callback<EngineAnswer> done) {
  core_->Count([&](EngineRequests& made) {
    ++made.batches;
    made.changes += batch.changes.size();
    made.reads += batch.reads.size();
    made.largest = std::max<uint64_t>(made.largest, batch.changes.size() + batch.reads.size());
  });
  core_->Ask<EngineAnswer>(
      Core::Whom::kStore, terms,
      [store = &core_->store(), batch = std::move(batch), terms](const std::string& id) {
        return store->Do(id, batch, terms);
      },
      std::move(done));
}

void MemoryEngine::List(EngineRange range, Terms terms, Callback<RangeRecords> done) {
  core_->Count([](EngineRequests& made) { ++made.lists; });
  core_->Ask<RangeRecords>(
      Core::Whom::kStore, terms,
      [store = &core_->store(), range = std::move(range), terms](const std::string& id) {
        return store->List(id, range, terms);
      },
      std::move(done));
}

void MemoryEngine::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  core_->Ask<std::monostate>(
      Core::Whom::kStore, terms,
      [store = &core_->store(), version, terms](const std::string& id) -> Result<std::monostate> {
        TRY(store->SetClusterVersion(id, version, terms));
        return std::monostate();
      },
      [done = std::move(done)](const Result<std::monostate>& set) {
        done(set ? Status() : set.error());
      });
}

void MemoryEngine::LookAt(Terms terms, Callback<EngineState> done) {
  core_->Count([](EngineRequests& made) { ++made.looks; });
  core_->Ask<EngineState>(
      Core::Whom::kEngine, terms,
      [core = core_.get()](const std::string&) -> Result<EngineState> {
        EngineState state = core->store().LookAt();
        const bool is_away = core->is_away();
        state.members.push_back({.name = "memory",
                                 .address = "here",
                                 .is_up = !is_away,
                                 .is_leader = !is_away,
                                 .note = is_away ? "away" : ""});
        return state;
      },
      std::move(done));
}

}  // namespace pinstripe
