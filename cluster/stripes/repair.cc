#include "cluster/stripes/repair.h"

#include <algorithm>
#include <cassert>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/stripes/repair_plan.h"
#include "cluster/stripes/shard.h"
#include "erasure/agreement.h"

namespace pinstripe {
namespace {

ShardHealth HealthOf(const Status& status) {
  switch (status.code()) {
    case 0: return ShardHealth::kGood;
    case ENOENT: return ShardHealth::kMissing;
    case EBADMSG:
    case EIO:  // it answers, and cannot read what it has
      return ShardHealth::kDamaged;
    default: return ShardHealth::kUnknown;
  }
}

class Repair {
 public:
  Repair(StripeContext& context, const StripeRepairRequest& request)
      : context_(context),
        request_(request),
        stripe_(context.Known(request.id, request.layout, request.length)),
        shard_bytes_(request.layout.ShardBytesOf(request.length)) {}

  Result<StripeRepair> Run() {
    places_ = TRY(LocateShards(context_, request_.id, request_.layout, *request_.place));
    TRY(CheckBlockLength(request_.id, request_.layout, request_.length));
    epoch_ = context_.drives.CurrentEpoch();
    order_ = TRY(context_.drives.StripeDrives(epoch_, request_.id.object, request_.id.block,
                                              request_.layout.geometry()));
    if (order_.size() < places_.size()) {
      return Fail(EIO, "repair {}: {} drives, but {} shards", DescribeStripe(request_.id),
                  order_.size(), places_.size());
    }
    for (const DriveId drive : places_) shards_.push_back({.drive = drive});
    for (const StripePlace::Moved& moved : request_.place->moved) {
      shards_[moved.shard].was_stored = moved.drive != 0;
    }
    before_ = shards_;
    Examine();
    TRY(Compare());
    for (size_t i = 0; i < shards_.size(); ++i) shards_[i].health = HealthOf(found_[i]);
    CountWhatWasFound();
    repair_.place = *request_.place;

    const RepairPlan plan =
        PlanRepair(request_.layout.data_shards, order_, shards_,
                   {.is_usable = [this](DriveId drive) { return IsUsable(drive); },
                    .without = request_.without});
    repair_.good = plan.good;
    repair_.away = plan.away;
    const bool act = !request_.dry_run && !repair_.inconsistent;
    if (act && !plan.steps.empty()) CarryOut(plan);
    Conclude(plan);
    return std::move(repair_);
  }

 private:
  bool IsUsable(DriveId id) {
    const Drive* drive = context_.drives.FindDrive(id);
    return drive != nullptr && drive->IsUp();
  }

  std::string KeyOf(size_t shard) const {
    return ShardKey(context_.options.prefix, request_.id, static_cast<int>(shard));
  }

  // Finds out what there is of each shard. The block map is believed when it says that a shard was
  // never stored, but only when it was read.
  void Examine() {
    found_.resize(shards_.size(), Status(EHOSTUNREACH, "its drive is away"));
    evidence_.resize(shards_.size());
    versions_.resize(shards_.size());
    Gather<Result<Record>> gather(context_.runtime);
    const Time deadline = context_.runtime.Now() + context_.options.drive_timeout;
    for (size_t i = 0; i < shards_.size(); ++i) {
      Drive* drive = context_.drives.FindDrive(shards_[i].drive);
      if (drive == nullptr || !drive->IsUp()) continue;
      if (request_.read_all || !shards_[i].was_stored) {
        ++context_.counters.read_requests;
        drive->Get(KeyOf(i), {}, deadline, gather.Ask(i));
      } else {
        drive->Head(KeyOf(i), deadline, [tell = gather.Ask(i)](Result<RecordHead> head) {
          if (!head.has_value()) return tell(tl::unexpected(head.error()));
          tell(Record{std::move(head->version), std::move(head->tag), {}});
        });
      }
    }
    while (const auto answer = gather.Next(Time::max())) {
      Take(answer->index, std::move(answer->value));
    }
  }

  void Take(size_t shard, Result<Record> record) {
    if (!record.has_value()) {
      found_[shard] = record.error();
      return;
    }
    versions_[shard] = record->version;
    const bool was_read = request_.read_all || !shards_[shard].was_stored;
    if (was_read) {
      context_.counters.bytes_fetched += record->value.size();
      repair_.bytes_read += record->value.size();
      std::vector<bool> good(PageCount(shard_bytes_));
      found_[shard] =
          CheckPages(stripe_, AllPages(static_cast<int>(shard), shard_bytes_), *record, good);
    } else {
      const auto head = CheckHead(stripe_, static_cast<int>(shard), record->version, record->tag);
      found_[shard] = head.has_value() ? Status() : head.error();
    }
    if (!found_[shard].ok()) return;
    // Copies have the same sums, so to compare them takes no reading.
    if (request_.layout.data_shards == 1) {
      evidence_[shard] = SharedBytes(SumsOf(record->version));
    } else if (was_read) {
      evidence_[shard] = std::move(record->value);
    }
  }

  static std::string SumsOf(std::string_view version) {
    Writer sums;
    const auto descriptor = ShardDescriptor::Decode(version);
    assert(descriptor.has_value());  // it was checked
    for (const uint32_t sum : descriptor->page_sums) sums.U32(sum);
    return sums.Take();
  }

  void CountWhatWasFound() {
    for (size_t i = 0; i < shards_.size(); ++i) {
      const bool damaged = shards_[i].health == ShardHealth::kDamaged;
      if (!damaged && shards_[i].health != ShardHealth::kMissing) continue;
      if (!damaged && !shards_[i].was_stored) continue;  // nobody expected it
      ++(damaged ? repair_.damaged : repair_.missing);
      ++(damaged ? context_.counters.damaged_shards : context_.counters.missing_shards);
      Log(LogLevel::kWarn, damaged ? "shard damaged" : "shard missing",
          {{"stripe", DescribeStripe(request_.id)},
           {"shard", i},
           {"drive", context_.NameOf(shards_[i].drive)},
           {"why", found_[i]}});
    }
  }

  // Shards whose checksums are right need not be those of one block: one may have been computed
  // wrongly, or made up by its drive. Where nobody can say which, nothing is to be changed.
  Status Compare() {
    const std::vector<Bytes> shards(evidence_.begin(), evidence_.end());
    const auto codec = TRY(context_.codecs.For(request_.layout.geometry()));
    const Agreement agreement = TRY(CompareShards(*codec, shards));
    repair_.inconsistent = !agreement.agrees && agreement.wrong.empty();
    if (repair_.inconsistent) {
      Log(LogLevel::kError, "stripe inconsistent: its shards contradict each other",
          {{"stripe", DescribeStripe(request_.id)}});
    }
    const auto at_hand = std::ranges::count_if(shards, [](Bytes bytes) { return !bytes.empty(); });
    const size_t others = static_cast<size_t>(at_hand) - agreement.wrong.size();
    for (const int shard : agreement.wrong) {
      const auto index = static_cast<size_t>(shard);
      found_[index] =
          Fail(EBADMSG, "its checksums are right, but {} other shards contradict it", others);
      contradicted_.push_back(shard);
      const std::string drive = context_.NameOf(shards_[index].drive);
      repair_.contradicted.push_back(fmt::format("shard {} on {}", shard, drive));
      Log(LogLevel::kError,
          "shard is not what the others say: its drive, or who wrote it, is wrong",
          {{"stripe", DescribeStripe(request_.id)}, {"shard", shard}, {"drive", drive}});
    }
    return {};
  }

  void CarryOut(const RepairPlan& plan) {
    std::vector<int> wanted;
    std::vector<int> without;  // what need not be asked for, or must not be believed
    for (const RepairPlan::Step& step : plan.steps) wanted.push_back(step.shard);
    for (size_t i = 0; i < shards_.size(); ++i) {
      const ShardHealth health = shards_[i].health;
      if (health == ShardHealth::kMissing || health == ShardHealth::kUnknown) {
        without.push_back(static_cast<int>(i));
      }
    }
    without.insert(without.end(), contradicted_.begin(), contradicted_.end());
    auto read = PlanShards(context_, stripe_, places_, wanted, without);
    if (read.has_value()) RunReads(context_, {&*read, 1}, context_.options.timeout);
    const Status status = read.has_value() ? read->status : read.error();
    if (!status.ok()) {
      repair_.why = status;
      return;
    }
    const bool only_copies = std::all_of(plan.steps.begin(), plan.steps.end(),
                                         [](const auto& step) { return step.is_good; });
    repair_.bytes_read +=
        shard_bytes_ * (only_copies ? plan.steps.size() : request_.layout.data_shards);
    size_t next_spare = 0;
    // A shard goes to a drive only when no other one of the stripe is there any more.
    std::vector<RepairPlan::Step> waiting = plan.steps;
    for (size_t before = 0; before != waiting.size();) {
      before = waiting.size();
      std::erase_if(waiting, [&](const RepairPlan::Step& step) {
        if (IsOccupied(step)) return false;
        Restore(*read, plan, step, next_spare);
        return true;
      });
    }
    for (RepairPlan::Step& step : waiting) {
      if (step.is_good && !request_.without.contains(shards_[step.shard].drive)) continue;
      step.to.erase(step.to.begin());  // what lacks a shard does not wait
      Restore(*read, plan, step, next_spare);
    }
  }

  // Whether the drive that the step would go to first holds another shard.
  bool IsOccupied(const RepairPlan::Step& step) const {
    for (size_t i = 0; i < shards_.size() && !step.to.empty(); ++i) {
      const ShardHealth health = shards_[i].health;
      const bool there = health == ShardHealth::kGood || health == ShardHealth::kUnknown;
      if (there && static_cast<int>(i) != step.shard && shards_[i].drive == step.to.front()) {
        return true;
      }
    }
    return false;
  }

  // Tries one drive after the other.
  void Restore(const PlannedRead& read, const RepairPlan& plan, const RepairPlan::Step& step,
               size_t& next_spare) {
    std::vector<DriveId> to = step.to;
    Status why(EHOSTUNREACH, fmt::format("shard {}: no drive is free for it", step.shard));
    for (size_t i = 0;; ++i) {
      if (i == to.size()) {
        if (!step.may_use_spare || next_spare == plan.spares.size()) break;
        to.push_back(plan.spares[next_spare++]);
      }
      const Status stored = StoreShard(context_, read, step.shard, to[i], epoch_);
      if (stored.ok()) return Stored(step, to[i]);
      // The homes may be others by now: the next attempt goes by them.
      if (stored.code() == EREMCHG) (void)context_.drives.LookForEpochAfter(epoch_);
      why = stored.Context(fmt::format("shard {}", step.shard));
      Log(LogLevel::kWarn, "shard could not be written",
          {{"stripe", DescribeStripe(request_.id)},
           {"shard", step.shard},
           {"drive", context_.NameOf(to[i])},
           {"why", stored}});
    }
    const bool must_leave = request_.without.contains(shards_[step.shard].drive);
    if (must_leave) ++repair_.stranded;
    if (!step.is_good || must_leave) repair_.why = why;
  }

  void Stored(const RepairPlan::Step& step, DriveId drive) {
    const auto index = static_cast<size_t>(step.shard);
    FoundShard& shard = shards_[index];
    if (step.is_good) {
      ++repair_.relocated;
    } else {
      ++repair_.written;
      ++repair_.good;
    }
    repair_.bytes_written += shard_bytes_;
    // If nobody has seen a copy, nobody knows whether it is still the one to be removed.
    if (shard.drive != drive && !versions_[index].empty()) {
      repair_.obsolete.push_back(
          {{static_cast<uint8_t>(step.shard), shard.drive}, versions_[index]});
    }
    shard = {drive, true, ShardHealth::kGood};
  }

  // Where the shards are from now on.
  void Conclude(const RepairPlan& plan) {
    repair_.lost = repair_.good + repair_.away < plan.needed;
    StripePlace now{epoch_, {}};
    bool changed = false;
    for (size_t i = 0; i < shards_.size(); ++i) {
      const FoundShard& shard = shards_[i];
      const bool stored = shard.was_stored || shard.health == ShardHealth::kGood;
      changed = changed || stored != before_[i].was_stored || shard.drive != before_[i].drive;
      if (stored && shard.drive == order_[i]) continue;
      now.moved.push_back({static_cast<uint8_t>(i), stored ? shard.drive : DriveId{0}});
    }
    if (changed) repair_.place = std::move(now);
    if (repair_.why.ok()) repair_.why = WhyNotWhole();
  }

  // The worst that is left.
  Status WhyNotWhole() const {
    Status why;
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (shards_[i].health == ShardHealth::kGood) continue;
      const bool worse = shards_[i].health != ShardHealth::kUnknown;
      if (!worse && !why.ok()) continue;
      why = found_[i].Context(fmt::format("shard {}, drive {}", i, shards_[i].drive));
      if (worse) break;
    }
    return why;
  }

  StripeContext& context_;
  const StripeRepairRequest& request_;
  const KnownStripe stripe_;
  const uint32_t shard_bytes_;
  std::vector<DriveId> places_;
  Epoch epoch_ = 0;             // the newest
  std::vector<DriveId> order_;  // homes in it, then spares
  std::vector<FoundShard> shards_;
  std::vector<FoundShard> before_;  // as the block map says
  std::vector<Status> found_;       // of each shard: what is wrong with it
  // For good shards: what they can be compared by. Their values, where these were read; of copies
  // the sums of their pages.
  std::vector<SharedBytes> evidence_;
  std::vector<int> contradicted_;      // shards that the others show to be wrong
  std::vector<std::string> versions_;  // of records that are there
  StripeRepair repair_;
};

}  // namespace

Result<StripeRepair> RepairStripe(StripeContext& context, const StripeRepairRequest& request) {
  return Repair(context, request).Run();
}

Result<PlannedRead> PlanShards(StripeContext& context, const KnownStripe& stripe,
                               std::vector<DriveId> places, const std::vector<int>& shards,
                               const std::vector<int>& without) {
  std::vector<PageRange> wanted;
  const uint32_t shard_bytes = stripe.layout.ShardBytesOf(stripe.length);
  for (const int shard : shards) wanted.push_back(AllPages(shard, shard_bytes));
  auto codec = TRY(context.codecs.For(stripe.layout.geometry()));
  return PlannedRead{stripe, std::move(places), StripeRead(stripe, wanted, without),
                     std::move(codec)};
}

namespace {

// Puts it whether the drive has one or not. The new copy has a number of its own, so a process that
// is about to remove an earlier copy leaves it alone.
Status PutShard(StripeContext& context, Drive& drive, const std::string& key,
                const SharedBytes& value, ShardDescriptor descriptor, Epoch epoch) {
  while (descriptor.copy == 0) descriptor.copy = static_cast<uint32_t>(context.runtime.Random());
  Gather<Status> gather(context.runtime);
  const auto size = static_cast<uint32_t>(value.size());
  drive.Put({.key = key,
             .value = value,
             .version = descriptor.Encode(),
             .tag = RecordTag(ShardSum(descriptor, size)),
             .expected = Expected::Any(),
             .durability = Durability::kWriteThrough,
             .room = Room::kRepair},
            {context.runtime.Now() + context.options.drive_timeout, ClusterVersionOf(epoch)},
            gather.Ask(0));
  return gather.Next(Time::max())->value;
}

Status ReadShardBack(StripeContext& context, Drive& drive, const std::string& key, size_t size,
                     const ShardDescriptor& written) {
  Gather<Result<Record>> gather(context.runtime);
  ++context.counters.read_requests;
  drive.Get(key, {}, context.runtime.Now() + context.options.drive_timeout, gather.Ask(0));
  const auto record = std::move(gather.Next(Time::max())->value);
  if (!record.has_value()) return record.error();
  context.counters.bytes_fetched += record->value.size();
  auto descriptor = ShardDescriptor::Decode(record->version);
  if (descriptor.has_value()) descriptor->copy = written.copy;  // others may have written it, too
  if (descriptor.has_value() && *descriptor == written && record->value.size() == size &&
      Crc32c(record->value) == ShardSum(written, static_cast<uint32_t>(size))) {
    return {};
  }
  return Fail(EBADMSG, "{}: what was written does not read back", drive.name());
}

}  // namespace

Status StoreShard(StripeContext& context, const PlannedRead& read, int shard, DriveId id,
                  Epoch epoch) {
  Drive* drive = context.drives.FindDrive(id);
  if (!drive) return Fail(EHOSTUNREACH, "drive {} is not known", id);

  const uint32_t size = read.stripe.layout.ShardBytesOf(read.stripe.length);
  Buffer bytes(size);
  for (uint32_t at = 0; at < size; at += kCellBytes) {
    CopyBytes(bytes.mutable_bytes().subspan(at),
              read.plan.BytesOf(shard, at, std::min(kCellBytes, size - at)));
  }
  const ShardDescriptor descriptor = DescribeShard(read.stripe, shard, bytes);
  const std::string key = ShardKey(context.options.prefix, read.stripe.id, shard);
  TRY(PutShard(context, *drive, key, SharedBytes(std::move(bytes)), descriptor, epoch));
  TRY(ReadShardBack(context, *drive, key, size, descriptor));
  ++context.counters.rewritten_shards;
  return {};
}

}  // namespace pinstripe
