#include "cluster/stripes/sums.h"

#include "base/checksum.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/stripes/reading.h"
#include "cluster/stripes/shard.h"

namespace pinstripe {
namespace {

struct Block {
  Status status;
  std::vector<DriveId> places;
  std::vector<std::optional<ShardDescriptor>> shards;  // that hold data
};

Result<Block> Locate(StripeContext& context, const StripePart& part) {
  if (part.length != part.layout.data_shards * uint64_t{part.layout.ShardBytesOf(part.length)}) {
    return Fail(EINVAL, "{}: it does not fill its shards", DescribeStripe(part.id));
  }
  Block block;
  block.places = TRY(LocateShards(context, part.id, part.layout, part.place));
  block.shards.resize(part.layout.data_shards);
  return block;
}

Result<BlockSums> Combine(const StripePart& part, const Block& block) {
  if (!block.status.ok()) return Failed(block.status.Context(DescribeStripe(part.id)));
  const uint32_t shard_bytes = part.layout.ShardBytesOf(part.length);
  BlockSums sums;
  for (const auto& shard : block.shards) {
    sums.adler32 = Adler32Combine(sums.adler32, shard->adler32, shard_bytes);
    sums.crc32c = Crc32cCombine(sums.crc32c, ShardSum(*shard, shard_bytes), shard_bytes);
  }
  return sums;
}

}  // namespace

std::vector<Result<BlockSums>> SumUpStripes(StripeContext& context,
                                            std::span<const StripePart> parts) {
  struct Question {
    size_t block = 0;
    int shard = 0;
  };
  std::vector<Question> questions;
  std::vector<Block> blocks;
  Gather<Result<RecordHead>> gather(context.runtime);
  const Time deadline = context.runtime.Now() + context.options.drive_timeout;
  for (const StripePart& part : parts) {
    auto located = Locate(context, part);
    blocks.push_back(located.has_value() ? *std::move(located) : Block{located.error(), {}, {}});
    for (size_t shard = 0; shard < blocks.back().shards.size(); ++shard) {
      Drive* drive = context.drives.FindDrive(blocks.back().places[shard]);
      if (drive == nullptr) {
        blocks.back().status =
            Fail(EHOSTUNREACH, "drive {} is not known", blocks.back().places[shard]);
        continue;
      }
      questions.push_back({blocks.size() - 1, static_cast<int>(shard)});
      drive->Head(ShardKey(context.options.prefix, part.id, static_cast<int>(shard)), deadline,
                  gather.Ask(questions.size() - 1));
    }
  }
  while (auto answer = gather.Next(Time::max(), questions.size(), deadline)) {
    const auto [index, shard] = questions[answer->index];
    const auto read = [&, shard = shard, index = index]() -> Result<ShardDescriptor> {
      const RecordHead head = TRY(std::move(answer->value));
      const StripePart& part = parts[index];
      return CheckHead(context.Known(part.id, part.layout, part.length), shard, head.version,
                       head.tag);
    };
    const Result<ShardDescriptor> descriptor = read();
    if (descriptor.has_value()) {
      blocks[index].shards[static_cast<size_t>(shard)] = *descriptor;
    } else {
      blocks[index].status = descriptor.error();
    }
  }
  std::vector<Result<BlockSums>> sums;
  for (size_t i = 0; i < blocks.size(); ++i) sums.push_back(Combine(parts[i], blocks[i]));
  return sums;
}

}  // namespace pinstripe
