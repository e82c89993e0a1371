#include "fs/cache/cell_cache.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace pinstripe {
namespace {

uint64_t Mix(uint64_t x) {  // SplitMix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Evicted from one part at a time, so that the cells of one answer go together, and its memory with
// them.
constexpr uint64_t kEvictAtOnce = kMaxShardBytes;

// The new cells' share of the cache is one in so many, as 2Q's authors found it best.
constexpr uint64_t kFreshPart = 4;

}  // namespace

uint64_t CellKey::BlockHash() const {
  uint64_t write[2];
  static_assert(sizeof(write) == sizeof(stripe.write));
  std::memcpy(write, stripe.write.data(), sizeof(write));
  return Mix(Mix(Mix(Mix(stripe.object) ^ stripe.block) ^ write[0]) ^ write[1]);
}

uint64_t CellKey::Hash() const { return Mix(BlockHash() ^ offset ^ uint64_t{is_page} << 32); }

void AttachShare(std::span<SharedBytes> together, MemoryBudget::Share share) {
  struct Counted {
    MemoryBudget::Share share;  // given back after the bytes are gone
    std::vector<SharedBytes> bytes;
  };
  const auto counted = std::make_shared<const Counted>(
      Counted{std::move(share), {together.begin(), together.end()}});
  for (SharedBytes& bytes : together) bytes = SharedBytes(counted, bytes);
}

std::optional<SharedBytes> CellCache::Find(const CellKey& key, CellSums* sums) {
  Part& part = PartOf(key);
  const MutexLock lock(part.mutex);
  const auto found = part.cells.find(key);
  if (found == part.cells.end()) return std::nullopt;
  Cell& cell = *found->second;
  cell.found = true;
  if (sums != nullptr) *sums = cell.sums;
  return cell.bytes;
}

bool CellCache::Has(const CellKey& key) {
  Part& part = PartOf(key);
  const MutexLock lock(part.mutex);
  return part.cells.contains(key);
}

void CellCache::Insert(const CellKey& key, SharedBytes bytes, bool alone, const CellSums& sums) {
  Part& part = PartOf(key);
  const uint64_t size = bytes.size();
  const MutexLock lock(part.mutex);
  if (part.cells.contains(key)) return;
  const bool frequent = part.left_set.contains(key.Hash());
  Queue& queue = frequent ? part.frequent : part.fresh;
  queue.push_back({key, std::move(bytes), sums, alone, frequent});
  part.cells.emplace(key, std::prev(queue.end()));
  (frequent ? part.frequent_bytes : part.fresh_bytes) += size;
  bytes_ += size;
}

bool CellCache::Evict(uint64_t bytes) {
  uint64_t freed = 0;
  for (size_t empty = 0; empty < kParts && freed < bytes;) {
    Part& part = parts_[next_++ % kParts];
    const uint64_t here = EvictFrom(part, std::min(bytes - freed, kEvictAtOnce));
    empty = here == 0 ? empty + 1 : 0;
    freed += here;
  }
  return freed > 0;
}

uint64_t CellCache::EvictFrom(Part& part, uint64_t bytes) {
  Queue evicted;  // its memory goes when the lock is gone
  uint64_t freed = 0;
  const MutexLock lock(part.mutex);
  while (freed < bytes && !part.cells.empty()) {
    const bool from_fresh =
        part.frequent.empty() ||
        part.fresh_bytes > (part.fresh_bytes + part.frequent_bytes) / kFreshPart;
    if (!from_fresh && part.frequent.front().found) {
      GiveAnotherRound(part);
      continue;
    }
    Queue& queue = from_fresh ? part.fresh : part.frequent;
    if (from_fresh) Remember(part, queue.front().key.Hash());
    freed += TakeOut(part, queue.begin(), evicted) + kCellOverhead;
  }
  return freed;
}

uint64_t CellCache::TakeOut(Part& part, Queue::iterator cell, Queue& to) {
  const uint64_t size = cell->bytes.size();
  (cell->frequent ? part.frequent_bytes : part.fresh_bytes) -= size;
  bytes_ -= size;
  part.cells.erase(cell->key);
  to.splice(to.end(), cell->frequent ? part.frequent : part.fresh, cell);
  return size;
}

void CellCache::Erase(const CellKey& key) {
  Queue erased;  // its memory goes when the lock is gone
  Part& part = PartOf(key);
  const MutexLock lock(part.mutex);
  const auto found = part.cells.find(key);
  if (found != part.cells.end()) TakeOut(part, found->second, erased);
}

// A cell that stays while those that came with it go gets memory of its own: or one of 64 KiB would
// keep as much as a MiB.
void CellCache::GiveAnotherRound(Part& part) {
  Cell& cell = part.frequent.front();
  cell.found = false;
  if (!cell.alone) {
    SharedBytes own(Buffer::CopyOf(cell.bytes));
    AttachShare({&own, 1}, budget_.TakeAnyway(own.size() + kCellOverhead));
    cell.bytes = std::move(own);
    cell.alone = true;
  }
  part.frequent.splice(part.frequent.end(), part.frequent, part.frequent.begin());
}

// As many names as there are cells; 2Q's authors found half of that enough.
void CellCache::Remember(Part& part, uint64_t hash) {
  constexpr size_t kLeast = 64;
  if (part.left_set.insert(hash).second) part.left.push_back(hash);
  while (part.left.size() > std::max(kLeast, part.cells.size())) {
    part.left_set.erase(part.left.front());
    part.left.pop_front();
  }
}

}  // namespace pinstripe
