#include "cluster/stripes/store.h"

#include <algorithm>
#include <cassert>
#include <tuple>

#include "base/checksum.h"
#include "base/log.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/stripes/context.h"
#include "cluster/stripes/reading.h"
#include "cluster/stripes/repair.h"
#include "cluster/stripes/shard.h"
#include "cluster/stripes/sums.h"
#include "cluster/stripes/write.h"

namespace pinstripe {
StripeBuffer::StripeBuffer(const StripeLayout& layout)
    : layout_(layout), memory_(MemoryBytes(layout)) {}

size_t StripeBuffer::MemoryBytes(const StripeLayout& layout) {
  const int shards = layout.data_shards == 1 ? 1 : layout.geometry().shards();
  return size_t{layout.shard_bytes} * static_cast<size_t>(shards);
}

class StripeStore::Impl : public StripeContext {
 public:
  Impl(Runtime& runtime_in, DriveDirectory& drives_in, Options options_in)
      : StripeContext(runtime_in, drives_in, std::move(options_in)) {}
  ~Impl() { janitor->Close(); }

  Result<PlannedRead> Prepare(const StripePart& part);
  void RepairWhatWasFound(const PlannedRead& read);

  class Reads;

  struct Removal {
    size_t stripe = 0;  // which one of those that are named
    ShardCopy copy;
    Expected expected = Expected::Any();
  };
  Status Remove(const StripeId& id, std::span<const Removal> removals);
  void Remove(std::span<const StripeId> ids, std::span<const Removal> removals,
              std::span<Status> statuses);

 private:
  Status WriteAgain(PlannedRead& read, int shard, Epoch epoch);
};

namespace {

constexpr Duration kPauseForDrives = std::chrono::milliseconds(100);

// One of the layouts under which a block may have been coded so.
StripeLayout SmallestLayout(const ShardDescriptor& shard) {
  const uint32_t k = std::max<uint32_t>(shard.data_shards, 1);
  const uint64_t bytes = (uint64_t{shard.block_length} + k - 1) / k;
  const uint64_t cells = std::max<uint64_t>((bytes + kCellBytes - 1) / kCellBytes, 1);
  return {
      .data_shards = shard.data_shards,
      .parity_shards = shard.parity_shards,
      .shard_bytes = static_cast<uint32_t>(std::min<uint64_t>(cells * kCellBytes, kMaxShardBytes))};
}

// The one copy of a read: from the values that arrived to where the bytes are wanted.
void CopyOut(const StripeRead& plan, const StripeReadRequest& request) {
  const uint64_t shard_bytes = request.layout.ShardBytesOf(request.length);
  const uint64_t end = request.offset + request.out.size();
  for (uint64_t at = request.offset; at < end;) {
    const uint64_t size = std::min(end, request.layout.CellAt(request.length, at).end) - at;
    CopyBytes(request.out.subspan(at - request.offset),
              plan.BytesOf(static_cast<int>(at / shard_bytes),
                           static_cast<uint32_t>(at % shard_bytes), static_cast<uint32_t>(size)));
    at += size;
  }
}

}  // namespace

StripeLayout::Cell StripeLayout::PieceAt(uint64_t piece_bytes, uint64_t length,
                                         uint64_t offset) const {
  const uint64_t shard = ShardBytesOf(length);
  const uint64_t shard_begin = offset / shard * shard;
  const uint64_t begin = shard_begin + (offset - shard_begin) / piece_bytes * piece_bytes;
  return {begin, std::min({begin + piece_bytes, shard_begin + shard, length})};
}

Result<PlannedRead> StripeStore::Impl::Prepare(const StripePart& part) {
  assert(part.offset + part.size <= part.length);
  std::vector<DriveId> places = TRY(LocateShards(*this, part.id, part.layout, part.place));
  TRY(CheckBlockLength(part.id, part.layout, part.length));
  const KnownStripe stripe = Known(part.id, part.layout, part.length);
  const auto pages_of = part.only_pages ? PagesOf : CellsOf;
  StripeRead plan(stripe, pages_of(part.layout, part.length, part.offset, part.size));
  auto codec = TRY(codecs.For(part.layout.geometry()));
  return PlannedRead{stripe, std::move(places), std::move(plan), std::move(codec)};
}

class StripeStore::Impl::Reads final : public StripeStore::PendingRead {
 public:
  Reads(Impl& store, std::vector<StripePart> parts) : store_(store), parts_(std::move(parts)) {
    status_ = Prepare();
    if (status_.ok()) running_ = StartReads(store_, reads_, store_.options.timeout);
  }

  Status Wait() override {
    if (!running_) return status_;
    running_->Finish();
    running_.reset();
    TRY(TryAgain());
    for (const PlannedRead& read : reads_) {
      store_.RepairWhatWasFound(read);
      if (status_.ok()) status_ = read.status;
    }
    return status_;
  }

  std::vector<ReadCell> TakeCells(size_t i) override {
    const StripePart& part = parts_[i];
    const uint64_t shard_bytes = part.layout.ShardBytesOf(part.length);
    std::vector<ReadCell> cells;
    for (uint64_t at = part.offset; at < part.offset + part.size;) {
      const StripeLayout::Cell cell = part.only_pages ? part.layout.PageAt(part.length, at)
                                                      : part.layout.CellAt(part.length, at);
      // Without the padding.
      const StripeRead& plan = reads_[i].plan;
      const int shard = static_cast<int>(cell.begin / shard_bytes);
      const auto first = static_cast<uint32_t>(cell.begin % shard_bytes);
      const auto size = static_cast<uint32_t>(cell.end - cell.begin);
      cells.push_back(
          {cell.begin, plan.BytesOf(shard, first, size), plan.SumsOf(shard, first, size)});
      at = cell.end;
    }
    return cells;
  }

  const StripeRead& plan(size_t i) const { return reads_[i].plan; }

 private:
  Status Prepare() {
    reads_.reserve(parts_.size());
    for (const StripePart& part : parts_) reads_.push_back(TRY(store_.Prepare(part)));
    return {};
  }

  // Reads that fail only because drives are away are tried again while that may change soon: a
  // drive that was restarted is not connected to at once.
  Status TryAgain() {
    Runtime& runtime = store_.runtime;
    const Time until = runtime.Now() + store_.options.patience;
    while (runtime.Now() < until) {
      std::vector<size_t> open;
      std::vector<PlannedRead> again;
      for (size_t i = 0; i < reads_.size(); ++i) {
        if (reads_[i].status.ok() || !reads_[i].plan.MayLaterSucceed()) continue;
        open.push_back(i);
        again.push_back(TRY(store_.Prepare(parts_[i])));
      }
      if (open.empty()) break;
      runtime.NewSignal()->WaitUntil(std::min(until, runtime.Now() + kPauseForDrives));
      // Those that are away are known to be. The others may be slow, all of them on a busy machine.
      RunReads(store_, again, store_.options.drive_timeout);
      for (size_t i = 0; i < open.size(); ++i) reads_[open[i]] = std::move(again[i]);
    }
    return {};
  }

  Impl& store_;
  const std::vector<StripePart> parts_;
  std::vector<PlannedRead> reads_;         // by part
  std::unique_ptr<RunningReads> running_;  // until Wait()
  Status status_;
};

// Has the shards written again that a read found damaged or missing, and counts them.
void StripeStore::Impl::RepairWhatWasFound(const PlannedRead& read) {
  if (read.plan.degraded()) ++counters.degraded_reads;
  if (read.status.code() == ENOENT) return;  // deleted: nothing is wrong
  const Epoch epoch = drives.CurrentEpoch();
  const StripeId& id = read.stripe.id;
  const auto homes = LocateShards(*this, id, read.stripe.layout, {epoch, {}});
  for (int shard = 0; shard < read.stripe.layout.geometry().shards(); ++shard) {
    const auto& failure = read.plan.failure(shard);
    if (!failure || (failure->code() != ENOENT && failure->code() != EBADMSG)) continue;
    const bool damaged = failure->code() == EBADMSG;
    // It belongs elsewhere by now, and may have been brought there since the place was read.
    const auto place = read.places[static_cast<size_t>(shard)];
    if (!damaged && homes.has_value() && (*homes)[static_cast<size_t>(shard)] != place) continue;
    ++(damaged ? counters.damaged_shards : counters.missing_shards);
    Log(LogLevel::kWarn, damaged ? "shard damaged" : "shard missing",
        {{"stripe", DescribeStripe(id)},
         {"shard", shard},
         {"drive", NameOf(place)},
         {"why", *failure}});
    if (!read.status.ok()) continue;  // there is nothing to compute it from

    auto planned = PlanShards(*this, read.stripe, read.places, {shard}, {shard});
    if (!planned.has_value()) continue;  // it cannot fail: this stripe has just been read
    const auto again = std::make_shared<PlannedRead>(*std::move(planned));
    janitor->Add("write again " + ShardKey(options.prefix, id, shard), [this, again, shard, epoch] {
      const Status status = WriteAgain(*again, shard, epoch);
      const std::string drive = NameOf(again->places[static_cast<size_t>(shard)]);
      const std::string stripe = DescribeStripe(again->stripe.id);
      if (status.code() == EREMCHG) {
        // It may belong elsewhere by now, and have been brought there.
        (void)drives.LookForEpochAfter(epoch);
      } else if (status.ok()) {
        Log(LogLevel::kInfo, "shard written again",
            {{"stripe", stripe}, {"shard", shard}, {"drive", drive}});
      } else {
        Log(LogLevel::kError, "shard could not be written again",
            {{"stripe", stripe}, {"shard", shard}, {"drive", drive}, {"why", status}});
      }
    });
  }
}

// Computes one shard from others and puts it where it belongs.
Status StripeStore::Impl::WriteAgain(PlannedRead& read, int shard, Epoch epoch) {
  RunReads(*this, {&read, 1}, options.timeout);
  TRY(read.status);
  return StoreShard(*this, read, shard, read.places[static_cast<size_t>(shard)], epoch);
}

// The rest ---------------------------------------------------------------------------------------

StripeStore::StripeStore(Runtime& runtime, DriveDirectory& drives, Options options)
    : impl_(std::make_unique<Impl>(runtime, drives, std::move(options))) {}

StripeStore::~StripeStore() = default;

std::unique_ptr<StripeStore::PendingWrite> StripeStore::StartWrite(
    const StripeId& id, std::shared_ptr<StripeBuffer> buffer, uint64_t length,
    Durability durability, Room room) {
  auto write = PrepareWrite(id, std::move(buffer), length, durability, room);
  write->Send();
  return write;
}

std::unique_ptr<StripeStore::PendingWrite> StripeStore::PrepareWrite(
    const StripeId& id, std::shared_ptr<StripeBuffer> buffer, uint64_t length,
    Durability durability, Room room) {
  return PrepareStripeWrite(*impl_, id, std::move(buffer), length, durability, room);
}

Status StripeStore::Read(const StripeReadRequest& request) { return ReadMany({&request, 1}); }

Status StripeStore::ReadMany(std::span<const StripeReadRequest> requests) {
  std::vector<StripePart> parts;
  for (const StripeReadRequest& request : requests) {
    assert(request.place);
    parts.push_back({request.id, request.layout, request.length, *request.place, request.offset,
                     request.out.size(), request.only_pages});
  }
  Impl::Reads reads(*impl_, std::move(parts));
  TRY(reads.Wait());
  for (size_t i = 0; i < requests.size(); ++i) CopyOut(reads.plan(i), requests[i]);
  return {};
}

std::unique_ptr<StripeStore::PendingRead> StripeStore::StartRead(std::vector<StripePart> parts) {
  return std::make_unique<Impl::Reads>(*impl_, std::move(parts));
}

std::vector<Result<BlockSums>> StripeStore::SumUp(std::span<const StripePart> blocks) {
  return SumUpStripes(*impl_, blocks);
}

Status StripeStore::Delete(const StripeId& id, const StripeLayout& layout,
                           const StripePlace& place) {
  const Deletion deletion{id, layout, place};
  return std::move(DeleteMany({&deletion, 1})[0]);
}

std::vector<Status> StripeStore::DeleteMany(std::span<const Deletion> deletions) {
  std::vector<Status> statuses(deletions.size());
  std::vector<Impl::Removal> removals;
  for (size_t i = 0; i < deletions.size(); ++i) {
    const auto& [id, layout, place] = deletions[i];
    const auto places = LocateShards(*impl_, id, layout, place);
    const auto homes = LocateShards(*impl_, id, layout, {place.epoch, {}});
    if (!places.has_value() || !homes.has_value()) {
      statuses[i] = places.has_value() ? homes.error() : places.error();
      continue;
    }
    for (size_t shard = 0; shard < places->size(); ++shard) {
      const auto index = static_cast<uint8_t>(shard);
      removals.push_back({i, {index, (*places)[shard]}, Expected::Any()});
      // A slow drive may have stored the shard after it was given to a spare.
      if ((*places)[shard] != (*homes)[shard]) {
        removals.push_back({i, {index, (*homes)[shard]}, Expected::Any()});
      }
    }
  }
  std::vector<StripeId> ids;
  for (const Deletion& deletion : deletions) ids.push_back(deletion.id);
  impl_->Remove(ids, removals, statuses);
  return statuses;
}

Status StripeStore::DeleteCopies(const StripeId& id, std::span<const ShardCopy> copies) {
  std::vector<Impl::Removal> removals;
  for (const ShardCopy& copy : copies) removals.push_back({0, copy, Expected::Any()});
  return impl_->Remove(id, removals);
}

Status StripeStore::DeleteObsolete(const StripeId& id, std::span<const KnownCopy> copies) {
  std::vector<Impl::Removal> removals;
  for (const KnownCopy& known : copies) {
    removals.push_back({0, known.copy, Expected::Version(known.version)});
  }
  return impl_->Remove(id, removals);
}

Status StripeStore::Impl::Remove(const StripeId& id, std::span<const Removal> removals) {
  Status status;
  Remove({&id, 1}, removals, {&status, 1});
  return status;
}

// All at once; a status for each of `ids`.
void StripeStore::Impl::Remove(std::span<const StripeId> ids, std::span<const Removal> removals,
                               std::span<Status> statuses) {
  Gather<Status> gather(runtime);
  std::vector<std::vector<std::string>> reasons(ids.size());
  const Time deadline = runtime.Now() + std::min(options.drive_timeout, options.timeout);
  for (size_t i = 0; i < removals.size(); ++i) {
    const Removal& removal = removals[i];
    Drive* drive = drives.FindDrive(removal.copy.drive);
    if (!drive) {
      reasons[removal.stripe].push_back(fmt::format("drive {} is not known", removal.copy.drive));
      continue;
    }
    drive->Delete(ShardKey(options.prefix, ids[removal.stripe], removal.copy.shard),
                  removal.expected, Durability::kWriteBack, deadline, gather.Ask(i));
  }
  while (const auto answer = gather.Next(Time::max())) {
    const Removal& removal = removals[answer->index];
    // ESTALE: it is another copy now, which is not to be removed.
    const int code = answer->value.code();
    if (code == 0) full.Forget(removal.copy.drive);
    if (code == 0 || code == ENOENT || code == ESTALE) continue;
    reasons[removal.stripe].emplace_back(answer->value.message());
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (reasons[i].empty()) continue;
    statuses[i] = Fail(EIO, "delete {}: {}", DescribeStripe(ids[i]), fmt::join(reasons[i], "; "));
  }
}

Result<std::vector<KnownCopy>> StripeStore::Identify(const StripeId& id,
                                                     std::span<const ShardCopy> copies) {
  Gather<Result<RecordHead>> gather(impl_->runtime);
  const Time deadline = impl_->runtime.Now() + impl_->options.drive_timeout;
  for (size_t i = 0; i < copies.size(); ++i) {
    Drive* drive = impl_->drives.FindDrive(copies[i].drive);
    if (!drive) return Fail(EIO, "drive {} is not known", copies[i].drive);
    drive->Head(ShardKey(impl_->options.prefix, id, copies[i].shard), deadline, gather.Ask(i));
  }
  std::vector<KnownCopy> known;
  while (auto answer = gather.Next(Time::max())) {
    if (answer->value.has_value()) {
      known.push_back({copies[answer->index], std::move(answer->value->version)});
    } else if (answer->value.error().code() != ENOENT) {
      return Failed(answer->value.error());
    }
  }
  return known;
}

Result<std::optional<StripeStore::Form>> StripeStore::Describe(const StripeId& id,
                                                               std::span<const ShardCopy> copies) {
  // By how it was coded: which copies say so.
  std::map<std::tuple<uint8_t, uint8_t, uint32_t>, std::vector<ShardCopy>> forms;
  for (const KnownCopy& known : TRY(Identify(id, copies))) {
    const auto said = ShardDescriptor::Decode(known.version);
    if (!said.has_value() || said->shard != known.copy.shard) continue;
    const StripeLayout layout = SmallestLayout(*said);
    if (!layout.Check().ok() || said->block_length > layout.block_bytes()) continue;
    const KnownStripe stripe = impl_->Known(id, layout, said->block_length);
    if (!CheckDescriptor(*said, stripe, known.copy.shard).ok()) continue;
    forms[{said->data_shards, said->parity_shards, said->block_length}].push_back(known.copy);
  }
  if (forms.empty()) return std::optional<Form>();
  const auto& [coded, found] =
      *std::ranges::max_element(forms, {}, [](const auto& form) { return form.second.size(); });
  const auto [k, m, length] = coded;
  Form form{
      .layout = SmallestLayout({.data_shards = k, .parity_shards = m, .block_length = length}),
      .length = length,
      .place = {.epoch = impl_->drives.CurrentEpoch(), .moved = {}}};
  const std::vector<DriveId> homes = TRY(HomesOf(id, form.layout));
  for (uint8_t shard = 0; shard < homes.size(); ++shard) {
    const auto is_of = [&](const ShardCopy& copy) { return copy.shard == shard; };
    const auto at = std::ranges::find_if(found, is_of);
    const bool at_home = std::ranges::count(found, ShardCopy{shard, homes[shard]}) > 0;
    if (at != found.end() && !at_home) form.place.moved.push_back({shard, at->drive});
  }
  return std::optional(std::move(form));
}

Result<std::vector<DriveId>> StripeStore::PlacesOf(const StripeId& id, const StripeLayout& layout,
                                                   const StripePlace& place) {
  return LocateShards(*impl_, id, layout, place);
}

Result<std::vector<DriveId>> StripeStore::HomesOf(const StripeId& id, const StripeLayout& layout) {
  return LocateShards(*impl_, id, layout, {impl_->drives.CurrentEpoch(), {}});
}

Result<StripeRepair> StripeStore::Repair(const StripeRepairRequest& request) {
  return RepairStripe(*impl_, request);
}

Result<StripeStore::Presence> StripeStore::Probe(const StripeId& id, const StripeLayout& layout,
                                                 uint64_t length, const StripePlace& place) {
  const std::vector<DriveId> places = TRY(LocateShards(*impl_, id, layout, place));
  TRY(CheckBlockLength(id, layout, length));
  const KnownStripe stripe = impl_->Known(id, layout, length);
  Presence presence;
  Gather<Result<RecordHead>> gather(impl_->runtime);
  const Time deadline = impl_->runtime.Now() + impl_->options.drive_timeout;
  for (size_t shard = 0; shard < places.size(); ++shard) {
    Drive* drive = impl_->drives.FindDrive(places[shard]);
    if (!drive) {
      ++presence.unknown;
      continue;
    }
    drive->Head(ShardKey(impl_->options.prefix, id, static_cast<int>(shard)), deadline,
                gather.Ask(shard));
  }
  while (const auto answer = gather.Next(Time::max())) {
    const auto shard = static_cast<int>(answer->index);
    const Result<RecordHead>& head = answer->value;
    Status found = head.has_value() ? Status() : head.error();
    if (head.has_value()) {
      const auto descriptor = CheckHead(stripe, shard, head->version, head->tag);
      if (!descriptor.has_value()) found = descriptor.error();
    }
    switch (found.code()) {
      case 0: ++presence.present; continue;
      case ENOENT: ++presence.missing; continue;
      case EBADMSG: ++presence.missing; break;
      default: ++presence.unknown; continue;
    }
    Log(LogLevel::kWarn, "shard damaged",
        {{"stripe", DescribeStripe(id)},
         {"shard", shard},
         {"drive", impl_->NameOf(places[answer->index])},
         {"why", found}});
  }
  return presence;
}

Result<std::set<DriveId>> StripeStore::DrivesOf(const StripeId& id, const StripeLayout& layout,
                                                const StripePlace& place) {
  std::vector<DriveId> places = TRY(LocateShards(*impl_, id, layout, place));
  for (const StripePlace::Moved& moved : place.moved) {
    if (moved.drive == 0) places[moved.shard] = 0;
  }
  std::set<DriveId> drives(places.begin(), places.end());
  drives.erase(0);
  return drives;
}

std::set<DriveId> StripeStore::Flush(const std::set<DriveId>& drives, const DriveLosses& since) {
  std::set<DriveId> failed;
  Gather<Status> gather(impl_->runtime);
  const Time deadline = impl_->runtime.Now() + impl_->options.timeout;
  for (DriveId id : drives) {
    if (Drive* drive = impl_->drives.FindDrive(id)) {
      drive->Flush(deadline, gather.Ask(id));
    } else {
      failed.insert(id);
    }
  }
  while (const auto answer = gather.Next(Time::max())) {
    if (answer->value.ok()) continue;
    failed.insert(static_cast<DriveId>(answer->index));
    Log(LogLevel::kWarn, "flush failed",
        {{"drive", impl_->NameOf(static_cast<DriveId>(answer->index))}, {"why", answer->value}});
  }
  for (DriveId id : drives) {
    const Drive* drive = impl_->drives.FindDrive(id);
    const auto before = since.find(id);
    const bool was_lost =
        drive != nullptr && before != since.end() && drive->CountLosses() != before->second;
    if (!was_lost || !failed.insert(id).second) continue;
    Log(LogLevel::kWarn, "what this drive took before it was lost may not be safe from power loss",
        {{"drive", drive->name()}});
  }
  return failed;
}

bool StripeStore::WaitForRepairs(Time deadline) { return impl_->janitor->WaitUntilIdle(deadline); }

StripeCounters StripeStore::counters() const { return impl_->counters.Load(); }

}  // namespace pinstripe
