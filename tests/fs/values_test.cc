// The pure parts: paths, interval sets, inodes, entries; block maps have block_map_test.cc. The
// bytes are the format: if a golden test fails, drives written yesterday cannot be read today.

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <set>

#include "fs/files/block_map.h"
#include "fs/files/interval_set.h"
#include "fs/names/inode.h"
#include "fs/names/path.h"
#include "fs/posix_stat.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

// ---- Paths

std::vector<std::string> Split(std::string_view path) {
  const auto names = SplitPath(path);
  EXPECT_OK(names);
  return names.value_or(std::vector<std::string>{"?"});
}

TEST(Path, IsItsNames) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(Split("/"), Names{});
  EXPECT_EQ(Split("//a///b/"), (Names{"a", "b"}));
  EXPECT_EQ(Split("/a/./b/../c/."), (Names{"a", "b", "..", "c"}));
  EXPECT_EQ(*SplitNames("a/../b//"), (Names{"a", "..", "b"}));
  EXPECT_EQ(Split("/..a/b.."), (Names{"..a", "b.."}));
}

TEST(Path, MustBeAbsoluteAndOfAllowedLength) {
  EXPECT_FAILS(SplitPath(""), EINVAL);
  EXPECT_FAILS(SplitPath("a/b"), EINVAL);
  EXPECT_FAILS(SplitPath(std::string_view("/a\0b", 4)), EINVAL);
  EXPECT_OK(SplitPath("/" + std::string(255, 'x')));
  EXPECT_FAILS(SplitPath("/" + std::string(256, 'x')), ENAMETOOLONG);
  EXPECT_FAILS(SplitPath("/" + std::string(4096, '/')), ENAMETOOLONG);
}

TEST(Path, ANameIsAnythingButSlashAndNul) {
  EXPECT_OK(CheckName("a:b_c~d\xff\x01"));
  EXPECT_OK(CheckName("..."));
  EXPECT_FAILS(CheckName(""), EINVAL);
  EXPECT_FAILS(CheckName("."), EINVAL);
  EXPECT_FAILS(CheckName(".."), EINVAL);
  EXPECT_FAILS(CheckName("a/b"), EINVAL);
  EXPECT_FAILS(CheckName(std::string_view("a\0", 2)), EINVAL);
  EXPECT_FAILS(CheckName(std::string(256, 'x')), ENAMETOOLONG);
}

// ---- Interval sets

TEST(IntervalSetTest, AgreesWithASetOfNumbers) {
  constexpr uint64_t kEnd = 24;
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    IntervalSet set;
    std::set<uint64_t> model;
    for (int step = 0; step < 12; ++step) {
      uint64_t first = random() % kEnd;
      uint64_t end = random() % kEnd;
      if (first > end) std::swap(first, end);
      if (random() % 5 == 0) {
        set.CutFrom(end);
        model.erase(model.lower_bound(end), model.end());
      } else {
        set.Add(first, end);
        for (uint64_t i = first; i < end; ++i) model.insert(i);
      }
      for (uint64_t i = 0; i < kEnd; ++i) ASSERT_EQ(set.Contains(i), model.contains(i));
      ASSERT_EQ(set.end(), model.empty() ? 0 : *model.rbegin() + 1);
      std::set<uint64_t> inside, outside;
      for (auto [from, to] : set.Within(3, 17)) {
        while (from < to) inside.insert(from++);
      }
      for (auto [from, to] : set.GapsWithin(3, 17)) {
        while (from < to) outside.insert(from++);
      }
      for (uint64_t i = 3; i < 17; ++i) {
        ASSERT_EQ(inside.contains(i), model.contains(i));
        ASSERT_EQ(outside.contains(i), !model.contains(i));
      }
      ASSERT_EQ(inside.size() + outside.size(), 14u);
    }
  }
}

// ---- Times

TEST(TimesTest, ComeBackAsTheyWereGiven) {
  for (const timespec& time :
       {timespec{0, 0}, timespec{1'500'000'000, 987'654'321}, timespec{-1, 999'999'999},
        timespec{9'223'372'035, 999'999'999}, timespec{-9'223'372'035, 1}}) {
    const timespec again = ToTimespec(ToNanoseconds(time));
    EXPECT_EQ(again.tv_sec, time.tv_sec);
    EXPECT_EQ(again.tv_nsec, time.tv_nsec);
  }
}

TEST(TimesTest, BeyondWhatCanBeKeptBecomeTheLastSecondThatCan) {
  constexpr time_t kLast = 9'223'372'036;
  for (const time_t seconds : {kLast, time_t{10'413'792'000}, std::numeric_limits<time_t>::max()}) {
    const timespec late = ToTimespec(ToNanoseconds({seconds, 999'999'999}));
    EXPECT_EQ(late.tv_sec, kLast);
    EXPECT_EQ(late.tv_nsec, 0);
    const timespec early = ToTimespec(ToNanoseconds({-seconds, 1}));
    EXPECT_EQ(early.tv_sec, -kLast);
    EXPECT_EQ(early.tv_nsec, 0);
  }
  const time_t least = std::numeric_limits<time_t>::min();
  EXPECT_EQ(ToTimespec(ToNanoseconds({least, 0})).tv_sec, -kLast);
}

// ---- Inodes and entries

Inode FullInode() {
  Inode inode;
  inode.kind = FileKind::kDirectory;
  inode.mode = 0755;
  inode.owner = {1, 2};
  inode.links = 5;
  inode.accessed = -1;
  inode.modified = 4;
  inode.changed = 5;
  inode.parent = 7;
  inode.mark = ReplacementMark{8, {1}};
  inode.intent = RenameIntent{.nonce = {2},
                              .source = 1,
                              .source_name = "a",
                              .source_slot = 3,
                              .target = 4,
                              .target_name = "b",
                              .target_slot = 5,
                              .replaced = 6,
                              .replaced_slot = 7};
  inode.renames = {{{3}, true}};
  inode.attributes = {{"user.a", "x"}, {"user.b", ""}};
  inode.counted = 9;
  inode.unknown = {{200, "later"}};
  return inode;
}

// Whoever began a rename that others ended learns what became of it, also when they went on.
TEST(InodeTest, TheLastFourRenamesAreRemembered) {
  Inode inode;
  for (uint8_t i = 1; i <= 6; ++i) inode.Note({{i}, i % 2 == 0});
  const std::vector<RenameOutcome> last = {{{3}, false}, {{4}, true}, {{5}, false}, {{6}, true}};
  EXPECT_EQ(inode.renames, last);
  const std::string bytes = inode.Encode(9);
  const auto decoded = Inode::Decode(bytes, 9);
  ASSERT_OK(decoded);
  EXPECT_EQ(decoded->renames, last);
  inode.renames.push_back({{7}, true});  // one too many
  EXPECT_FAILS(Inode::Decode(inode.Encode(9), 9), EBADMSG);
}

TEST(InodeTest, BytesNeverChange) {
  Inode file;
  file.mode = 0644;
  file.owner = {1, 2};
  file.size = 2;
  file.accessed = 3;
  file.modified = 4;
  file.changed = 5;
  file.inline_data = "hi";
  EXPECT_EQ(Hex(AsBytes(file.Encode(9))),
            "01"
            "01"
            "01a4"
            "00000001"
            "00000002"
            "00000001"
            "0000000000000002"
            "0000000000000003"
            "0000000000000004"
            "0000000000000005"
            "06"
            "02"
            "6869");
  EXPECT_EQ(Hex(AsBytes(FullInode().Encode(9))),
            "01"
            "02"
            "01ed"
            "00000001"
            "00000002"
            "00000005"
            "0000000000000000"
            "ffffffffffffffff"
            "0000000000000004"
            "0000000000000005"
            "01"
            "08"
            "0000000000000007"
            "02"
            "18"
            "0000000000000008"
            "01000000000000000000000000000000"
            "03"
            "44"
            "02000000000000000000000000000000"
            "0000000000000001"
            "0161"
            "0000000000000003"
            "0000000000000004"
            "0162"
            "0000000000000005"
            "0000000000000006"
            "0000000000000007"
            "05"
            "12"
            "02"
            "06757365722e61"
            "0178"
            "06757365722e62"
            "00"
            "80"
            "11"
            "03000000000000000000000000000000"
            "01"
            "83"
            "08"
            "0000000000000009"
            "c8"
            "05"
            "6c61746572");
}

// More subdirectories than there can be, or fewer than none: then somebody has to count.
TEST(InodeTest, LinksOfADirectoryAreRightOrUnknown) {
  const auto counted = [](uint32_t links, Subdirectories change) {
    Inode inode;
    inode.kind = FileKind::kDirectory;
    inode.links = links;
    inode.Count(change);
    return inode.links;
  };
  EXPECT_EQ(counted(2, Subdirectories::kOneMore), 3u);
  EXPECT_EQ(counted(3, Subdirectories::kOneLess), 2u);
  EXPECT_EQ(counted(3, Subdirectories::kSame), 3u);
  EXPECT_EQ(counted(3, Subdirectories::kUnknown), 1u);
  EXPECT_EQ(counted(2, Subdirectories::kOneLess), 1u);
  EXPECT_EQ(counted(UINT32_MAX, Subdirectories::kOneMore), 1u);
  EXPECT_EQ(counted(1, Subdirectories::kOneMore), 1u);
  EXPECT_EQ(counted(1, Subdirectories::kOneLess), 1u);
}

TEST(InodeTest, BytesOfALinkNeverChange) {
  Inode link;
  link.kind = FileKind::kSymlink;
  link.mode = 0777;
  link.symlink = "../x";
  EXPECT_EQ(Hex(AsBytes(link.Encode(9))),
            "01"
            "03"
            "01ff"
            "00000000"
            "00000000"
            "00000001"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "04"
            "04"
            "2e2e2f78");
  const auto decoded = Inode::Decode(link.Encode(9), 9);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, link);
}

TEST(InodeTest, BytesOfAnExchangeNeverChange) {
  Inode file;
  file.intent = RenameIntent{.nonce = {2},
                             .source = 1,
                             .source_name = "a",
                             .source_slot = 3,
                             .target = 4,
                             .target_name = "b",
                             .target_slot = 5,
                             .replaced = 6,
                             .replaced_slot = 7,
                             .exchange = FileKind::kDirectory};
  EXPECT_EQ(Hex(AsBytes(file.Encode(9))).substr(2 * (4 + 12 + 32)),
            "0a"
            "45"
            "02000000000000000000000000000000"
            "0000000000000001"
            "0161"
            "0000000000000003"
            "0000000000000004"
            "0162"
            "0000000000000005"
            "0000000000000006"
            "0000000000000007"
            "02");
  const auto decoded = Inode::Decode(file.Encode(9), 9);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, file);
  file.intent->replaced_slot = 0;
  EXPECT_FAILS(Inode::Decode(file.Encode(9), 9), EBADMSG);
}

TEST(InodeTest, BytesOfAFileThatSharesNeverChange) {
  Inode file;
  file.keepers = {7, 8};
  EXPECT_EQ(Hex(AsBytes(file.Encode(9))).substr(2 * (4 + 12 + 32)),
            "0b"
            "11"
            "02"
            "0000000000000007"
            "0000000000000008");
  EXPECT_EQ(*Inode::Decode(file.Encode(9), 9), file);
}

Inode KeeperOfOneBlock() {
  Inode keeper;
  keeper.size = 1;
  keeper.map.emplace(StripeLayout{2, 1, 64 << 10});
  keeper.map->Resize(1);
  keeper.keeping = Keeping{.object = 5, .settled = true, .files = {3, 5}};
  return keeper;
}

TEST(InodeTest, BytesOfAKeeperNeverChange) {
  const Inode keeper = KeeperOfOneBlock();
  EXPECT_EQ(Hex(AsBytes(keeper.Encode(9))).substr(2 * (4 + 12 + 32)),
            "07"
            "0b"
            "0001020100010000010001"
            "0c"
            "1a"
            "01"
            "0000000000000005"
            "02"
            "0000000000000003"
            "0000000000000005");
  EXPECT_EQ(*Inode::Decode(keeper.Encode(9), 9), keeper);
}

// Out of order, too many, of nothing, of itself, with keepers of its own; and no file.
TEST(InodeTest, KeepersThatCannotBeAreRefused) {
  const std::vector<std::function<void(Inode&)>> damages = {
      [](Inode& inode) {
        inode.keeping->files = {5, 3};
      },
      [](Inode& inode) {
        inode.keeping->files = {5, 5};
      },
      [](Inode& inode) { inode.keeping->files.assign(kMostFilesOfKeeper + 1, 1); },
      [](Inode& inode) { inode.keeping->object = 0; },
      [](Inode& inode) {
        inode.keeping->object = 9;  // only a pack's is itself, and that is settled
        inode.keeping->settled = false;
      },
      [](Inode& inode) { inode.keepers = {7}; },
      [](Inode& inode) { inode.map->Set(0, SharedPlace(7, 0, 1)); },
      [](Inode& inode) {
        inode.map.reset();
        inode.size = 0;
      },
      [](Inode& inode) {
        inode.keeping.reset();
        inode.map.reset();
        inode.size = 0;
        inode.keepers = {7};
        inode.kind = FileKind::kFifo;
      },
      [](Inode& inode) {
        inode.keeping.reset();
        for (InodeId id = 1; id <= kMostKeepersOfFile + 1; ++id) inode.keepers.push_back(id);
      },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    Inode damaged = KeeperOfOneBlock();
    damages[i](damaged);
    EXPECT_FAILS(Inode::Decode(damaged.Encode(9), 9), EBADMSG) << i;
  }
}

TEST(InodeTest, BytesOfADirectoryThatHasGrownNeverChange) {
  Inode directory;
  directory.kind = FileKind::kDirectory;
  directory.parent = 7;
  directory.parts = {.bits = 9, .stage = DirectoryParts::Stage::kClearing};
  EXPECT_EQ(Hex(AsBytes(directory.Encode(9))).substr(2 * (4 + 12 + 32)),
            "01"
            "08"
            "0000000000000007"
            "0d"
            "02"
            "09"
            "02");
  EXPECT_EQ(*Inode::Decode(directory.Encode(9), 9), directory);
}

TEST(InodeTest, PartsThatCannotBeAreRefused) {
  Inode directory;
  directory.kind = FileKind::kDirectory;
  directory.parent = 7;
  directory.parts.bits = 1;
  const std::string good = directory.Encode(9);
  ASSERT_OK(Inode::Decode(good, 9));
  for (const auto& [bits, stage] : {std::pair(0, 0), {10, 0}, {1, 3}}) {
    std::string bad = good;
    bad[bad.size() - 2] = static_cast<char>(bits);
    bad[bad.size() - 1] = static_cast<char>(stage);
    EXPECT_FAILS(Inode::Decode(bad, 9), EBADMSG) << bits << " " << stage;
  }
  EXPECT_FAILS(Inode::Decode(good.substr(0, good.size() - 2) + '\1', 9), EBADMSG);
  Inode file;
  file.parts.bits = 1;
  EXPECT_FAILS(Inode::Decode(file.Encode(9), 9), EBADMSG) << "it is not a directory";
}

TEST(InodeTest, BytesOfADeviceNeverChange) {
  Inode device;
  device.kind = FileKind::kCharacterDevice;
  device.device = DeviceNumber{1, 3};
  EXPECT_EQ(Hex(AsBytes(device.Encode(9))),
            "01"
            "06"
            "0000"
            "00000000"
            "00000000"
            "00000001"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "08"
            "08"
            "00000001"
            "00000003");
  const auto decoded = Inode::Decode(device.Encode(9), 9);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, device);
  device.kind = FileKind::kFifo;
  EXPECT_FAILS(Inode::Decode(device.Encode(9), 9), EBADMSG);
  device.device.reset();
  EXPECT_OK(Inode::Decode(device.Encode(9), 9));
  device.kind = FileKind::kBlockDevice;
  EXPECT_FAILS(Inode::Decode(device.Encode(9), 9), EBADMSG);
}

TEST(InodeTest, OnlyALinkHasATargetAndItIsOne) {
  Inode link;
  link.kind = FileKind::kSymlink;
  EXPECT_FAILS(Inode::Decode(link.Encode(9), 9), EBADMSG);
  for (const std::string& target : {std::string(4096, 'x'), std::string("a\0b", 3)}) {
    link.symlink = target;
    EXPECT_FAILS(Inode::Decode(link.Encode(9), 9), EBADMSG);
  }
  link.symlink = "x";
  EXPECT_OK(Inode::Decode(link.Encode(9), 9));
  link.kind = FileKind::kRegular;
  EXPECT_FAILS(Inode::Decode(link.Encode(9), 9), EBADMSG);
}

TEST(InodeTest, IsReadAsItWasWritten) {
  const Inode inode = FullInode();
  const auto decoded = Inode::Decode(inode.Encode(9), 9);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, inode);
}

TEST(InodeTest, WhatALaterVersionMustUnderstandIsRefused) {
  Inode file;
  std::string bytes = file.Encode(9);
  EXPECT_OK(Inode::Decode(bytes, 9));
  EXPECT_FAILS(Inode::Decode(bytes + std::string("\x64\x01x", 3), 9), EBADMSG);
  bytes[0] = 2;
  EXPECT_FAILS(Inode::Decode(bytes, 9), EBADMSG);
}

TEST(InodeTest, ContentsMustBeAsLongAsTheFile) {
  Inode file;
  file.size = 3;
  file.inline_data = "hi";
  EXPECT_FAILS(Inode::Decode(file.Encode(9), 9), EBADMSG);
  file.inline_data.clear();
  EXPECT_FAILS(Inode::Decode(file.Encode(9), 9), EBADMSG);
}

// Every prefix, and every byte changed to something else: refused, or read as an inode, never a
// crash.
TEST(InodeTest, SurvivesAnyDamage) {
  const StripeLayout layout{2, 1, 64 << 10};
  const auto block_bytes = static_cast<uint32_t>(layout.block_bytes());
  Inode file;
  file.size = 4 * layout.block_bytes() + 7;
  file.map.emplace(layout);
  file.map->Resize(file.size);
  BlockPlace place{.layout = layout, .place = {.epoch = 1}};
  place.stored = place.valid = block_bytes;
  place.object = 9;
  place.place.moved = {{1, 7}};
  file.map->Set(1, place);
  file.map->Set(4, [&] {
    auto last = place;
    last.stored = last.valid = 7;
    return last;
  }());
  std::mt19937_64 random(3);
  for (const std::string& bytes : {file.Encode(9), FullInode().Encode(9)}) {
    ASSERT_OK(Inode::Decode(bytes, 9));
    for (size_t length = 0; length < bytes.size(); ++length) {
      (void)Inode::Decode(bytes.substr(0, length), 9);
    }
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (const int flip : {0x01, 0x80, 0xff, 0x7f}) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ flip);
        const auto decoded = Inode::Decode(damaged, 9);
        if (!decoded.has_value()) {
          EXPECT_EQ(decoded.error().code(), EBADMSG) << decoded.error().message();
        }
      }
    }
    for (int round = 0; round < 20000; ++round) {
      std::string damaged = bytes;
      for (uint64_t n = 1 + random() % 4; n > 0; --n) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      (void)Inode::Decode(damaged, 9);
    }
  }
}

TEST(EntryTest, BytesNeverChange) {
  const Entry plain{.inode = 5, .kind = FileKind::kRegular};
  EXPECT_EQ(Hex(AsBytes(plain.Encode())),
            "01"
            "0000000000000005"
            "01"
            "00");
  const Entry moved{.inode = 5, .kind = FileKind::kDirectory, .nonce = RenameNonce{9}};
  EXPECT_EQ(Hex(AsBytes(moved.Encode())),
            "01"
            "0000000000000005"
            "02"
            "01"
            "09000000000000000000000000000000");
  EXPECT_EQ(*Entry::Decode(moved.Encode()), moved);
  Entry on_its_way = moved;
  on_its_way.move = Entry::Move::kMoving;
  EXPECT_EQ(Hex(AsBytes(on_its_way.Encode())),
            "01"
            "0000000000000005"
            "02"
            "03"
            "09000000000000000000000000000000");
  EXPECT_EQ(*Entry::Decode(on_its_way.Encode()), on_its_way);
  Entry gone;
  gone.move = Entry::Move::kMoved;
  EXPECT_EQ(Hex(AsBytes(gone.Encode())),
            "01"
            "0000000000000000"
            "00"
            "04");
  EXPECT_EQ(*Entry::Decode(gone.Encode()), gone);
  for (const uint8_t flags : {5, 6, 8, 128}) {
    std::string bad = gone.Encode();
    bad.back() = static_cast<char>(flags);
    EXPECT_FAILS(Entry::Decode(bad), EBADMSG) << int{flags};
  }
  std::string of_something = plain.Encode();
  of_something.back() = 4;
  EXPECT_FAILS(Entry::Decode(of_something), EBADMSG);
  EXPECT_FAILS(Entry::Decode(""), EBADMSG);
  EXPECT_FAILS(Entry::Decode(plain.Encode() + "x"), EBADMSG);
  EXPECT_FAILS(Entry::Decode(Entry{.inode = 0}.Encode()), EBADMSG);
}

}  // namespace
}  // namespace pinstripe
