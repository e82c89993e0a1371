#include "daemon/memory_drive.h"

#include <utility>

#include "base/mutex.h"
#include "base/send_together.h"
#include "drive/put_and_read.h"

namespace pinstripe {

// Answers that are still to be given. The destructor of the drive gives those that the runtime did
// not come to yet.
class MemoryDrive::Answers {
 public:
  uint64_t Add(std::function<void(bool gone)> answer) {
    const MutexLock lock(mutex_);
    waiting_.emplace(next_, std::move(answer));
    return next_++;
  }

  void Give(uint64_t number) {
    std::function<void(bool)> answer;
    {
      const MutexLock lock(mutex_);
      const auto found = waiting_.find(number);
      if (found == waiting_.end()) return;  // the drive is gone, and has answered
      answer = std::move(found->second);
      waiting_.erase(found);
      ++running_;
    }
    answer(false);
    {
      const MutexLock lock(mutex_);
      --running_;
    }
    finished_.WakeAll();
  }

  void GiveAll() {
    MutexLock lock(mutex_);
    auto left = std::exchange(waiting_, {});
    lock.Unlock();
    for (auto& [number, answer] : left) answer(true);
    lock.Lock();
    while (running_ > 0) finished_.Wait(lock);
  }

 private:
  Mutex mutex_;
  Condition finished_;
  uint64_t next_ GUARDED_BY(mutex_) = 0;
  uint64_t running_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::function<void(bool)>> waiting_ GUARDED_BY(mutex_);
};

// Reads that follow puts, until all puts of their message are made.
class MemoryDrive::ThenGets final : public SendTogether::Sender {
 public:
  using Done = std::function<void(PutAndRead)>;

  explicit ThenGets(MemoryDrive& drive) : drive_(&drive) {}

  void Add(std::string key, Done done) {
    const MutexLock lock(mutex_);
    waiting_.push_back({std::move(key), std::move(done)});
  }

  void SendWaiting() override {
    const MutexLock lock(mutex_);
    for (Waiting& each : std::exchange(waiting_, {})) {
      drive_->Answer(std::move(each.done), PutAndRead({}, drive_->Read(each.key, {})));
    }
  }

  // The drive goes.
  void Close() {
    const MutexLock lock(mutex_);
    for (Waiting& each : std::exchange(waiting_, {})) {
      drive_->Answer(std::move(each.done), PutAndRead(Fail(EHOSTUNREACH, "closed")));
    }
  }

 private:
  struct Waiting {
    std::string key;
    Done done;
  };
  MemoryDrive* const drive_;
  Mutex mutex_;
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);  // none once the drive is gone
};

MemoryDrive::MemoryDrive(Runtime& runtime, std::string name, uint64_t capacity_bytes,
                         uint64_t reserve_bytes)
    : MemoryDrive(runtime, std::move(name),
                  std::make_unique<MemoryStore>(capacity_bytes, reserve_bytes)) {}

MemoryDrive::MemoryDrive(Runtime& runtime, std::string name, std::unique_ptr<MemoryStore> store)
    : runtime_(runtime),
      name_(std::move(name)),
      store_(*store),
      engine_(std::move(store)),
      answers_(std::make_shared<Answers>()),
      then_gets_(std::make_shared<ThenGets>(*this)) {}

MemoryDrive::~MemoryDrive() {
  then_gets_->Close();
  answers_->GiveAll();
}

Status MemoryDrive::Named(const Status& status) const { return status.OfDrive(name_); }

template <typename T>
Result<T> MemoryDrive::Named(Result<T> result) const {
  if (result.has_value()) return result;
  return tl::unexpected<Status>(result.error().OfDrive(name_));
}

template <typename R>
void MemoryDrive::Answer(std::function<void(R)> done, R result) {
  auto answer = [name = name_, done = std::move(done),
                 result = std::move(result)](bool gone) mutable {
    done(gone ? R(Failed(Status(EHOSTUNREACH, "closed").OfDrive(name))) : std::move(result));
  };
  const uint64_t number = answers_->Add(std::move(answer));
  runtime_.RunAt(runtime_.Now(), [answers = answers_, number] { answers->Give(number); });
}

int64_t MemoryDrive::cluster_version() const {
  const MutexLock lock(mutex_);
  return cluster_version_;
}

Status MemoryDrive::Admit(const Terms& terms) {
  if (!terms.cluster_version.has_value()) return {};
  const MutexLock lock(mutex_);
  if (*terms.cluster_version < cluster_version_) {
    return Status(Fail(EREMCHG, "it has cluster version {}, the request {}", cluster_version_,
                       *terms.cluster_version))
        .OfDrive(name_);
  }
  cluster_version_ = *terms.cluster_version;
  return {};
}

void MemoryDrive::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  Status admitted = Admit(terms);
  if (admitted.ok()) {
    const MutexLock lock(mutex_);
    cluster_version_ = version;
  }
  Answer(std::move(done), std::move(admitted));
}

void MemoryDrive::Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) {
  if (Status admitted = Admit(terms); !admitted.ok()) {
    return Answer(std::move(done), Result<Record>(Failed(std::move(admitted))));
  }
  Answer(std::move(done), Read(key, range));
}

Result<Record> MemoryDrive::Read(const std::string& key, ValueRange range) {
  return Named(engine_.Get(key, range).map([&range](StoredRecord&& record) -> Record {
    return {range.version.CutFrom(record.head.version), std::move(record.head.tag), record.value};
  }));
}

void MemoryDrive::Head(std::string key, Terms terms, Callback<RecordHead> done) {
  if (Status admitted = Admit(terms); !admitted.ok()) {
    return Answer(std::move(done), Result<RecordHead>(Failed(std::move(admitted))));
  }
  Answer(std::move(done), Named(engine_.Head(key).map([](StoredHead&& head) -> RecordHead {
           return {std::move(head.version), std::move(head.tag)};
         })));
}

void MemoryDrive::Put(PutRequest request, Terms terms, StatusCallback done) {
  Answer(std::move(done), Make(std::move(request), terms));
}

void MemoryDrive::PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                             Callback<Record> read) {
  const Status put = Make(std::move(request), terms);
  if (!put.ok()) return Answer(TellEach(std::move(done), std::move(read)), PutAndRead(put));
  then_gets_->Add(std::move(key), TellEach(std::move(done), std::move(read)));
  if (!SendTogether::Defers(then_gets_)) then_gets_->SendWaiting();
}

Status MemoryDrive::Make(PutRequest request, const Terms& terms) {
  if (Status admitted = Admit(terms); !admitted.ok()) return admitted;
  constexpr int32_t kCrc32c = 4;  // Kinetic's number
  const StoredRecord record{.head = {.version = std::move(request.version),
                                     .tag = std::move(request.tag),
                                     .algorithm = kCrc32c},
                            .value = std::move(request.value)};
  const Status put =
      engine_.Put(request.key, record, request.expected, request.room, request.guard);
  return Named(Durably(put, request.durability));
}

Status MemoryDrive::Durably(Status status, Durability durability) {
  return status.ok() && durability == Durability::kWriteThrough ? engine_.Flush() : status;
}

void MemoryDrive::Delete(std::string key, Expected expected, Durability durability, Terms terms,
                         StatusCallback done) {
  if (Status admitted = Admit(terms); !admitted.ok()) {
    return Answer(std::move(done), std::move(admitted));
  }
  Answer(std::move(done), Named(Durably(engine_.Delete(key, expected), durability)));
}

void MemoryDrive::Range(std::string first, std::string last, uint32_t max, bool reverse,
                        Terms terms, Callback<std::vector<std::string>> done) {
  if (Status admitted = Admit(terms); !admitted.ok()) {
    return Answer(std::move(done), Result<std::vector<std::string>>(Failed(std::move(admitted))));
  }
  const KeyRange range{.first = std::move(first), .last = std::move(last)};
  Answer(std::move(done), Named(engine_.Keys(range, max, reverse)));
}

void MemoryDrive::ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                              uint32_t value_limit, Terms terms, Callback<RangeRecords> done) {
  if (Status admitted = Admit(terms); !admitted.ok()) {
    return Answer(std::move(done), Result<RangeRecords>(Failed(std::move(admitted))));
  }
  const KeyRange range{.first = std::move(first), .last = std::move(last)};
  const RangeLimits limits{.entries = max,
                           .value_bytes = value_limit,
                           .all_value_bytes = kMaxValueBytes,
                           .all_head_bytes = kMaxRangeHeadBytes};
  Answer(std::move(done), Named(engine_.Items(range, limits, reverse).map([](RangeItems&& items) {
           RangeRecords records{.more = items.more};
           for (RangeItem& item : items.items) {
             records.records.push_back({.key = std::move(item.key),
                                        .record = {std::move(item.head.version),
                                                   std::move(item.head.tag), std::move(item.value)},
                                        .has_value = item.has_value,
                                        .damaged = item.damaged});
           }
           return records;
         })));
}

void MemoryDrive::Flush(Terms terms, StatusCallback done) {
  if (Status admitted = Admit(terms); !admitted.ok()) {
    return Answer(std::move(done), std::move(admitted));
  }
  Answer(std::move(done), Named(engine_.Flush()));
}

void MemoryDrive::Info(Terms terms, Callback<DriveInfo> done) {
  if (Status admitted = Admit(terms); !admitted.ok()) {
    return Answer(std::move(done), Result<DriveInfo>(Failed(std::move(admitted))));
  }
  const StoreUsage usage = engine_.Usage();
  const std::string_view failure = usage.failure.ok() ? "" : usage.failure.message();
  DriveInfo info{.capacity_bytes = usage.capacity_bytes,
                 .portion_full = usage.portion_full(),
                 .vendor = "Pinstripe",
                 .model = "memory",
                 .serial_number = name_,
                 .failure = std::string(failure)};
  {
    const MutexLock lock(mutex_);
    info.starts = starts_;
    info.start_count = start_count_;
    info.up = up_;
  }
  Answer(std::move(done), Result<DriveInfo>(std::move(info)));
}

void MemoryDrive::SetStarts(std::vector<DriveStart> starts, std::optional<Duration> up,
                            uint64_t start_count) {
  const MutexLock lock(mutex_);
  start_count_ = start_count == 0 ? starts.size() : start_count;
  starts_ = std::move(starts);
  up_ = up;
}

}  // namespace pinstripe
