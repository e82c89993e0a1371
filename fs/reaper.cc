#include "fs/reaper.h"

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

void Reaper::AddDifference(InodeId inode, const std::optional<BlockMap>& gone,
                           const std::optional<BlockMap>& kept) {
  if (!gone) return;
  const BlockMap there = kept ? *kept : BlockMap();
  const BlockMap::Difference difference = gone->NotIn(there);
  std::vector<Item> items;
  for (const auto* pieces : {&difference.blocks, &difference.pages}) {
    for (const BlockMap::Piece& piece : *pieces) {
      if (piece.run.object != inode) continue;
      items.push_back({piece, gone->block_bytes(), std::nullopt});
    }
  }
  for (const BlockMap::Part& part : difference.missing) {
    items.push_back({{}, gone->block_bytes(), Page{inode, part, gone->layout(), there}});
  }
  AddItems(std::move(items));
}

void Reaper::AddItems(std::vector<Item> items) {
  size_t refused = 0;
  {
    const std::lock_guard lock(mutex_);
    for (Item& item : items) {
      if (items_.size() < kMaxQueue) {
        items_.push_back(std::move(item));
      } else {
        ++refused;
      }
    }
  }
  if (refused > 0) {
    Log(LogLevel::kWarn, "garbage stays on the drives: too much at once", {{"pieces", refused}});
  }
  work_->Set();
}

bool Reaper::Drain(Time deadline) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (items_.empty() && !busy_) return true;
    }
    if (!idle_->WaitUntil(deadline)) return false;
  }
}

void Reaper::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (stopping_ && (items_.empty() || cluster_.runtime().Now() >= end_by_)) break;
    if (items_.empty()) {
      lock.unlock();
      work_->WaitUntil(Time::max());
      lock.lock();
      continue;
    }
    const Item item = std::move(items_.front());
    items_.pop_front();
    busy_ = true;
    lock.unlock();
    Delete(item);
    lock.lock();
    busy_ = false;
    if (items_.empty()) idle_->Set();
  }
  if (!items_.empty()) {
    Log(LogLevel::kInfo, "garbage stays on the drives: no time left to delete it",
        {{"pieces", items_.size()}});
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
