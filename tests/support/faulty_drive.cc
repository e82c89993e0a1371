#include "tests/support/faulty_drive.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/send_together.h"
#include "drive/put_and_read.h"
#include "tests/support/put_then_get.h"

namespace pinstripe {
namespace {

template <typename R>
R Failure(Status status) {
  if constexpr (std::is_same_v<R, Status> || std::is_same_v<R, PutAndRead>) {
    return R(std::move(status));
  } else {
    return tl::unexpected(std::move(status));
  }
}

// A caller that was not answered yet.
struct Caller {
  virtual ~Caller() = default;
  virtual void Fail(Status status) = 0;
};

template <typename R>
struct CallerOf final : Caller {
  explicit CallerOf(std::function<void(R)> done_in) : done(std::move(done_in)) {}
  void Fail(Status status) override { done(Failure<R>(std::move(status))); }
  const std::function<void(R)> done;
};

}  // namespace

void ClientLife::CrashAfter(uint64_t requests) {
  const std::lock_guard lock(mutex_);
  left_ = requests;
}

bool ClientLife::crashed() const {
  const std::lock_guard lock(mutex_);
  return left_ == uint64_t{0};
}

bool ClientLife::MaySend() {
  const std::lock_guard lock(mutex_);
  if (!left_.has_value()) return true;
  if (*left_ == 0) return false;
  --*left_;
  return true;
}

class FaultyDrive::Core final : public SendTogether::Sender,
                                public std::enable_shared_from_this<Core> {
 public:
  Core(Runtime& runtime, std::shared_ptr<Drive> drive, std::shared_ptr<ClientLife> client)
      : runtime_(runtime),
        name_(drive->name()),
        client_(std::move(client)),
        drive_(std::move(drive)) {}

  // What is done to the drive behind; R is its answer.
  template <typename R>
  using Operation = std::function<void(Drive&, Terms terms, std::function<void(R)>)>;

  template <typename R>
  void Send(uint64_t DriveRequests::*kind, const Terms& terms, Operation<R> operation,
            std::function<void(R)> done) {
    const Time deadline = terms.deadline;
    uint64_t caller = 0;
    DriveFaults faults;
    {
      const std::lock_guard lock(mutex_);
      ++(requests_.*kind);
      faults = faults_;
      caller = ++last_caller_;
      callers_.emplace(caller, std::make_shared<CallerOf<R>>(std::move(done)));
    }
    const Time now = runtime_.Now();
    if (client_ != nullptr && !client_->MaySend()) {
      FailAt(now, caller, Status(EHOSTUNREACH, "this client crashed").OfDrive(name_));
    } else if (faults.down) {
      FailAt(now, caller, Status(EHOSTUNREACH, "down").OfDrive(name_));
    } else {
      const Time arrival = now + Latency(faults);
      const bool executed = !Chance(faults.lose_request);
      const bool heard = executed && arrival < deadline && !Chance(faults.lose_answer);
      if (!heard) FailAt(deadline, caller, TimedOut());
      const bool repeated = Chance(faults.duplicate_request);
      if (executed) {
        ExecuteAt<R>(arrival, terms, heard ? caller : kNobody, operation,
                     repeated ? faults.duplicate_delay : Duration());
      }
    }
  }

  // As a drive behind a socket does, which has them in one message: puts that are asked for
  // together arrive together, or none of them does, and are made in their order.
  // So are the reads that follow puts, with one answer to both.
  template <typename R>
  void Put(PutRequest request, std::optional<std::string> then_get, const Terms& terms,
           std::function<void(R)> done) {
    NotePut(request);
    const bool deferred = SendTogether::Defers(shared_from_this());
    {
      const std::lock_guard lock(mutex_);
      const uint64_t caller = ++last_caller_;
      callers_.emplace(caller, std::make_shared<CallerOf<R>>(std::move(done)));
      waiting_.push_back({std::move(request), std::move(then_get), terms, caller});
    }
    if (!deferred) SendWaiting();
  }
  // Small gets that are asked for together would be in one message. They are sent at once all the
  // same, and only counted so.
  void NoteGet(const ValueRange& range) {
    const bool held = range.likely_bytes > 0 && SendTogether::Defers(shared_from_this());
    const std::lock_guard lock(mutex_);
    if (!held || !holds_gets_) ++requests_.get_messages;
    holds_gets_ = held;
  }

  void SendWaiting() override {
    std::vector<WaitingPut> puts;
    DriveFaults faults;
    {
      const std::lock_guard lock(mutex_);
      puts.swap(waiting_);
      holds_gets_ = false;
      if (!puts.empty()) ++requests_.put;
      faults = faults_;
    }
    if (puts.empty()) return;
    const auto fail = [&](Time when, const Status& why) {
      for (const WaitingPut& put : puts) FailAt(when, put.caller, why.OfDrive(name_));
    };
    const Time now = runtime_.Now();
    if (client_ != nullptr && !client_->MaySend()) {
      return fail(now, Status(EHOSTUNREACH, "this client crashed"));
    }
    if (faults.down) return fail(now, Status(EHOSTUNREACH, "down"));
    std::erase_if(puts, [&](const WaitingPut& put) {
      if (!IsFull(faults)) return false;
      FailAt(now + Latency(faults), put.caller, Status(ENOSPC, "full").OfDrive(name_));
      return true;
    });
    const Time arrival = now + Latency(faults);
    const bool executed = !Chance(faults.lose_request);
    const bool answered = executed && !Chance(faults.lose_answer);
    const bool repeated = Chance(faults.duplicate_request);
    for (WaitingPut& put : puts) {
      if (answered && arrival < put.terms.deadline) continue;
      FailAt(put.terms.deadline, put.caller, TimedOut());
      put.caller = kNobody;
    }
    if (executed) PutAt(arrival, std::move(puts), repeated ? faults.duplicate_delay : Duration());
  }

  void Close() {
    std::map<uint64_t, std::shared_ptr<Caller>> callers;
    std::shared_ptr<Drive> drive;
    {
      const std::lock_guard lock(mutex_);
      callers.swap(callers_);
      drive.swap(drive_);
    }
    for (auto& [id, caller] : callers) {
      caller->Fail(Status(EHOSTUNREACH, "closed before it answered").OfDrive(name_));
    }
  }

  void Set(const DriveFaults& faults) {
    const std::lock_guard lock(mutex_);
    if (faults.down && !faults_.down) ++losses_;
    faults_ = faults;
  }
  DriveFaults faults() const {
    const std::lock_guard lock(mutex_);
    return faults_;
  }
  void ReplaceBy(std::shared_ptr<Drive> drive) {
    const std::lock_guard lock(mutex_);
    ++losses_;
    drive_.swap(drive);
  }
  std::shared_ptr<Drive> drive() const {
    const std::lock_guard lock(mutex_);
    return drive_;
  }
  DriveRequests requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void NotePut(const PutRequest& put) {
    const std::lock_guard lock(mutex_);
    keys_.insert(put.key);
    if (put.durability == Durability::kWriteThrough) ++requests_.durable_put;
    requests_.put_bytes += put.key.size() + put.version.size() + put.tag.size() + put.value.size();
  }
  void ForgetRequests() {
    const std::lock_guard lock(mutex_);
    requests_ = {};
  }
  bool IsUp() const {
    return !faults().down && !(client_ != nullptr && client_->crashed()) && drive()->IsUp();
  }

  // Asks the drive behind for a record by `ask`, and now and then for another one as well.
  template <typename T>
  void AskFor(Drive& drive, const std::string& key,
              std::function<void(Drive&, const std::string& key, Callback<T>)> ask,
              Callback<T> then) {
    const std::string other = Chance(faults().mix_up) ? AnotherKey(key) : "";
    if (other.empty()) return ask(drive, key, std::move(then));
    ask(drive, key, [core = shared_from_this(), ask, other, then](Result<T> right) {
      const std::shared_ptr<Drive> behind = core->drive();
      if (!right.has_value() || behind == nullptr) return then(std::move(right));
      ask(*behind, other, [core, right = *right, then](Result<T> wrong) {
        then(wrong.has_value() ? core->MixUp(right, *wrong) : right);
      });
    });
  }

  void MixUp(RangeRecords& range) {
    std::vector<RangeRecord>& records = range.records;
    for (RangeRecord& each : records) {
      if (!Chance(faults().mix_up)) continue;
      const RangeRecord& other = records[runtime_.Random() % records.size()];
      if (&other == &each || other.has_value != each.has_value) continue;
      if (other.damaged || each.damaged) continue;
      each.record = MixUp(each.record, other.record);
    }
  }

  uint64_t CountLosses() const {
    const std::shared_ptr<Drive> behind = drive();
    const std::lock_guard lock(mutex_);
    return losses_ + (behind != nullptr ? behind->CountLosses() : 0);
  }

 private:
  static constexpr uint64_t kNobody = 0;

  struct WaitingPut {
    PutRequest request;
    std::optional<std::string> then_get;  // its caller wants to have a PutAndRead then
    Terms terms;
    uint64_t caller = kNobody;
  };

  static bool IsFull(const DriveFaults& faults) {
    return faults.full || (faults.room != nullptr && faults.room->fetch_sub(1) <= 0);
  }

  Status TimedOut() const { return Status(ETIMEDOUT, "no answer in time").OfDrive(name_); }

  void FailAt(Time when, uint64_t caller, Status status) {
    runtime_.RunAt(when, [core = shared_from_this(), caller, status] {
      if (auto waiting = core->TakeCaller(caller)) waiting->Fail(status);
    });
  }

  // And once more within `again` after that, if that is not zero: the caller hears of the first
  // time.
  template <typename R>
  void ExecuteAt(Time when, Terms terms, uint64_t caller, Operation<R> operation, Duration again) {
    runtime_.RunAt(when, [core = shared_from_this(), terms, caller, operation, again] {
      if (again > Duration()) {
        core->ExecuteAt<R>(core->runtime_.Now() + core->Between({}, again), terms, kNobody,
                           operation, Duration());
      }
      const std::shared_ptr<Drive> drive = core->drive();
      if (drive == nullptr) return;  // closed
      if (core->faults().down) {
        core->FailAt(core->runtime_.Now(), caller,
                     Status(EHOSTUNREACH, "went down").OfDrive(core->name_));
        return;
      }
      const Time deadline = terms.deadline;
      const Time patience = std::max(deadline, core->runtime_.Now() + std::chrono::seconds(1));
      operation(*drive, {patience, terms.cluster_version}, [core, deadline, caller](R result) {
        core->Return<R>(deadline, caller, std::move(result));
      });
    });
  }

  // As ExecuteAt().
  void PutAt(Time when, std::vector<WaitingPut> puts, Duration again) {
    runtime_.RunAt(when, [core = shared_from_this(), puts = std::move(puts), again] {
      const Time now = core->runtime_.Now();
      if (again > Duration()) {
        std::vector<WaitingPut> once_more = puts;
        for (WaitingPut& put : once_more) put.caller = kNobody;
        core->PutAt(now + core->Between({}, again), std::move(once_more), Duration());
      }
      const std::shared_ptr<Drive> drive = core->drive();
      if (drive == nullptr) return;  // closed
      const SendTogether together;
      for (const auto& [request, then_get, terms, caller] : puts) {
        if (core->faults().down) {
          core->FailAt(now, caller, Status(EHOSTUNREACH, "went down").OfDrive(core->name_));
          continue;
        }
        const Time deadline = terms.deadline;
        const Time patience = std::max(deadline, now + std::chrono::seconds(1));
        const Terms until(patience, terms.cluster_version);
        if (then_get) {
          core->PutThenGet(*drive, request, *then_get, until,
                           [core, deadline, caller = caller](PutAndRead both) {
                             core->Return<PutAndRead>(deadline, caller, std::move(both));
                           });
          continue;
        }
        drive->Put(request, until, [core, deadline, caller = caller](Status status) {
          core->Return<Status>(deadline, caller, std::move(status));
        });
      }
    });
  }

  // Now and then, too, of another record.
  void PutThenGet(Drive& drive, const PutRequest& request, const std::string& key, Terms terms,
                  std::function<void(PutAndRead)> then) {
    const std::string other = Chance(faults().mix_up) ? AnotherKey(key) : "";
    if (other.empty()) return pinstripe::PutThenGet(drive, request, key, terms, std::move(then));
    pinstripe::PutThenGet(drive, request, key, terms,
                          [core = shared_from_this(), other, terms, then](PutAndRead right) {
                            const std::shared_ptr<Drive> behind = core->drive();
                            if (!right.read.has_value() || behind == nullptr)
                              return then(std::move(right));
                            behind->Get(other, {}, terms,
                                        [core, right, then](Result<Record> wrong) mutable {
                                          if (wrong.has_value())
                                            right.read = core->MixUp(*right.read, *wrong);
                                          then(std::move(right));
                                        });
                          });
  }

  template <typename R>
  void Return(Time deadline, uint64_t caller, R result) {
    if (caller == kNobody) return;
    const DriveFaults faults = this->faults();
    const Time arrival = runtime_.Now() + Latency(faults);
    if (faults.down) {
      FailAt(runtime_.Now(), caller, Status(EHOSTUNREACH, "went down").OfDrive(name_));
    } else if (arrival > deadline) {
      FailAt(deadline, caller, TimedOut());
    } else {
      if constexpr (std::is_same_v<R, Result<Record>>) {
        if (result.has_value() && Chance(faults.flip_bit)) FlipBit(*result);
      }
      if constexpr (std::is_same_v<R, PutAndRead>) {
        if (result.read.has_value() && Chance(faults.flip_bit)) FlipBit(*result.read);
      }
      if constexpr (std::is_same_v<R, Result<RangeRecords>>) {
        if (result.has_value()) {
          MixUp(*result);
          for (RangeRecord& each : result->records) {
            if (Chance(faults.flip_bit)) FlipBit(each.record);
          }
        }
      }
      auto kept = std::make_shared<R>(std::move(result));
      runtime_.RunAt(arrival, [core = shared_from_this(), caller, kept] {
        if (auto waiting = core->TakeCaller(caller)) {
          static_cast<CallerOf<R>&>(*waiting).done(std::move(*kept));
        }
      });
    }
  }

  // Null when it was answered already.
  std::shared_ptr<Caller> TakeCaller(uint64_t caller) {
    const std::lock_guard lock(mutex_);
    const auto found = callers_.find(caller);
    if (found == callers_.end()) return nullptr;
    auto taken = std::move(found->second);
    callers_.erase(found);
    return taken;
  }

  // One of those that look alike: of the same length and, if there are some and chance will, with
  // the same end, which is the index of a shard. Empty: there is none.
  std::string AnotherKey(const std::string& key) {
    std::vector<std::string> others;
    std::vector<std::string> twins;
    {
      const std::lock_guard lock(mutex_);
      for (const std::string& each : keys_) {
        if (each.size() != key.size() || each == key) continue;
        others.push_back(each);
        if (each.back() == key.back()) twins.push_back(each);
      }
    }
    if (!twins.empty() && Chance(0.5)) others.swap(twins);
    return others.empty() ? "" : others[runtime_.Random() % others.size()];
  }

  template <typename T>
  T MixUp(const T& right, const T& wrong) {
    T mixed = right;
    const uint64_t how = runtime_.Random() % 3;
    if (how != 0) {
      mixed.version = wrong.version;
      mixed.tag = wrong.tag;
    }
    if constexpr (std::is_same_v<T, Record>) {
      if (how != 1) mixed.value = wrong.value;
    }
    return mixed;
  }

  void FlipBit(Record& record) {
    if (record.value.empty()) return;
    Buffer copy = Buffer::CopyOf(record.value);
    const uint64_t bit = runtime_.Random() % (copy.size() * 8);
    copy.data()[bit / 8] ^= std::byte{1} << (bit % 8);
    record.value = SharedBytes(std::move(copy));
  }

  bool Chance(double probability) {
    if (probability <= 0) return false;
    return static_cast<double>(runtime_.Random() >> 11) * 0x1p-53 < probability;
  }
  Duration Between(Duration least, Duration most) {
    const auto span = static_cast<uint64_t>((most - least).count());
    return least + Duration(runtime_.Random() % (span + 1));
  }
  Duration Latency(const DriveFaults& faults) {
    return Between(faults.least_latency, faults.most_latency);
  }

  Runtime& runtime_;
  const std::string name_;
  const std::shared_ptr<ClientLife> client_;  // null: never crashes
  mutable std::mutex mutex_;
  std::shared_ptr<Drive> drive_;                         // guarded by mutex_; null once closed
  DriveFaults faults_;                                   // guarded by mutex_
  uint64_t losses_ = 0;                                  // guarded by mutex_
  DriveRequests requests_;                               // guarded by mutex_
  bool holds_gets_ = false;                              // likewise
  std::set<std::string> keys_;                           // guarded by mutex_; of puts
  std::vector<WaitingPut> waiting_;                      // guarded by mutex_; to be sent
  uint64_t last_caller_ = kNobody;                       // guarded by mutex_
  std::map<uint64_t, std::shared_ptr<Caller>> callers_;  // guarded by mutex_
};

FaultyDrive::FaultyDrive(Runtime& runtime, std::shared_ptr<Drive> drive,
                         std::shared_ptr<ClientLife> client)
    : name_(drive->name()),
      core_(std::make_shared<Core>(runtime, std::move(drive), std::move(client))) {}

FaultyDrive::~FaultyDrive() { core_->Close(); }

void FaultyDrive::Set(const DriveFaults& faults) { core_->Set(faults); }
DriveFaults FaultyDrive::faults() const { return core_->faults(); }
void FaultyDrive::ReplaceBy(std::shared_ptr<Drive> drive) { core_->ReplaceBy(std::move(drive)); }
DriveRequests FaultyDrive::requests() const { return core_->requests(); }
void FaultyDrive::ForgetRequests() { core_->ForgetRequests(); }
DriveCapabilities FaultyDrive::capabilities() const { return core_->drive()->capabilities(); }
bool FaultyDrive::IsUp() const { return core_->IsUp(); }
uint64_t FaultyDrive::CountLosses() const { return core_->CountLosses(); }

void FaultyDrive::Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) {
  core_->NoteGet(range);
  core_->Send<Result<Record>>(
      &DriveRequests::get, terms,
      [core = core_.get(), key = std::move(key), range](Drive& drive, Terms until,
                                                        Callback<Record> then) {
        core->AskFor<Record>(
            drive, key,
            [range, until](Drive& behind, const std::string& of, Callback<Record> told) {
              behind.Get(of, range, until, std::move(told));
            },
            std::move(then));
      },
      std::move(done));
}

void FaultyDrive::Head(std::string key, Terms terms, Callback<RecordHead> done) {
  core_->Send<Result<RecordHead>>(
      &DriveRequests::head, terms,
      [core = core_.get(), key = std::move(key)](Drive& drive, Terms until,
                                                 Callback<RecordHead> then) {
        core->AskFor<RecordHead>(
            drive, key,
            [until](Drive& behind, const std::string& of, Callback<RecordHead> told) {
              behind.Head(of, until, std::move(told));
            },
            std::move(then));
      },
      std::move(done));
}

void FaultyDrive::Put(PutRequest request, Terms terms, StatusCallback done) {
  core_->Put<Status>(std::move(request), std::nullopt, terms, std::move(done));
}

void FaultyDrive::PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                             Callback<Record> read) {
  if (!capabilities().then_gets) {
    return Drive::PutThenGet(std::move(request), std::move(key), terms, std::move(done),
                             std::move(read));
  }
  core_->Put<PutAndRead>(std::move(request), std::move(key), terms,
                         TellEach(std::move(done), std::move(read)));
}

void FaultyDrive::Delete(std::string key, Expected expected, Durability durability, Terms terms,
                         StatusCallback done) {
  core_->Send<Status>(
      &DriveRequests::remove, terms,
      [key = std::move(key), expected = std::move(expected), durability](Drive& drive, Terms until,
                                                                         StatusCallback then) {
        drive.Delete(key, expected, durability, until, std::move(then));
      },
      std::move(done));
}

void FaultyDrive::Range(std::string first, std::string last, uint32_t max, bool reverse,
                        Terms terms, Callback<std::vector<std::string>> done) {
  core_->Send<Result<std::vector<std::string>>>(
      &DriveRequests::range, terms,
      [first = std::move(first), last = std::move(last), max, reverse](
          Drive& drive, Terms until, Callback<std::vector<std::string>> then) {
        drive.Range(first, last, max, reverse, until, std::move(then));
      },
      std::move(done));
}

void FaultyDrive::ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                              uint32_t value_limit, Terms terms, Callback<RangeRecords> done) {
  core_->Send<Result<RangeRecords>>(
      &DriveRequests::range, terms,
      [first = std::move(first), last = std::move(last), max, reverse, value_limit](
          Drive& drive, Terms until, Callback<RangeRecords> then) {
        drive.ListRecords(first, last, max, reverse, value_limit, until, std::move(then));
      },
      std::move(done));
}

void FaultyDrive::Flush(Terms terms, StatusCallback done) {
  core_->Send<Status>(
      &DriveRequests::flush, terms,
      [](Drive& drive, Terms until, StatusCallback then) { drive.Flush(until, std::move(then)); },
      std::move(done));
}

void FaultyDrive::Info(Terms terms, Callback<DriveInfo> done) {
  core_->Send<Result<DriveInfo>>(
      &DriveRequests::info, terms,
      [](Drive& drive, Terms until, Callback<DriveInfo> then) {
        drive.Info(until, std::move(then));
      },
      std::move(done));
}

void FaultyDrive::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  core_->Send<Status>(
      &DriveRequests::setup, terms,
      [version](Drive& drive, Terms until, StatusCallback then) {
        drive.SetClusterVersion(version, until, std::move(then));
      },
      std::move(done));
}

}  // namespace pinstripe
