#include "fs/files/block_reader.h"

#include <algorithm>
#include <cassert>

#include "base/log.h"
#include "base/try.h"
#include "fs/types.h"

namespace pinstripe {
namespace {

constexpr int kSharedAttempts = 2;  // after that, a reader asks for itself
constexpr int kMostDamaged = 3;     // cells of one call that did not stay as they came
constexpr uint64_t kAheadPart = 4;  // of the budget, for what nobody wants yet
// A cell of which so many pages were read alone is read as a whole the next time. Fewer would fetch
// more than is asked for here and there, and more would ask more often for what fits into memory.
constexpr uint64_t kMostPagesAlone = 3;
// The reader that had this read ahead has stopped reading: it goes before anything that is of use.
constexpr Duration kStaleAfter = std::chrono::seconds(5);

// Adds a cell, or a page, to what is to be read: neighbours are one part.
void AddCell(const StripePart& whole, const StripeLayout::Cell& cell,
             std::vector<StripePart>& parts) {
  if (!parts.empty()) {
    StripePart& last = parts.back();
    const bool same = last.id.object == whole.id.object && last.id.block == whole.id.block &&
                      last.id.write == whole.id.write && last.only_pages == whole.only_pages;
    if (same && last.offset + last.size == cell.begin) {
      last.size += cell.end - cell.begin;
      return;
    }
  }
  parts.push_back(whole);
  parts.back().offset = cell.begin;
  parts.back().size = cell.end - cell.begin;
}

StripePart PartOf(const StripeReadRequest& request, bool only_pages) {
  return {request.id, request.layout, request.length, *request.place, 0, 0, only_pages};
}

// Calls `use` with each page of a cell, from which `request` wants something.
template <typename Use>
void ForEachPage(const StripeReadRequest& request, const StripeLayout::Cell& cell, const Use& use) {
  const uint64_t end = std::min(cell.end, request.offset + request.out.size());
  for (uint64_t at = std::max(cell.begin, request.offset); at < end;) {
    const StripeLayout::Cell page = request.layout.PageAt(request.length, at);
    use(CellKey{request.id, static_cast<uint32_t>(page.begin), /*is_page=*/true}, page.end);
    at = page.end;
  }
}

}  // namespace

BlockReader::BlockReader(Runtime& runtime, StripeStore& stripes, MemoryBudget& budget,
                         std::unique_ptr<DiskCache> disk)
    : runtime_(runtime),
      stripes_(stripes),
      budget_(budget),
      cache_(budget),
      disk_(std::move(disk)) {
  budget_.SetReclaim([this](uint64_t bytes) {
    return DropAhead(runtime_.Now() - kStaleAfter) || cache_.Evict(bytes) || DropAhead(Time::max());
  });
}

BlockReader::~BlockReader() { assert(flights_.empty() && ahead_.empty()); }

// ---- What is wanted

std::optional<BlockReader::Cell> BlockReader::FindInCache(const CellKey& key) {
  Cell cell;
  auto bytes = cache_.Find(key, &cell.sums);
  if (!bytes) return std::nullopt;
  cell.bytes = *std::move(bytes);
  return cell;
}

// False: a page is not what it was, and the cell is not in the cache any more.
bool BlockReader::Deliver(const CellKey& key, const Cell& cell, const StripeReadRequest& request) {
  const uint64_t begin = std::max<uint64_t>(key.offset, request.offset);
  const uint64_t end =
      std::min<uint64_t>(key.offset + cell.bytes.size(), request.offset + request.out.size());
  assert(begin < end);
  CopyBytes(request.out.subspan(begin - request.offset),
            cell.bytes.bytes().subspan(begin - key.offset, end - begin));
  if (request.sums.empty()) return true;
  // Those pages of the cell that were copied as a whole.
  const uint64_t first = (begin - key.offset + kShardPageBytes - 1) / kShardPageBytes;
  for (uint64_t page = first; (page + 1) * kShardPageBytes <= end - key.offset; ++page) {
    const uint64_t in_block = key.offset + page * kShardPageBytes;
    const uint64_t in_file = request.out_phase + (in_block - request.offset);
    const auto sum = cell.sums.Of(static_cast<uint32_t>(page));
    if (!sum || in_file % kFilePageBytes != 0) continue;
    if (Crc32c(request.out.subspan(in_block - request.offset, kShardPageBytes)) != *sum) {
      cache_.Erase(key);
      Log(LogLevel::kError, "what was read is damaged in memory",
          {{"inode", fmt::format("{:016x}", request.id.object)},
           {"block", request.id.block},
           {"at", in_block}});
      return false;
    }
    request.sums[in_file / kFilePageBytes] = {*sum, true};
  }
  return true;
}

// Hands out what is in the cache; the rest is to be read.
std::vector<BlockReader::Want> BlockReader::LookUp(std::span<const StripeReadRequest> requests) {
  std::vector<Want> wants;
  uint64_t hits = 0;
  for (const StripeReadRequest& request : requests) {
    const uint64_t end = request.offset + request.out.size();
    const auto look = [&](const CellKey& key, uint64_t key_end) {
      const auto found = FindInCache(key);
      if (found && Deliver(key, *found, request)) {
        ++hits;
        return true;
      }
      wants.push_back({key, key_end, &request, nullptr});
      return false;
    };
    for (uint64_t at = request.offset; at < end;) {
      const StripeLayout::Cell cell = request.layout.CellAt(request.length, at);
      const bool is_there = look({request.id, static_cast<uint32_t>(cell.begin)}, cell.end);
      if (!is_there && ReadsPages(request, cell)) {
        wants.pop_back();
        ForEachPage(request, cell, look);
      }
      at = cell.end;
    }
  }
  hits_ += hits;
  return wants;
}

// Whether it gets by with pages of this cell, which is not in the cache.
bool BlockReader::ReadsPages(const StripeReadRequest& request, const StripeLayout::Cell& cell) {
  if (!request.only_pages || disk_ != nullptr) return false;
  const CellKey key{request.id, static_cast<uint32_t>(cell.begin)};
  {
    const MutexLock lock(mutex_);
    if (flights_.contains(key)) return false;
  }
  bool any_missing = false;
  ForEachPage(request, cell,
              [&](const CellKey& page, uint64_t) { any_missing |= !cache_.Has(page); });
  if (!any_missing) return true;
  uint64_t there = 0;
  for (uint64_t at = cell.begin; at < cell.end; at += kShardPageBytes) {
    there += cache_.Has({request.id, static_cast<uint32_t>(at), /*is_page=*/true});
  }
  return there < kMostPagesAlone;
}

// Says for each cell which flight brings it: another's, or else `own`. False: `own` brings none.
bool BlockReader::Join(std::vector<Want>& wants, const std::shared_ptr<Flight>& own, bool share) {
  uint64_t shared = 0;
  const MutexLock lock(mutex_);
  for (Want& want : wants) {
    // A cell that was on its way a moment ago is in the cache before it is not on its way any more.
    if (!flights_.contains(want.key) && (want.cell = FindInCache(want.key))) continue;
    auto [at, is_new] = flights_.try_emplace(want.key, own);
    if (!is_new && (share || at->second == own)) {
      want.flight = at->second;
      NoLongerAhead(*want.flight);
      shared += want.flight != own;
      continue;
    }
    want.flight = own;
    if (is_new) own->keys.push_back(want.key);
    if (IsOnDisk(want.key, want.end)) {
      own->on_disk.push_back({want.key, want.end - want.key.offset});
    } else {
      AddCell(PartOf(*want.request, want.key.is_page), {want.key.offset, want.end}, own->parts);
      ++misses_;
    }
  }
  shared_ += shared;
  return !own->parts.empty() || !own->on_disk.empty();
}

bool BlockReader::IsOnDisk(const CellKey& key, uint64_t end) const {
  return disk_ != nullptr && disk_->Has(key, end - key.offset);
}

Status BlockReader::Read(std::span<const StripeReadRequest> requests, const Reserve& reserve,
                         const std::function<void()>& meanwhile) {
  std::vector<Want> wants = LookUp(requests);
  int damaged = 0;
  if (wants.empty() && meanwhile) meanwhile();
  for (int attempt = 0; !wants.empty(); ++attempt) {
    uint64_t bytes = 0;
    for (const Want& want : wants) bytes += want.memory_bytes();
    MemoryBudget::Share room = reserve(bytes);

    const auto own = std::make_shared<Flight>(runtime_);
    {
      // Held before others know of it: they wait for its end.
      const Turn::Holder turn(own->turn);
      uint64_t own_bytes = 0;
      if (Join(wants, own, attempt < kSharedAttempts)) {
        for (const Want& want : wants) {
          if (want.flight == own) own_bytes += want.memory_bytes();
        }
        own->share = room.Split(own_bytes);
        room.Return();
        Start(*own);
      }
      room.Return();
      if (attempt == 0 && meanwhile) meanwhile();
      if (own_bytes > 0) Finish(own);
    }

    std::vector<Want> left;  // what others did not get, and may still be there for us
    for (Want& want : wants) {
      if (want.cell) {
        if (Deliver(want.key, *want.cell, *want.request)) continue;
        want.cell.reset();
        left.push_back(std::move(want));
        ++damaged;
        continue;
      }
      const std::shared_ptr<Flight> flight = std::move(want.flight);
      if (flight != own) {
        const Turn::Holder turn(flight->turn);
        Finish(flight);
      }
      const auto cell = flight->cells.find(want.key);
      const bool is_there = cell != flight->cells.end();
      if (is_there && Deliver(want.key, cell->second, *want.request)) continue;
      left.push_back(std::move(want));
      damaged += is_there;
    }
    TRY(own->status);
    if (damaged > kMostDamaged) {
      return Fail(EIO, "block {}: what was read is damaged in memory, again and again",
                  left.front().request->id.block);
    }
    wants = std::move(left);
  }
  return {};
}

// ---- Flights

void BlockReader::Start(Flight& flight) {
  if (!flight.parts.empty()) flight.pending = stripes_.StartRead(flight.parts);
}

// Under its turn.
void BlockReader::Finish(const std::shared_ptr<Flight>& flight) {
  if (flight->done) return;
  ReadFromDisk(*flight);  // while the drives are at work
  if (flight->pending) {
    flight->status = flight->pending->Wait();
    if (flight->status.ok()) Keep(*flight);
  }
  flight->pending.reset();
  flight->share.Return();
  flight->done = true;
  {
    const MutexLock lock(mutex_);
    Forget(flight);
  }
  budget_.ReclaimExcess();
  budget_.NoteChange();  // what was being read is in the cache, and can be evicted
}

// Its cells to the cache, and to those who wait for them.
void BlockReader::Keep(Flight& flight) {
  for (size_t i = 0; i < flight.parts.size(); ++i) {
    const StripePart& part = flight.parts[i];
    const std::vector<ReadCell> cells = flight.pending->TakeCells(i);
    for (size_t first = 0; first < cells.size();) {
      // Cells of one answer lie side by side. They share its memory, and so their share.
      std::vector<SharedBytes> together = {cells[first].bytes};
      uint64_t bytes = cells[first].bytes.size() + kCellOverhead;
      for (size_t next = first + 1; next < cells.size(); ++next) {
        const SharedBytes& last = together.back();
        if (last.data() + last.size() != cells[next].bytes.data()) break;
        together.push_back(cells[next].bytes);
        bytes += cells[next].bytes.size() + kCellOverhead;
      }
      const bool alone = together.size() == 1;
      // (A cell that is wanted twice is read, and counted, once.)
      AttachShare(together, flight.share.Split(std::min(bytes, flight.share.bytes())));
      std::vector<DiskCache::Cell> for_disk;
      for (const SharedBytes& cell : together) {
        const CellKey key{part.id, static_cast<uint32_t>(cells[first].offset), part.only_pages};
        const CellSums& sums = cells[first++].sums;
        cache_.Insert(key, cell, alone, sums);
        flight.cells.emplace(key, Cell{cell, sums});
        if (disk_) for_disk.push_back({key, cell});
      }
      if (disk_) disk_->Offer(std::move(for_disk));
    }
  }
}

void BlockReader::Keep(const StripeId& id, const StripeLayout& layout, Bytes data) {
  std::vector<StripeLayout::Cell> cells;
  for (uint64_t at = 0; at < data.size(); at = cells.back().end) {
    cells.push_back(layout.CellAt(data.size(), at));
  }
  auto share = budget_.TryTake(data.size() + cells.size() * kCellOverhead);
  if (!share) return;
  const SharedBytes all(Buffer::CopyOf(data));
  std::vector<SharedBytes> together;
  for (const StripeLayout::Cell& cell : cells) {
    together.push_back(all.Slice(cell.begin, cell.end - cell.begin));
  }
  AttachShare(together, *std::move(share));
  for (size_t i = 0; i < cells.size(); ++i) {
    cache_.Insert({id, static_cast<uint32_t>(cells[i].begin)}, together[i], cells.size() == 1);
  }
}

// A cell that is not there any more, or damaged, is left to the next attempt of the reader that
// wants it.
void BlockReader::ReadFromDisk(Flight& flight) {
  for (const Flight::OnDisk& wanted : flight.on_disk) {
    auto found = disk_->Find(wanted.key, wanted.bytes);
    if (!found) continue;
    SharedBytes cell(std::move(found->bytes));
    const uint64_t bytes = cell.size() + kCellOverhead;
    AttachShare({&cell, 1}, flight.share.Split(std::min(bytes, flight.share.bytes())));
    cache_.Insert(wanted.key, cell, /*alone=*/true);
    if (found->leaves_soon) disk_->Offer({{wanted.key, cell}});
    flight.cells.emplace(wanted.key, Cell{std::move(cell), {}});
  }
}

DiskCacheCounters BlockReader::disk() const {
  if (!disk_) return {};
  DiskCacheCounters counters = disk_->counters();
  counters.cells_missed = misses_ + read_ahead_;
  return counters;
}

void BlockReader::Forget(const std::shared_ptr<Flight>& flight) {
  NoLongerAhead(*flight);
  for (const CellKey& key : flight->keys) {
    const auto found = flights_.find(key);
    if (found != flights_.end() && found->second == flight) flights_.erase(found);
  }
  flight->keys.clear();
}

// ---- Ahead of need

bool BlockReader::ReadAhead(const StripePart& part, Ahead& ahead) {
  const auto flight = std::make_shared<Flight>(runtime_);
  const Turn::Holder turn(flight->turn);
  std::vector<StripeLayout::Cell> cells;
  for (uint64_t at = part.offset; at < part.offset + part.size;) {
    const StripeLayout::Cell cell = part.layout.CellAt(part.length, at);
    const CellKey key{part.id, static_cast<uint32_t>(cell.begin)};
    if (!cache_.Has(key) && !IsOnDisk(key, cell.end)) cells.push_back(cell);
    at = cell.end;
  }
  uint64_t bytes = 0;
  while (AheadIsFull(part.size)) {
    if (!DropAhead(runtime_.Now() - kStaleAfter)) return false;
  }
  {
    const MutexLock lock(mutex_);
    for (const StripeLayout::Cell& cell : cells) {
      const CellKey key{part.id, static_cast<uint32_t>(cell.begin)};
      if (flights_.contains(key)) continue;
      flight->keys.push_back(key);
      AddCell(part, cell, flight->parts);
      bytes += cell.end - cell.begin + kCellOverhead;
    }
    if (flight->keys.empty()) return true;
  }
  auto share = budget_.TryTake(bytes);
  if (!share) return false;
  flight->share = *std::move(share);
  {
    const MutexLock lock(mutex_);
    // If somebody has asked for one of them in between, that request brings it, too. That is rare,
    // and harms nobody.
    for (const CellKey& key : flight->keys) flights_.try_emplace(key, flight);
    flight->ahead_bytes = bytes;
    flight->asked_at = runtime_.Now();
    ahead_bytes_ += bytes;
    ahead_.push_back(flight);
    flight->in_ahead = std::prev(ahead_.end());
    read_ahead_ += flight->keys.size();
  }
  Start(*flight);
  const MutexLock lock(ahead.mutex_);
  std::erase_if(ahead.flights_, [](const auto& one) { return one.expired(); });
  ahead.flights_.push_back(flight);
  return true;
}

void BlockReader::NoLongerAhead(Flight& flight) {
  if (flight.ahead_bytes == 0) return;
  ahead_bytes_ -= std::exchange(flight.ahead_bytes, 0);
  ahead_.erase(flight.in_ahead);
}

bool BlockReader::AheadIsFull(uint64_t more) const {
  const MutexLock lock(mutex_);
  return ahead_bytes_ + more > budget_.limit() / kAheadPart;
}

// The oldest, if it was asked for by then.
bool BlockReader::DropAhead(Time asked_by) {
  std::shared_ptr<Flight> oldest;  // goes when the mutex is free
  const MutexLock lock(mutex_);
  if (ahead_.empty() || ahead_.front()->asked_at > asked_by) return false;
  oldest = ahead_.front();
  Forget(oldest);
  return true;
}

// Unless somebody waits for it.
void BlockReader::Drop(const std::shared_ptr<Flight>& flight) {
  const MutexLock lock(mutex_);
  if (flight->ahead_bytes > 0) Forget(flight);
}

BlockReader::Ahead::~Ahead() {
  for (const auto& one : flights_) {
    if (const auto flight = one.lock()) reader_.Drop(flight);
  }
}

BlockReader::Counters BlockReader::counters() const {
  return {hits_, misses_, shared_, read_ahead_};
}

}  // namespace pinstripe
