#include "cluster/stripes/shard.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kFormat = 4;
constexpr size_t kSumBytes = 4;
constexpr size_t kHeadBytes = 52;  // up to the sums of pages, with a sum of its own
constexpr uint32_t kShardStep = 64;
constexpr uint32_t kMaxPages = kMaxShardBytes / kShardPageBytes;

// The sum of a page as a descriptor keeps it, and back: bound to the shard and to the page's place
// in it. So the sum of another page does not pass for it, whoever mixes them up.
uint32_t BoundSum(uint32_t sum, uint32_t head_sum, uint32_t page) { return sum ^ head_sum ^ page; }

// Whether it may be a descriptor, of which at least so many bytes are there.
Status CheckFormat(std::string_view bytes, size_t least) {
  if (!bytes.empty() && bytes.front() != kFormat) {
    return Fail(EBADMSG, "shard descriptor: format {} is not known here, only {} is",
                static_cast<uint8_t>(bytes.front()), kFormat);
  }
  if (bytes.size() >= least) return {};
  return Fail(EBADMSG, "shard descriptor: it ends after {} bytes", bytes.size());
}

Status Differs(std::string_view what, uint64_t is, uint64_t should) {
  return Fail(EBADMSG, "the shard describes itself as another one: {} {} instead of {}", what, is,
              should);
}

// Whether it belongs to this shard, as far as its head says.
Status CheckHeadOf(const ShardDescriptor& descriptor, const KnownStripe& stripe, int shard) {
  const StripeLayout& layout = stripe.layout;
  TRY(CheckName(descriptor, stripe, shard));
  if (descriptor.data_shards != layout.data_shards) {
    return Differs("data shards", descriptor.data_shards, layout.data_shards);
  }
  if (descriptor.parity_shards != layout.parity_shards) {
    return Differs("parity shards", descriptor.parity_shards, layout.parity_shards);
  }
  if (descriptor.shard != shard) {
    return Differs("index", descriptor.shard, static_cast<uint64_t>(shard));
  }
  if (descriptor.block_length != stripe.length) {
    return Differs("block length", descriptor.block_length, stripe.length);
  }
  return {};
}

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
  for (const int bit : {63, 62}) {
    if (id.block < uint64_t{1} << bit) continue;
    return fmt::format("block 2^{} + {} of object {:016x}", bit, id.block - (uint64_t{1} << bit),
                       id.object);
  }
  return fmt::format("block {} of object {:016x}", id.block, id.object);
}

std::string DescribeShardName(const StripeId& id, int shard) {
  return fmt::format("shard {} of {}, write {}", shard, DescribeStripe(id),
                     Hex(std::as_bytes(std::span(id.write))));
}

std::string RecordTag(uint32_t crc32c) { return Writer().U32(crc32c).Take(); }

std::string ShardDescriptor::Encode() const {
  Writer out;
  out.U8(kFormat).U8(data_shards).U8(parity_shards).U8(shard).U32(block_length).U32(adler32);
  out.U32(copy).U64(id.object).U64(id.block).Raw(std::as_bytes(std::span(id.write)));
  const uint32_t head_sum = Crc32c(AsBytes(out.bytes()));
  out.U32(head_sum);
  for (uint32_t page = 0; page < page_sums.size(); ++page) {
    out.U32(BoundSum(page_sums[page], head_sum, page));
  }
  out.U32(Crc32c(AsBytes(out.bytes())));
  return out.Take();
}

Result<ShardDescriptor> ShardDescriptor::Decode(std::string_view bytes) {
  TRY(CheckFormat(bytes, kHeadBytes + kSumBytes));
  const std::string_view summed = bytes.substr(0, bytes.size() - kSumBytes);
  if (Reader(bytes.substr(summed.size())).U32() != Crc32c(AsBytes(summed))) {
    return Fail(EBADMSG, "shard descriptor: its checksum does not match");
  }
  return DecodePart(summed, 0);
}

Result<ShardDescriptor> ShardDescriptor::DecodePart(std::string_view bytes, uint32_t first) {
  TRY(CheckFormat(bytes, kHeadBytes));
  Reader in(bytes);
  ShardDescriptor descriptor;
  in.U8();
  descriptor.data_shards = in.U8();
  descriptor.parity_shards = in.U8();
  descriptor.shard = in.U8();
  descriptor.block_length = in.U32();
  descriptor.adler32 = in.U32();
  descriptor.copy = in.U32();
  descriptor.id.object = in.U64();
  descriptor.id.block = in.U64();
  const std::string_view write = in.Raw(descriptor.id.write.size());
  std::copy(write.begin(), write.end(), descriptor.id.write.begin());
  const uint32_t head_sum = in.U32();
  if (head_sum != Crc32c(AsBytes(bytes.substr(0, kHeadBytes - kSumBytes)))) {
    return Fail(EBADMSG, "shard descriptor: the checksum of its head does not match");
  }
  descriptor.page_sums.reserve(in.left() / kSumBytes);
  for (uint32_t page = first; in.ok() && in.left() > 0 && page < kMaxPages; ++page) {
    descriptor.page_sums.push_back(BoundSum(in.U32(), head_sum, page));
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
  descriptor.page_sums.reserve(PageCount(size));
  for (uint32_t page = 0; page < PageCount(size); ++page) {
    descriptor.page_sums.push_back(
        Crc32c(bytes.subspan(size_t{page} * kShardPageBytes, PageSize(size, page))));
  }
  return descriptor;
}

uint32_t ShardSum(const ShardDescriptor& descriptor, uint32_t shard_bytes) {
  static const Crc32cJoiner joiner(kShardPageBytes);
  uint32_t sum = 0;
  for (uint32_t page = 0; page < descriptor.page_sums.size(); ++page) {
    const uint32_t size = PageSize(shard_bytes, page);
    sum = size == kShardPageBytes ? joiner.Join(sum, descriptor.page_sums[page])
                                  : Crc32cCombine(sum, descriptor.page_sums[page], size);
  }
  return sum;
}

Status CheckName(const ShardDescriptor& descriptor, const KnownStripe& stripe, int shard) {
  if (!stripe.check_name) return {};
  if (descriptor.id == stripe.id && descriptor.shard == shard) return {};
  return Fail(EBADMSG, "it is {}, and not {}", DescribeShardName(descriptor.id, descriptor.shard),
              DescribeShardName(stripe.id, shard));
}

Status CheckDescriptor(const ShardDescriptor& descriptor, const KnownStripe& stripe, int shard) {
  TRY(CheckHeadOf(descriptor, stripe, shard));
  const uint32_t pages = PageCount(stripe.layout.ShardBytesOf(stripe.length));
  if (descriptor.page_sums.size() == pages) return {};
  return Differs("pages", descriptor.page_sums.size(), pages);
}

Result<ShardDescriptor> CheckHead(const KnownStripe& stripe, int shard, std::string_view version,
                                  std::string_view tag) {
  ShardDescriptor descriptor = TRY(ShardDescriptor::Decode(version));
  TRY(CheckDescriptor(descriptor, stripe, shard));
  const uint32_t shard_bytes = stripe.layout.ShardBytesOf(stripe.length);
  if (tag == RecordTag(ShardSum(descriptor, shard_bytes))) return descriptor;
  return Fail(EBADMSG, "its tag is not the checksum of its pages");
}

uint32_t PageCount(uint32_t shard_bytes) {
  return (shard_bytes + kShardPageBytes - 1) / kShardPageBytes;
}

uint32_t PageSize(uint32_t shard_bytes, uint32_t page) {
  return std::min(kShardPageBytes, shard_bytes - page * kShardPageBytes);
}

uint32_t RangeBytes(uint32_t shard_bytes, const PageRange& range) {
  return std::min((range.last + 1) * kShardPageBytes, shard_bytes) - range.first * kShardPageBytes;
}

PageRange AllPages(int shard, uint32_t shard_bytes) {
  return {shard, 0, PageCount(shard_bytes) - 1};
}

VersionPart DescriptorPartFor(const PageRange& range, uint32_t shard_bytes) {
  if (range == AllPages(range.shard, shard_bytes)) return {};
  return {.head = kHeadBytes,
          .offset = static_cast<uint32_t>(kHeadBytes + kSumBytes * range.first),
          .length = static_cast<uint32_t>(kSumBytes * (range.last - range.first + 1))};
}

Status CheckPages(const KnownStripe& stripe, const PageRange& range, const Record& record,
                  std::vector<bool>& good, std::vector<uint32_t>* sums) {
  const uint32_t shard_bytes = stripe.layout.ShardBytesOf(stripe.length);
  const bool whole = DescriptorPartFor(range, shard_bytes).whole();
  ShardDescriptor descriptor =
      TRY(whole ? ShardDescriptor::Decode(record.version)
                : ShardDescriptor::DecodePart(record.version, range.first));
  TRY(CheckHeadOf(descriptor, stripe, range.shard));
  const uint32_t pages = range.last - range.first + 1;
  if (descriptor.page_sums.size() != pages) {
    return Differs("pages", descriptor.page_sums.size(), pages);
  }
  const uint32_t expected = RangeBytes(shard_bytes, range);
  if (record.value.size() != expected) {
    return Fail(EBADMSG, "the value has {} bytes instead of {}", record.value.size(), expected);
  }
  Status status;
  for (uint32_t page = range.first; page <= range.last; ++page) {
    const size_t at = size_t{page - range.first} * kShardPageBytes;
    const Bytes bytes = record.value.bytes().subspan(at, PageSize(shard_bytes, page));
    good[page - range.first] = Crc32c(bytes) == descriptor.page_sums[page - range.first];
    if (good[page - range.first]) continue;
    status = Fail(EBADMSG, "the checksum of page {} does not match", page);
  }
  if (sums != nullptr) *sums = std::move(descriptor.page_sums);
  return status;
}

std::vector<PageRange> PagesOf(const StripeLayout& layout, uint64_t length, uint64_t offset,
                               uint64_t size) {
  std::vector<PageRange> ranges;
  const uint64_t shard_bytes = layout.ShardBytesOf(length);
  const uint64_t end = offset + size;
  while (offset < end) {
    const uint64_t shard = offset / shard_bytes;
    const uint64_t shard_end = std::min(end, (shard + 1) * shard_bytes);
    const uint64_t base = shard * shard_bytes;
    ranges.push_back({static_cast<int>(shard),
                      static_cast<uint32_t>((offset - base) / kShardPageBytes),
                      static_cast<uint32_t>((shard_end - 1 - base) / kShardPageBytes)});
    offset = shard_end;
  }
  return ranges;
}

std::vector<PageRange> CellsOf(const StripeLayout& layout, uint64_t length, uint64_t offset,
                               uint64_t size) {
  std::vector<PageRange> ranges = PagesOf(layout, length, offset, size);
  const uint32_t last = PageCount(layout.ShardBytesOf(length)) - 1;
  for (PageRange& range : ranges) {
    range.first -= range.first % kCellPages;
    range.last = std::min(last, range.last - range.last % kCellPages + kCellPages - 1);
  }
  return ranges;
}

}  // namespace pinstripe
