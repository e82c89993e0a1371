// Block maps, whole and in pages. The bytes are the format: if a golden test fails, drives written
// yesterday cannot be read today.

#include "fs/files/block_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "fs/files/beside_number.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

const StripeLayout kLayout{2, 1, 64 << 10};
const StripeLayout kCopies{1, 1, 64 << 10};
constexpr uint64_t kBlock = 128 << 10;

BlockPlace PlaceOf(uint8_t write, uint32_t length = kBlock) {
  BlockPlace place{.object = 5, .layout = kLayout, .place = {.epoch = 1}};
  place.write.fill(write);
  place.stored = place.valid = length;
  return place;
}

std::string Encoded(const BlockMap& map) {
  Writer writer;
  map.Encode(writer, 5);
  return writer.Take();
}

// A patch of some bytes of a block of which `valid` count.
BlockPatch PatchOf(uint64_t number, uint32_t valid, std::mt19937_64& random) {
  BlockPatch patch{.object = random() % 8 == 0 ? 6u : 5u, .place = {.epoch = 1}};
  const std::string id = Writer().U64(3).U64(number).Take();
  std::copy(id.begin(), id.end(), patch.write.begin());
  for (uint32_t at = 0; patch.extents.size() < 3;) {
    const auto first = static_cast<uint32_t>(at + random() % (valid - at));
    const auto length = static_cast<uint32_t>(1 + random() % std::min(valid - first, 5000u));
    patch.extents.push_back({first, length});
    patch.stored += length;
    at = first + length + 1;
    if (at >= valid) break;
  }
  patch.layout = CopiesOf(patch.stored, 1);
  if (random() % 5 == 0) patch.place.moved = {{0, 7}, {1, 0}};
  return patch;
}

TEST(PageNumberTest, PagesComeBehindTheBlocksOfContents) {
  for (const uint64_t block : {uint64_t{0}, uint64_t{7}, (uint64_t{1} << 63) - 1}) {
    EXPECT_FALSE(PageNumber::Is(block));
    EXPECT_FALSE(PageNumber::From(block).has_value());
    const uint64_t number = PageNumber(block).number();
    EXPECT_TRUE(PageNumber::Is(number));
    EXPECT_EQ(PageNumber::From(number)->first_block(), block);
    EXPECT_EQ(number, block + (uint64_t{1} << 63));
  }
}

TEST(BlockMapTest, AFileWrittenOnceIsOneRunHoweverLong) {
  BlockMap map(kLayout);
  map.Resize(1000 * kBlock + 1);
  for (uint64_t block = 0; block < 1000; ++block) map.Set(block, PlaceOf(1));
  map.Set(1000, PlaceOf(1, 1));
  ASSERT_EQ(map.runs().size(), 1u);
  EXPECT_EQ(map.runs()[0].count, 1001u);
  EXPECT_EQ(map.StoredBytes(), 1000 * kBlock + 1);
  EXPECT_EQ(map.Find(999)->stored, kBlock);
  EXPECT_EQ(map.Find(1000)->stored, 1u);
  EXPECT_LT(Encoded(map).size(), 50u);
}

TEST(BlockMapTest, SharedBlocksNameTheirKeeper) {
  BlockMap map(kLayout);
  map.Resize(4 * kBlock + 1);
  for (uint64_t block = 0; block < 3; ++block) map.Set(block, SharedPlace(9, 4, kBlock));
  map.Set(3, SharedPlace(9, uint64_t{0} - 3, kBlock));
  map.Set(4, SharedPlace(9, uint64_t{0} - 3, 1));
  EXPECT_EQ(map.runs().size(), 2u);
  EXPECT_EQ(map.StoredBytes(), 4 * kBlock + 1);
  EXPECT_EQ(map.Keepers(), std::set<uint64_t>{9});
  const std::string bytes = Encoded(map);
  EXPECT_EQ(Hex(AsBytes(bytes)),
            "000102010001000002"
            "2103000000000000000904808008"
            "21020000000000000009fdffffffffffffffff0101");
  const auto again = BlockMap::Decode(bytes, 5, 4 * kBlock + 1);
  ASSERT_OK(again);
  EXPECT_EQ(*again, map);
  EXPECT_EQ(again->Find(2)->IdOf(2).block, 6u);
  EXPECT_EQ(again->Find(4)->IdOf(4).block, 1u);
  // The keeper cannot be the inode itself, and nothing counts beyond the file.
  EXPECT_FAILS(BlockMap::Decode(bytes, 9, 4 * kBlock + 1), EBADMSG);
  std::string longer = bytes;
  longer.back() = 2;
  EXPECT_FAILS(BlockMap::Decode(longer, 5, 4 * kBlock + 1), EBADMSG);
  // What is overwritten in the middle leaves its neighbours as they were.
  map.Set(1, PlaceOf(1));
  EXPECT_EQ(map.runs().size(), 4u);
  EXPECT_EQ(map.Find(2)->IdOf(2).block, 6u);
  EXPECT_EQ(map.NotIn(*again).blocks.size(), 1u);
  ASSERT_EQ(again->NotIn(map).blocks.size(), 1u);
  EXPECT_TRUE(again->NotIn(map).blocks.front().run.shared);
  // A truncation counts less of the last one.
  map.Resize(3 * kBlock + 100);
  EXPECT_EQ(map.Find(3)->valid, 100u);
  EXPECT_OK(BlockMap::Decode(Encoded(map), 5, 3 * kBlock + 100));
}

std::string Unhex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

TEST(BlockMapTest, APackedFileNamesItsPartOfABlock) {
  BlockMap map(kLayout);
  map.Resize(300);
  map.Set(0, SharedPlace(9, 4, 300, 1000));
  const std::string bytes = Encoded(map);
  EXPECT_EQ(Hex(AsBytes(bytes)),
            "000102010001000001"
            "6101000000000000000904ac02e807");
  const auto again = BlockMap::Decode(bytes, 5, 300);
  ASSERT_OK(again);
  EXPECT_EQ(*again, map);
  EXPECT_EQ(again->Find(0), SharedPlace(9, 4, 300, 1000));
  EXPECT_EQ(again->Keepers(), std::set<uint64_t>{9});
  // It is a single block, has bytes before it, and ends where a block may end.
  for (const char* wrong : {"6100000000000000000904ac02e807", "6102000000000000000904ac02e807",
                            "6101000000000000000904ac0200", "6101000000000000000904ac02d4fdffff0f",
                            "6101000000000000000904ac02", "4101000000000000000904ac02e807"}) {
    EXPECT_FAILS(BlockMap::Decode(Unhex("000102010001000001" + std::string(wrong)), 5, 300),
                 EBADMSG)
        << wrong;
  }
  // When the file grows its neighbours are blocks of their own, though the keeper's follow too.
  map.Resize(3 * kBlock);
  map.Set(1, SharedPlace(9, 4, kBlock, 1000));
  map.Set(2, SharedPlace(9, 4, kBlock));
  EXPECT_EQ(map.runs().size(), 3u);
  EXPECT_EQ(map.Find(0)->valid, 300u);
  EXPECT_EQ(BlockMap::Decode(Encoded(map), 5, 3 * kBlock)->runs(), map.runs());
  // Another part of the same block is something else.
  BlockMap other = map;
  other.Set(1, SharedPlace(9, 4, kBlock, 1001));
  EXPECT_EQ(map.NotIn(other).blocks.size(), 1u);
  map.Resize(kBlock + 10);
  EXPECT_EQ(map.Find(1), SharedPlace(9, 4, 10, 1000));
}

TEST(BlockMapTest, ContentsBesideTheInodeHaveANumberOfTheirOwn) {
  BlockMap map(kLayout);
  map.Resize(300);
  const BlockPlace beside{.object = 5,
                          .shift = kBesideBit + 7,
                          .write = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                          .layout = {3, 2, 64 << 10},
                          .place = {.epoch = 1, .moved = {}},
                          .stored = 300,
                          .valid = 300};
  map.Set(0, beside);
  EXPECT_EQ(map.Find(0)->IdOf(0).block, kBesideBit + 7);
  const std::string bytes = Encoded(map);
  const std::string start = "00020201000100000302000100000181010102030405060708090a0b0c0d0e0f10";
  const std::string shift = "878080808080808040";
  const std::string rest = "0000000101ac02ac02";
  EXPECT_EQ(Hex(AsBytes(bytes)), start + shift + rest);
  const auto again = BlockMap::Decode(bytes, 5, 300);
  ASSERT_OK(again);
  EXPECT_EQ(*again, map);
  EXPECT_EQ(again->Find(0), beside);
  EXPECT_FALSE(map.NotIn(*again).blocks.size());
  EXPECT_EQ(PlaceInRun(BlockMap::PiecesOf(0, beside).front().run, 0, kBlock), beside);
  // No other block's number, none of a page, and none beyond 2^64.
  for (const char* wrong : {"00", "01", "8080808080808080800180", "ffffffffffffffffff01",
                            "808080808080c08040", "ffffffffffffffff3f"}) {
    EXPECT_FAILS(BlockMap::Decode(Unhex(start + wrong + rest), 5, 300), EBADMSG) << wrong;
  }
  // The block stays what it is when others come behind it.
  map.Resize(2 * kBlock);
  map.Set(1, PlaceOf(1));
  EXPECT_EQ(map.runs().size(), 2u);
  EXPECT_EQ(BlockMap::Decode(Encoded(map), 5, 2 * kBlock)->Find(0), beside);
}

TEST(BlockMapTest, ABlockWithGapsIsARunOfItsOwn) {
  BlockMap map(kLayout);
  map.Resize(3 * kBlock);
  BlockPlace place = PlaceOf(1);
  for (uint64_t block = 0; block < 3; ++block) map.Set(block, place);
  EXPECT_EQ(map.runs().size(), 1u);
  place.write = WithGaps(place.write);
  EXPECT_TRUE(HasGaps(place.write));
  EXPECT_FALSE(HasGaps(PlaceOf(1).write));
  EXPECT_EQ(TimeOf(place.write), TimeOf(PlaceOf(1).write));
  place.gaps = {{0, 8192}, {40960, 65536}};
  place.stored = kBlock - 8192 - 65536;
  map.Set(1, place);
  EXPECT_EQ(map.runs().size(), 3u);
  EXPECT_EQ(map.StoredBytes(), 3 * kBlock - 8192 - 65536);
  const std::string bytes = Encoded(map);
  const std::string run =
      "0101"
      "01010101010101010101010101010101"
      "00000001"
      "00"
      "808008808008";
  const std::string with_gaps =
      "4101"
      "01010101010101010101010181010101"
      "00000001"
      "00"
      "80c003808008";
  EXPECT_EQ(Hex(AsBytes(bytes)), "000102010001000003" + run + with_gaps + "0200020810" + run);
  const auto again = BlockMap::Decode(bytes, 5, 3 * kBlock);
  ASSERT_OK(again);
  EXPECT_EQ(*again, map);
  EXPECT_EQ(again->Find(1), place);
  EXPECT_TRUE(map.NotIn(*again).blocks.empty());
  // A truncation within a gap counts what is before it.
  BlockMap cut = map;
  cut.Resize(kBlock + 50000);
  EXPECT_EQ(cut.StoredBytes(), kBlock + 40960 - 8192);
  EXPECT_EQ(BlockMap::Decode(Encoded(cut), 5, kBlock + 50000)->Find(1), cut.Find(1));
  // None; too many; nothing behind the last; one behind the end; not what a write id says.
  for (const char* wrong : {"00", "41", "010c14", "01ff7f02", "0210020001", "0100ffffffffff7f"}) {
    const std::string text = "000102010001000002" + run + with_gaps + wrong;
    EXPECT_FAILS(BlockMap::Decode(Unhex(text), 5, 2 * kBlock), EBADMSG) << wrong;
  }
  place.write = PlaceOf(1).write;
  map.Set(1, place);
  EXPECT_FAILS(BlockMap::Decode(Encoded(map), 5, 3 * kBlock), EBADMSG);
}

// What is read of a part of a block, with patches over the block and bytes that are in memory.
TEST(BlockPlaceTest, PartsOfAPartAreThoseOfTheBlock) {
  BlockPlace place = PlaceOf(1, 5000);
  place.Lay({.object = 5,
             .write = {7},
             .layout = kLayout,
             .stored = 100,
             .extents = {{.first = 1050, .length = 100}}});
  place.skip = 1000;
  place.valid = 500;
  IntervalSet covered;
  covered.Add(0, 20);
  const std::vector<BlockPart> parts = PartsOf(place, 10, 300, covered);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].first, 50u);  // the patch's
  EXPECT_EQ(parts[0].size, 100u);
  EXPECT_EQ(parts[0].offset, 0u);
  EXPECT_EQ(parts[1].first, 20u);
  EXPECT_EQ(parts[1].size, 30u);
  EXPECT_EQ(parts[1].offset, 1020u);
  EXPECT_EQ(parts[2].first, 150u);
  EXPECT_EQ(parts[2].size, 150u);
  EXPECT_EQ(parts[2].offset, 1150u);
}

// The contents as a vector of blocks: what a BlockMap is compared with.
using Model = std::vector<std::optional<BlockPlace>>;

void ClearModel(Model& model, uint64_t first, uint64_t end) {
  for (uint64_t i = first; i < std::min<uint64_t>(end, model.size()); ++i) model[i].reset();
}

// As far as it is loaded.
void ExpectSpans(const BlockMap& map, const Model& model) {
  for (uint64_t block = 0; block < model.size();) {
    const BlockMap::Span span = map.SpanAt(block);
    ASSERT_GT(span.end, block);
    ASSERT_LE(span.end, model.size());
    for (; block < span.end; ++block) ASSERT_EQ(span.hole, !model[block].has_value()) << block;
  }
}

void ResizeModel(Model& model, uint64_t size) {
  const uint64_t blocks = (size + kBlock - 1) / kBlock;
  if (blocks <= model.size() && blocks > 0 && model[blocks - 1]) {
    model[blocks - 1]->CutTo(static_cast<uint32_t>(size - (blocks - 1) * kBlock));
  }
  model.resize(blocks);
}

TEST(BlockMapTest, AgreesWithAVectorOfBlocks) {
  std::mt19937_64 random(2);
  uint64_t patches = 0;
  for (int round = 0; round < 100; ++round) {
    BlockMap map(kLayout);
    Model model;
    uint64_t size = 0;
    for (int step = 0; step < 40; ++step) {
      if (model.empty() || random() % 4 == 0) {
        size = random() % (10 * kBlock);
        map.Resize(size);
        ResizeModel(model, size);
      } else {
        const uint64_t block = random() % model.size();
        const uint64_t room = std::min(kBlock, size - block * kBlock);
        BlockPlace place = PlaceOf(static_cast<uint8_t>(random() % 3));
        place.stored = place.valid =
            static_cast<uint32_t>(random() % 2 ? room : 1 + random() % room);
        if (random() % 5 == 0) place.place.moved = {{1, 7}, {2, 0}};
        if (model[block] && random() % 2 == 0) place = *model[block];
        const bool patched = random() % 3 == 0 && place.patches.size() < kMaxPatches;
        if (patched) place.Lay(PatchOf(++patches, place.valid, random));
        if (random() % 6 == 0) {
          const uint64_t end = block + random() % 4;
          map.SetHoles(block, end);
          ClearModel(model, block, end);
        } else {
          map.Set(block, place);
          model[block] = place;
        }
      }
      ASSERT_EQ(map.blocks(), model.size());
      for (uint64_t i = 0; i < model.size(); ++i) ASSERT_EQ(map.Find(i), model[i]);
      ASSERT_EQ(map.Find(model.size()), std::nullopt);
      ExpectSpans(map, model);
      const auto decoded = BlockMap::Decode(Encoded(map), 5, size);
      ASSERT_OK(decoded);
      ASSERT_EQ(*decoded, map);
    }
  }
}

TEST(BlockMapTest, KnowsWhatAnotherLacks) {
  BlockMap before(kLayout);
  before.Resize(6 * kBlock);
  for (uint64_t block = 0; block < 6; ++block) before.Set(block, PlaceOf(1));
  BlockMap after = before;
  after.Set(2, PlaceOf(2));
  after.Resize(4 * kBlock + 5);  // block 4 is cut, and still the same stripe
  const auto gone = before.NotIn(after);
  ASSERT_EQ(gone.blocks.size(), 2u);
  EXPECT_EQ(gone.blocks[0].first, 2u);
  EXPECT_EQ(gone.blocks[0].run.count, 1u);
  EXPECT_EQ(gone.blocks[1].first, 5u);
  EXPECT_EQ(after.NotIn(before).blocks.size(), 1u);
  EXPECT_TRUE(before.NotIn(before).blocks.empty());
}

TEST(BlockMapTest, KnowsWhichPatchesAnotherLacks) {
  std::mt19937_64 random(3);
  BlockMap plain(kLayout);
  plain.Resize(6 * kBlock);
  for (uint64_t block = 0; block < 6; ++block) plain.Set(block, PlaceOf(1));
  BlockMap before = plain;
  const auto lay = [&](BlockMap& map, uint64_t block, uint64_t number) {
    BlockPlace place = *map.Find(block);
    BlockPatch patch = PatchOf(number, kBlock, random);
    patch.object = 5;
    place.Lay(patch);
    map.Set(block, place);
    return patch.write;
  };
  const WriteId first = lay(before, 2, 1);
  const WriteId second = lay(before, 2, 2);
  const WriteId other = lay(before, 5, 3);
  ASSERT_EQ(before.runs().size(), 1u) << "patches divide no run";
  BlockMap after = before;
  const WriteId third = lay(after, 2, 4);
  BlockPlace place = *after.Find(2);
  std::erase_if(place.patches, [&](const auto& patch) { return patch.write == first; });
  after.Set(2, place);
  after.Set(5, PlaceOf(2));

  const auto stripes = [](const BlockMap::Difference& difference) {
    std::set<std::pair<uint64_t, WriteId>> ids;
    for (const BlockMap::Piece& piece : difference.blocks) {
      EXPECT_TRUE(piece.run.patches.empty());
      for (uint64_t i = 0; i < piece.run.count; ++i) ids.emplace(piece.first + i, piece.run.write);
    }
    return ids;
  };
  using Ids = std::set<std::pair<uint64_t, WriteId>>;
  EXPECT_EQ(stripes(before.NotIn(plain)), (Ids{{2, first}, {2, second}, {5, other}}));
  EXPECT_EQ(stripes(plain.NotIn(before)), Ids{});
  EXPECT_EQ(stripes(before.NotIn(after)), (Ids{{2, first}, {5, other}, {5, PlaceOf(1).write}}));
  EXPECT_EQ(stripes(after.NotIn(before)), (Ids{{2, third}, {5, PlaceOf(2).write}}));
  EXPECT_EQ(before.NotIn(BlockMap()).blocks.size(), 4u);
  for (const WriteId& id : {first, second}) {
    BlockPlace stripe = PlaceOf(0);
    stripe.write = id;
    EXPECT_EQ(MayHold(after, 2, stripe), id == second);
    EXPECT_TRUE(MayHold(before, 2, stripe));
    EXPECT_FALSE(MayHold(before, 3, stripe));
  }
}

TEST(BlockMapTest, ImpossiblePatchesAreDamage) {
  const auto encoded = [](const std::function<void(BlockPlace&)>& change) {
    BlockMap map(kLayout);
    map.Resize(2 * kBlock + 1000);
    map.Set(0, PlaceOf(1));
    map.Set(1, PlaceOf(1));
    map.Set(2, PlaceOf(1, 1000));
    BlockPlace place = *map.Find(2);
    BlockPatch patch{.object = 5, .layout = kCopies, .place = {.epoch = 1}, .stored = 100};
    patch.extents = {{0, 50}, {950, 50}};
    place.patches = {patch};
    change(place);
    map.Set(2, place);
    return Encoded(map);
  };
  const auto decode = [](const std::string& bytes) {
    return BlockMap::Decode(bytes, 5, 2 * kBlock + 1000);
  };
  const auto patch = [](BlockPlace& place) -> BlockPatch& { return place.patches[0]; };
  const auto copies = [&](size_t count, uint32_t stored, size_t extents) {
    return [=](BlockPlace& place) {
      place.patches[0].stored = stored;
      place.patches[0].layout = CopiesOf(stored, 1);
      place.patches[0].extents.clear();
      for (uint32_t i = 0; i < extents; ++i) place.patches[0].extents.push_back({2 * i, 1});
      place.patches.resize(count, place.patches[0]);
      for (uint8_t i = 0; i < count; ++i) place.patches[i].write.fill(100 + i);
    };
  };
  EXPECT_OK(decode(encoded([](BlockPlace&) {})));
  EXPECT_OK(decode(encoded(copies(kMaxPatches, 100, 1))));
  EXPECT_OK(decode(encoded(copies(4, kMaxPatchBytes / 4, kMaxPatchExtents / 4))));
  const std::function<void(BlockPlace&)> impossible[] = {
      copies(kMaxPatches + 1, 100, 1),
      copies(4, kMaxPatchBytes / 4 + 1, 1),
      copies(4, 100, kMaxPatchExtents / 4 + 1),
      [&](BlockPlace& place) { patch(place).extents.clear(); },
      [&](BlockPlace& place) { patch(place).extents[1].length = 51; },  // beyond the block
      [&](BlockPlace& place) { patch(place).extents[1].length = 0; },
      [&](BlockPlace& place) { patch(place).stored = 99; },              // more than it has
      [&](BlockPlace& place) { patch(place).extents[0].length = 951; },  // one over the other
      [&](BlockPlace& place) { patch(place).layout = kLayout; },
      [&](BlockPlace& place) { patch(place).write = place.write; },
      [&](BlockPlace& place) { place.patches.push_back(patch(place)); },
      [&](BlockPlace& place) {
        patch(place).place.moved = {{2, 7}};
      },
      [&](BlockPlace& place) {
        patch(place).place.moved = {{1, 7}, {0, 8}};
      },
  };
  int number = 0;
  for (const auto& change : impossible) {
    SCOPED_TRACE(number++);
    EXPECT_FAILS(decode(encoded(change)), EBADMSG);
  }
}

TEST(BlockMapTest, BytesNeverChange) {
  BlockMap map(kLayout);
  map.Resize(kBlock + 1);
  BlockPlace place = PlaceOf(0);
  for (uint8_t i = 0; i < 16; ++i) place.write[i] = i + 1;
  map.Set(0, place);
  place.stored = place.valid = 1;
  map.Set(1, place);
  EXPECT_EQ(Hex(AsBytes(Encoded(map))),
            "00"
            "01"
            "020100010000"
            "01"
            "01"
            "02"
            "0102030405060708090a0b0c0d0e0f10"
            "00000001"
            "00"
            "01"
            "01");
  BlockPlace head = *map.Find(0);
  BlockPatch four{.object = 5, .layout = kCopies, .place = {.epoch = 1}, .stored = 4};
  four.write.fill(2);
  four.extents = {{4096, 4}};
  head.Lay(four);
  map.Set(0, head);
  EXPECT_EQ(Hex(AsBytes(Encoded(map))),
            "00"
            "02"
            "020100010000"
            "010100010000"
            "01"
            "11"
            "02"
            "0102030405060708090a0b0c0d0e0f10"
            "00000001"
            "00"
            "01"
            "01"
            "01"
            "00"
            "00"
            "02020202020202020202020202020202"
            "00000001"
            "01"
            "04"
            "01"
            "802004");

  BlockMap all(kLayout);
  all.Resize(5 * kBlock);
  BlockPlace small = PlaceOf(1, 100);
  small.layout = kCopies;
  small.valid = 50;
  all.Set(0, small);
  BlockPlace other = PlaceOf(2);
  other.object = 6;
  other.place = {.epoch = 3, .moved = {{1, 9}, {2, 0}}};
  all.Set(4, other);
  EXPECT_EQ(Hex(AsBytes(Encoded(all))),
            "00"
            "02"
            "020100010000"
            "010100010000"
            "03"
            "01"
            "01"
            "01010101010101010101010101010101"
            "00000001"
            "01"
            "64"
            "32"
            "00"
            "03"
            "07"
            "01"
            "02020202020202020202020202020202"
            "0000000000000006"
            "00000003"
            "00"
            "808008"
            "808008"
            "02"
            "00010009"
            "00020000");

  BlockMap patched(kLayout);
  patched.Resize(3 * kBlock);
  for (uint64_t block = 0; block < 3; ++block) patched.Set(block, PlaceOf(1));
  BlockPlace under = PlaceOf(1);
  under.place.moved = {{1, 9}};
  BlockPatch patch{.object = 5, .layout = kCopies, .place = {.epoch = 2}, .stored = 7};
  patch.write.fill(2);
  patch.extents = {{4096, 4}, {5000, 3}};
  under.Lay(patch);
  patch.write.fill(3);
  patch.object = 6;
  patch.place.moved = {{0, 8}, {1, 0}};
  patch.extents = {{131071, 1}};
  under.Lay(patch);
  patched.Set(1, under);
  EXPECT_EQ(Hex(AsBytes(Encoded(patched))),
            "00"
            "02"
            "020100010000"
            "010100010000"
            "01"
            "15"
            "03"
            "01010101010101010101010101010101"
            "00000001"
            "00"
            "808008"
            "808008"
            "01"
            "01010009"
            "02"
            "01"
            "00"
            "02020202020202020202020202020202"
            "00000002"
            "01"
            "07"
            "02"
            "802004"
            "840703"
            "01"
            "06"
            "03030303030303030303030303030303"
            "0000000000000006"
            "00000002"
            "01"
            "07"
            "02"
            "000008"
            "010000"
            "01"
            "ffff0701");
}

TEST(BlockMapTest, AMapThatDoesNotCoverItsFileIsDamageNotAHole) {
  BlockMap map(kLayout);
  map.Resize(3 * kBlock);
  for (uint64_t block = 0; block < 3; ++block) map.Set(block, PlaceOf(1));
  EXPECT_OK(BlockMap::Decode(Encoded(map), 5, 3 * kBlock));
  EXPECT_FAILS(BlockMap::Decode(Encoded(map), 5, 3 * kBlock + 1), EBADMSG);
  EXPECT_FAILS(BlockMap::Decode(Encoded(map), 5, 2 * kBlock), EBADMSG);
  EXPECT_FAILS(BlockMap::Decode(Encoded(map), 5, 3 * kBlock - 1), EBADMSG);
}

// ---- Pages

constexpr MapLimits kReal{24 << 10, 32 << 10};
constexpr MapLimits kTiny{100, 120};
constexpr uint64_t kMaxBytes = INT64_MAX;

// What a file system does with pages: keeps them as they are until nothing names them.
class Pages {
 public:
  explicit Pages(MapLimits limits) : limits_(limits) {}

  // The map as it is in the inode. Everything that `map` names afterwards is here.
  std::string Store(BlockMap& map) {
    std::optional<std::vector<uint64_t>> firsts = map.Settle(limits_);
    if (!firsts) {
      Load(map, 0, map.blocks());
      firsts = map.Settle(limits_);
    }
    for (const uint64_t first : firsts.value()) {
      const std::string bytes = map.EncodePage(*map.PartOf(first), 5);
      EXPECT_LE(bytes.size(), kMaxPageBytes);
      BlockPlace page{.object = 5, .layout = {1, 1, 1 << 20}, .place = {.epoch = 1}};
      const std::string id = Writer().U64(1).U64(++writes_).Take();
      std::copy(id.begin(), id.end(), page.write.begin());
      page.stored = page.valid = static_cast<uint32_t>(bytes.size());
      written_bytes_ += bytes.size();
      pages_[page.write] = bytes;
      map.SetPage(first, page);
    }
    return Encoded(map);
  }

  Status TryLoad(BlockMap& map, uint64_t first, uint64_t end) {
    while (const auto part = map.FirstMissing(first, end)) {
      ++reads_;
      auto loaded = map.DecodePage(*part, pages_.at(part->stretch->page->write), 5, size_);
      if (!loaded.has_value()) return loaded.error();
      map.Install(*part, *loaded);
    }
    return {};
  }
  void Load(BlockMap& map, uint64_t first, uint64_t end) { EXPECT_OK(TryLoad(map, first, end)); }

  void set_size(uint64_t size) { size_ = size; }
  std::map<WriteId, std::string>& pages() { return pages_; }
  uint64_t written_bytes() const { return written_bytes_; }
  uint64_t writes() const { return writes_; }
  uint64_t reads() const { return reads_; }

 private:
  const MapLimits limits_;
  uint64_t size_ = kMaxBytes;
  std::map<WriteId, std::string> pages_;
  uint64_t writes_ = 0;
  uint64_t written_bytes_ = 0;
  uint64_t reads_ = 0;
};

std::set<WriteId> PagesNamedBy(const BlockMap& map) {
  std::set<WriteId> named;
  for (const BlockMap::Part& part : map.parts()) {
    if (part.stretch->page) named.insert(part.stretch->page->write);
  }
  return named;
}

BlockPlace Written(uint64_t number, uint32_t length = kBlock) {
  BlockPlace place = PlaceOf(0, length);
  const std::string id = Writer().U64(2).U64(number).Take();
  std::copy(id.begin(), id.end(), place.write.begin());
  return place;
}

// A map that was committed without its writer's knowing it, and repaired since: what it names is
// where the repair has put it, and pages that are not named any more are written again.
TEST(BlockMapPagesTest, TakeOverWhereOthersHavePutWhatTheyName) {
  Pages pages(kTiny);
  BlockMap ours(kLayout);
  ours.Resize(40 * kBlock);
  for (uint64_t block = 0; block < 40; ++block) ours.Set(block, Written(block));
  pages.Store(ours);
  ASSERT_FALSE(PagesNamedBy(ours).empty());
  BlockMap theirs = ours;
  pages.Load(theirs, 0, 40);
  BlockPlace patched = *ours.Find(7);
  std::mt19937_64 random(7);
  patched.Lay(PatchOf(200, kBlock, random));
  ours.Set(7, patched);
  theirs.Set(7, patched);
  BlockPlace moved = patched;
  moved.place.moved = {{1, 9}};
  moved.patches[0].place.moved = {{1, 8}};
  theirs.Set(7, moved);
  theirs.Set(8, Written(100));  // another stripe: none of ours
  pages.Store(theirs);
  const auto first_page = [](const BlockMap& map) {
    for (const BlockMap::Part& part : map.parts()) {
      if (part.stretch->page) return part.first;
    }
    return UINT64_MAX;
  };
  const uint64_t page = first_page(theirs);
  ASSERT_NE(page, UINT64_MAX);
  BlockPlace page_moved = *theirs.FindPage(PageNumber(page));
  page_moved.place.moved = {{0, 4}};
  theirs.SetPage(page, page_moved);

  pages.Load(ours, 0, 40);
  pages.Load(theirs, 0, 40);
  ours.TakePlaces(theirs);
  EXPECT_EQ(*ours.Find(7), moved);
  EXPECT_EQ(*ours.Find(8), Written(8));
  EXPECT_EQ(*ours.Find(9), Written(9));
  const std::set<WriteId> named = PagesNamedBy(theirs);
  for (const WriteId& id : PagesNamedBy(ours)) EXPECT_TRUE(named.contains(id));
  for (const BlockMap::Part& part : ours.parts()) {
    if (!part.stretch->page) continue;
    EXPECT_EQ(part.stretch->page, theirs.FindPage(PageNumber(part.first)));
  }
}

TEST(BlockMapPagesTest, AreNotUsedByAFileInFewPieces) {
  Pages pages(kReal);
  BlockMap map(kLayout);
  map.Resize(500 * kBlock);
  for (uint64_t block = 0; block < 500; ++block) map.Set(block, Written(block));
  const std::string bytes = pages.Store(map);
  EXPECT_LT(bytes.size(), kReal.inline_bytes);
  EXPECT_EQ(pages.writes(), 0u);
}

// Random blocks written, cut, grown and forgotten, stored now and then and read again as another
// process would: always what a plain vector says; and what one version names and the next does not
// is known exactly, pages included.
TEST(BlockMapPagesTest, AgreeWithAVectorOfBlocks) {
  std::mt19937_64 random(4);
  uint64_t stored_pages = 0;
  for (int round = 0; round < 60; ++round) {
    Pages pages({500, 120});
    BlockMap map(kLayout);
    BlockMap committed(kLayout);
    Model model;
    Model model_committed;
    uint64_t size = 0;
    uint64_t writes = 0;
    for (int step = 0; step < 100; ++step) {
      const uint64_t dice = random() % 12;
      if (model.empty() || dice == 0) {
        const uint64_t wanted = random() % (60 * kBlock);
        if (wanted < size) pages.Load(map, (wanted - (wanted > 0)) / kBlock, wanted / kBlock + 1);
        size = wanted;
        map.Resize(size);
        ResizeModel(model, size);
      } else if (dice == 1) {
        const uint64_t first = random() % model.size();
        const uint64_t end = std::min<uint64_t>(first + 1 + random() % 20, model.size());
        pages.Load(map, first, first + 1);
        pages.Load(map, end - 1, end);
        map.SetHoles(first, end);
        ClearModel(model, first, end);
      } else if (dice < 9) {
        const uint64_t block = random() % model.size();
        pages.Load(map, block, block + 1);
        const auto room = static_cast<uint32_t>(std::min(kBlock, size - block * kBlock));
        BlockPlace place = Written(++writes, room);
        if (random() % 4 == 0) place.place.moved = {{1, 7}, {2, 0}};
        const bool patched = model[block] && random() % 2 == 0;
        if (patched) place = *model[block];
        if (patched && place.patches.size() == kMaxPatches) place.patches.clear();
        if (patched) place.Lay(PatchOf(++writes, place.valid, random));
        map.Set(block, place);
        model[block] = place;
      } else {
        const std::string bytes = pages.Store(map);
        // What went is what the two differ in; where a part is not loaded, everything in it may be.
        const auto gone = committed.NotIn(map);
        std::set<WriteId> stripes;
        for (const auto& piece : gone.blocks) stripes.insert(piece.run.write);
        for (const BlockMap::Part& part : gone.missing) {
          BlockMap of_page = committed;
          pages.Load(of_page, part.first, part.first + 1);
          for (const auto& piece : committed.NotIn(*of_page.PartOf(part.first), map)) {
            stripes.insert(piece.run.write);
          }
        }
        std::set<WriteId> expected;
        for (size_t i = 0; i < model_committed.size(); ++i) {
          if (!model_committed[i]) continue;
          for (const BlockPlace& stripe : model_committed[i]->Stripes()) {
            const bool named = i < model.size() && model[i] && model[i]->Names(stripe);
            if (!named) expected.insert(stripe.write);
          }
        }
        ASSERT_EQ(stripes, expected);
        std::set<WriteId> pages_gone;
        for (const auto& piece : gone.pages) {
          EXPECT_TRUE(PageNumber::Is(piece.first));
          pages_gone.insert(piece.run.write);
        }
        for (const BlockMap::Part& part : gone.missing) {
          pages_gone.insert(part.stretch->page->write);
        }
        std::set<WriteId> named = PagesNamedBy(map);
        for (const WriteId& page : PagesNamedBy(committed)) {
          ASSERT_EQ(pages_gone.contains(page), !named.contains(page));
        }
        stored_pages = std::max<uint64_t>(stored_pages, named.size());
        const auto decoded = BlockMap::Decode(bytes, 5, size);
        ASSERT_OK(decoded);
        ASSERT_EQ(*decoded, map);
        map = *decoded;
        committed = map;
        model_committed = model;
      }
      uint64_t stored_bytes = 0;
      for (const auto& place : model) stored_bytes += place ? place->valid : 0;
      ASSERT_EQ(map.StoredBytes(), stored_bytes);
    }
    pages.set_size(size);
    pages.Load(map, 0, map.blocks());
    for (uint64_t i = 0; i < model.size(); ++i) ASSERT_EQ(map.Find(i), model[i]);
    ExpectSpans(map, model);
  }
  EXPECT_GT(stored_pages, 5u) << "nothing was tested";
}

// 16 TB in blocks of 4 MB, every tenth of them written by itself: 800 000 pieces. (All of them take
// some minutes, less than 1000 pages and as little of the inode.)
TEST(BlockMapPagesTest, KeepA16TBFileOfSeparatelyWrittenBlocksBounded) {
  const StripeLayout layout{4, 2, 1 << 20};
  const uint64_t size = uint64_t{16} << 40;
  const uint64_t blocks = size / layout.block_bytes();
  Pages pages(kReal);
  pages.set_size(size);
  BlockMap map(layout);
  map.Resize(size);
  EXPECT_LT(pages.Store(map).size(), 50u);  // sparse
  for (uint64_t block = 7; block < blocks; block += 10) {
    BlockPlace place = Written(block, 4 << 20);
    place.layout = layout;
    map.Set(block, place);
  }
  const std::string root = pages.Store(map);
  EXPECT_LT(root.size(), kReal.inline_bytes + 100);
  EXPECT_GT(pages.writes(), 100u);
  EXPECT_LT(pages.writes(), 1000u);
  EXPECT_EQ(map.StoredBytes(), (blocks + 2) / 10 * layout.block_bytes());

  // Another process reads one page to find a block, and writes one to change it.
  auto other = BlockMap::Decode(root, 5, size);
  ASSERT_OK(other);
  const uint64_t reads = pages.reads();
  const uint64_t writes = pages.writes();
  pages.Load(*other, 1'234'567, 1'234'568);
  ASSERT_TRUE(other->Find(1'234'567).has_value());
  EXPECT_EQ(other->Find(1'234'567)->write, Written(1'234'567).write);
  EXPECT_EQ(pages.reads(), reads + 1);
  BlockPlace place = Written(blocks, 4 << 20);
  place.layout = layout;
  other->Set(1'234'567, place);
  EXPECT_LT(pages.Store(*other).size(), kReal.inline_bytes + 100);
  EXPECT_LE(pages.writes(), writes + 2);
  EXPECT_LE(other->CountLoadedPages(), 2u);
}

// Stored after every fifty: the map stays small, and so does what is written for it.
TEST(BlockMapPagesTest, ThirtyThousandRandomOverwritesStayBounded) {
  constexpr uint64_t kBlocks = 1 << 18;
  Pages pages(kReal);
  pages.set_size(kBlocks * kBlock);
  BlockMap map(kLayout);
  map.Resize(kBlocks * kBlock);
  for (uint64_t block = 0; block < kBlocks; ++block) map.Set(block, PlaceOf(1));
  std::mt19937_64 random(5);
  std::map<uint64_t, uint64_t> model;
  size_t largest = 0;
  for (uint64_t i = 0; i < 30'000; ++i) {
    const uint64_t block = random() % kBlocks;
    pages.Load(map, block, block + 1);
    map.Set(block, Written(i));
    model[block] = i;
    if (i % 50 == 0) largest = std::max(largest, pages.Store(map).size());
    if (i % 1000 == 0) map.ForgetPages();
  }
  EXPECT_LT(largest, kReal.inline_bytes + 100);
  EXPECT_LT(pages.written_bytes() / 600, 50u * 40'000);
  pages.Load(map, 0, map.blocks());
  for (const auto& [block, write] : model) ASSERT_EQ(map.Find(block)->write, Written(write).write);
}

// A file written in one go while a drive was away has a note for each of its blocks.
TEST(BlockMapPagesTest, SplitARunWhoseShardsAreElsewhere) {
  Pages pages(kReal);
  BlockMap map(kLayout);
  map.Resize(100'000 * kBlock);
  pages.set_size(100'000 * kBlock);
  BlockPlace place = PlaceOf(1);
  place.place.moved = {{2, 9}};
  for (uint64_t block = 0; block < 100'000; ++block) map.Set(block, place);
  const std::string root = pages.Store(map);
  EXPECT_LT(root.size(), kReal.inline_bytes);
  auto other = BlockMap::Decode(root, 5, 100'000 * kBlock);
  ASSERT_OK(other);
  pages.Load(*other, 0, other->blocks());
  for (uint64_t block = 0; block < 100'000; block += 77) ASSERT_EQ(other->Find(block), place);
}

TEST(BlockMapPagesTest, SplitARunWithManyPatches) {
  std::mt19937_64 random(8);
  Pages pages(kReal);
  BlockMap map(kLayout);
  map.Resize(3000 * kBlock);
  pages.set_size(3000 * kBlock);
  Model model(3000, PlaceOf(1));
  for (uint64_t block = 0; block < 3000; ++block) {
    if (block % 3 == 0) model[block]->place.moved = {{1, 7}};
    for (uint64_t i = random() % kMaxPatches; i > 0; --i) {
      model[block]->Lay(PatchOf(10 * block + i, kBlock, random));
    }
    map.Set(block, *model[block]);
  }
  const std::string root = pages.Store(map);
  EXPECT_LT(root.size(), kReal.inline_bytes);
  EXPECT_GT(pages.writes(), 10u);
  auto other = BlockMap::Decode(root, 5, 3000 * kBlock);
  ASSERT_OK(other);
  pages.Load(*other, 0, other->blocks());
  for (uint64_t block = 0; block < 3000; ++block) ASSERT_EQ(other->Find(block), model[block]);
}

// What was in pieces and is written anew in one go is one piece again, and needs no page.
TEST(BlockMapPagesTest, PiecesThatFitTogetherBecomeOne) {
  Pages pages(kReal);
  pages.set_size(5000 * kBlock);
  BlockMap map(kLayout);
  map.Resize(5000 * kBlock);
  for (uint64_t block = 0; block < 5000; ++block) map.Set(block, Written(block));
  pages.Store(map);
  EXPECT_GT(PagesNamedBy(map).size(), 2u);
  map = *BlockMap::Decode(Encoded(map), 5, 5000 * kBlock);
  for (uint64_t block = 0; block < 5000; ++block) {
    pages.Load(map, block, block + 1);
    map.Set(block, PlaceOf(1));
    if (block % 700 == 0) pages.Store(map);
  }
  EXPECT_LT(pages.Store(map).size(), 60u);
  EXPECT_TRUE(PagesNamedBy(map).empty());
  EXPECT_EQ(map.runs().size(), 1u);
}

TEST(BlockMapPagesTest, BytesNeverChange) {
  BlockMap map(kLayout);
  map.Resize(6 * kBlock);
  map.Set(0, PlaceOf(1));
  BlockPlace moved = PlaceOf(2);
  moved.place.moved = {{1, 9}};
  map.Set(2, moved);
  BlockPlace small = PlaceOf(3, 100);
  small.layout = kCopies;
  map.Set(5, small);
  const auto firsts = map.Settle({10, 1000});
  ASSERT_TRUE(firsts.has_value());
  ASSERT_EQ(*firsts, std::vector<uint64_t>{0});
  const std::string page = map.EncodePage(*map.PartOf(0), 5);
  EXPECT_EQ(Hex(AsBytes(page)),
            "01"
            "0000000000000000"
            "02"
            "020100010000"
            "010100010000"
            "05"
            "01"
            "01"
            "01010101010101010101010101010101"
            "00000001"
            "00"
            "808008"
            "808008"
            "00"
            "01"
            "05"
            "01"
            "02020202020202020202020202020202"
            "00000001"
            "00"
            "808008"
            "808008"
            "01"
            "00010009"
            "00"
            "02"
            "01"
            "01"
            "03030303030303030303030303030303"
            "00000001"
            "01"
            "64"
            "64");
  BlockPlace place{.object = 5, .layout = kCopies, .place = {.epoch = 1, .moved = {{0, 3}}}};
  place.write.fill(4);
  place.stored = place.valid = static_cast<uint32_t>(page.size());
  map.SetPage(0, place);
  EXPECT_EQ(Hex(AsBytes(Encoded(map))),
            "01"
            "02"
            "020100010000"
            "010100010000"
            "01"
            "0d"
            "06"
            "04040404040404040404040404040404"
            "00000001"
            "01"
            "73"
            "e48010"
            "01"
            "00000003");
}

TEST(BlockMapPagesTest, AnythingElseThanThePageThatIsMeantIsDamage) {
  Pages pages({600, 120});
  pages.set_size(40 * kBlock);
  BlockMap map(kLayout);
  map.Resize(40 * kBlock);
  for (uint64_t block = 0; block < 40; ++block) map.Set(block, Written(block));
  const std::string root = pages.Store(map);
  ASSERT_GT(pages.pages().size(), 1u);
  const auto fresh = [&] { return *BlockMap::Decode(root, 5, 40 * kBlock); };
  const WriteId first = fresh().parts()[0].stretch->page->write;
  const WriteId second = fresh().parts()[1].stretch->page->write;
  BlockMap good = fresh();
  EXPECT_OK(pages.TryLoad(good, 0, 1));
  const std::string right = pages.pages()[first];
  std::swap(pages.pages()[first], pages.pages()[second]);
  BlockMap swapped = fresh();
  EXPECT_FAILS(pages.TryLoad(swapped, 0, 1), EBADMSG);
  std::mt19937_64 random(6);
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string damaged = right;
    if (i % 3 == 0) damaged.resize(random() % damaged.size());
    for (uint64_t n = 1 + random() % 4; n > 0 && !damaged.empty(); --n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    pages.pages()[first] = damaged;
    BlockMap hostile = fresh();
    const Status status = pages.TryLoad(hostile, 0, 1);
    if (!status.ok()) {
      ASSERT_EQ(status.code(), EBADMSG) << status.message();
      continue;
    }
    ++accepted;  // such as another write id
    ASSERT_EQ(hostile.StoredBytes(), 40 * kBlock);
    for (uint64_t block = 0; block < hostile.parts()[0].stretch->count; ++block) {
      (void)hostile.Find(block);
    }
    hostile.Set(0, Written(1000));
    (void)hostile.NotIn(good);
    (void)hostile.Settle(kTiny);
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 90'000);
}

}  // namespace
}  // namespace pinstripe
