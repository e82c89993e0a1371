#include "cluster/stripes/shard.h"

#include <algorithm>
#include <bit>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kUnnamedFormat = 1;
constexpr uint8_t kUnnamedCopyFormat = 2;  // of a later copy
constexpr uint8_t kFormat = 3;
constexpr size_t kSumBytes = 4;  // at the end of a descriptor
constexpr uint32_t kShardStep = 64;
constexpr uint32_t kMaxCells = kMaxShardBytes / kCellBytes;

// How many bytes of shard `shard` belong to the block or parity: the rest are zeros added.
uint64_t MeantBytes(const StripeLayout& layout, uint64_t length, int shard) {
  const uint64_t size = layout.ShardBytesOf(length);
  if (shard >= layout.data_shards) return size;
  const uint64_t begin = size * static_cast<uint64_t>(shard);
  return length > begin ? std::min(length - begin, size) : 0;
}

}  // namespace

uint32_t StripeLayout::ShardBytesOf(uint64_t length) const {
  const uint64_t share = (length + data_shards - 1) / data_shards;
  return static_cast<uint32_t>((share + kShardStep - 1) / kShardStep * kShardStep);
}

Status StripeLayout::Check() const {
  if (data_shards < 1 || geometry().shards() > kMaxShards) {
    return Fail(EINVAL,
                "{} data and {} parity shards: at least one must hold data, and {} in all are "
                "possible",
                data_shards, parity_shards, kMaxShards);
  }
  if (shard_bytes == 0 || shard_bytes % kCellBytes != 0 || shard_bytes > kMaxShardBytes) {
    return Fail(EINVAL, "a shard size of {} bytes: it must be a multiple of {} up to {}",
                shard_bytes, kCellBytes, kMaxShardBytes);
  }
  return {};
}

std::string ShardKey(std::string_view prefix, const StripeId& id, int shard) {
  return Writer()
      .Raw(prefix)
      .Raw("D")
      .U64(id.object)
      .U64(id.block)
      .Raw(std::as_bytes(std::span(id.write)))
      .U8(static_cast<uint8_t>(shard))
      .Take();
}

std::optional<std::pair<StripeId, uint8_t>> ParseShardKey(std::string_view prefix,
                                                          std::string_view key) {
  if (!key.starts_with(prefix)) return std::nullopt;
  Reader reader(key.substr(prefix.size()));
  const bool is_shard = reader.Raw(1) == "D";
  StripeId id;
  id.object = reader.U64();
  id.block = reader.U64();
  const std::string_view write = reader.Raw(id.write.size());
  std::copy(write.begin(), write.end(), id.write.begin());
  const uint8_t shard = reader.U8();
  if (!is_shard || !reader.Finish("key of a shard").ok()) return std::nullopt;
  return std::pair(id, shard);
}

std::string DescribeStripe(const StripeId& id) {
  return fmt::format("block {} of object {:016x}", id.block, id.object);
}

std::string DescribeShardName(const StripeId& id, int shard) {
  return fmt::format("shard {} of {}, write {}", shard, DescribeStripe(id),
                     Hex(std::as_bytes(std::span(id.write))));
}

std::string RecordTag(uint32_t crc32c) { return Writer().U32(crc32c).Take(); }

std::string ShardDescriptor::Encode() const {
  Writer out;
  out.U8(id ? kFormat : copy == 0 ? kUnnamedFormat : kUnnamedCopyFormat);
  out.U8(data_shards).U8(parity_shards).U8(shard).U32(block_length).U32(adler32);
  if (id || copy != 0) out.U32(copy);
  if (id) out.U64(id->object).U64(id->block).Raw(std::as_bytes(std::span(id->write)));
  for (uint32_t sum : cell_sums) out.U32(sum);
  if (id) out.U32(Crc32c(AsBytes(out.bytes())));
  return out.Take();
}

Result<ShardDescriptor> ShardDescriptor::Decode(std::string_view bytes) {
  if (!bytes.empty() && bytes.front() == kFormat && bytes.size() > kSumBytes) {
    const std::string_view sum = bytes.substr(bytes.size() - kSumBytes);
    bytes.remove_suffix(kSumBytes);
    if (sum != Writer().U32(Crc32c(AsBytes(bytes))).bytes()) {
      return Fail(EBADMSG, "shard descriptor: its checksum does not match");
    }
  }
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kUnnamedFormat && format != kUnnamedCopyFormat && format != kFormat) {
    return Fail(EBADMSG, "shard descriptor: format {} is not known here", format);
  }
  ShardDescriptor descriptor;
  descriptor.data_shards = in.U8();
  descriptor.parity_shards = in.U8();
  descriptor.shard = in.U8();
  descriptor.block_length = in.U32();
  descriptor.adler32 = in.U32();
  if (format != kUnnamedFormat) descriptor.copy = in.U32();
  if (in.ok() && format == kUnnamedCopyFormat && descriptor.copy == 0) {
    return Fail(EBADMSG, "shard descriptor: a later copy without its number");
  }
  if (format == kFormat) {
    StripeId& id = descriptor.id.emplace();
    id.object = in.U64();
    id.block = in.U64();
    const std::string_view write = in.Raw(id.write.size());
    std::copy(write.begin(), write.end(), id.write.begin());
  }
  while (in.ok() && in.left() > 0 && descriptor.cell_sums.size() <= kMaxCells) {
    descriptor.cell_sums.push_back(in.U32());
  }
  TRY(in.Finish("shard descriptor"));
  return descriptor;
}

ShardDescriptor DescribeShard(const KnownStripe& stripe, int shard, Bytes bytes) {
  ShardDescriptor descriptor;
  descriptor.data_shards = stripe.layout.data_shards;
  descriptor.parity_shards = stripe.layout.parity_shards;
  descriptor.shard = static_cast<uint8_t>(shard);
  descriptor.block_length = static_cast<uint32_t>(stripe.length);
  descriptor.id = stripe.id;
  descriptor.adler32 = Adler32(bytes.first(MeantBytes(stripe.layout, stripe.length, shard)));
  const auto size = static_cast<uint32_t>(bytes.size());
  for (uint32_t cell = 0; cell < CellCount(size); ++cell) {
    descriptor.cell_sums.push_back(
        Crc32c(bytes.subspan(size_t{cell} * kCellBytes, CellSize(size, cell))));
  }
  return descriptor;
}

uint32_t ShardSum(const ShardDescriptor& descriptor, uint32_t shard_bytes) {
  uint32_t sum = 0;
  for (uint32_t cell = 0; cell < descriptor.cell_sums.size(); ++cell) {
    sum = Crc32cCombine(sum, descriptor.cell_sums[cell], CellSize(shard_bytes, cell));
  }
  return sum;
}

Status CheckName(const ShardDescriptor& descriptor, const KnownStripe& stripe, int shard) {
  if (!stripe.check_name) return {};
  if (!descriptor.id) {
    // The stripe is from before there were names: nobody can tell.
    if (!IsNamedInShards(stripe.id.write)) return {};
    return Fail(EBADMSG, "it does not say whose shard it is, as all of {} do",
                DescribeStripe(stripe.id));
  }
  if (*descriptor.id == stripe.id && descriptor.shard == shard) return {};
  return Fail(EBADMSG, "it is {}, and not {}", DescribeShardName(*descriptor.id, descriptor.shard),
              DescribeShardName(stripe.id, shard));
}

Status CheckDescriptor(const ShardDescriptor& descriptor, const KnownStripe& stripe, int shard) {
  const StripeLayout& layout = stripe.layout;
  TRY(CheckName(descriptor, stripe, shard));
  const auto differs = [](std::string_view what, uint64_t is, uint64_t should) {
    return Fail(EBADMSG, "the shard describes itself as another one: {} {} instead of {}", what, is,
                should);
  };
  if (descriptor.data_shards != layout.data_shards) {
    return differs("data shards", descriptor.data_shards, layout.data_shards);
  }
  if (descriptor.parity_shards != layout.parity_shards) {
    return differs("parity shards", descriptor.parity_shards, layout.parity_shards);
  }
  if (descriptor.shard != shard) {
    return differs("index", descriptor.shard, static_cast<uint64_t>(shard));
  }
  if (descriptor.block_length != stripe.length) {
    return differs("block length", descriptor.block_length, stripe.length);
  }
  const uint32_t cells = CellCount(layout.ShardBytesOf(stripe.length));
  if (descriptor.cell_sums.size() != cells) {
    return differs("cells", descriptor.cell_sums.size(), cells);
  }
  return {};
}

Result<ShardDescriptor> CheckHead(const KnownStripe& stripe, int shard, std::string_view version,
                                  std::string_view tag) {
  ShardDescriptor descriptor = TRY(ShardDescriptor::Decode(version));
  TRY(CheckDescriptor(descriptor, stripe, shard));
  const uint32_t shard_bytes = stripe.layout.ShardBytesOf(stripe.length);
  if (tag == RecordTag(ShardSum(descriptor, shard_bytes))) return descriptor;
  return Fail(EBADMSG, "its tag is not the checksum of its cells");
}

uint32_t CellCount(uint32_t shard_bytes) { return (shard_bytes + kCellBytes - 1) / kCellBytes; }

uint32_t CellSize(uint32_t shard_bytes, uint32_t cell) {
  return std::min(kCellBytes, shard_bytes - cell * kCellBytes);
}

uint32_t RangeBytes(uint32_t shard_bytes, const CellRange& range) {
  return std::min((range.last + 1) * kCellBytes, shard_bytes) - range.first * kCellBytes;
}

Status CheckCells(const KnownStripe& stripe, const CellRange& range, const Record& record,
                  std::vector<bool>& good) {
  const ShardDescriptor descriptor = TRY(ShardDescriptor::Decode(record.version));
  TRY(CheckDescriptor(descriptor, stripe, range.shard));
  const uint32_t shard_bytes = stripe.layout.ShardBytesOf(stripe.length);
  const uint32_t expected = RangeBytes(shard_bytes, range);
  if (record.value.size() != expected) {
    return Fail(EBADMSG, "the value has {} bytes instead of {}", record.value.size(), expected);
  }
  Status status;
  for (uint32_t cell = range.first; cell <= range.last; ++cell) {
    const Bytes bytes = record.value.bytes().subspan(size_t{cell - range.first} * kCellBytes,
                                                     CellSize(shard_bytes, cell));
    if (Crc32c(bytes) == descriptor.cell_sums[cell]) {
      good[cell - range.first] = true;
    } else {
      status = Fail(EBADMSG, "the checksum of cell {} does not match", cell);
    }
  }
  return status;
}

std::vector<CellRange> CellsOf(const StripeLayout& layout, uint64_t length, uint64_t offset,
                               uint64_t size) {
  std::vector<CellRange> ranges;
  const uint64_t shard_bytes = layout.ShardBytesOf(length);
  const uint64_t end = offset + size;
  while (offset < end) {
    const uint64_t shard = offset / shard_bytes;
    const uint64_t shard_end = std::min(end, (shard + 1) * shard_bytes);
    const uint64_t base = shard * shard_bytes;
    ranges.push_back({static_cast<int>(shard), static_cast<uint32_t>((offset - base) / kCellBytes),
                      static_cast<uint32_t>((shard_end - 1 - base) / kCellBytes)});
    offset = shard_end;
  }
  return ranges;
}

}  // namespace pinstripe
