#include "fs/files/unsafe_stripes.h"

#include <algorithm>
#include <iterator>

#include "base/try.h"
#include "fs/files/map_pages.h"

namespace pinstripe {
namespace {

constexpr uint64_t kManyBlocks = 10000;  // for whose drives nobody looks one by one

}  // namespace

// Stripes whose drives are to be flushed, and what of them must be safe then.
class UnsafeStripes::Unflushed {
 public:
  explicit Unflushed(Cluster& cluster) : cluster_(cluster) {}

  Status Add(uint64_t block, const BlockPlace& place) {
    const Geometry geometry = place.layout.geometry();
    const int redundancy = std::min(cluster_.config().min_redundancy, geometry.parity_shards);
    auto drives = TRY(cluster_.stripes().DrivesOf(place.IdOf(block), place.layout, place.place));
    blocks_.push_back({block, geometry.data_shards + redundancy, std::move(drives)});
    drives_.insert(blocks_.back().drives.begin(), blocks_.back().drives.end());
    return {};
  }

  // Of all these drives; `failed` were not flushed.
  const std::set<DriveId>& drives() const { return drives_; }
  Unsafe Check(InodeId inode, const std::set<DriveId>& failed) const {
    Unsafe unsafe;
    for (const Block& block : blocks_) {
      const auto safe = std::count_if(block.drives.begin(), block.drives.end(),
                                      [&](DriveId drive) { return !failed.contains(drive); });
      if (safe >= block.needed) continue;
      unsafe.blocks.push_back(block.number);
      unsafe.why = Fail(EIO,
                        "sync inode {:016x}: of block {} only {} shards are safe from power loss, "
                        "{} are needed; {} drives could not be flushed",
                        inode, block.number, safe, block.needed, failed.size());
    }
    return unsafe;
  }

 private:
  struct Block {
    uint64_t number;
    int needed;
    std::set<DriveId> drives;
  };
  Cluster& cluster_;
  std::vector<Block> blocks_;
  std::set<DriveId> drives_;
};

// The part of the map, all of which is loaded, that is not known to be durable.
Status UnsafeStripes::AddUnflushed(const BlockMap& map, Unflushed& unflushed) const {
  for (const BlockMap::Part& part : map.parts()) {
    const uint64_t page_block = PageNumber(part.first).number();
    if (part.stretch->page && blocks_.Contains(page_block)) {
      TRY(unflushed.Add(page_block, *part.stretch->page));
    }
    uint64_t first = part.first;
    for (const BlockRun& run : part.stretch->runs) {
      for (const auto& there : blocks_.Within(first, first + run.count)) {
        if (run.hole || run.shared) break;
        for (uint64_t block = there.first; block < there.end; ++block) {
          const BlockPlace place = PlaceInRun(run, block - first, map.block_bytes());
          for (const BlockPlace& stripe : place.Stripes()) {
            if (!durable_.contains({block, stripe.write})) TRY(unflushed.Add(block, stripe));
          }
        }
      }
      first += run.count;
    }
  }
  return {};
}

Result<UnsafeStripes::Unsafe> UnsafeStripes::FlushNew(const BlockMap& committed, Inode& inode) {
  const BlockMap::Difference added = inode.map->NotIn(committed);
  Unflushed unflushed(cluster_);
  for (const auto* pieces : {&added.blocks, &added.pages}) {
    for (const BlockMap::Piece& piece : *pieces) {
      if (piece.run.shared) continue;  // it was safe before anybody shared it
      for (uint64_t i = 0; i < piece.run.count && !piece.run.hole; ++i) {
        if (durable_.contains({piece.first + i, piece.run.write})) continue;
        TRY(unflushed.Add(piece.first + i, PlaceInRun(piece.run, i, inode.map->block_bytes())));
      }
    }
  }
  if (unflushed.drives().empty()) return Unsafe{};
  Unsafe unsafe = unflushed.Check(inode_, Flush(unflushed.drives()));
  // Storing some again forgets what was lost since the others were sent, so all are looked at.
  if (!unsafe.why.ok()) unsafe = TRY(FlushAll(inode));
  return unsafe;
}

void UnsafeStripes::NoteDurable(uint64_t block, const WriteId& write) {
  if (durable_.size() == kMostDurable) {
    for (const auto& [number, id] : durable_) blocks_.Add(number, number + 1);
    durable_.clear();
    NoteLosses();
  }
  durable_.emplace(block, write);
}

void UnsafeStripes::NoteLosses() {
  if (!losses_) losses_ = cluster_.CountLosses();
}

std::set<DriveId> UnsafeStripes::Flush(const std::set<DriveId>& drives) {
  return cluster_.stripes().Flush(drives, losses_.value_or(DriveLosses()));
}

Result<UnsafeStripes::Unsafe> UnsafeStripes::FlushAll(Inode& inode) {
  Unsafe unsafe;
  if (inode.map) unsafe = TRY(FlushWithoutForgetting(inode));
  if (unsafe.why.ok()) {
    blocks_ = {};
    durable_.clear();
    losses_.reset();
  }
  return unsafe;
}

Result<UnsafeStripes::Unsafe> UnsafeStripes::FlushWithoutForgetting(Inode& inode) {
  BlockMap& map = *inode.map;
  uint64_t blocks = 0;
  for (const auto& there : blocks_.Within(0, map.blocks())) blocks += there.end - there.first;
  std::set<DriveId> failed;
  std::set<DriveId> flushed;
  if (blocks > kManyBlocks || map.FirstMissing(0, map.blocks())) {
    // So many that they are on all drives; where each is matters only if one of these fails.
    for (const MappedDrive& drive : cluster_.map().drives) flushed.insert(drive.id);
    failed = Flush(flushed);
    if (failed.empty()) return Unsafe{};
    TRY(LoadPages(cluster_.stripes(), inode_, inode, 0, map.blocks()));
  }
  Unflushed unflushed(cluster_);
  TRY(AddUnflushed(map, unflushed));
  std::set<DriveId> rest;
  std::set_difference(unflushed.drives().begin(), unflushed.drives().end(), flushed.begin(),
                      flushed.end(), std::inserter(rest, rest.end()));
  if (!rest.empty()) failed.merge(Flush(rest));
  return unflushed.Check(inode_, failed);
}

}  // namespace pinstripe
