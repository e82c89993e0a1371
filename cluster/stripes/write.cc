// A drive that has no room (ENOSPC) is noted for the writes after this one, and its shard goes to a
// spare. Before the write fails, those that were passed over as full are asked once more. It fails
// with ENOSPC where room was what lacked, and else with EIO.

#include "cluster/stripes/write.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <optional>
#include <set>

#include "base/checksum.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/try.h"
#include "cluster/fullness.h"
#include "cluster/gather.h"
#include "cluster/stripes/range_sums.h"
#include "cluster/stripes/shard.h"
#include "kinetic/key_text.h"

namespace pinstripe {
namespace {

constexpr Duration kLookForAway = std::chrono::milliseconds(20);

// Every put of one write, so that in the end those that are in nobody's block map can be erased,
// also when they are answered after that. Shared with the callbacks of the puts; thread-safe.
class PutLedger {
 public:
  // Only the copy of that version: a repair may have put the shard there again.
  using Erase = std::function<void(DriveId, const std::string& key, const std::string& version)>;
  // `janitor` runs `erase`, and is closed before what `erase` refers to is destroyed.
  PutLedger(std::shared_ptr<Janitor> janitor, Erase erase)
      : janitor_(std::move(janitor)), erase_(std::move(erase)) {}

  size_t Add(DriveId drive, std::string key, std::string version) {
    const MutexLock lock(mutex_);
    puts_.push_back({drive, std::move(key), std::move(version)});
    return puts_.size() - 1;
  }

  void Answered(size_t put, const Status& status) {
    // After a timeout the put may have been executed, or may still be.
    const bool there = status.ok() || status.code() == ETIMEDOUT;
    std::optional<Put> unwanted;
    {
      const MutexLock lock(mutex_);
      puts_[put].there = there;
      if (closed_ && there && !puts_[put].wanted) unwanted = puts_[put];
    }
    if (unwanted) EraseLater(*unwanted);
  }

  // The write is over; what `is_wanted` does not want is erased, now or when it is answered.
  void Close(const std::function<bool(DriveId, const std::string& key)>& is_wanted) {
    std::vector<Put> unwanted;
    {
      const MutexLock lock(mutex_);
      if (closed_) return;
      closed_ = true;
      for (Put& put : puts_) {
        put.wanted = is_wanted(put.drive, put.key);
        if (put.there && !put.wanted) unwanted.push_back(put);
      }
    }
    for (const Put& put : unwanted) EraseLater(put);
  }

 private:
  struct Put {
    DriveId drive;
    std::string key;
    std::string version;
    bool there = false;
    bool wanted = false;
  };

  void EraseLater(const Put& put) {
    janitor_->Add(fmt::format("erase from drive {} {}", put.drive, Hex(AsBytes(put.key))),
                  [erase = erase_, put] { erase(put.drive, put.key, put.version); });
  }

  const std::shared_ptr<Janitor> janitor_;
  const Erase erase_;
  Mutex mutex_;
  std::vector<Put> puts_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

void EraseShard(StripeContext& context, DriveId id, const std::string& key,
                const std::string& version) {
  Drive* drive = context.drives.FindDrive(id);
  if (!drive) return;
  Gather<Status> gather(context.runtime);
  drive->Delete(key, Expected::Version(version), Durability::kWriteBack,
                context.runtime.Now() + context.options.drive_timeout, gather.Ask(0));
  const Status status = gather.Next(Time::max())->value;
  if (status.ok() || status.code() == ENOENT || status.code() == ESTALE) return;
  Log(LogLevel::kInfo, "an unused shard stays behind",
      {{"record", KeyText(key)}, {"drive", drive->name()}, {"why", status}});
}

class StripeWrite final : public StripeStore::PendingWrite {
 public:
  StripeWrite(StripeContext& context, const StripeId& id, std::shared_ptr<StripeBuffer> buffer,
              uint64_t length, Durability durability, Room room)
      : context_(context),
        id_(id),
        layout_(buffer->layout()),
        length_(length),
        shard_bytes_(layout_.ShardBytesOf(length)),
        durability_(durability),
        room_(room),
        buffer_(std::move(buffer)),
        gather_(context.runtime),
        ledger_(std::make_shared<PutLedger>(
            context.janitor,
            [&context](DriveId drive, const std::string& key, const std::string& version) {
              EraseShard(context, drive, key, version);
            })) {}

  ~StripeWrite() override { EraseAll(); }

  void Prepare() { status_ = TryToPrepare(); }

  void Send() override {
    if (!status_.ok()) return;
    for (size_t shard = 0; shard < shards_.size(); ++shard) Send(shard, order_[shard]);
    GiveToSpares();
  }

  void KeepAll() override { keeps_all_ = true; }

  std::vector<Record> AtHome() const override {
    std::vector<Record> records;
    if (!status_.ok()) return records;
    for (size_t i = 0; i < shards_.size(); ++i) {
      records.push_back({order_[i], KeyOf(i), shards_[i].version});
    }
    return records;
  }

  Epoch epoch() const override { return place_.epoch; }

  Result<StripePlace> Wait() override {
    if (!status_.ok()) return Failed(status_);
    const TimeLimit deadline(context_.runtime, context_.options.timeout);
    for (;;) {
      if (outdated_) {
        status_ = StartAgain();
        if (!status_.ok()) {
          EraseAll();
          return Failed(status_);
        }
      }
      GiveToSpares();
      const bool is_about_to_fail =
          conflict_.ok() && Stored() < Needed() && (!CanImprove() || IsOutOfRoom());
      if (is_about_to_fail && AskFullOnes()) continue;
      if (is_about_to_fail && AskThoseThatAreBack(/*may_wait=*/!CanImprove())) continue;
      if (!conflict_.ok() || !CanImprove() || is_about_to_fail) break;
      if (auto answer = gather_.Next(std::min(deadline.time(), NextAlarm()))) {
        TakeAnswer(answer->index, answer->value);
      } else {
        if (gather_.outstanding() == 0 || deadline.has_passed()) break;
        LookForLateAnswers();
      }
    }
    return Conclude();
  }

 private:
  // Everything that can fail before an answer is awaited.
  Status TryToPrepare() {
    TRY(layout_.Check());
    assert(length_ >= 1 && length_ <= layout_.block_bytes());
    TRY(FindDrives());
    const auto codec = TRY(context_.codecs.For(layout_.geometry()));
    return Encode(*codec);
  }

  // Finds the drives of the newest epoch.
  Status FindDrives() {
    place_.epoch = context_.drives.CurrentEpoch();
    order_ = TRY_CONTEXT(
        context_.drives.StripeDrives(place_.epoch, id_.object, id_.block, layout_.geometry()),
        "write {}", DescribeStripe(id_));
    next_spare_ = static_cast<size_t>(layout_.geometry().shards());
    if (order_.size() >= next_spare_) return {};
    return Fail(EIO, "write {}: {} drives, but {} shards", DescribeStripe(id_), order_.size(),
                next_spare_);
  }

  // A drive knows of a later epoch, in which the homes may be others. Shards that are stored where
  // they belong then stay; what is stored elsewhere is erased in the end.
  Status StartAgain() {
    outdated_ = false;
    const Status later = context_.drives.LookForEpochAfter(place_.epoch);
    if (!later.ok()) {
      // Where this process has to leave the cluster alone, nobody else is given it either.
      TRY_CONTEXT(
          context_.drives.StripeDrives(place_.epoch, id_.object, id_.block, layout_.geometry()),
          "write {}", DescribeStripe(id_));
      // It is something with that drive: others take what it refuses.
      Log(LogLevel::kWarn, "a drive refuses the cluster version of the newest drive map",
          {{"stripe", DescribeStripe(id_)}, {"why", later}});
      newest_ = true;
      return {};
    }
    TRY(FindDrives());
    give_up_at_.reset();
    out_of_room_at_.reset();
    for (Attempt& attempt : attempts_) attempt.abandoned = true;
    for (size_t i = 0; i < shards_.size(); ++i) {
      shards_[i].in_time = 0;
      if (shards_[i].stored_on == order_[i]) continue;
      shards_[i].stored_on = 0;
      Send(i, order_[i]);
    }
    for (size_t i = 0; i < shards_.size(); ++i) CheckShard(i);
    return {};
  }

  struct Shard {
    SharedBytes bytes;
    std::string version;
    std::string tag;
    DriveId stored_on = 0;
    int in_time = 0;  // attempts that may still answer in time
  };
  struct Attempt {
    size_t shard = 0;
    DriveId drive = 0;
    Time sent_at;
    bool answered = false;
    bool late = false;
    bool is_head = false;      // looks what it is that was there already
    bool abandoned = false;    // of an epoch that is not the newest any more
    bool passed_over = false;  // as the drive was full a moment ago, and not asked
    bool asked_again = false;  // as the drive had been away, and was back
    bool was_full = false;     // a moment before: it was asked because nobody else has room
    Status status;
  };

  void EraseAll() {
    ledger_->Close([keeps = keeps_all_](DriveId, const std::string&) { return keeps; });
  }

  SharedBytes Slice(Bytes bytes) const { return {buffer_, bytes}; }
  KnownStripe Stripe() const { return context_.Known(id_, layout_, length_); }

  // Zeros what is beyond the data, computes parity and sums.
  Status Encode(const Codec& codec) {
    const int k = layout_.data_shards;
    const int n = layout_.geometry().shards();
    const MutableBytes all = buffer_->data().first(size_t{shard_bytes_} * static_cast<size_t>(k));
    ZeroBytes(all.subspan(length_));
    std::vector<Bytes> shards;
    for (int i = 0; i < k; ++i) {
      shards.push_back(all.subspan(static_cast<size_t>(i) * shard_bytes_, shard_bytes_));
    }
    if (k == 1) {
      shards.resize(static_cast<size_t>(n), shards[0]);  // copies are sent from the data itself
    } else {
      std::vector<MutableBytes> parity;
      for (int i = k; i < n; ++i) {
        parity.push_back(
            buffer_->parity().subspan(static_cast<size_t>(i - k) * shard_bytes_, shard_bytes_));
      }
      codec.Encode(shards, parity);
      shards.insert(shards.end(), parity.begin(), parity.end());
    }
    std::vector<ShardDescriptor> descriptors;
    for (int i = 0; i < n; ++i) {
      const Bytes bytes = shards[static_cast<size_t>(i)];
      const ShardDescriptor& descriptor =
          descriptors.emplace_back(DescribeShard(Stripe(), i, bytes));
      shards_.push_back(
          {Slice(bytes), descriptor.Encode(), RecordTag(ShardSum(descriptor, shard_bytes_))});
    }
    return CheckSums(all, descriptors);
  }

  // Whether the data is what its sums say. Parity of damaged data would give it back as good, so
  // they are compared after the coder has read the data. Pages of a file mostly are pages of a
  // shard, of which the sums are there.
  Status CheckSums(Bytes all, std::span<const ShardDescriptor> descriptors) const {
    assert(buffer_->sums().end() <= length_);
    for (const RangeSums::Range& range : buffer_->sums().ranges()) {
      const uint64_t shard = range.first / shard_bytes_;
      const uint64_t at = range.first % shard_bytes_;
      const auto page = static_cast<uint32_t>(at / kShardPageBytes);
      const bool is_page = at % kShardPageBytes == 0 && range.size == PageSize(shard_bytes_, page);
      const uint32_t sum = is_page ? descriptors[shard].page_sums[page]
                                   : Crc32c(all.subspan(range.first, range.size));
      if (sum == range.crc32c) continue;
      const Status damaged =
          DamagedRange(range).Context(fmt::format("write {}", DescribeStripe(id_)));
      Log(LogLevel::kError, "what was to be stored is damaged", {{"why", damaged}});
      return damaged;
    }
    return {};
  }

  void Send(size_t shard, DriveId id, bool even_if_full = false) {
    attempts_.push_back({shard, id, context_.runtime.Now()});
    Drive* drive = context_.drives.FindDrive(id);
    if (!drive || !drive->IsUp()) {
      attempts_.back().answered = true;
      attempts_.back().status =
          drive ? Status(EHOSTUNREACH, fmt::format("{} is away", drive->name()))
                : Status(EHOSTUNREACH, fmt::format("drive {} is not known", id));
      return;
    }
    const bool looks = room_ == Room::kData && !even_if_full;
    if (looks && context_.full.IsFull(id, context_.runtime.Now())) {
      attempts_.back().answered = attempts_.back().passed_over = true;
      attempts_.back().status = Status(ENOSPC, fmt::format("{} was full just now", drive->name()));
      return;
    }
    ++shards_[shard].in_time;
    const std::string key = KeyOf(shard);
    Drive::PutRequest put{.key = key,
                          .value = shards_[shard].bytes,
                          .version = shards_[shard].version,
                          .tag = shards_[shard].tag,
                          .expected = Expected::Absent(),
                          .durability = durability_,
                          .room = room_};
    auto done = [ledger = ledger_, entry = ledger_->Add(id, key, shards_[shard].version),
                 tell = gather_.Ask(attempts_.size() - 1)](Status status) {
      ledger->Answered(entry, status);
      tell(std::move(status));
    };
    // So that a process that has not heard of an epoch stores nothing where nothing is looked for
    // any more.
    drive->Put(std::move(put), {Deadline(), ClusterVersionOf(place_.epoch)}, std::move(done));
  }

  // A put that found the key taken may have been executed before: then its own descriptor is there.
  void LookWhatIsThere(size_t refused) {
    const Attempt put = attempts_[refused];
    attempts_.push_back({put.shard, put.drive, context_.runtime.Now()});
    attempts_.back().is_head = true;
    const size_t shard = put.shard;
    ++shards_[shard].in_time;
    Drive* drive = context_.drives.FindDrive(put.drive);
    drive->Head(
        KeyOf(shard), Deadline(),
        [version = shards_[shard].version, name = std::string(drive->name()), stripe = Stripe(),
         index = static_cast<int>(shard), drive, flushes = durability_ == Durability::kWriteThrough,
         until = Deadline(), tell = gather_.Ask(attempts_.size() - 1)](Result<RecordHead> head) {
          if (!head.has_value()) return tell(head.error());
          // Its own flush may be under way.
          if (head->version == version && flushes) return drive->Flush(until, tell);
          if (head->version == version) return tell(Status());
          // A record with another name speaks against the drive, not against the write id.
          const auto there = ShardDescriptor::Decode(head->version);
          Status status =
              there.has_value() ? CheckName(*there, stripe, index) : Status(there.error());
          if (!status.ok()) return tell(status.Context(name));
          tell(Fail(EEXIST, "{}: another stripe has this write id", name));
        });
  }

  void TakeAnswer(size_t index, const Status& status) {
    Attempt& attempt = attempts_[index];
    attempt.answered = true;
    attempt.status = status;
    if (attempt.abandoned) return;
    outdated_ = outdated_ || (status.code() == EREMCHG && !newest_);
    if (room_ == Room::kData && status.code() == ENOSPC) {
      context_.full.Note(attempt.drive, context_.runtime.Now());
    } else if (status.ok() && !attempt.is_head) {
      context_.full.Forget(attempt.drive);
    }
    Shard& shard = shards_[attempt.shard];
    if (!attempt.late) --shard.in_time;
    if (status.ok()) {
      if (shard.stored_on == 0) shard.stored_on = attempt.drive;
    } else if (attempt.is_head && status.code() == EEXIST) {
      conflict_ = status;
    } else if (status.code() == ESTALE && !attempt.is_head) {
      LookWhatIsThere(index);
    }
    CheckShard(attempts_[index].shard);
  }

  // This holds between any two events: a shard counts the attempts that may still answer in time.
  // Were it too few, a second drive would be given the shard; too many, and none ever would.
  void CheckShard(size_t shard) const {
    assert(
        shards_[shard].in_time == std::ranges::count_if(attempts_, [shard](const Attempt& attempt) {
          return attempt.shard == shard && !attempt.answered && !attempt.late && !attempt.abandoned;
        }));
    assert(shards_.size() <= next_spare_ && next_spare_ <= order_.size());
  }

  // A shard that nobody will store in time goes to the next drive of the list.
  void GiveToSpares() {
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      while (shards_[shard].stored_on == 0 && shards_[shard].in_time == 0 &&
             next_spare_ < order_.size()) {
        Send(shard, order_[next_spare_++]);
      }
    }
  }

  // Before a write fails those are asked, too, that were full a moment ago. False: all were.
  bool AskFullOnes() {
    bool any = false;
    for (size_t i = 0, end = attempts_.size(); i < end; ++i) {
      const auto [shard, drive] = std::pair(attempts_[i].shard, attempts_[i].drive);
      const bool is_wanted = shards_[shard].stored_on == 0 && shards_[shard].in_time == 0;
      if (!is_wanted || attempts_[i].abandoned || !attempts_[i].passed_over) continue;
      attempts_[i].passed_over = false;
      Send(shard, drive, /*even_if_full=*/true);
      attempts_.back().was_full = true;
      any = true;
    }
    return any;
  }

  // Nor does a write fail because all connections were lost a moment ago, as when this process
  // stood still: those that could not be reached are asked when they are back. Where it may wait
  // they are waited for, and those that are late are asked once more, unless they were full before.
  // False: none has come back, or another write that was under way with this one has waited in
  // vain.
  bool AskThoseThatAreBack(bool may_wait) {
    const Time now = context_.runtime.Now();
    const bool full = CountFullDrives() > 0;
    VainWaits& waits = full ? context_.waits_when_full : context_.waits;
    const Duration usual = context_.options.patience;
    if (may_wait && !give_up_at_) {
      give_up_at_ = now + (full ? std::min(kPatienceWhenFull, usual) : usual);
    }
    for (;;) {
      bool any = false;
      bool any_away = false;
      for (size_t i = 0, end = attempts_.size(); i < end; ++i) {
        const auto [shard, id] = std::pair(attempts_[i].shard, attempts_[i].drive);
        const bool is_wanted = shards_[shard].stored_on == 0 && shards_[shard].in_time == 0;
        const int code = attempts_[i].answered ? attempts_[i].status.code() : 0;
        const bool was_late = code == ETIMEDOUT && may_wait && !attempts_[i].was_full;
        const bool was_away = code == EHOSTUNREACH || was_late;
        if (!is_wanted || attempts_[i].abandoned || attempts_[i].asked_again || !was_away) continue;
        const Drive* drive = context_.drives.FindDrive(id);
        if (drive == nullptr) continue;
        any_away = true;
        if (!drive->IsUp()) continue;
        attempts_[i].asked_again = true;
        Send(shard, id);
        any = true;
      }
      if (any || !any_away || !may_wait) return any;
      if (waits.WasInVainSince(begun_)) return false;
      if (context_.runtime.Now() >= *give_up_at_) {
        waits.NoteInVain(context_.runtime.Now());
        return false;
      }
      context_.runtime.NewSignal()->WaitUntil(context_.runtime.Now() + kLookForAway);
    }
  }

  // Drives that have refused a shard of this write for want of room, and hold none of it.
  size_t CountFullDrives() const {
    std::set<DriveId> full;
    for (const Attempt& attempt : attempts_) {
      const bool refused = attempt.answered && attempt.status.code() == ENOSPC;
      if (refused && !attempt.abandoned) full.insert(attempt.drive);
    }
    for (const Shard& shard : shards_) full.erase(shard.stored_on);
    return full.size();
  }

  // Whether all that may still come is late, and what is late has been waited for long enough for
  // a write that other drives have refused for want of room.
  bool IsOutOfRoom() {
    const bool in_time = std::ranges::any_of(
        shards_, [](const Shard& shard) { return shard.stored_on == 0 && shard.in_time > 0; });
    if (in_time || Stored() >= Needed() || CountFullDrives() == 0) return false;
    const Time now = context_.runtime.Now();
    if (!out_of_room_at_) out_of_room_at_ = now + kPatienceWhenFull;
    return now >= *out_of_room_at_;
  }

  size_t Stored() const {
    return static_cast<size_t>(std::count_if(
        shards_.begin(), shards_.end(), [](const Shard& shard) { return shard.stored_on != 0; }));
  }

  size_t Needed() const {
    return static_cast<size_t>(layout_.data_shards) +
           static_cast<size_t>(
               std::min<int>(context_.options.min_redundancy, layout_.parity_shards));
  }

  // Whether waiting longer can store a shard that is not stored. Late answers are waited for only
  // as long as there are too few shards.
  bool CanImprove() const {
    const bool enough = Stored() >= Needed();
    return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& attempt) {
      return !attempt.answered && !attempt.abandoned && shards_[attempt.shard].stored_on == 0 &&
             (!attempt.late || !enough);
    });
  }

  Time NextAlarm() const {
    Time alarm = Time::max();
    if (out_of_room_at_ > context_.runtime.Now()) alarm = *out_of_room_at_;
    for (const Attempt& attempt : attempts_) {
      if (attempt.answered || attempt.late || attempt.abandoned) continue;
      alarm = std::min(alarm, attempt.sent_at + context_.options.spare_after);
    }
    return alarm;
  }

  void LookForLateAnswers() {
    const Time now = context_.runtime.Now();
    for (Attempt& attempt : attempts_) {
      if (attempt.answered || attempt.late || attempt.abandoned) continue;
      if (attempt.sent_at + context_.options.spare_after > now) continue;
      attempt.late = true;
      --shards_[attempt.shard].in_time;
      CheckShard(attempt.shard);
    }
  }

  std::string KeyOf(size_t shard) const {
    return ShardKey(context_.options.prefix, id_, static_cast<int>(shard));
  }

  Result<StripePlace> Conclude() {
    if (Stored() < Needed() || !conflict_.ok()) {
      EraseAll();
      return Failed(WhyNot());
    }
    // A shard that is not stored may yet arrive at home, where readers look for it.
    std::set<std::pair<DriveId, std::string>> wanted;
    for (size_t i = 0; i < shards_.size(); ++i) {
      const DriveId stored_on = shards_[i].stored_on;
      wanted.emplace(stored_on != 0 ? stored_on : order_[i], KeyOf(i));
      if (stored_on == order_[i]) continue;
      place_.moved.push_back({static_cast<uint8_t>(i), stored_on});
      if (stored_on != 0) ++context_.counters.spare_writes;
    }
    ledger_->Close([&](DriveId drive, const std::string& key) {
      return keeps_all_ || wanted.contains({drive, key});
    });
    if (Stored() < shards_.size()) {
      ++context_.counters.short_writes;
      Log(LogLevel::kWarn, "stripe stored with fewer shards",
          {{"stripe", DescribeStripe(id_)}, {"why", WhyNot()}});
    }
    return place_;
  }

  // Says which shards are not stored, and why each drive that was asked did not take them.
  Status WhyNot() const {
    std::string reasons;
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      if (shards_[shard].stored_on != 0) continue;
      for (const Attempt& attempt : attempts_) {
        if (attempt.shard != shard || attempt.abandoned) continue;
        if (attempt.answered && attempt.status.ok()) continue;
        reasons += fmt::format("; shard {}: {}", shard,
                               attempt.answered ? std::string(attempt.status.message())
                                                : fmt::format("{} did not answer in time",
                                                              context_.NameOf(attempt.drive)));
      }
    }
    const size_t full = CountFullDrives();
    const int code = Stored() + full >= Needed() && full > 0 ? ENOSPC : EIO;
    return Fail(code, "write {}: {} of {} shards were stored, {} are needed{}", DescribeStripe(id_),
                Stored(), shards_.size(), Needed(), reasons);
  }

  Time Deadline() const { return context_.runtime.Now() + context_.options.drive_timeout; }

  StripeContext& context_;
  const StripeId id_;
  const StripeLayout layout_;
  const uint64_t length_;
  const uint32_t shard_bytes_;
  const Durability durability_;
  const Room room_;
  const std::shared_ptr<StripeBuffer> buffer_;
  Gather<Status> gather_;
  const std::shared_ptr<PutLedger> ledger_;
  Status status_;    // why it could not be begun
  Status conflict_;  // the write id was used before, for other bytes
  const Time begun_ = context_.runtime.Now();
  std::optional<Time> give_up_at_;      // waiting for drives that are away
  std::optional<Time> out_of_room_at_;  // waiting for drives that are late, as others are full
  bool outdated_ = false;               // some drive knows of a later epoch
  bool newest_ = false;                 // there is none
  bool keeps_all_ = false;
  StripePlace place_;
  std::vector<DriveId> order_;  // homes, then spares
  size_t next_spare_ = 0;       // in order_; so no drive is given two shards
  std::vector<Shard> shards_;
  std::vector<Attempt> attempts_;
};

}  // namespace

std::unique_ptr<StripeStore::PendingWrite> PrepareStripeWrite(StripeContext& context,
                                                              const StripeId& id,
                                                              std::shared_ptr<StripeBuffer> buffer,
                                                              uint64_t length,
                                                              Durability durability, Room room) {
  auto write =
      std::make_unique<StripeWrite>(context, id, std::move(buffer), length, durability, room);
  write->Prepare();
  return write;
}

}  // namespace pinstripe
