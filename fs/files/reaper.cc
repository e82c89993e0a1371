#include "fs/files/reaper.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/log.h"
#include "cluster/registers/drives.h"
#include "fs/files/map_pages.h"

namespace pinstripe {
namespace {

constexpr size_t kMostAtOnce = 10'000;  // inodes for one flush
constexpr size_t kBatch = 64;           // stripes that are deleted at once
constexpr size_t kMostDepartures = 64;  // with one change of a keeper
constexpr size_t kMostLookedAt = 1000;  // items, to find as many

}  // namespace

Reaper::Reaper(Cluster& cluster)
    : cluster_(cluster),
      records_(cluster),
      keepers_(cluster, records_),
      work_(cluster.runtime().NewSignal()),
      idle_(cluster.runtime().NewSignal()) {
  cluster.runtime().Spawn("reaper", [this] { Run(); });
}

Reaper::~Reaper() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    end_by_ = cluster_.runtime().Now() + kDrainTime;
  }
  work_->Set();
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (ended_) break;
    }
    idle_->WaitUntil(Time::max());
  }
}

void Reaper::Add(const std::vector<BlockMap::Piece>& pieces, uint64_t block_bytes) {
  std::vector<Item> items;
  for (const BlockMap::Piece& piece : pieces) {
    if (!piece.run.hole) items.push_back({piece, block_bytes, {}, {}});
  }
  AddItems(std::move(items));
}

std::vector<Reaper::Item> Reaper::ItemsOf(InodeId inode, InodeId object, const BlockMap& gone,
                                          const BlockMap& kept) {
  const BlockMap::Difference difference = gone.NotIn(kept);
  std::vector<Item> items;
  std::optional<std::set<InodeId>> stay;  // keepers that are not left, or are already
  for (const BlockMap::Piece& piece : difference.blocks) {
    if (piece.run.shared) {
      if (!stay) stay = kept.Keepers();
      if (!stay->insert(piece.run.object).second) continue;
      items.push_back({{}, 0, {}, Departure{piece.run.object, {inode}}});
    } else if (piece.run.object == object) {
      items.push_back({piece, gone.block_bytes(), {}, {}});
    }
  }
  for (const BlockMap::Piece& page : difference.pages) {
    if (page.run.object == inode) items.push_back({page, gone.block_bytes(), {}, {}});
  }
  for (const BlockMap::Part& part : difference.missing) {
    items.push_back({{}, gone.block_bytes(), Page{inode, object, part, gone.layout(), kept}, {}});
  }
  return items;
}

void Reaper::AddDifference(InodeId id, const Inode& gone, const Inode& kept, Durability durability,
                           uint64_t losses) {
  if (!gone.map) return;
  std::vector<Item> items = ItemsOf(id, id, *gone.map, kept.map ? *kept.map : BlockMap());
  // Nobody knows here what a page that is not loaded shared. The process that leaves the keeper
  // looks.
  const bool some_unknown =
      std::ranges::any_of(items, [](const Item& item) { return item.page.has_value(); });
  if (some_unknown) {
    const std::set<InodeId> named = kept.map ? kept.map->Keepers() : std::set<InodeId>();
    std::erase_if(items, [](const Item& item) { return item.departure.has_value(); });
    for (const InodeId keeper : kept.keepers) {
      if (!named.contains(keeper)) items.push_back({{}, 0, {}, Departure{keeper, {id}}});
    }
  }
  if (items.empty()) return;
  if (durability == Durability::kWriteThrough) return AddItems(std::move(items));
  Wait(kGather, {id, false, losses, std::move(items)});
}

void Reaper::AddRemoved(InodeId id, const Inode& inode, uint64_t losses) {
  if (!inode.map && inode.keepers.empty()) return;
  std::vector<Item> items;
  if (inode.map) {
    const InodeId object = inode.keeping ? inode.keeping->object : id;
    items = ItemsOf(id, object, *inode.map, BlockMap());
    std::erase_if(items, [](const Item& item) { return item.departure.has_value(); });
  }
  for (const InodeId keeper : inode.keepers) {
    items.push_back({{}, 0, {}, Departure{keeper, {id, /*is_safely_removed=*/true}}});
  }
  Wait(kGrace, {id, true, losses, std::move(items)});
}

size_t Reaper::CountWaiting() {
  const MutexLock lock(mutex_);
  return items_.size() + waiting_.size() + at_work_;
}

void Reaper::Wait(Duration delay, Waiting waiting) {
  {
    const MutexLock lock(mutex_);
    if (waiting_.size() >= kMaxQueue) {
      LeaveBehind("garbage stays on the drives: too much at once",
                  {{"pieces", waiting.items.size()}}, LogLevel::kWarn);
      return;
    }
    waiting_.emplace(cluster_.runtime().Now() + delay, std::move(waiting));
  }
  work_->Set();
}

// Once something is due, all that a flush can serve: what was replaced, and what was removed and is
// about to be due. At the end, what was replaced need not wait.
std::vector<Reaper::Waiting> Reaper::TakeDueLocked(Time now) {
  std::vector<Waiting> due;
  const bool flush = stopping_ || (!waiting_.empty() && waiting_.begin()->first <= now);
  if (!flush || (!stopping_ && now < next_flush_)) return due;
  const Time removed_before = stopping_ ? now : now + kGather;
  for (auto at = waiting_.begin(); at != waiting_.end() && due.size() < kMostAtOnce;) {
    if (at->second.was_removed && at->first > removed_before) {
      ++at;
      continue;
    }
    due.push_back(std::move(at->second));
    at = waiting_.erase(at);
  }
  return due;
}

void Reaper::PutBackLocked(Waiting waiting) {
  constexpr std::string_view kEvent =
      "garbage stays on the drives: it is not safe yet that it is garbage";
  const std::string inode = fmt::format("{:016x}", waiting.inode);
  if (stopping_ || waiting_.size() >= kMaxQueue) {
    return LeaveBehind(kEvent, {{"inode", inode}, {"pieces", waiting.items.size()}});
  }
  Log(LogLevel::kInfo, kEvent, {{"inode", inode}, {"pieces", waiting.items.size()}});
  waiting_.emplace(cluster_.runtime().Now() + kGrace, std::move(waiting));
}

// A flush of all drives makes everything safe that was acknowledged. Where one cannot be flushed
// that holds a replica of the inode, it takes the others' word. A drive that was lost since the
// change may have lost the change with its power, and so may the others with theirs. Then the inode
// may name the data again. A process that cannot tell leaves it to the collector, which looks.
std::vector<Reaper::Item> Reaper::TakeSafe(std::vector<Waiting>& waiting) {
  const std::set<DriveId> drives = DrivesOfRegisters(cluster_);
  const std::set<DriveId> failed = cluster_.stripes().Flush(drives, {});
  std::vector<Item> safe;
  std::vector<Waiting> rest;
  bool others_answer = true;  // else it makes no sense to ask them for each inode
  for (Waiting& each : waiting) {
    const auto homes = cluster_.RegisterHomes(cluster_.GroupOfObject(each.inode));
    const bool all_flushed =
        std::ranges::none_of(homes, [&](DriveId id) { return failed.contains(id); });
    const bool were_lost = records_.CountLosses(each.inode) != each.losses;
    if (were_lost && !(each.was_removed && IsGoneForGood(each.inode))) {
      LeaveBehind("garbage stays on the drives: some were lost before it was safe that it is",
                  {{"inode", fmt::format("{:016x}", each.inode)}, {"pieces", each.items.size()}});
      continue;
    }
    bool is_safe = all_flushed || were_lost;
    if (!is_safe && others_answer && MayGoOn()) {
      is_safe = records_.MakeInodeDurable(each.inode).ok();
      others_answer = is_safe;
    }
    if (is_safe) {
      std::move(each.items.begin(), each.items.end(), std::back_inserter(safe));
    } else {
      rest.push_back(std::move(each));
    }
  }
  waiting = std::move(rest);
  return safe;
}

bool Reaper::IsGoneForGood(InodeId inode) {
  if (!MayGoOn() || !records_.MakeInodeDurable(inode).ok()) return false;
  const auto found = std::move(records_.FindInodes({inode}).front());
  return found.has_value() && !found->has_value();
}

void Reaper::AddItems(std::vector<Item> items) {
  {
    const MutexLock lock(mutex_);
    AddItemsLocked(std::move(items));
  }
  work_->Set();
}

void Reaper::AddItemsLocked(std::vector<Item> items) {
  const size_t taken = std::min(items.size(), kMaxQueue - std::min(kMaxQueue, items_.size()));
  std::move(items.begin(), items.begin() + static_cast<ptrdiff_t>(taken),
            std::back_inserter(items_));
  if (taken == items.size()) return;
  LeaveBehind("garbage stays on the drives: too much at once", {{"pieces", items.size() - taken}},
              LogLevel::kWarn);
}

void Reaper::Run() {
  MutexLock lock(mutex_);
  while (true) {
    const Time now = cluster_.runtime().Now();
    if (stopping_ && now >= end_by_) break;
    if (std::vector<Waiting> due = TakeDueLocked(now); !due.empty()) {
      next_flush_ = now + kGather;
      at_work_ = batch_.size() + due.size();
      lock.Unlock();
      std::vector<Item> safe = TakeSafe(due);
      lock.Lock();
      AddItemsLocked(std::move(safe));
      for (Waiting& each : due) PutBackLocked(std::move(each));
      at_work_ = batch_.size();
      continue;
    }
    if (items_.empty() && !batch_.empty()) {
      lock.Unlock();
      DeleteBatch();
      lock.Lock();
      at_work_ = 0;
      continue;
    }
    if (items_.empty()) {
      if (stopping_) break;
      const Time next =
          waiting_.empty() ? Time::max() : std::max(waiting_.begin()->first, next_flush_);
      lock.Unlock();
      work_->WaitUntil(next);
      lock.Lock();
      continue;
    }
    const Item item = std::move(items_.front());
    items_.pop_front();
    std::vector<Keepers::Leaving> leaving;
    if (item.departure) leaving = TakeDeparturesLocked(*item.departure);
    at_work_ += std::max<size_t>(1, leaving.size());
    lock.Unlock();
    if (item.departure) {
      Depart(item.departure->keeper, std::move(leaving));
    } else {
      Delete(item);
    }
    lock.Lock();
    at_work_ = batch_.size();
  }
  if (!items_.empty() || !waiting_.empty() || !batch_.empty()) {
    LeaveBehind(
        "garbage stays on the drives: no time left to delete it",
        {{"stripes", batch_.size()}, {"pieces", items_.size()}, {"files", waiting_.size()}});
  }
  ended_ = true;
  const std::shared_ptr<Signal> idle = idle_;  // *this is gone as soon as the lock is
  idle->Set();
}

void Reaper::LeaveBehind(std::string_view event, std::initializer_list<LogField> fields,
                         LogLevel level) {
  ++left_;
  Log(level, event, fields);
}

bool Reaper::MayGoOn() {
  const MutexLock lock(mutex_);
  return !stopping_ || cluster_.runtime().Now() < end_by_;
}

void Reaper::Delete(const Item& item) {
  if (item.page) return DeletePage(*item.page);
  DeletePiece(item.piece, item.block_bytes);
}

void Reaper::DeletePage(const Page& page) {
  if (page.part.stretch->page->object != page.inode) return;
  const auto loaded =
      LoadPage(cluster_.stripes(), page.inode, kMaxKeptFileBytes, page.layout, page.part);
  if (!loaded.has_value()) {
    LeaveBehind("garbage stays on the drives", {{"why", loaded.error()}});
    return;
  }
  const uint64_t block_bytes = page.layout.block_bytes();
  for (const BlockMap::Piece& piece :
       BlockMap(page.layout).NotIn({page.part.first, *loaded}, page.kept)) {
    const bool is_own = !piece.run.shared && piece.run.object == page.object;
    if (is_own) DeletePiece(piece, block_bytes);
  }
  DeletePiece(BlockMap::PieceOf(page.part), block_bytes);
}

std::vector<Keepers::Leaving> Reaper::TakeDeparturesLocked(const Departure& first) {
  std::vector<Keepers::Leaving> leaving = {first.file};
  const auto end = items_.begin() + static_cast<ptrdiff_t>(std::min(items_.size(), kMostLookedAt));
  const auto kept = std::remove_if(items_.begin(), end, [&](const Item& item) {
    const bool leaves_too = item.departure && item.departure->keeper == first.keeper &&
                            leaving.size() < kMostDepartures;
    if (leaves_too) leaving.push_back(item.departure->file);
    return leaves_too;
  });
  items_.erase(kept, end);
  return leaving;
}

void Reaper::Depart(InodeId keeper, std::vector<Keepers::Leaving> files) {
  if (!MayGoOn()) return;
  auto left = keepers_.Leave(keeper, std::move(files));
  if (!left.has_value()) {
    LeaveBehind("shared blocks stay on the drives", {{"why", left.error()}});
    return;
  }
  if (!left->failure.ok()) {
    LeaveBehind("shared blocks stay on the drives", {{"why", left->failure}});
  }
  if (left->removed) AddRemoved(keeper, *left->removed, left->losses);
}

void Reaper::DeletePiece(const BlockMap::Piece& piece, uint64_t block_bytes) {
  for (uint64_t i = 0; i < piece.run.count && MayGoOn(); ++i) {
    const BlockPlace place = PlaceInRun(piece.run, i, block_bytes);
    batch_.push_back({place.IdOf(piece.first + i), place.layout, place.place});
    if (batch_.size() >= kBatch) DeleteBatch();
  }
}

void Reaper::DeleteBatch() {
  if (batch_.empty()) return;
  for (const Status& status : cluster_.stripes().DeleteMany(batch_)) {
    if (status.ok()) continue;
    LeaveBehind("garbage stays on the drives", {{"why", status}});
  }
  batch_.clear();
}

}  // namespace pinstripe
