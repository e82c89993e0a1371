// Inodes and directory entries, given bytes that no writer wrote. Refused with EBADMSG, or
// understood: then writing what was understood and reading it again gives the same, and asking for
// any of it is safe. Unlike other records inodes may be written in more than one way: a later
// version's sections are passed over, an earlier one's may be laid out differently.

#include "fs/inode.h"

#include <gtest/gtest.h>

#include "tests/fuzz/mutator.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

constexpr int kInputs = 100000;
constexpr InodeId kId = 0x1234567890abcdef;
constexpr StripeLayout kCoded{4, 2, 1 << 20};
constexpr StripeLayout kCopied{1, 2, 4 << 20 >> 2};

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
  inode.attributes = {{"user.a", "1"}, {"user.b", std::string(200, 'x')}};
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

Inode BusyDirectory() {
  Inode inode;
  inode.kind = FileKind::kDirectory;
  inode.mode = 01777;
  inode.links = 2;
  inode.parent = 1;
  inode.closing = DirectoryClosing{.mover = 9};
  inode.intent = RenameIntent{.source = 1, .source_name = "old", .target = 2, .target_name = "new"};
  inode.last_rename = RenameOutcome{.done = true};
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

TEST(HostileBytes, AreNoInodeOrOneThatIsSafeToUse) {
  std::vector<std::string> examples;
  for (const Inode& inode : {PlainFile(), InlineFile(), StripedFile(), FileInPages(),
                             BusyDirectory(), Symlink(), Device()}) {
    examples.push_back(inode.Encode(kId));
    const Result<Inode> again = Inode::Decode(examples.back(), kId);
    ASSERT_OK(again);
    ASSERT_EQ(*again, inode);
  }
  Mutator mutator(examples, /*seed=*/1);
  int refused = 0;
  int with_map = 0;
  int in_pages = 0;
  for (int i = 0; i < kInputs; ++i) {
    const Buffer input = Buffer::CopyOf(AsBytes(mutator.Next()));
    const Result<Inode> inode = Inode::Decode(AsText(input), kId);
    if (!inode.has_value()) {
      ASSERT_EQ(inode.error().code(), EBADMSG) << inode.error().message();
      ++refused;
      continue;
    }
    const Result<Inode> again = Inode::Decode(inode->Encode(kId), kId);
    ASSERT_OK(again) << Hex(input);
    ASSERT_EQ(*again, *inode) << Hex(input);
    ASSERT_EQ(inode->Describe(kId).inode, kId);
    if (!inode->map) continue;
    BlockMap map = *inode->map;
    const BlockMap before = map;
    if (map.FirstMissing(0, map.blocks())) {
      ++in_pages;
      map.Resize(inode->size + kCoded.block_bytes());
      map.NotIn(before);
      before.NotIn(map);
      continue;
    }
    // Truncate, extend and overwrite whatever map came out of it.
    ++with_map;
    map.Resize(inode->size / 2);
    map.Resize(inode->size);
    if (map.blocks() > 0) {
      const auto bytes = static_cast<uint32_t>(map.block_bytes());
      BlockPlace place = Place(9, bytes);
      place.layout = map.layout();
      const uint64_t block = mutator.Below(map.blocks());
      map.Set(block, place);
      ASSERT_EQ(map.Find(block), place);
    }
    map.NotIn(before);
    before.NotIn(map);
  }
  EXPECT_GT(refused, kInputs / 10);
  EXPECT_GT(with_map, kInputs / 100) << "no block map came through";
  EXPECT_GT(in_pages, kInputs / 100) << "no block map in pages came through";
}

TEST(HostileBytes, AreNoDirectoryEntry) {
  const Entry plain{.inode = 5, .kind = FileKind::kRegular};
  const Entry renamed{.inode = 6, .kind = FileKind::kDirectory, .nonce = Nonce{1, 2, 3}};
  Mutator mutator({plain.Encode(), renamed.Encode()}, /*seed=*/1);
  int refused = 0;
  for (int i = 0; i < kInputs; ++i) {
    const Buffer input = Buffer::CopyOf(AsBytes(mutator.Next()));
    const Result<Entry> entry = Entry::Decode(AsText(input));
    if (entry.has_value()) {
      ASSERT_EQ(Hex(AsBytes(entry->Encode())), Hex(input));
      continue;
    }
    ASSERT_EQ(entry.error().code(), EBADMSG);
    ++refused;
  }
  EXPECT_GT(refused, kInputs / 10);
}

}  // namespace
}  // namespace pinstripe
