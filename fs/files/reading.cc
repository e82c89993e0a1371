#include "fs/files/reading.h"

#include <algorithm>

#include "base/try.h"
#include "fs/files/map_pages.h"

namespace pinstripe {
namespace {

constexpr uint64_t kMostReadAtOnce = 16 << 20;  // of one call

// Bytes [first, end) of a block that is not shared, with its patches.
std::vector<StripePart> StripePartsOf(const BlockPlace& place, uint64_t block, uint64_t first,
                                      uint64_t end) {
  std::vector<StripePart> parts;
  for (const BlockPart& part : PartsOf(place, first, end)) {
    const BlockPlace& stripe = part.stripe;
    parts.push_back(
        {stripe.IdOf(block), stripe.layout, stripe.stored, stripe.place, part.offset, part.size});
  }
  return parts;
}

}  // namespace

FileReading::FileReading(FileContext& context, InodeId id)
    : context_(context),
      id_(id),
      turn_(context.cluster.runtime()),
      blocks_(context.memory, context.ages, context.cluster.runtime()),
      keepers_(context.cluster, context.records, context.recent_keepers) {}

uint64_t FileReading::block_bytes() const {
  return now_.map ? now_.map->block_bytes() : layout().striped.block_bytes();
}

// Another host may change the layout of a file that is empty there; the blocks that are in memory
// here stay as they are.
FileLayout FileReading::layout() const {
  if (!blocks_.empty()) return blocks_layout_;
  return base_.layout ? *base_.layout : context_.layout;
}

uint64_t FileReading::LowerEnd(uint64_t block) const {
  const DirtyBlocks::Block* const open = blocks_.Find(block);
  if (open && open->sent && !open->sent->is_patch()) return open->sent->valid;
  if (!now_.map) return block == 0 ? now_.inline_data.size() : 0;
  const auto place = now_.map->Find(block);
  return place ? place->valid : 0;
}

IntervalSet FileReading::LowerData(uint64_t block) const {
  IntervalSet data;
  const DirtyBlocks::Block* const open = blocks_.Find(block);
  const bool is_sent_whole = open && open->sent && !open->sent->is_patch();
  if (is_sent_whole || !now_.map) {
    data.Add(0, LowerEnd(block));
  } else if (const auto place = now_.map->Find(block)) {
    data = DataOf(*place);
  }
  if (!open || !open->sent) return data;
  for (const BlockExtent& gap : open->sent->gaps) data.Remove(gap.first, gap.end());
  for (const BlockExtent& extent : open->sent->extents) data.Add(extent.first, extent.end());
  return data;
}

StripeLayout FileReading::BlockLayout() {
  const MutexLock lock(mutex_);
  return now_.map ? now_.map->layout() : layout().striped;
}

uint64_t FileReading::Size() {
  const MutexLock lock(mutex_);
  return now_.size;
}

bool FileReading::HasChanges() {
  const MutexLock lock(mutex_);
  return changed_;
}

// ---- Reading

struct FileReading::ReadPlan {
  struct Overlay {
    Target target;
    Buffer bytes;
  };
  bool only_pages = false;  // see Read()
  uint64_t generation = 0;
  size_t part = 0;                        // up to here it is planned: which one
  size_t done = 0;                        // and how many bytes of it
  std::optional<BlockMap::Part> missing;  // of the map: to be loaded before the next can be planned
  std::optional<KnownKeepers::Kept> missing_kept;  // the same
  Status damage;                                   // why it cannot be read
  uint64_t size = 0;                               // of the file, and
  StripeLayout layout;                             // the map's, then
  std::deque<BlockPlace> places;                   // what the requests point to
  std::vector<StripeReadRequest> requests;
  std::vector<Overlay> overlays;  // laid over what was read

  // So much at a time that it fits into memory.
  Status Execute(BlockReader& reader, uint64_t most_bytes, const BlockReader::Reserve& reserve,
                 const std::function<void()>& meanwhile) {
    size_t done = 0;
    do {
      size_t end = done;
      for (uint64_t bytes = 0; end < requests.size(); ++end) {
        bytes += requests[end].out.size() + 2 * kCellBytes;  // it may take whole cells
        if (end > done && bytes > most_bytes) break;
      }
      TRY(reader.Read(std::span(requests).subspan(done, end - done), reserve,
                      done == 0 ? meanwhile : nullptr));
      done = end;
    } while (done < requests.size());
    for (const Overlay& overlay : overlays) {
      CopyBytes(overlay.target.out, overlay.bytes);
      for (PageSum& sum : overlay.target.sums) sum.known = false;
    }
    return {};
  }
};

// Of `target`, which begins with byte `first` of a block. (A block is made of whole pages.)
FileReading::Target FileReading::PartOf(const Target& target, uint64_t first, uint64_t part_first,
                                        uint64_t size) {
  const MutableBytes out = target.out.subspan(part_first - first, size);
  if (target.sums.empty() || size == 0) return {out, {}};
  return {out, target.sums.subspan(part_first / kFilePageBytes - first / kFilePageBytes,
                                   CountFilePages(part_first, size))};
}

// The bytes below the dirty ones. Those that lie in memory are copied at once.
void FileReading::PlanLower(uint64_t block, uint64_t first, const Target& target,
                            ReadPlan& plan) const {
  const MutableBytes out = target.out;
  const uint64_t valid = LowerEnd(block);
  const size_t there = valid > first ? std::min<uint64_t>(valid - first, out.size()) : 0;
  ZeroBytes(out.subspan(there));
  if (there == 0) return;
  const IntervalSet::Interval wanted{first, first + there};
  const DirtyBlocks::Block* const open = blocks_.Find(block);
  IntervalSet covered;  // by what is in memory
  if (open && open->sent) {
    open->sent->CopyTo(wanted, first, out);
    covered = open->sent->Bytes();
  }
  if (covered.Covers(wanted.first, wanted.end)) return;
  if (!now_.map) {
    return CopyBytes(out, AsBytes(now_.inline_data).subspan(first, there));
  }
  auto place = keepers_.Resolve(*now_.map->Find(block), block, plan.missing_kept);
  if (!place.has_value()) plan.damage = place.error();
  if (!place.has_value() || !*place) return;
  for (const auto& zeros : ZerosOf(**place, wanted.first, wanted.end)) {
    for (const auto& gap : covered.GapsWithin(zeros.first, zeros.end)) {
      ZeroBytes(out.subspan(gap.first - first, gap.end - gap.first));
    }
  }
  for (BlockPart& part : PartsOf(**place, wanted.first, wanted.end, covered)) {
    const BlockPlace& stripe = plan.places.emplace_back(std::move(part.stripe));
    const Target piece = PartOf(target, first, part.first, part.size);
    plan.requests.push_back({.id = stripe.IdOf(block),
                             .layout = stripe.layout,
                             .length = stripe.stored,
                             .place = &stripe.place,
                             .offset = part.offset,
                             .out = piece.out,
                             .only_pages = plan.only_pages,
                             .sums = piece.sums,
                             .out_phase = static_cast<uint32_t>(part.first % kFilePageBytes)});
  }
}

void FileReading::PlanBlock(uint64_t block, uint64_t first, const Target& target, ReadPlan& plan) {
  const uint64_t end = first + target.out.size();
  const DirtyBlocks::Block* const found = blocks_.Find(block);
  if (!found || !found->dirty) return PlanLower(block, first, target, plan);
  const DirtyBlocks::Block& open = *found;
  const auto gaps = open.present.GapsWithin(first, end);
  if (!gaps.empty()) {
    const uint64_t from = gaps.front().first;
    PlanLower(block, from, PartOf(target, first, from, gaps.back().end - from), plan);
  }
  for (const auto& part : open.present.Within(first, end)) {
    const Bytes bytes = open.dirty->data().subspan(part.first, part.end - part.first);
    const Target piece = PartOf(target, first, part.first, bytes.size());
    if (gaps.empty()) {
      CopyBytes(piece.out, bytes);
    } else {
      plan.overlays.push_back({piece, Buffer::CopyOf(bytes)});
    }
  }
}

void FileReading::PlanRead(std::span<OpenFile::Part> parts, ReadPlan& plan) {
  const MutexLock lock(mutex_);
  plan.generation = generation_;
  for (; plan.part < parts.size(); ++plan.part) {
    PlanPart(parts[plan.part], plan);
    if (plan.missing || plan.missing_kept || !plan.damage.ok()) return;
    plan.done = 0;
  }
}

void FileReading::PlanPart(OpenFile::Part& part, ReadPlan& plan) {
  part.length = 0;
  if (plan.done == 0) std::ranges::fill(part.sums, PageSum());
  const uint64_t offset = part.offset;
  if (offset >= now_.size) return;
  const MutableBytes out = part.out.first(std::min<uint64_t>(part.out.size(), now_.size - offset));
  size_t& done = plan.done;
  while (done < out.size()) {
    const uint64_t block = (offset + done) / block_bytes();
    const uint64_t first = (offset + done) % block_bytes();
    const size_t length = std::min<uint64_t>(out.size() - done, block_bytes() - first);
    if (now_.map) {
      plan.missing = now_.map->FirstMissing(block, block + 1);
      plan.size = now_.size;
      plan.layout = now_.map->layout();
      if (plan.missing) return;
    }
    PlanBlock(block, first, PartOf({out, part.sums}, offset, offset + done, length), plan);
    if (plan.missing_kept || !plan.damage.ok()) return;
    done += length;
  }
  part.length = out.size();
}

MemoryBudget::Share FileReading::ReserveToRead(uint64_t bytes, bool may_wait) {
  if (may_wait) {
    auto share = context_.reserve(bytes);
    if (share.has_value()) return *std::move(share);
    // There is no room because others' writes cannot be stored, which is no reason not to read.
  } else if (auto share = context_.budget.TryTake(bytes)) {
    return *std::move(share);
  }
  return context_.budget.TakeAnyway(bytes);
}

Status FileReading::LoadMissing(ReadPlan& plan) {
  const auto missing = std::exchange(plan.missing, std::nullopt);
  const auto missing_kept = std::exchange(plan.missing_kept, std::nullopt);
  if (missing) return LoadPart(*missing, plan.size, plan.layout);
  return missing_kept ? keepers_.Load(*missing_kept) : Status();
}

// The turn keeps others from forgetting what is loaded before it was used, and the file as it is
// until all is planned. The plan does not need its pages any more.
Status FileReading::PlanByPages(std::span<OpenFile::Part> parts, ReadPlan& plan) {
  const Turn::Holder turn(turn_);
  for (;;) {
    PlanRead(parts, plan);
    if (!plan.missing && !plan.missing_kept) return {};
    ForgetUnderTurn();
    TRY(LoadMissing(plan));
  }
}

// All is planned at once, as soon as all pages that say where it is are there. Where they are more
// than the file keeps, others who read may have them forgotten again and again.
Status FileReading::Read(std::span<OpenFile::Part> parts, bool only_pages,
                         const std::function<void()>& meanwhile) {
  size_t loads = 0;
  const auto reserve = [this](uint64_t bytes) { return ReserveToRead(bytes, true); };
  const uint64_t most_bytes = std::min(kMostReadAtOnce, context_.budget.limit() / 4);
  for (int attempt = 0;; ++attempt) {
    ReadPlan plan;
    plan.only_pages = only_pages;
    Status status;
    if (loads < kMostPages) {
      PlanRead(parts, plan);
      if (plan.missing || plan.missing_kept) {
        status = LoadMissing(plan);
        if (status.ok()) {
          ++loads;
          --attempt;
          continue;
        }
      }
    } else {
      status = PlanByPages(parts, plan);
    }
    if (status.ok()) status = plan.damage;
    if (status.ok()) status = plan.Execute(context_.reader, most_bytes, reserve, meanwhile);
    if (status.ok()) {
      ForgetPages();
      return {};
    }
    const bool may_have_moved = status.code() == ENOENT || status.code() == EIO;
    // A repair may have moved what is shared.
    if (may_have_moved && attempt < kMaxReadAttempts && keepers_.Refresh().value_or(false))
      continue;
    if (!may_have_moved || attempt == kMaxReadAttempts) {
      return Fail(EIO, "read inode {:016x}: {}", id_, status.message());
    }
    // The stripe may be gone because the file was committed anew, by us or by another host.
    {
      const MutexLock lock(mutex_);
      if (generation_ != plan.generation) continue;
    }
    const Turn::Holder turn(turn_);
    const Result<bool> refreshed = RefreshUnderTurn();
    if (!refreshed.has_value()) {
      const int code = refreshed.error().code() == ENOENT ? ESTALE : EIO;
      return Fail(code, "read inode {:016x}: {}; {}", id_, status.message(),
                  refreshed.error().message());
    }
    const MutexLock lock(mutex_);
    if (generation_ == plan.generation) {
      return Fail(EIO, "read inode {:016x}: {}", id_, status.message());
    }
  }
}

void FileReading::ReadAheadAt(const BlockPlace& place, BlockReader::Ahead& ahead) {
  for (const StripePart& part : StripePartsOf(place, 0, 0, place.valid)) {
    if (!context_.reader.ReadAhead(part, ahead)) return;
  }
}

uint64_t FileReading::ReadAhead(uint64_t offset, uint64_t size, BlockReader::Ahead& ahead) {
  for (uint64_t done = 0; done < size;) {
    std::vector<StripePart> parts;
    uint64_t length = 0;
    {
      const MutexLock lock(mutex_);
      const uint64_t at = offset + done;
      if (!now_.map || at >= now_.size) return done;
      const uint64_t block = at / block_bytes();
      const uint64_t first = at % block_bytes();
      if (now_.map->FirstMissing(block, block + 1)) return done;
      length = std::min({size - done, block_bytes() - first, now_.size - at});
      auto place = now_.map->Find(block);
      if (place && first < place->valid && !blocks_.Contains(block)) {
        std::optional<KnownKeepers::Kept> missing;
        place = keepers_.Resolve(*place, block, missing).value_or(std::nullopt);
        if (!place) return done;
        const uint64_t end = std::min<uint64_t>(first + length, place->valid);
        parts = StripePartsOf(*place, block, first, end);
      }
    }
    for (const StripePart& part : parts) {
      if (!context_.reader.ReadAhead(part, ahead)) return done;
    }
    done += length;
  }
  return size;
}

// Reads parts of a block to where they belong in `buffer`, with the sums of what comes from memory.
Status FileReading::ReadLower(uint64_t block, const std::vector<IntervalSet::Interval>& parts,
                              StripeBuffer& buffer) {
  ReadPlan plan;
  for (bool planned = false; !planned;) {
    plan = ReadPlan();
    {
      const MutexLock lock(mutex_);
      for (const auto& part : parts) {
        const MutableBytes out = buffer.data().subspan(part.first, part.end - part.first);
        PlanLower(block, part.first, {out, {}}, plan);
      }
    }
    TRY(plan.damage);
    planned = !plan.missing_kept;
    if (!planned) TRY(keepers_.Load(*plan.missing_kept));
  }
  TRY(plan.Execute(context_.reader, UINT64_MAX,
                   [this](uint64_t bytes) { return ReserveToRead(bytes, false); }, {}));
  const MutexLock lock(mutex_);
  const DirtyBlocks::Block* const open = blocks_.Find(block);
  if (!open || !open->sent) return {};
  for (const auto& part : parts) open->sent->CopySumsTo(part, buffer);
  return {};
}

// ---- Pages of the map

Status FileReading::LoadPart(const BlockMap::Part& part, uint64_t size,
                             const StripeLayout& layout) {
  const auto loaded = TRY(LoadPage(context_.cluster.stripes(), id_, size, layout, part));
  const MutexLock lock(mutex_);
  if (now_.map) now_.map->Install(part, loaded);
  if (base_.map) base_.map->Install(part, loaded);
  return {};
}

Status FileReading::LoadBytes(uint64_t first, uint64_t end) {
  for (int attempt = 0; attempt < kMaxReadAttempts;) {
    std::optional<BlockMap::Part> part;
    {
      const MutexLock lock(mutex_);
      if (now_.map)
        part = now_.map->FirstMissing(first / block_bytes(), (end - 1) / block_bytes() + 1);
    }
    if (!part) return {};
    const Status status = LoadPart(*part, now_.size, now_.map->layout());
    if (status.ok()) continue;
    ++attempt;
    const bool may_have_moved = status.code() == ENOENT || status.code() == EIO;
    if (may_have_moved && TRY(RefreshUnderTurn())) continue;
    return Fail(EIO, "inode {:016x}: {}", id_, status.message());
  }
  return Fail(EIO, "inode {:016x}: other hosts changed it {} times in between; try again", id_,
              kMaxReadAttempts);
}

// A reader of a file holds no more than some pages of its map.
void FileReading::ForgetPages() {
  {
    const MutexLock lock(mutex_);
    if (!keepers_.HasTooMuch() && !HoldsTooManyPages()) return;
  }
  // Its holder needs what it has loaded, and the next reader comes here, too.
  if (!turn_.TryTake()) return;
  const Turn::Holder turn(turn_, std::adopt_lock);
  ForgetUnderTurn();
}

bool FileReading::HoldsTooManyPages() const {
  const bool is_idle = blocks_.empty() && !changed_;
  return is_idle && now_.map && now_.map->CountLoadedPages() > kMostPages;
}

void FileReading::ForgetUnderTurn() {
  const MutexLock lock(mutex_);
  keepers_.ForgetSome();
  if (!HoldsTooManyPages()) return;
  now_.map->ForgetPages();
  if (base_.map) base_.map->ForgetPages();
}

}  // namespace pinstripe
