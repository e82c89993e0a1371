// Records of file systems.

#include <algorithm>

#include "base/checksum.h"
#include "fs/names/acl.h"
#include "fs/names/extended.h"
#include "fs/names/inode.h"
#include "tests/fuzz/inputs.h"

namespace pinstripe {

RecordKind EntryKind() {
  const Entry plain{.inode = 5, .kind = FileKind::kRegular};
  const Entry renamed{.inode = 6, .kind = FileKind::kDirectory, .nonce = RenameNonce{1, 2, 3}};
  Entry on_its_way = renamed;
  on_its_way.move = Entry::Move::kMoving;
  Entry moved;
  moved.move = Entry::Move::kMoved;
  return {.name = "directory entry",
          .examples = {plain.Encode(), renamed.Encode(), on_its_way.Encode(), moved.Encode()},
          .again = [](std::string_view bytes) {
            return Entry::Decode(bytes).map([](const Entry& entry) { return entry.Encode(); });
          }};
}

namespace {

constexpr InodeId kId = 0x1234567890abcdef;
constexpr StripeLayout kCoded{4, 2, 1 << 20};
constexpr StripeLayout kCopied{1, 2, 4 << 20 >> 2};

const Acl kSomeAcl = {{AclTag::kOwner, 6},
                      {AclTag::kUser, 4, 1000},
                      {AclTag::kOwningGroup, 4},
                      {AclTag::kMask, 4},
                      {AclTag::kOther, 0}};

Inode PlainFile() {
  Inode inode;
  inode.mode = 0644;
  inode.owner = {1000, 1000};
  inode.modified = 5;
  return inode;
}

Inode InlineFile() {
  Inode inode = PlainFile();
  inode.inline_data = "a few bytes";
  inode.size = inode.inline_data.size();
  inode.attributes = {{std::string(kAccessAcl), EncodeAcl(kSomeAcl)},
                      {"user.a", "1"},
                      {"user.b", std::string(200, 'x')}};
  return inode;
}

BlockPlace Place(uint8_t write, uint32_t stored) {
  BlockPlace place;
  place.object = kId;
  place.write.fill(write);
  place.layout = kCoded;
  place.place.epoch = 1;
  place.stored = place.valid = stored;
  return place;
}

Inode StripedFile() {
  const auto block = static_cast<uint32_t>(kCoded.block_bytes());
  Inode inode = PlainFile();
  inode.size = 7 * uint64_t{block} + 1000;
  BlockMap map(kCoded);
  map.Resize(inode.size);
  for (uint64_t i = 0; i < 3; ++i) map.Set(i, Place(1, block));
  BlockPlace moved = Place(2, block);
  moved.place.moved = {{1, 9}, {5, 0}};
  BlockPatch patch{.object = kId, .layout = kCopied, .place = {.epoch = 1}, .stored = 30};
  patch.write.fill(5);
  patch.extents = {{10, 10}, {1000, 20}};
  moved.Lay(patch);
  patch.write.fill(6);
  patch.object = 77;
  patch.place.moved = {{0, 9}, {1, 0}};
  patch.extents = {{15, 30}};
  moved.Lay(patch);
  map.Set(4, moved);
  BlockPlace other = Place(3, block);
  other.object = 77;
  map.Set(5, other);
  BlockPlace last = Place(4, 1000);
  last.layout = kCopied;
  map.Set(7, last);
  inode.map = map;
  return inode;
}

Inode FileWithGaps() {
  const auto block = static_cast<uint32_t>(kCoded.block_bytes());
  Inode inode = StripedFile();
  BlockPlace place = Place(7, block - 3 * 4096);
  place.write = WithGaps(place.write);
  place.gaps = {{0, 4096}, {16384, 8192}};
  place.valid = block;
  inode.map->Set(1, place);
  BlockPatch patch{.object = kId, .layout = kCopied, .place = {.epoch = 1}, .stored = 30};
  patch.write.fill(5);
  patch.extents = {{4090, 10}, {20'000, 20}};
  place.Lay(patch);
  place.CutTo(21'000);
  inode.map->Set(2, place);
  return inode;
}

Inode FileInPages() {
  Inode inode = StripedFile();
  const auto firsts = inode.map->Settle({.inline_bytes = 80, .page_bytes = 80});
  for (const uint64_t first : firsts.value()) {
    BlockPlace page = Place(static_cast<uint8_t>(10 + first), 90);
    page.layout = kCopied;
    inode.map->SetPage(first, page);
  }
  return inode;
}

Inode SharingFile() {
  const auto block = static_cast<uint32_t>(kCoded.block_bytes());
  Inode inode = StripedFile();
  inode.map->Set(1, SharedPlace(88, 4, block));
  inode.map->Set(2, SharedPlace(88, 4, block));
  inode.map->Set(7, SharedPlace(89, uint64_t{0} - 3, 1000));
  inode.keepers = {88, 89};
  return inode;
}

Inode Keeper() {
  Inode inode = StripedFile();
  inode.links = 0;
  inode.keeping = Keeping{.object = 77, .settled = true, .files = {5, 77}};
  return inode;
}

Inode PackedFile() {
  Inode inode;
  inode.size = 5000;
  inode.map.emplace(kCoded);
  inode.map->Resize(inode.size);
  inode.map->Set(0, SharedPlace(88, 2, 5000, 70'000));
  inode.keepers = {88};
  return inode;
}

Inode BusyDirectory() {
  Inode inode;
  inode.kind = FileKind::kDirectory;
  inode.mode = 01777;
  inode.links = 2;
  inode.parent = 1;
  inode.mark = ReplacementMark{.mover = 9};
  inode.intent = RenameIntent{.source = 1, .source_name = "old", .target = 2, .target_name = "new"};
  inode.renames = {{.done = true}, {.nonce = {1}, .done = false}};
  inode.unknown = {{200, "from a later version"}};
  return inode;
}

Inode Symlink() {
  Inode inode;
  inode.kind = FileKind::kSymlink;
  inode.symlink = "../elsewhere";
  return inode;
}

Inode Device() {
  Inode inode;
  inode.kind = FileKind::kBlockDevice;
  inode.device = DeviceNumber{8, 1};
  return inode;
}

}  // namespace

std::string TryInode(Bytes bytes, InodeCount* count) {
  const Result<Inode> inode = Inode::Decode(AsText(bytes), kId);
  if (!inode.has_value()) {
    ++count->refused;
    return inode.error().code() == EBADMSG ? "" : std::string(inode.error().message());
  }
  const Result<Inode> again = Inode::Decode(inode->Encode(kId), kId);
  if (!again.has_value()) {
    return fmt::format("inode: {}: is not understood when written again: {}", Hex(bytes),
                       again.error().message());
  }
  if (*again != *inode) return fmt::format("inode: {}: another one when written again", Hex(bytes));
  if (inode->Describe(kId).inode != kId) return "inode: describes another one";
  // Whatever lists it has.
  Inode changed = *inode;
  changed.Apply({.mode = 0640}, 1);
  Inode made = PlainFile();
  InheritAcl(*inode, 022, made);
  if (!inode->map) return "";
  BlockMap map = *inode->map;
  const BlockMap before = map;
  if (map.FirstMissing(0, map.blocks())) {
    ++count->in_pages;
    map.Resize(inode->size + kCoded.block_bytes());
    map.NotIn(before);
    before.NotIn(map);
    return "";
  }
  // Read, truncate, extend and overwrite whatever map came out of it.
  ++count->with_map;
  for (uint64_t block = 0; block < std::min<uint64_t>(map.blocks(), 20); ++block) {
    auto place = map.Find(block);
    if (!place) continue;
    if (place->shared) place->stored += place->skip;  // as its keeper has it
    IntervalSet read;
    uint64_t bytes_read = 0;
    for (const BlockPart& part : PartsOf(*place, 0, place->valid)) {
      read.Add(part.first, part.first + part.size);
      bytes_read += part.size;
      if (part.offset + part.size > part.stripe.stored) {
        return fmt::format("inode: {}: more is read than there is", Hex(bytes));
      }
    }
    if (read.Count() != bytes_read) return fmt::format("inode: {}: some is read twice", Hex(bytes));
    for (const auto& zeros : ZerosOf(*place, 0, place->valid)) read.Add(zeros.first, zeros.end);
    const bool is_all = place->valid == 0 ? read.empty() : read.Covers(0, place->valid);
    if (!is_all || read.end() > place->valid || DataOf(*place).end() > place->valid) {
      return fmt::format("inode: {}: not all is read", Hex(bytes));
    }
  }
  map.Resize(inode->size / 2);
  map.Resize(inode->size);
  if (map.blocks() > 0) {
    BlockPlace place = Place(9, static_cast<uint32_t>(map.block_bytes()));
    place.layout = map.layout();
    const uint64_t block = Crc32c(bytes) % map.blocks();
    map.Set(block, place);
    if (map.Find(block) != place) return fmt::format("inode: {}: a block is lost", Hex(bytes));
  }
  map.NotIn(before);
  before.NotIn(map);
  return "";
}

Examples ExampleInodes() {
  Examples examples;
  for (const Inode& inode :
       {PlainFile(), InlineFile(), StripedFile(), FileWithGaps(), FileInPages(), SharingFile(),
        Keeper(), PackedFile(), BusyDirectory(), Symlink(), Device()}) {
    examples.push_back(inode.Encode(kId));
  }
  return examples;
}

}  // namespace pinstripe
