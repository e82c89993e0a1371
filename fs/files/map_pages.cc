#include "fs/files/map_pages.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/try.h"
#include "fs/files/beside_number.h"

namespace pinstripe {
namespace {

constexpr size_t kPagesAtOnce = 16;  // on their way to the drives

}  // namespace

Result<std::shared_ptr<const BlockMap::Stretch>> LoadPage(StripeStore& stripes, InodeId inode,
                                                          uint64_t size, const StripeLayout& layout,
                                                          const BlockMap::Part& part) {
  const BlockPlace& page = *part.stretch->page;
  Buffer bytes(page.stored);
  const Status read = stripes.Read({.id = part.PageId(),
                                    .layout = page.layout,
                                    .length = page.stored,
                                    .place = &page.place,
                                    .offset = 0,
                                    .out = bytes.mutable_bytes()});
  if (!read.ok()) {
    return Fail(read.code(), "page of the block map from block {} on: {}", part.first,
                read.message());
  }
  return BlockMap(layout).DecodePage(part, AsText(bytes), inode, size);
}

Status LoadPages(StripeStore& stripes, InodeId id, Inode& inode, uint64_t first, uint64_t end) {
  if (!inode.map) return {};
  while (const auto part = inode.map->FirstMissing(first, end)) {
    inode.map->Install(*part, TRY(LoadPage(stripes, id, inode.size, inode.map->layout(), *part)));
  }
  return {};
}

Result<std::optional<BlockPlace>> FindStripe(StripeStore& stripes, InodeId id, Inode& inode,
                                             uint64_t block) {
  if (!inode.map) return std::optional<BlockPlace>();
  if (const auto page = PageNumber::From(block)) return inode.map->FindPage(*page);
  const uint64_t in_file = BlockOfNumber(block);
  TRY(LoadPages(stripes, id, inode, in_file, in_file + 1));
  return inode.map->Find(in_file);
}

Status ReadBlock(StripeStore& stripes, const BlockPlace& place, uint64_t block, MutableBytes out) {
  for (const auto& zeros : ZerosOf(place, 0, out.size())) {
    ZeroBytes(out.subspan(zeros.first, zeros.end - zeros.first));
  }
  const std::vector<BlockPart> parts = PartsOf(place, 0, out.size());
  std::vector<StripeReadRequest> requests;
  for (const BlockPart& part : parts) {
    requests.push_back({.id = part.stripe.IdOf(block),
                        .layout = part.stripe.layout,
                        .length = part.stripe.stored,
                        .place = &part.stripe.place,
                        .offset = part.offset,
                        .out = out.subspan(part.first, part.size)});
  }
  return stripes.ReadMany(requests);
}

Status StorePages(StripeStore& stripes, InodeId id, Inode& inode, const MapLimits& limits,
                  int parity_shards, Durability durability,
                  const std::function<WriteId(uint64_t block)>& write_id,
                  std::vector<BlockMap::Piece>& written) {
  BlockMap& map = *inode.map;
  auto firsts = map.Settle(limits);
  if (!firsts) {
    TRY(LoadPages(stripes, id, inode, 0, map.blocks()));
    firsts = map.Settle(limits);
  }
  struct Page {
    uint64_t first = 0;
    BlockPlace place;
    std::unique_ptr<StripeStore::PendingWrite> pending;
  };
  for (size_t done = 0; done < firsts->size(); done += kPagesAtOnce) {
    std::vector<Page> pages;
    for (size_t i = done; i < std::min(done + kPagesAtOnce, firsts->size()); ++i) {
      const BlockMap::Part& part = *map.PartOf((*firsts)[i]);
      const std::string bytes = map.EncodePage(part, id);
      if (bytes.size() > kMaxPageBytes) {
        return Fail(EFBIG, "inode {:016x}: a page of its block map would have {} bytes", id,
                    bytes.size());
      }
      Page page;
      page.first = part.first;
      page.place.object = id;
      page.place.write = write_id(PageNumber(part.first).number());
      page.place.layout = CopiesOf(bytes.size(), parity_shards);
      page.place.stored = page.place.valid = static_cast<uint32_t>(bytes.size());
      const auto buffer = std::make_shared<StripeBuffer>(page.place.layout);
      CopyBytes(buffer->data().first(bytes.size()), AsBytes(bytes));
      page.pending = stripes.StartWrite(page.place.IdOf(PageNumber(part.first).number()), buffer,
                                        bytes.size(), durability, Room::kNames);
      pages.push_back(std::move(page));
    }
    Status status;
    for (Page& page : pages) {
      Result<StripePlace> stored = page.pending->Wait();
      if (!stored.has_value()) {
        status = stored.error();
        continue;
      }
      page.place.place = *std::move(stored);
      map.SetPage(page.first, std::move(page.place));
      written.push_back(BlockMap::PieceOf(*map.PartOf(page.first)));
    }
    if (!status.ok()) return status.Context(fmt::format("block map of inode {:016x}", id));
  }
  return {};
}

}  // namespace pinstripe
