#include "fs/files/layout.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>

#include "base/config.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::string_view kSeparators = " ,\t\n";

std::string_view TakeWord(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kSeparators));
  text.remove_prefix(word.size());
  return word;
}

std::optional<uint32_t> ParseBytes(std::string_view text) {
  const auto bytes = ParseByteCount(text);
  if (!bytes || *bytes > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*bytes);
}

std::string BytesOf(uint32_t bytes) {
  if (bytes > 0 && bytes % (1 << 20) == 0) return fmt::format("{}MiB", bytes >> 20);
  if (bytes > 0 && bytes % (1 << 10) == 0) return fmt::format("{}KiB", bytes >> 10);
  return fmt::format("{}", bytes);
}

Status ReadPart(std::string_view word, FileLayout& layout, std::set<std::string_view>& seen) {
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = equals == word.npos ? std::string_view() : word.substr(equals + 1);
  if (!seen.insert(key).second) return Fail(EINVAL, "layout: {} is there twice", key);
  if (key == "copies") {
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), layout.copies);
    if (error == std::errc() && end == value.data() + value.size() && layout.copies > 0) return {};
    return Fail(EINVAL, "layout: \"{}\": copies must be a number from 1 to 255", word);
  }
  uint32_t* bytes = key == "shard"       ? &layout.striped.shard_bytes
                    : key == "inline"    ? &layout.inline_limit
                    : key == "replicate" ? &layout.replicate_limit
                                         : nullptr;
  if (bytes == nullptr) {
    return Fail(EINVAL,
                "layout: \"{}\" is none of shard=BYTES, copies=N, inline=BYTES, replicate=BYTES",
                word);
  }
  const auto count = ParseBytes(value);
  if (!count) return Fail(EINVAL, "layout: \"{}\": not a number of bytes, such as 64KiB", word);
  *bytes = *count;
  return {};
}

}  // namespace

FileLayout FileLayout::Default(const ClusterConfig& config) {
  return {.striped = config.layout,
          .copies = static_cast<uint8_t>(config.layout.parity_shards + 1),
          .inline_limit = config.inline_limit,
          .replicate_limit = config.replicate_limit};
}

Result<FileLayout> FileLayout::Parse(std::string_view text, const ClusterConfig& config) {
  const Geometry geometry = TRY(ParseGeometry(TakeWord(text)));
  FileLayout layout = Default(config);
  if (geometry.data_shards != config.layout.data_shards) {
    layout.striped.shard_bytes = DefaultShardBytes(geometry.data_shards);
  }
  layout.striped.data_shards = static_cast<uint8_t>(geometry.data_shards);
  layout.striped.parity_shards = static_cast<uint8_t>(geometry.parity_shards);
  layout.copies = static_cast<uint8_t>(geometry.parity_shards + 1);
  std::set<std::string_view> seen;
  for (auto word = TakeWord(text); !word.empty(); word = TakeWord(text)) {
    TRY(ReadPart(word, layout, seen));
  }
  TRY(layout.Check());
  TRY(layout.CheckDrives(config.drives.size()));
  return layout;
}

std::string FileLayout::Text() const {
  return fmt::format("{}+{} shard={} copies={} inline={} replicate={}", striped.data_shards,
                     striped.parity_shards, BytesOf(striped.shard_bytes), copies,
                     BytesOf(inline_limit), BytesOf(replicate_limit));
}

Status FileLayout::Check() const {
  TRY(striped.Check());
  if (copies < 1 || copies > kMaxShards) {
    return Fail(EINVAL, "layout: {} copies: there must be 1 to {}", copies, kMaxShards);
  }
  if (inline_limit > kMaxInlineBytes) {
    return Fail(EINVAL, "layout: inline is {} bytes, but an inode has room for {}", inline_limit,
                kMaxInlineBytes);
  }
  if (replicate_limit > kMaxShardBytes) {
    return Fail(EINVAL, "layout: replicate is {} bytes, but a copy is one record of at most {}",
                replicate_limit, kMaxShardBytes);
  }
  return {};
}

Status FileLayout::CheckDrives(size_t drives) const {
  const size_t needed = std::max<size_t>(striped.geometry().shards(), copies);
  if (needed <= drives) return {};
  return Fail(EINVAL, "layout {}+{} with {} copies needs {} drives; the cluster has {}",
              striped.data_shards, striped.parity_shards, copies, needed, drives);
}

StripeLayout FileLayout::small() const {
  const uint64_t cells =
      std::max<uint64_t>((uint64_t{replicate_limit} + kCellBytes - 1) / kCellBytes, 1);
  const uint64_t most = std::min<uint64_t>(kMaxShardBytes, striped.block_bytes());
  return {.data_shards = 1,
          .parity_shards = static_cast<uint8_t>(copies - 1),
          .shard_bytes = static_cast<uint32_t>(std::min(cells * kCellBytes, most))};
}

std::optional<StripeLayout> FileLayout::beside(const Geometry& geometry) const {
  const auto [data, parity] = geometry;
  if (parity < striped.parity_shards || parity + 1 < copies) return std::nullopt;
  return StripeLayout{.data_shards = static_cast<uint8_t>(data),
                      .parity_shards = static_cast<uint8_t>(parity),
                      .shard_bytes = kCellBytes};
}

uint32_t FileLayout::SmallLimit() const {
  return static_cast<uint32_t>(std::min<uint64_t>(replicate_limit, small().block_bytes()));
}

void FileLayout::Encode(Writer& writer) const {
  writer.U8(striped.data_shards).U8(striped.parity_shards).U32(striped.shard_bytes);
  writer.U8(copies).U32(inline_limit).U32(replicate_limit);
}

Result<FileLayout> FileLayout::Decode(std::string_view bytes) {
  Reader reader(bytes);
  FileLayout layout;
  layout.striped.data_shards = reader.U8();
  layout.striped.parity_shards = reader.U8();
  layout.striped.shard_bytes = reader.U32();
  layout.copies = reader.U8();
  layout.inline_limit = reader.U32();
  layout.replicate_limit = reader.U32();
  TRY(reader.Finish("layout"));
  if (const Status status = layout.Check(); !status.ok()) {
    return Fail(EBADMSG, "{}", status.message());
  }
  return layout;
}

}  // namespace pinstripe
