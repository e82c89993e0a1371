// Shard: what one drive holds of a stripe, as bytes. Its key, the descriptor in its version, and
// the arithmetic of pages and cells. Pure functions; docs/format.md, "Shards", has the bytes.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

std::string ShardKey(std::string_view prefix, const StripeId& id, int shard);
// Null: no key of a shard.
std::optional<std::pair<StripeId, uint8_t>> ParseShardKey(std::string_view prefix,
                                                          std::string_view key);

// "block 3 of object 00000000000000ab", for messages. Numbers that are of no block of contents are
// written as docs/format.md does: "block 2^62 + 3".
std::string DescribeStripe(const StripeId& id);

// The tag of every record: U32(CRC32C(value)).
std::string RecordTag(uint32_t crc32c);

// "shard 2 of block 3 of object 00000000000000ab, write a0a1a2a3a4a5a6a7a8a9aaabacadaeaf".
std::string DescribeShardName(const StripeId& id, int shard);

// A stripe as those know it who want something of it. Its shards must say the same of themselves.
struct KnownStripe {
  StripeId id;
  StripeLayout layout;
  uint64_t length = 0;     // of the block as it was written
  bool check_name = true;  // see StripeStore::Options
};

struct ShardDescriptor {
  uint8_t data_shards = 0;
  uint8_t parity_shards = 0;
  uint8_t shard = 0;
  uint32_t block_length = 0;
  uint32_t adler32 = 1;
  std::vector<uint32_t> page_sums;  // CRC32C of each page
  // A copy that a repair wrote later than the stripe has a random number here, so that no request
  // to remove an earlier copy from the same drive, however late, removes this one. 0: the first.
  uint32_t copy = 0;
  StripeId id;  // whose it is

  std::string Encode() const;
  static Result<ShardDescriptor> Decode(std::string_view bytes);  // EBADMSG
  // The head, and the sums of pages from `first` on.
  static Result<ShardDescriptor> DecodePart(std::string_view bytes, uint32_t first);
  friend bool operator==(const ShardDescriptor&, const ShardDescriptor&) = default;
};

// Sums up the bytes of shard `shard`.
ShardDescriptor DescribeShard(const KnownStripe& stripe, int shard, Bytes bytes);

// The sum of the whole shard, out of those of its pages.
uint32_t ShardSum(const ShardDescriptor& descriptor, uint32_t shard_bytes);

// Whether `descriptor` is this shard's, by its name alone. EBADMSG.
Status CheckName(const ShardDescriptor& descriptor, const KnownStripe& stripe, int shard);
// Whether it belongs to this shard, in whichever copy. EBADMSG says what differs.
Status CheckDescriptor(const ShardDescriptor& descriptor, const KnownStripe& stripe, int shard);

// The descriptor of a shard of which only version and tag are known, when both belong to it:
// EBADMSG.
Result<ShardDescriptor> CheckHead(const KnownStripe& stripe, int shard, std::string_view version,
                                  std::string_view tag);

inline constexpr uint32_t kCellPages = kCellBytes / kShardPageBytes;

// Pages first..last of one shard, both included.
struct PageRange {
  int shard = 0;
  uint32_t first = 0;
  uint32_t last = 0;
  friend bool operator==(const PageRange&, const PageRange&) = default;
};

uint32_t PageCount(uint32_t shard_bytes);
// The last page ends where the shard ends.
uint32_t PageSize(uint32_t shard_bytes, uint32_t page);
uint32_t RangeBytes(uint32_t shard_bytes, const PageRange& range);
PageRange AllPages(int shard, uint32_t shard_bytes);

// The part of a descriptor that is asked for with these pages: its head, and their sums. All of it
// with the whole shard.
VersionPart DescriptorPartFor(const PageRange& range, uint32_t shard_bytes);

// Marks in `good` which pages of `range` are as they were written, in the record that was got for
// them, with this part of its descriptor. EBADMSG: not all of them. `sums` gets what the descriptor
// has of these pages, if any of them is good.
Status CheckPages(const KnownStripe& stripe, const PageRange& range, const Record& record,
                  std::vector<bool>& good, std::vector<uint32_t>* sums = nullptr);

// The pages of data shards that hold bytes [offset, offset + size) of a block, by ascending shard.
std::vector<PageRange> PagesOf(const StripeLayout& layout, uint64_t length, uint64_t offset,
                               uint64_t size);
// The cells that they are in.
std::vector<PageRange> CellsOf(const StripeLayout& layout, uint64_t length, uint64_t offset,
                               uint64_t size);

}  // namespace pinstripe
