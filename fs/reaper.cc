#include "fs/reaper.h"

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "fs/map_pages.h"

namespace pinstripe {

Reaper::Reaper(Cluster& cluster)
    : cluster_(cluster),
      work_(cluster.runtime().NewSignal()),
      idle_(cluster.runtime().NewSignal()) {
  cluster.runtime().Spawn("reaper", [this] { Run(); });
}

Reaper::~Reaper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    end_by_ = cluster_.runtime().Now() + kDrainTime;
  }
  work_->Set();
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) break;
    }
    idle_->WaitUntil(Time::max());
  }
}

void Reaper::Add(const std::vector<BlockMap::Piece>& pieces, uint64_t block_bytes) {
  std::vector<Item> items;
  for (const BlockMap::Piece& piece : pieces) {
    if (!piece.run.hole) items.push_back({piece, block_bytes, std::nullopt});
  }
  AddItems(std::move(items));
}

std::vector<Reaper::Item> Reaper::ItemsOf(InodeId inode, const BlockMap& gone,
                                          const BlockMap& kept) {
  const BlockMap::Difference difference = gone.NotIn(kept);
  std::vector<Item> items;
  for (const auto* pieces : {&difference.blocks, &difference.pages}) {
    for (const BlockMap::Piece& piece : *pieces) {
      if (piece.run.object != inode) continue;
      items.push_back({piece, gone.block_bytes(), std::nullopt});
    }
  }
  for (const BlockMap::Part& part : difference.missing) {
    items.push_back({{}, gone.block_bytes(), Page{inode, part, gone.layout(), kept}});
  }
  return items;
}

void Reaper::AddDifference(InodeId inode, const std::optional<BlockMap>& gone,
                           const std::optional<BlockMap>& kept) {
  if (gone) AddItems(ItemsOf(inode, *gone, kept ? *kept : BlockMap()));
}

void Reaper::AddRemoved(InodeId inode, const std::optional<BlockMap>& map) {
  if (!map) return;
  std::vector<Item> items = ItemsOf(inode, *map, BlockMap());
  {
    const std::lock_guard lock(mutex_);
    removed_.push_back({cluster_.runtime().Now() + kGrace, std::move(items)});
    if (removed_.size() > kMaxQueue) {  // then there is no time to wait
      AddItemsLocked(std::move(removed_.front().items));
      removed_.pop_front();
    }
  }
  work_->Set();
}

void Reaper::AddItems(std::vector<Item> items) {
  {
    const std::lock_guard lock(mutex_);
    AddItemsLocked(std::move(items));
  }
  work_->Set();
}

void Reaper::AddItemsLocked(std::vector<Item> items) {
  const size_t taken = std::min(items.size(), kMaxQueue - std::min(kMaxQueue, items_.size()));
  std::move(items.begin(), items.begin() + static_cast<ptrdiff_t>(taken),
            std::back_inserter(items_));
  if (taken == items.size()) return;
  Log(LogLevel::kWarn, "garbage stays on the drives: too much at once",
      {{"pieces", items.size() - taken}});
}

void Reaper::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const Time now = cluster_.runtime().Now();
    while (!removed_.empty() && removed_.front().due <= now) {
      AddItemsLocked(std::move(removed_.front().items));
      removed_.pop_front();
    }
    if (stopping_ && (items_.empty() || now >= end_by_)) break;
    if (items_.empty()) {
      const Time next = removed_.empty() ? Time::max() : removed_.front().due;
      lock.unlock();
      work_->WaitUntil(next);
      lock.lock();
      continue;
    }
    const Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    Delete(item);
    lock.lock();
  }
  if (!items_.empty() || !removed_.empty()) {
    Log(LogLevel::kInfo, "garbage stays on the drives: no time left to delete it",
        {{"pieces", items_.size()}, {"files removed just now", removed_.size()}});
  }
  ended_ = true;
  const std::shared_ptr<Signal> idle = idle_;  // *this is gone as soon as the lock is
  idle->Set();
}

bool Reaper::MayGoOn() {
  const std::lock_guard lock(mutex_);
  return !stopping_ || cluster_.runtime().Now() < end_by_;
}

void Reaper::Delete(const Item& item) {
  if (item.page) return DeletePage(*item.page);
  DeletePiece(item.piece, item.block_bytes);
}

void Reaper::DeletePage(const Page& page) {
  if (page.part.stretch->page->object != page.inode) return;
  const auto loaded =
      LoadPage(cluster_.stripes(), page.inode, kMaxFileBytes, page.layout, page.part);
  if (!loaded.has_value()) {
    Log(LogLevel::kInfo, "garbage stays on the drives", {{"why", loaded.error()}});
    return;
  }
  const uint64_t block_bytes = page.layout.block_bytes();
  for (const BlockMap::Piece& piece :
       BlockMap(page.layout).NotIn({page.part.first, *loaded}, page.kept)) {
    if (piece.run.object == page.inode) DeletePiece(piece, block_bytes);
  }
  DeletePiece(BlockMap::PieceOf(page.part), block_bytes);
}

void Reaper::DeletePiece(const BlockMap::Piece& piece, uint64_t block_bytes) {
  for (uint64_t i = 0; i < piece.run.count && MayGoOn(); ++i) {
    const BlockPlace place = PlaceInRun(piece.run, i, block_bytes);
    const Status status =
        cluster_.stripes().Delete(place.IdOf(piece.first + i), place.layout, place.place);
    if (!status.ok()) {
      Log(LogLevel::kInfo, "garbage stays on the drives", {{"why", status}});
    }
  }
}

}  // namespace pinstripe
