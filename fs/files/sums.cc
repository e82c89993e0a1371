#include "fs/files/sums.h"

#include <algorithm>
#include <vector>

#include "base/checksum.h"
#include "base/try.h"
#include "fs/files/map_pages.h"

namespace pinstripe {
namespace {

constexpr size_t kBlocksAtOnce = 32;  // a request to each of k drives for each

BlockSums SumsOf(Bytes bytes) { return {Adler32(bytes), Crc32c(bytes)}; }

// The sums of the bytes before and of `length` bytes that follow.
BlockSums Append(const BlockSums& before, const BlockSums& next, uint64_t length) {
  return {Adler32Combine(before.adler32, next.adler32, length),
          Crc32cCombine(before.crc32c, next.crc32c, length)};
}

class Summing {
 public:
  Summing(StripeStore& stripes, KeeperMaps& keepers, uint64_t size, uint64_t block_bytes,
          const std::function<Result<MemoryBudget::Share>(uint64_t bytes)>& reserve)
      : stripes_(stripes),
        keepers_(keepers),
        size_(size),
        block_bytes_(block_bytes),
        reserve_(reserve) {}

  Status AddRun(const BlockRun& run, uint64_t first) {
    if (run.hole) {
      TRY(TakeStored());
      const uint64_t begin = first * block_bytes_;
      const uint64_t length =
          run.count > (size_ - begin) / block_bytes_ ? size_ - begin : run.count * block_bytes_;
      sums_ = Append(sums_, SumsOfZeros(length), length);
      return {};
    }
    for (uint64_t i = 0; i < run.count; ++i) {
      BlockPlace place = TRY(keepers_.Resolve(PlaceInRun(run, i, block_bytes_), first + i));
      stored_.push_back({first + i, std::move(place)});
      if (stored_.size() == kBlocksAtOnce) TRY(TakeStored());
    }
    return {};
  }

  Result<BlockSums> Finish() {
    TRY(TakeStored());
    return sums_;
  }

 private:
  struct Stored {
    uint64_t block = 0;
    BlockPlace place;
  };

  Status TakeStored() {
    // A block that was cut, is a part of one, or has patches or gaps, is read.
    const auto is_as_written = [](const BlockPlace& place) {
      return place.valid == place.stored && place.skip == 0 && place.patches.empty() &&
             place.gaps.empty();
    };
    std::vector<StripePart> parts;
    for (const Stored& one : stored_) {
      if (!is_as_written(one.place)) continue;
      parts.push_back({.id = one.place.IdOf(one.block),
                       .layout = one.place.layout,
                       .length = one.place.stored,
                       .place = one.place.place});
    }
    const std::vector<Result<BlockSums>> answers = stripes_.SumUp(parts);
    size_t next = 0;
    for (size_t i = 0; i < stored_.size(); ++i) {
      const BlockPlace& place = stored_[i].place;
      const bool counts = is_as_written(place) && answers[next++].has_value();
      const BlockSums sums = counts ? *answers[next - 1] : TRY(Read(stored_[i]));
      sums_ = Append(sums_, sums, place.valid);
      // A block that was cut, in a file that was made longer again.
      const uint64_t in_file = std::min(block_bytes_, size_ - stored_[i].block * block_bytes_);
      sums_ = Append(sums_, SumsOfZeros(in_file - place.valid), in_file - place.valid);
    }
    stored_.clear();
    return {};
  }

  Result<BlockSums> Read(const Stored& one) {
    const auto share = TRY(reserve_(one.place.valid));
    Buffer bytes(one.place.valid);
    TRY(ReadBlock(stripes_, one.place, one.block, bytes.mutable_bytes()));
    return SumsOf(bytes);
  }

  StripeStore& stripes_;
  KeeperMaps& keepers_;
  const uint64_t size_;
  const uint64_t block_bytes_;
  const std::function<Result<MemoryBudget::Share>(uint64_t bytes)>& reserve_;
  BlockSums sums_;              // of all that was taken
  std::vector<Stored> stored_;  // what follows that
};

}  // namespace

BlockSums SumsOfZeros(uint64_t length) {
  constexpr std::byte kZero{0};
  BlockSums sums;
  BlockSums power = SumsOf({&kZero, 1});  // of as many zeros as the bit stands for
  for (uint64_t bit = 1; bit != 0 && bit <= length; bit <<= 1) {
    if (length & bit) sums = Append(sums, power, bit);
    power = Append(power, power, bit);
  }
  return sums;
}

Result<FileSums> SumUpFile(
    StripeStore& stripes, KeeperMaps& keepers, InodeId id, Inode inode,
    const std::function<Result<MemoryBudget::Share>(uint64_t bytes)>& reserve) {
  if (inode.kind != FileKind::kRegular) {
    return Fail(inode.kind == FileKind::kDirectory ? EISDIR : EINVAL, "inode {:016x} is not a file",
                id);
  }
  BlockSums sums = SumsOf(AsBytes(inode.inline_data));
  if (inode.map) {
    Summing summing(stripes, keepers, inode.size, inode.map->block_bytes(), reserve);
    for (uint64_t block = 0; block < inode.map->blocks();) {
      TRY(LoadPages(stripes, id, inode, block, block + 1));
      const BlockMap::Part part = *inode.map->PartOf(block);
      for (const BlockRun& run : part.stretch->runs) {
        TRY(summing.AddRun(run, block));
        block += run.count;
      }
    }
    sums = TRY(summing.Finish());
  }
  return FileSums{sums.adler32, sums.crc32c, inode.modified};
}

}  // namespace pinstripe
