#include "cluster/stripe_store.h"

#include <algorithm>
#include <cassert>

#include "base/checksum.h"
#include "base/log.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/shard.h"
#include "cluster/stripe_context.h"
#include "cluster/stripe_read.h"
#include "cluster/stripe_write.h"

namespace pinstripe {
StripeBuffer::StripeBuffer(const StripeLayout& layout)
    : layout_(layout),
      memory_(static_cast<size_t>(layout.shard_bytes) *
              static_cast<size_t>(layout.data_shards == 1 ? 1 : layout.geometry().shards())) {}

class StripeStore::Impl : public StripeContext {
 public:
  Impl(Runtime& runtime_in, DriveDirectory& drives_in, Options options_in)
      : StripeContext(runtime_in, drives_in, std::move(options_in)) {}
  ~Impl() { janitor->Close(); }

  // Where the shards are looked for: at home, unless `place` says otherwise.
  Result<std::vector<DriveId>> Locate(const StripeId& id, const StripeLayout& layout,
                                      const StripePlace& place);

  // Reads that were prepared, all at once; each ends as Succeeded() or with a failure.
  struct PlannedRead {
    StripeId id;
    StripeLayout layout;
    uint64_t length = 0;
    std::vector<DriveId> places;
    StripeRead plan;
    std::shared_ptr<const Codec> codec;
    bool done = false;
    Status status;
  };
  void Run(std::span<PlannedRead> reads);
  Result<PlannedRead> Prepare(const StripeReadRequest& request);
  void RepairWhatWasFound(const PlannedRead& read);

  Status WriteShardAgain(PlannedRead& read, int shard, bool damaged);

 private:
  struct Question {
    size_t read;
    CellRange cells;
    Time asked_at;
    bool answered = false;
    bool late = false;
  };
  class Reading;
};

Result<std::vector<DriveId>> StripeStore::Impl::Locate(const StripeId& id,
                                                       const StripeLayout& layout,
                                                       const StripePlace& place) {
  TRY(layout.Check());
  std::vector<DriveId> places =
      TRY_CONTEXT(drives.StripeDrives(place.epoch, id.object, id.block, layout.geometry()), "{}",
                  DescribeStripe(id));
  const auto shards = static_cast<size_t>(layout.geometry().shards());
  if (places.size() < shards) {
    return Fail(EIO, "{}: {} drives in epoch {}, but {} shards", DescribeStripe(id), places.size(),
                place.epoch, shards);
  }
  places.resize(shards);
  for (const StripePlace::Moved& moved : place.moved) {
    if (moved.shard >= shards) {
      return Fail(EBADMSG, "{}: shard {} was moved, but there are {}", DescribeStripe(id),
                  moved.shard, shards);
    }
    if (moved.drive != 0) places[moved.shard] = moved.drive;
  }
  return places;
}

namespace {

// The one copy of a read: from the values that arrived to where the bytes are wanted.
void CopyOut(const StripeRead& plan, const StripeReadRequest& request) {
  const uint64_t shard_bytes = request.layout.ShardBytesOf(request.length);
  const uint64_t end = request.offset + request.out.size();
  for (uint64_t at = request.offset; at < end;) {
    const auto shard = static_cast<int>(at / shard_bytes);
    const uint64_t in_shard = at % shard_bytes;
    const Bytes cell = plan.Cell(shard, static_cast<uint32_t>(in_shard / kCellBytes));
    const uint64_t in_cell = in_shard % kCellBytes;
    const uint64_t size = std::min(end - at, cell.size() - in_cell);
    CopyBytes(request.out.subspan(at - request.offset, size), cell.subspan(in_cell, size));
    at += size;
  }
}

}  // namespace

// Reading ----------------------------------------------------------------------------------------

// The loop around the plans: time, drives, and answers as they come.
class StripeStore::Impl::Reading {
 public:
  Reading(Impl& impl, std::span<PlannedRead> reads)
      : impl_(impl),
        reads_(reads),
        deadline_(impl.runtime.Now() + impl.options.timeout),
        late_after_(impl.answer_times.Late(impl.options.hedge_after)),
        gather_(impl.runtime),
        open_(reads.size()) {}

  void Run() {
    for (size_t i = 0; i < reads_.size(); ++i) Advance(i);
    while (open_ > 0) {
      if (auto answer = gather_.Next(NextAlarm())) {
        TakeAnswer(questions_[answer->index], std::move(answer->value));
      } else if (gather_.outstanding() == 0 || impl_.runtime.Now() >= deadline_) {
        for (size_t i = 0; i < reads_.size(); ++i) GiveUp(i);
      } else {
        LookForLateAnswers();
      }
    }
  }

 private:
  // Asks what the plan of read `i` wants asked, or ends it.
  void Advance(size_t i) {
    PlannedRead& read = reads_[i];
    while (!read.done && !read.plan.Succeeded()) {
      if (read.plan.Hopeless()) return GiveUp(i);
      const std::vector<CellRange> cells = read.plan.TakeQuestions();
      if (cells.empty()) return;
      for (const CellRange& range : cells) Ask(i, range);
    }
    End(i);
  }

  void End(size_t i) {
    if (reads_[i].done) return;
    reads_[i].done = true;
    --open_;
  }

  void GiveUp(size_t i) {
    if (reads_[i].done) return;
    reads_[i].status = reads_[i].plan.Failure();
    End(i);
  }

  void Ask(size_t i, const CellRange& range) {
    PlannedRead& read = reads_[i];
    const DriveId id = read.places[static_cast<size_t>(range.shard)];
    Drive* drive = impl_.drives.FindDrive(id);
    if (!drive) {
      read.plan.Answer(range, Fail(EHOSTUNREACH, "drive {} is not known", id));
      return;
    }
    ++impl_.counters.read_requests;
    const Time now = impl_.runtime.Now();
    questions_.push_back({i, range, now});
    drive->Get(ShardKey(impl_.options.prefix, read.id, range.shard),
               {range.first * kCellBytes, RangeBytes(read.layout.ShardBytesOf(read.length), range)},
               std::min(deadline_, now + impl_.options.drive_timeout),
               gather_.Ask(questions_.size() - 1));
  }

  void TakeAnswer(Question& question, Result<Record> record) {
    question.answered = true;
    PlannedRead& read = reads_[question.read];
    if (record.has_value()) {
      impl_.counters.bytes_fetched += record->value.size();
      impl_.answer_times.Note(impl_.runtime.Now() - question.asked_at);
    }
    if (read.done) return;
    read.plan.Answer(question.cells, std::move(record));
    Advance(question.read);
  }

  Time NextAlarm() const {
    Time alarm = deadline_;
    for (const Question& question : questions_) {
      if (question.answered || question.late || reads_[question.read].done) continue;
      alarm = std::min(alarm, question.asked_at + late_after_);
    }
    return alarm;
  }

  void LookForLateAnswers() {
    const Time now = impl_.runtime.Now();
    const size_t asked = questions_.size();  // what Advance() adds is not late
    for (size_t i = 0; i < asked; ++i) {
      Question& question = questions_[i];
      if (question.answered || question.late) continue;
      if (question.asked_at + late_after_ > now) continue;
      question.late = true;
      const size_t read = question.read;
      if (reads_[read].done) continue;
      reads_[read].plan.Late(question.cells);
      Advance(read);
    }
  }

  Impl& impl_;
  const std::span<PlannedRead> reads_;
  const Time deadline_;
  const Duration late_after_;
  Gather<Result<Record>> gather_;
  std::vector<Question> questions_;
  size_t open_;  // reads that are not done
};

void StripeStore::Impl::Run(std::span<PlannedRead> reads) {
  Reading(*this, reads).Run();
  for (PlannedRead& read : reads) {
    if (read.status.ok()) read.status = read.plan.Complete(*read.codec);
    if (!read.status.ok()) {
      read.status = read.status.Context(fmt::format("read {}", DescribeStripe(read.id)));
    }
  }
}

Result<StripeStore::Impl::PlannedRead> StripeStore::Impl::Prepare(
    const StripeReadRequest& request) {
  assert(request.place && request.offset + request.out.size() <= request.length);
  std::vector<DriveId> places = TRY(Locate(request.id, request.layout, *request.place));
  if (request.length == 0 || request.length > request.layout.block_bytes()) {
    return Fail(EBADMSG, "{}: a length of {} bytes in blocks of {}", DescribeStripe(request.id),
                request.length, request.layout.block_bytes());
  }
  StripeRead plan(request.layout, request.length,
                  CellsOf(request.layout, request.length, request.offset, request.out.size()));
  return PlannedRead{request.id,      request.layout,
                     request.length,  std::move(places),
                     std::move(plan), TRY(codecs.For(request.layout.geometry()))};
}

// Has the shards written again that a read found damaged or missing, and counts them.
void StripeStore::Impl::RepairWhatWasFound(const PlannedRead& read) {
  if (read.plan.degraded()) ++counters.degraded_reads;
  if (read.status.code() == ENOENT) return;  // deleted: nothing is wrong
  for (int shard = 0; shard < read.layout.geometry().shards(); ++shard) {
    const auto& failure = read.plan.failure(shard);
    if (!failure || (failure->code() != ENOENT && failure->code() != EBADMSG)) continue;
    const bool damaged = failure->code() == EBADMSG;
    ++(damaged ? counters.damaged_shards : counters.missing_shards);
    Log(LogLevel::kWarn, damaged ? "shard damaged" : "shard missing",
        {{"stripe", DescribeStripe(read.id)},
         {"shard", shard},
         {"drive", read.places[static_cast<size_t>(shard)]},
         {"why", *failure}});
    if (!read.status.ok()) continue;  // there is nothing to compute it from

    const uint32_t cells = CellCount(read.layout.ShardBytesOf(read.length));
    const auto again = std::make_shared<PlannedRead>(PlannedRead{
        read.id, read.layout, read.length, read.places,
        StripeRead(read.layout, read.length, {{shard, 0, cells - 1}}, {shard}), read.codec});
    janitor->Add("write again " + ShardKey(options.prefix, read.id, shard),
                 [this, again, shard, damaged] {
                   const Status status = WriteShardAgain(*again, shard, damaged);
                   const auto drive = again->places[static_cast<size_t>(shard)];
                   const std::string stripe = DescribeStripe(again->id);
                   if (status.ok()) {
                     Log(LogLevel::kInfo, "shard written again",
                         {{"stripe", stripe}, {"shard", shard}, {"drive", drive}});
                   } else {
                     Log(LogLevel::kError, "shard could not be written again",
                         {{"stripe", stripe}, {"shard", shard}, {"drive", drive}, {"why", status}});
                   }
                 });
  }
}

// Computes one shard from others, puts it where it belongs and reads it back: what is counted as
// written again is known to be good.
Status StripeStore::Impl::WriteShardAgain(PlannedRead& read, int shard, bool damaged) {
  const std::string key = ShardKey(options.prefix, read.id, shard);
  const DriveId id = read.places[static_cast<size_t>(shard)];
  Drive* drive = drives.FindDrive(id);
  if (!drive) return Fail(EHOSTUNREACH, "drive {} is not known", id);

  Run({&read, 1});
  TRY(read.status);

  const uint32_t size = read.layout.ShardBytesOf(read.length);
  Buffer bytes(size);
  for (uint32_t cell = 0; cell < CellCount(size); ++cell) {
    CopyBytes(bytes.mutable_bytes().subspan(size_t{cell} * kCellBytes),
              read.plan.Cell(shard, cell));
  }
  const ShardDescriptor descriptor = DescribeShard(read.layout, read.length, shard, bytes);

  // A missing shard may have come back meanwhile; a damaged one is replaced by what it was.
  Drive::PutRequest put{.key = key,
                        .value = SharedBytes(std::move(bytes)),
                        .version = descriptor.Encode(),
                        .tag = RecordTag(ShardSum(descriptor, size)),
                        .expected = damaged ? Expected::Any() : Expected::Absent(),
                        .durability = Durability::kWriteThrough};
  const Time deadline = runtime.Now() + options.drive_timeout;
  Gather<Status> puts(runtime);
  drive->Put(std::move(put), deadline, puts.Ask(0));
  const auto stored = puts.Next(Time::max());
  if (!stored->value.ok() && stored->value.code() != ESTALE) return stored->value;

  Gather<Result<Record>> gets(runtime);
  ++counters.read_requests;
  drive->Get(key, {}, runtime.Now() + options.drive_timeout, gets.Ask(0));
  auto record = std::move(gets.Next(Time::max())->value);
  if (!record.has_value()) return record.error();
  counters.bytes_fetched += record->value.size();
  if (record->version != descriptor.Encode() ||
      Crc32c(record->value) != ShardSum(descriptor, size)) {
    return Fail(EBADMSG, "{}: what was written does not read back", drive->name());
  }
  ++counters.rewritten_shards;
  return {};
}

// The rest ---------------------------------------------------------------------------------------

StripeStore::StripeStore(Runtime& runtime, DriveDirectory& drives, Options options)
    : impl_(std::make_unique<Impl>(runtime, drives, std::move(options))) {}

StripeStore::~StripeStore() = default;

std::unique_ptr<StripeStore::PendingWrite> StripeStore::StartWrite(
    const StripeId& id, std::shared_ptr<StripeBuffer> buffer, uint64_t length,
    Durability durability) {
  return StartStripeWrite(*impl_, id, std::move(buffer), length, durability);
}

Status StripeStore::Read(const StripeReadRequest& request) { return ReadMany({&request, 1}); }

Status StripeStore::ReadMany(std::span<const StripeReadRequest> requests) {
  std::vector<Impl::PlannedRead> reads;
  for (const StripeReadRequest& request : requests) reads.push_back(TRY(impl_->Prepare(request)));
  impl_->Run(reads);

  Status first_failure;
  for (size_t i = 0; i < reads.size(); ++i) {
    impl_->RepairWhatWasFound(reads[i]);
    if (reads[i].status.ok()) {
      CopyOut(reads[i].plan, requests[i]);
    } else if (first_failure.ok()) {
      first_failure = reads[i].status;
    }
  }
  return first_failure;
}

Status StripeStore::Delete(const StripeId& id, const StripeLayout& layout,
                           const StripePlace& place) {
  const std::vector<DriveId> places = TRY(impl_->Locate(id, layout, place));
  const std::vector<DriveId> homes = TRY(impl_->Locate(id, layout, {place.epoch, {}}));
  std::vector<ShardCopy> copies;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto shard = static_cast<uint8_t>(i);
    copies.push_back({shard, places[i]});
    // A slow drive may have stored the shard after it was given to a spare.
    if (places[i] != homes[i]) copies.push_back({shard, homes[i]});
  }
  return DeleteCopies(id, copies);
}

Status StripeStore::DeleteCopies(const StripeId& id, std::span<const ShardCopy> copies) {
  Gather<Status> gather(impl_->runtime);
  std::vector<std::string> reasons;
  const Time deadline =
      impl_->runtime.Now() + std::min(impl_->options.drive_timeout, impl_->options.timeout);
  for (const ShardCopy& copy : copies) {
    Drive* drive = impl_->drives.FindDrive(copy.drive);
    if (!drive) {
      reasons.push_back(fmt::format("drive {} is not known", copy.drive));
      continue;
    }
    drive->Delete(ShardKey(impl_->options.prefix, id, copy.shard), Expected::Any(),
                  Durability::kWriteBack, deadline, gather.Ask(copy.shard));
  }
  while (const auto answer = gather.Next(Time::max())) {
    if (answer->value.ok() || answer->value.code() == ENOENT) continue;
    reasons.emplace_back(answer->value.message());
  }
  if (reasons.empty()) return {};
  return Fail(EIO, "delete {}: {}", DescribeStripe(id), fmt::join(reasons, "; "));
}

Result<std::vector<DriveId>> StripeStore::PlacesOf(const StripeId& id, const StripeLayout& layout,
                                                   const StripePlace& place) {
  return impl_->Locate(id, layout, place);
}

Result<StripeStore::Presence> StripeStore::Probe(const StripeId& id, const StripeLayout& layout,
                                                 const StripePlace& place) {
  const std::vector<DriveId> places = TRY(impl_->Locate(id, layout, place));
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
    if (answer->value.has_value()) {
      ++presence.present;
    } else if (answer->value.error().code() == ENOENT) {
      ++presence.missing;
    } else {
      ++presence.unknown;
    }
  }
  return presence;
}

Result<std::set<DriveId>> StripeStore::DrivesOf(const StripeId& id, const StripeLayout& layout,
                                                const StripePlace& place) {
  std::vector<DriveId> places = TRY(impl_->Locate(id, layout, place));
  for (const StripePlace::Moved& moved : place.moved) {
    if (moved.drive == 0) places[moved.shard] = 0;
  }
  std::set<DriveId> drives(places.begin(), places.end());
  drives.erase(0);
  return drives;
}

std::set<DriveId> StripeStore::Flush(const std::set<DriveId>& drives) {
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
    Log(LogLevel::kWarn, "flush failed", {{"drive", answer->index}, {"why", answer->value}});
  }
  return failed;
}

bool StripeStore::WaitForRepairs(Time deadline) { return impl_->janitor->WaitUntilIdle(deadline); }

StripeCounters StripeStore::counters() const { return impl_->counters.Load(); }

}  // namespace pinstripe
