#include "fs/files/state.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "base/log.h"
#include "base/try.h"
#include "fs/files/map_pages.h"
#include "fs/files/patch_plan.h"

namespace pinstripe {
namespace {

constexpr int kMaxReadAttempts = 8;
constexpr uint64_t kMostReadAtOnce = 16 << 20;  // of one call

// For cells that wait to be written.
constexpr uint64_t kMostQueueBytes = 16 << 20;
constexpr uint64_t kQueuePart = 8;  // of the memory

std::unique_ptr<DiskCache> OpenDiskCache(Cluster& cluster, const FileSystemOptions& options) {
  if (options.disk_cache_directory.empty()) return nullptr;
  return std::make_unique<DiskCache>(
      cluster.runtime(),
      LocalCacheDirectory(options.disk_cache_directory,
                          "pinstripe-" + Hex(AsBytes(cluster.uuid()))),
      DiskCache::Options{
          .cluster = cluster.uuid(),
          .bytes = options.disk_cache_bytes,
          .queue_bytes = std::min(kMostQueueBytes, options.memory_bytes / kQueuePart)});
}

}  // namespace

FileContext::FileContext(Cluster& cluster_in, const FileSystemOptions& options)
    : cluster(cluster_in),
      records(cluster_in),
      reaper(cluster_in),
      budget(options.memory_bytes),
      reader(cluster_in.runtime(), cluster_in.stripes(), budget,
             OpenDiskCache(cluster_in, options)),
      names(records, [this](InodeId id, const Inode& inode,
                            uint64_t losses) { dispose(id, inode, losses); }),
      layout(FileLayout::Default(cluster_in.config())),
      map_limits{options.inline_map_bytes, options.map_page_bytes},
      least_shared_bytes(options.least_shared_bytes) {}

FileState::FileState(FileContext& context, InodeId id)
    : context_(context),
      id_(id),
      turn_(context.cluster.runtime()),
      blocks_(context.memory, context.ages, context.cluster.runtime()),
      keepers_(context.cluster, context.records),
      write_ids_(context.cluster.runtime().Random()),
      unsafe_(context.cluster, id) {
  unsafe_.Add(0, UINT64_MAX);
}

FileState::FileState(FileContext& context, InodeId id, const Inode& inode,
                     std::optional<Names::NewName> name)
    : context_(context),
      id_(id),
      turn_(context.cluster.runtime()),
      loaded_(true),
      base_(inode),
      now_(inode),
      blocks_(context.memory, context.ages, context.cluster.runtime()),
      changed_(true),
      cut_to_(0),
      keepers_(context.cluster, context.records),
      name_(std::move(name)),
      published_(false),
      inode_written_(false),
      write_ids_(context.cluster.runtime().Random()),
      unsafe_(context.cluster, id) {
  if (name_) base_.named = now_.named = GivenName{name_->directory, name_->name};
}

void FileState::Remember(Names::NewName name, uint64_t slot) {
  const std::lock_guard lock(mutex_);
  name_ = std::move(name);
  entry_slot_ = slot;
  entry_durable_ = false;
}

uint64_t FileState::block_bytes() const {
  return now_.map ? now_.map->block_bytes() : layout().striped.block_bytes();
}

// Another host may change the layout of a file that is empty there; the blocks that are in memory
// here stay as they are.
FileLayout FileState::layout() const {
  if (!blocks_.empty()) return blocks_layout_;
  return base_.layout ? *base_.layout : context_.layout;
}

DirtyBlocks::Block& FileState::BlockAt(uint64_t block) {
  if (blocks_.empty()) blocks_layout_ = layout();
  return blocks_.At(block);
}

uint64_t FileState::LowerEnd(uint64_t block) const {
  const DirtyBlocks::Block* const open = blocks_.Find(block);
  if (open && open->sent && !open->sent->is_patch()) return open->sent->valid;
  if (!now_.map) return block == 0 ? now_.inline_data.size() : 0;
  const auto place = now_.map->Find(block);
  return place ? place->valid : 0;
}

// ---- Reading

struct FileState::ReadPlan {
  struct Overlay {
    MutableBytes out;
    Buffer bytes;
  };
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
        bytes += requests[end].out.size() + 2 * kCellBytes;  // it takes whole cells
        if (end > done && bytes > most_bytes) break;
      }
      TRY(reader.Read(std::span(requests).subspan(done, end - done), reserve,
                      done == 0 ? meanwhile : nullptr));
      done = end;
    } while (done < requests.size());
    for (const Overlay& overlay : overlays) CopyBytes(overlay.out, overlay.bytes);
    return {};
  }
};

// What is below the dirty bytes; what lies in memory is copied at once.
void FileState::PlanLower(uint64_t block, uint64_t first, MutableBytes out, ReadPlan& plan) const {
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
  for (BlockPart& part : PartsOf(**place, wanted.first, wanted.end, covered)) {
    const BlockPlace& stripe = plan.places.emplace_back(std::move(part.stripe));
    plan.requests.push_back({.id = stripe.IdOf(block),
                             .layout = stripe.layout,
                             .length = stripe.stored,
                             .place = &stripe.place,
                             .offset = part.offset,
                             .out = out.subspan(part.first - first, part.size)});
  }
}

void FileState::PlanBlock(uint64_t block, uint64_t first, MutableBytes out, ReadPlan& plan) {
  const uint64_t end = first + out.size();
  const DirtyBlocks::Block* const found = blocks_.Find(block);
  if (!found || !found->dirty) return PlanLower(block, first, out, plan);
  const DirtyBlocks::Block& open = *found;
  const auto gaps = open.present.GapsWithin(first, end);
  if (!gaps.empty()) {
    const uint64_t from = gaps.front().first;
    PlanLower(block, from, out.subspan(from - first, gaps.back().end - from), plan);
  }
  for (const auto& part : open.present.Within(first, end)) {
    const Bytes bytes = open.dirty->data().subspan(part.first, part.end - part.first);
    const MutableBytes target = out.subspan(part.first - first, bytes.size());
    if (gaps.empty()) {
      CopyBytes(target, bytes);
    } else {
      plan.overlays.push_back({target, Buffer::CopyOf(bytes)});
    }
  }
}

void FileState::PlanRead(std::span<OpenFile::Part> parts, ReadPlan& plan) {
  const std::lock_guard lock(mutex_);
  plan.generation = generation_;
  for (; plan.part < parts.size(); ++plan.part) {
    PlanPart(parts[plan.part], plan);
    if (plan.missing || plan.missing_kept || !plan.damage.ok()) return;
    plan.done = 0;
  }
}

void FileState::PlanPart(OpenFile::Part& part, ReadPlan& plan) {
  part.length = 0;
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
    PlanBlock(block, first, out.subspan(done, length), plan);
    if (plan.missing_kept || !plan.damage.ok()) return;
    done += length;
  }
  part.length = out.size();
}

MemoryBudget::Share FileState::ReserveToRead(uint64_t bytes, bool may_wait) {
  if (may_wait) {
    auto share = context_.reserve(bytes);
    if (share.has_value()) return *std::move(share);
    // There is no room because others' writes cannot be stored, which is no reason not to read.
  } else if (auto share = context_.budget.TryTake(bytes)) {
    return *std::move(share);
  }
  return context_.budget.TakeAnyway(bytes);
}

Status FileState::LoadMissing(ReadPlan& plan) {
  const auto missing = std::exchange(plan.missing, std::nullopt);
  const auto missing_kept = std::exchange(plan.missing_kept, std::nullopt);
  if (missing) return LoadPart(*missing, plan.size, plan.layout);
  return missing_kept ? keepers_.Load(*missing_kept) : Status();
}

// The turn keeps others from forgetting what is loaded before it was used, and the file as it is
// until all is planned. What was planned does not need its pages any more.
Status FileState::PlanByPages(std::span<OpenFile::Part> parts, ReadPlan& plan) {
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
Status FileState::Read(std::span<OpenFile::Part> parts, const std::function<void()>& meanwhile) {
  size_t loads = 0;
  const auto reserve = [this](uint64_t bytes) { return ReserveToRead(bytes, true); };
  const uint64_t most_bytes = std::min(kMostReadAtOnce, context_.budget.limit() / 4);
  for (int attempt = 0;; ++attempt) {
    ReadPlan plan;
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
      const std::lock_guard lock(mutex_);
      if (generation_ != plan.generation) continue;
    }
    const Turn::Holder turn(turn_);
    const Result<bool> refreshed = RefreshUnderTurn();
    if (!refreshed.has_value()) {
      const int code = refreshed.error().code() == ENOENT ? ESTALE : EIO;
      return Fail(code, "read inode {:016x}: {}; {}", id_, status.message(),
                  refreshed.error().message());
    }
    const std::lock_guard lock(mutex_);
    if (generation_ == plan.generation) {
      return Fail(EIO, "read inode {:016x}: {}", id_, status.message());
    }
  }
}

uint64_t FileState::ReadAhead(uint64_t offset, uint64_t size, BlockReader::Ahead& ahead) {
  for (uint64_t done = 0; done < size;) {
    std::vector<StripePart> parts;
    uint64_t length = 0;
    {
      const std::lock_guard lock(mutex_);
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
        for (const BlockPart& part : PartsOf(*place, first, end)) {
          const BlockPlace& stripe = part.stripe;
          parts.push_back({stripe.IdOf(block), stripe.layout, stripe.stored, stripe.place,
                           part.offset, part.size});
        }
      }
    }
    for (const StripePart& part : parts) {
      if (!context_.reader.ReadAhead(part, ahead)) return done;
    }
    done += length;
  }
  return size;
}

// ---- Pages of the map

Status FileState::LoadPart(const BlockMap::Part& part, uint64_t size, const StripeLayout& layout) {
  const auto loaded = TRY(LoadPage(context_.cluster.stripes(), id_, size, layout, part));
  const std::lock_guard lock(mutex_);
  if (now_.map) now_.map->Install(part, loaded);
  if (base_.map) base_.map->Install(part, loaded);
  return {};
}

Status FileState::LoadBytes(uint64_t first, uint64_t end) {
  for (int attempt = 0; attempt < kMaxReadAttempts;) {
    std::optional<BlockMap::Part> part;
    {
      const std::lock_guard lock(mutex_);
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

// Who only reads a file holds no more than some pages of its map.
void FileState::ForgetPages() {
  {
    const std::lock_guard lock(mutex_);
    if (!keepers_.HasTooMuch() && !HoldsTooManyPages()) return;
  }
  // Whoever has it needs what it has loaded, and the next who reads comes here, too.
  if (!turn_.TryTake()) return;
  const Turn::Holder turn(turn_, std::adopt_lock);
  ForgetUnderTurn();
}

bool FileState::HoldsTooManyPages() const {
  const bool is_idle = blocks_.empty() && !changed_;
  return is_idle && now_.map && now_.map->CountLoadedPages() > kMostPages;
}

void FileState::ForgetUnderTurn() {
  const std::lock_guard lock(mutex_);
  keepers_.ForgetSome();
  if (!HoldsTooManyPages()) return;
  now_.map->ForgetPages();
  if (base_.map) base_.map->ForgetPages();
}

// ---- Writing

StripeLayout FileState::LayoutFor(uint64_t block, uint64_t end) const {
  const FileLayout layout = this->layout();
  if (block == 0 && end <= layout.small().block_bytes()) return layout.small();
  return now_.map ? now_.map->layout() : layout.striped;
}

void FileState::MakeRoom(uint64_t block, uint64_t end, DirtyBlocks::Block& open,
                         MemoryBudget::Share* room) {
  if (!open.HasRoomFor(end)) blocks_.MakeRoom(open, end, LayoutFor(block, end), room);
}

// Where these bytes, which are ours from now on, are to be put. Called with mutex_ held.
MutableBytes FileState::RoomFor(uint64_t block, uint64_t first, uint64_t end,
                                MemoryBudget::Share& room) {
  DirtyBlocks::Block& open = BlockAt(block);
  blocks_.Touch(open);
  MakeRoom(block, end, open, &room);
  open.present.Add(first, end);
  open.ours.Add(first, end);
  const uint64_t end_in_file = block * block_bytes() + end;
  if (end_in_file > now_.size) ResizeTo(end_in_file);
  changed_ = true;
  modified_ = context_.records.WallClock();
  return open.dirty->data().subspan(first, end - first);
}

void FileState::PutBytes(uint64_t block, uint64_t first, Bytes data, MemoryBudget::Share& room) {
  const std::lock_guard lock(mutex_);
  CopyBytes(RoomFor(block, first, first + data.size(), room), data);
}

// What a write needs of memory beyond what the file has already. Full blocks are sent as they come,
// so it is bounded.
uint64_t FileState::MemoryToWrite(uint64_t offset, size_t length) const {
  const uint64_t end = offset + length;
  uint64_t bytes = 0;
  size_t buffers = 0;
  for (uint64_t block = offset / block_bytes();
       block * block_bytes() < end && buffers <= kMaxInFlight; ++block) {
    const uint64_t block_end = std::min(end - block * block_bytes(), block_bytes());
    const DirtyBlocks::Block* const open = blocks_.Find(block);
    if (open && open->HasRoomFor(block_end)) continue;
    bytes += StripeBuffer::MemoryBytes(LayoutFor(block, block_end));
    ++buffers;
  }
  return bytes;
}

Status FileState::WriteUnderTurn(uint64_t offset, Bytes data, MemoryBudget::Share& room) {
  // Nothing more is taken while what was taken before cannot be stored.
  if (!failure_.ok()) TRY(SendAll());
  while (!data.empty()) {
    TRY(LoadBytes(offset, offset + 1));
    const uint64_t block = offset / block_bytes();
    const uint64_t first = offset % block_bytes();
    const size_t length = std::min<uint64_t>(data.size(), block_bytes() - first);
    PutBytes(block, first, data.first(length), room);
    if (blocks_.Find(block)->present.Covers(0, block_bytes())) {
      const Status status = SendBlock(block);
      if (!status.ok()) failure_ = status;
      if (blocks_.CountInFlight() > kMaxInFlight) FinishOldest();
    }
    offset += length;
    data = data.subspan(length);
  }
  return {};
}

// The blocks that a change goes to may be stored, and their buffers gone, before it has its turn:
// then it needs more room than it found it would.
template <typename Needed, typename Change>
Status FileState::ChangeWithRoom(const Needed& needed, const Change& change) {
  MemoryBudget::Share room;
  for (uint64_t bytes = 0;;) {
    {
      const Turn::Holder turn(turn_);
      bytes = std::max<uint64_t>(bytes, needed());
      if (bytes <= room.bytes()) {
        const Status status = change(room);
        context_.budget.NoteChange();  // there are blocks to store that there were not
        return status;
      }
    }
    room.Return();
    room = TRY(context_.reserve(bytes));
  }
}

Result<uint64_t> FileState::WriteAt(std::optional<uint64_t> where, Bytes data) {
  uint64_t offset = 0;
  const auto fits = [&] {
    return offset <= kMaxFileBytes && data.size() <= kMaxFileBytes - offset;
  };
  TRY(ChangeWithRoom(
      [&] {
        offset = where.value_or(now_.size);
        return fits() ? MemoryToWrite(offset, data.size()) : 0;
      },
      [&](MemoryBudget::Share& room) -> Status {
        if (fits()) return WriteUnderTurn(offset, data, room);
        return Fail(EFBIG, "a file has at most {} bytes", kMaxFileBytes);
      }));
  return offset;
}

Status FileState::Write(uint64_t offset, Bytes data) {
  if (data.empty()) return {};
  TRY(WriteAt(offset, data));
  return {};
}

Result<uint64_t> FileState::Append(Bytes data) { return WriteAt(std::nullopt, data); }

Status FileState::Truncate(uint64_t size) {
  if (size > kMaxFileBytes) return Fail(EFBIG, "a file has at most {} bytes", kMaxFileBytes);
  const Turn::Holder turn(turn_);
  TRY(LoadBytes(size - (size > 0 ? 1 : 0), size + 1));
  std::vector<DirtyBlocks::Sent> dropped;
  const std::lock_guard lock(mutex_);
  ResizeTo(size);
  size_set_ = changed_ = true;
  cut_to_ = std::min(cut_to_.value_or(UINT64_MAX), size);
  modified_ = context_.records.WallClock();
  ++generation_;
  dropped = blocks_.TakeDropped();
  return {};
}

void FileState::ResizeTo(uint64_t size) {
  const bool shrinks = size < now_.size;
  now_.size = size;
  if (now_.inline_data.size() > size) now_.inline_data.resize(size);
  if (shrinks) blocks_.CutTo(size / block_bytes(), size % block_bytes());
  if (!now_.map) return;
  if (!shrinks) return now_.map->Resize(size);
  const BlockMap before = *now_.map;
  now_.map->Resize(size);
  Supersede(before.NotIn(*now_.map).blocks);
}

// ---- Holes

Status FileState::Zero(uint64_t offset, uint64_t length, OpenFile::Size size) {
  if (offset > kMaxFileBytes || length > kMaxFileBytes - offset) {
    if (size == OpenFile::Size::kGrows) {
      return Fail(EFBIG, "a file has at most {} bytes", kMaxFileBytes);
    }
    offset = std::min(offset, kMaxKeptFileBytes);
    length = std::min(length, kMaxKeptFileBytes - offset);
  }
  const auto end = [&] {
    const uint64_t wanted = offset + length;
    return size == OpenFile::Size::kGrows ? wanted : std::min(wanted, now_.size);
  };
  const auto needed = [&]() -> uint64_t {
    if (offset >= end()) return 0;
    const uint64_t last = end() - 1;
    const uint64_t both = offset / block_bytes() == last / block_bytes() ? 0 : 1;
    return MemoryToWrite(offset, 1) + both * MemoryToWrite(last, 1);
  };
  return ChangeWithRoom(needed, [&](MemoryBudget::Share& room) -> Status {
    if (offset >= end()) return {};
    const uint64_t until = end();
    if (until > now_.size) GrowTo(until);
    return ZeroUnderTurn(offset, until, room);
  });
}

// What others have meanwhile beyond its end is not cut, as it is by a truncation.
void FileState::GrowTo(uint64_t size) {
  const std::lock_guard lock(mutex_);
  ResizeTo(size);
  grown_to_ = std::max(grown_to_, size);
  changed_ = true;
  modified_ = context_.records.WallClock();
}

Status FileState::ZeroUnderTurn(uint64_t offset, uint64_t end, MemoryBudget::Share& room) {
  // Nothing more is taken while what was taken before cannot be stored.
  if (!failure_.ok()) TRY(SendAll());
  while (offset < end) {
    const uint64_t block = offset / block_bytes();
    const uint64_t first = offset % block_bytes();
    const uint64_t whole_end = end / block_bytes();
    if (first == 0 && block < whole_end) {
      TRY(ClearBlocks(block, whole_end));
      offset = whole_end * block_bytes();
      continue;
    }
    const uint64_t length = std::min(end - offset, block_bytes() - first);
    TRY(ZeroInBlock(block, first, first + length, room));
    offset += length;
  }
  return {};
}

// Zeros are only written where something else is. What is beyond that is ours all the same.
Status FileState::ZeroInBlock(uint64_t block, uint64_t first, uint64_t end,
                              MemoryBudget::Share& room) {
  TRY(LoadBytes(block * block_bytes() + first, block * block_bytes() + first + 1));
  std::vector<DirtyBlocks::Sent> dropped;
  const std::lock_guard lock(mutex_);
  DirtyBlocks::Block& open = BlockAt(block);
  const uint64_t lower_end = LowerEnd(block);
  const bool is_all = (lower_end == 0 || (first == 0 && lower_end <= end)) &&
                      open.present.Within(0, first).empty() && open.present.end() <= end;
  const uint64_t written_end = std::min(end, std::max(lower_end, open.present.end()));
  if (is_all && now_.map) {
    MakeHoles(block, block + 1);
    blocks_.Forget(open);
  } else if (written_end > first) {
    ZeroBytes(RoomFor(block, first, written_end, room));
  }
  open.ours.Add(first, end);
  grown_to_ = std::max(grown_to_, std::min(now_.size, block * block_bytes() + end));
  changed_ = true;
  modified_ = context_.records.WallClock();
  ++generation_;
  dropped = blocks_.TakeDropped();
  return {};
}

Status FileState::ClearBlocks(uint64_t first, uint64_t end) {
  EnsureMap();
  const auto missing = [&](uint64_t block) {
    const std::lock_guard lock(mutex_);
    return now_.map->FirstMissing(block, block + 1).has_value();
  };
  do {  // loading one may find that another host has changed the file, and the other be away again
    TRY(LoadBytes(first * block_bytes(), first * block_bytes() + 1));
    TRY(LoadBytes(end * block_bytes() - 1, end * block_bytes()));
    EnsureMap();
  } while (missing(first) || missing(end - 1));
  std::vector<DirtyBlocks::Sent> dropped;
  const std::lock_guard lock(mutex_);
  MakeHoles(first, end);
  blocks_.Erase(first, end);
  cleared_.Add(first, end);
  grown_to_ = std::max(grown_to_, std::min(now_.size, end * block_bytes()));
  changed_ = true;
  modified_ = context_.records.WallClock();
  ++generation_;
  dropped = blocks_.TakeDropped();
  return {};
}

// In the map, which there is. Called with mutex_ held.
void FileState::MakeHoles(uint64_t first, uint64_t end) {
  const BlockMap before = *now_.map;
  now_.map->SetHoles(first, end);
  Supersede(before.NotIn(*now_.map).blocks);
}

Result<FileState::Extent> FileState::ExtentAt(uint64_t offset) {
  const uint64_t bytes = block_bytes();
  const uint64_t block = offset / bytes;
  const uint64_t first = offset % bytes;
  const bool stores_something = [&] {
    const std::lock_guard lock(mutex_);
    const auto missing =
        now_.map ? now_.map->FirstMissing(block, block + 1) : std::optional<BlockMap::Part>();
    return missing && missing->stretch->stored_bytes > 0;
  }();
  if (stores_something) TRY(LoadBytes(offset, offset + 1));
  const std::lock_guard lock(mutex_);
  const auto open = blocks_.all().lower_bound(block);
  if (open != blocks_.all().end() && open->first == block) {
    const uint64_t lower_end = LowerEnd(block);
    if (first < lower_end) return Extent{true, block * bytes + lower_end};
    const auto parts = open->second.present.Within(first, bytes);
    if (parts.empty()) return Extent{false, (block + 1) * bytes};
    const bool here = parts.front().first == first;
    return Extent{here, block * bytes + (here ? parts.front().end : parts.front().first)};
  }
  const uint64_t next_open = open == blocks_.all().end() ? UINT64_MAX / bytes : open->first;
  if (!now_.map) {
    const uint64_t there = now_.inline_data.size();
    return offset < there ? Extent{true, there} : Extent{false, next_open * bytes};
  }
  if (block >= now_.map->blocks()) return Extent{false, next_open * bytes};
  const BlockMap::Span span = now_.map->SpanAt(block);
  const uint64_t end = std::min(span.end, next_open);
  if (span.hole) return Extent{false, end * bytes};
  if (block + 1 < end) return Extent{true, (end - 1) * bytes};  // all but the last are full
  const uint64_t valid = LowerEnd(block);
  return first < valid ? Extent{true, block * bytes + valid} : Extent{false, end * bytes};
}

Result<uint64_t> FileState::Seek(uint64_t offset, OpenFile::Contents contents) {
  const Turn::Holder turn(turn_);
  for (uint64_t at = offset; at < now_.size;) {
    const Extent extent = TRY(ExtentAt(at));
    if (extent.data == (contents == OpenFile::Contents::kData)) return at;
    at = extent.end;
  }
  if (offset < now_.size && contents == OpenFile::Contents::kHole) return now_.size;
  return Fail(ENXIO, "inode {:016x}: there is nothing more from {} on", id_, offset);
}

Result<uint64_t> FileState::CountHoleBytes(uint64_t offset, uint64_t end) {
  uint64_t bytes = end - std::clamp(now_.size, offset, end);
  for (uint64_t at = offset; at < std::min(end, now_.size);) {
    const Extent extent = TRY(ExtentAt(at));
    const uint64_t until = std::min({extent.end, end, now_.size});
    if (!extent.data) bytes += until - at;
    at = until;
  }
  return bytes;
}

Status FileState::Allocate(uint64_t offset, uint64_t length, OpenFile::Size size) {
  if (offset > kMaxFileBytes || length > kMaxFileBytes - offset) {
    return Fail(EFBIG, "a file has at most {} bytes", kMaxFileBytes);
  }
  if (length == 0) return {};
  const SpaceInfo space = TRY(context_.cluster.Space());
  const Turn::Holder turn(turn_);
  const uint64_t needed = TRY(CountHoleBytes(offset, offset + length));
  if (needed > space.usable_free_bytes) {
    return Fail(ENOSPC, "inode {:016x}: {} bytes more do not fit into the {} that are free", id_,
                needed, space.usable_free_bytes);
  }
  if (size == OpenFile::Size::kGrows && offset + length > now_.size) GrowTo(offset + length);
  return {};
}

void FileState::Supersede(const std::vector<BlockMap::Piece>& pieces) {
  for (const BlockMap::Piece& piece : pieces) {
    if (piece.run.shared || piece.run.object != id_) continue;
    for (uint64_t i = 0; i < piece.run.count; ++i) {
      const BlockPlace place = PlaceInRun(piece.run, i, block_bytes());
      if (MayHold(base_.map, piece.first + i, place)) continue;
      superseded_.push_back(BlockMap::PiecesOf(piece.first + i, place).front());
    }
  }
}

// ---- Sending

// Reads parts of a block to where they belong in `buffer`.
Status FileState::ReadLower(uint64_t block, const std::vector<IntervalSet::Interval>& parts,
                            StripeBuffer& buffer) {
  ReadPlan plan;
  for (bool planned = false; !planned;) {
    plan = ReadPlan();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& part : parts) {
        PlanLower(block, part.first, buffer.data().subspan(part.first, part.end - part.first),
                  plan);
      }
    }
    TRY(plan.damage);
    planned = !plan.missing_kept;
    if (!planned) TRY(keepers_.Load(*plan.missing_kept));
  }
  return plan.Execute(context_.reader, UINT64_MAX,
                      [this](uint64_t bytes) { return ReserveToRead(bytes, false); }, {});
}

std::optional<IntervalSet> FileState::PatchFor(uint64_t block,
                                               const DirtyBlocks::Block& open) const {
  if (!now_.map || open.sent) return std::nullopt;
  const auto place = now_.map->Find(block);
  if (!place || place->shared || place->layout != LayoutToSend(block)) return std::nullopt;
  return PlanPatch(*place, open.present);
}

// Completes a dirty block from what is below it, or what is to be sent of it.
Status FileState::Fill(uint64_t block, Form form) {
  for (int attempt = 0; attempt < kMaxReadAttempts;) {
    DirtyBlocks::Block* const found = blocks_.Find(block);
    if (!found || !found->dirty) return {};
    DirtyBlocks::Block& open = *found;
    std::vector<IntervalSet::Interval> gaps;
    {
      const std::lock_guard lock(mutex_);
      std::optional<IntervalSet> wanted;
      if (form == Form::kPatchIfSmall) wanted = PatchFor(block, open);
      if (!wanted) wanted.emplace().Add(0, std::max(open.present.end(), LowerEnd(block)));
      MakeRoom(block, wanted->end(), open);
      for (const auto& part : wanted->Within(0, UINT64_MAX)) {
        std::ranges::copy(open.present.GapsWithin(part.first, part.end), std::back_inserter(gaps));
      }
    }
    if (gaps.empty()) return {};
    // Nobody looks at bytes that are not present, so no lock is needed to bring them in.
    const Status status = ReadLower(block, gaps, *open.dirty);
    if (status.ok()) {
      const std::lock_guard lock(mutex_);
      for (const auto& gap : gaps) open.present.Add(gap.first, gap.end);
      continue;
    }
    ++attempt;
    // What was below may be gone, or going, because another host committed.
    const bool may_have_moved = status.code() == ENOENT || status.code() == EIO;
    if (may_have_moved && TRY(keepers_.Refresh())) continue;
    if (may_have_moved && TRY(RefreshUnderTurn())) continue;
    return Fail(status.code() == ENOENT ? EIO : status.code(),
                "inode {:016x}, complete an overwritten block: {}", id_, status.message());
  }
  return Fail(EIO, "inode {:016x}: other hosts changed block {} {} times in between; try again",
              id_, block, kMaxReadAttempts);
}

// From now on the contents are blocks. Inline data becomes a part of block 0.
void FileState::EnsureMap() {
  const std::lock_guard lock(mutex_);
  if (now_.map) return;
  LayUnderBlock0(AsBytes(now_.inline_data));
  now_.map.emplace(layout().striped);
  now_.map->Resize(now_.size);
  now_.inline_data.clear();
}

// Inline data becomes a part of block 0, under what that has in memory. Called with mutex_ held.
void FileState::LayUnderBlock0(Bytes data) {
  if (data.empty()) return;
  DirtyBlocks::Block& open = BlockAt(0);
  if (!open.dirty) blocks_.Touch(open);
  MakeRoom(0, data.size(), open);
  blocks_.LayUnder(open, data);
}

WriteId FileState::NextWriteId(uint64_t block) {
  return write_ids_.Next(block, context_.records.WallClock());
}

// Of a block that is stored.
StripeLayout FileState::LayoutToSend(uint64_t block) const {
  const FileLayout whole = layout();
  const bool small =
      block == 0 && now_.size <= std::min<uint64_t>(whole.SmallLimit(), now_.map->block_bytes());
  return small ? whole.small() : now_.map->layout();
}

// What is dirty of the block, which Fill() has completed in this form.
DirtyBlocks::Sent FileState::MakeSent(uint64_t block, const DirtyBlocks::Block& open, Form form) {
  DirtyBlocks::Sent sent{.age = open.age, .written_at = open.written_at};
  sent.write = NextWriteId(block);
  StripeLayout layout = LayoutToSend(block);
  bool patch = false;
  if (form == Form::kPatchIfSmall) {
    const std::lock_guard lock(mutex_);
    patch = PatchFor(block, open).has_value();
    if (patch) layout = CopiesOf(open.present.Count(), layout.parity_shards);
  }
  const MutableBytes dirty = open.dirty->data();
  if (!patch) {
    sent.stored = sent.valid = static_cast<uint32_t>(open.present.end());
    sent.buffer = open.dirty;
    if (sent.buffer->layout() == layout) return sent;
    sent.buffer = context_.memory.Allocate(layout);
    CopyBytes(sent.buffer->data(), dirty.first(sent.stored));
    return sent;
  }
  sent.buffer = context_.memory.Allocate(layout);
  for (const auto& part : open.present.Within(0, UINT64_MAX)) {
    const auto length = static_cast<uint32_t>(part.end - part.first);
    sent.extents.push_back({static_cast<uint32_t>(part.first), length});
    CopyBytes(sent.buffer->data().subspan(sent.stored, length), dirty.subspan(part.first, length));
    sent.stored += length;
  }
  return sent;
}

Status FileState::SendBlock(uint64_t block, Form form) {
  EnsureMap();
  TRY(Fill(block, form));
  EnsureMap();  // another host may have made it small meanwhile
  const DirtyBlocks::Block* const open = blocks_.Find(block);
  if (!open || !open->dirty) return {};
  DirtyBlocks::Sent made = MakeSent(block, *open, form);
  const StripeId id{id_, block, made.write};
  const std::shared_ptr<StripeBuffer> buffer = made.buffer;
  const uint32_t length = made.stored;
  DirtyBlocks::Sent* sent = nullptr;
  std::vector<DirtyBlocks::Sent> dropped;
  {
    const std::lock_guard lock(mutex_);
    sent = &blocks_.Send(block, std::move(made));
    dropped = blocks_.TakeDropped();
  }
  dropped.clear();
  unsafe_.NoteLosses();
  sent->pending = context_.cluster.stripes().StartWrite(id, buffer, length);
  return {};
}

void FileState::FinishBlock(uint64_t block) {
  DirtyBlocks::Block* const found = blocks_.Find(block);
  if (!found || !found->sent) return;
  DirtyBlocks::Block& open = *found;
  Result<StripePlace> stored = open.sent->pending->Wait();
  DirtyBlocks::Sent sent;  // goes when the mutex is free
  const std::lock_guard lock(mutex_);
  sent = blocks_.Finish(open);
  ++generation_;
  if (!stored.has_value()) {
    failure_ = stored.error();
    const bool is_whole = !sent.is_patch();
    return blocks_.TakeBack(
        open, sent, is_whole ? sent.buffer->layout() : LayoutFor(block, sent.Bytes().end()));
  }
  const std::optional<BlockPlace> before = now_.map->Find(block);
  BlockPlace now;
  if (sent.is_patch()) {
    now = *before;
    now.Lay({.object = id_,
             .write = sent.write,
             .layout = sent.buffer->layout(),
             .place = *std::move(stored),
             .stored = sent.stored,
             .extents = std::move(sent.extents)});
  } else {
    now = {.object = id_,
           .write = sent.write,
           .layout = sent.buffer->layout(),
           .place = *std::move(stored),
           .stored = sent.stored,
           .valid = sent.valid};
  }
  if (before) {
    std::vector<BlockMap::Piece> gone = BlockMap::PiecesOf(block, *before);
    std::erase_if(gone, [&](const BlockMap::Piece& piece) {
      return now.Names(StripeId{piece.run.object, block, piece.run.write});
    });
    Supersede(gone);
  }
  now_.map->Set(block, now);
  unsafe_.Add(block, block + 1);
  // Of a file whose old contents are gone anyway nothing has to be remembered.
  if (cut_to_ == 0 && !open.dirty) blocks_.Erase(block, block + 1);
}

bool FileState::FinishOldest() {
  const std::optional<uint64_t> block = blocks_.TakeFirstInFlight();
  if (block) FinishBlock(*block);
  return block.has_value();
}

// Until nothing is dirty: a block that has to be completed may find that another host has
// committed, and what was sent before is then dirty again, to be laid over that.
Status FileState::SendAll() {
  failure_ = {};
  for (int attempt = 0; attempt < kMaxReadAttempts; ++attempt) {
    EnsureMap();
    for (const uint64_t block : blocks_.AllDirty()) {
      TRY(SendBlock(block));
      if (blocks_.CountInFlight() > kMaxInFlight) FinishOldest();
    }
    while (FinishOldest()) {
    }
    TRY(failure_);
    if (IsAllStored()) return {};
  }
  return Fail(EIO, "inode {:016x}: other hosts changed it {} times in between; try again", id_,
              kMaxReadAttempts);
}

bool FileState::IsAllStored() const { return now_.map && blocks_.IsAllStored(); }

// ---- Memory

bool FileState::HasChanges() {
  const std::lock_guard lock(mutex_);
  return changed_;
}

std::optional<DirtyBlocks::Holding> FileState::Oldest() {
  const std::lock_guard lock(mutex_);
  return blocks_.Oldest();
}

Status FileState::Relieve() {
  const Turn::Holder turn(turn_);
  return RelieveUnderTurn();
}

std::optional<Status> FileState::TryRelieve() {
  if (!turn_.TryTake()) return std::nullopt;
  const Turn::Holder turn(turn_, std::adopt_lock);
  return RelieveUnderTurn();
}

Status FileState::RelieveUnderTurn() {
  failure_ = {};
  if (FinishOldest()) return failure_;
  const std::optional<uint64_t> oldest = blocks_.OldestDirty();
  if (!oldest) return {};
  const Status status = SendBlock(*oldest);
  if (status.ok()) FinishBlock(*oldest);
  if (!status.ok()) failure_ = status;
  return failure_;
}

}  // namespace pinstripe
