// What is noted of a scrub: every group is read, whoever comes, goes and dies meanwhile.

#include "upkeep/scrub_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/bytes.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

ScrubId Id(uint8_t number) {
  ScrubId id{};
  id.fill(number);
  return id;
}

const ScrubId kAlice = Id(0xa1);
const ScrubId kBob = Id(0xb0);

TEST(ScrubNote, TheFirstReaderHasAllGroups) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 10);
  EXPECT_EQ(note.Done(), 0);
  const auto part = note.Take(kAlice, {});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->next, ScrubPlace());
  EXPECT_EQ(part->end, ScrubPlace{10});
  EXPECT_EQ(note.Take(kAlice, {}), part) << "who asks once more has it already";
}

TEST(ScrubNote, TheSecondReaderTakesTheUpperHalf) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 10);
  ASSERT_TRUE(note.Take(kAlice, {}));
  EXPECT_EQ(note.Advance(kAlice, {4}), ScrubPlace{10});
  EXPECT_DOUBLE_EQ(note.Done(), 0.4);
  const auto part = note.Take(kBob, {});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->next.group, 7u);
  EXPECT_EQ(part->end, ScrubPlace{10});
  EXPECT_EQ(note.Advance(kAlice, {5}), ScrubPlace{7})
      << "the first one learns where its part ends now";
  EXPECT_TRUE(note.IsTakenByOthers(kAlice));
}

// All files of a directory may be in one group.
TEST(ScrubNote, OneGroupIsDividedByTheNumbersOfInodes) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 1);
  ASSERT_TRUE(note.Take(kAlice, {}));
  ASSERT_TRUE(note.Advance(kAlice, {.group = 0, .file = 1u << 30, .block = 7}));
  const auto part = note.Take(kBob, {});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->next.group, 0u);
  EXPECT_NEAR(std::ldexp(static_cast<double>(part->next.file), -64), 0.5, 0.01);
  EXPECT_EQ(part->next.block, 0u);
  EXPECT_EQ(part->end, ScrubPlace{1});
  EXPECT_EQ(note.Advance(kAlice, {.group = 0, .file = 1u << 30, .block = 8}), part->next);
  EXPECT_NEAR(note.Done(), 0, 0.01);
  // But not for ever.
  uint8_t readers = 3;
  note.left.resize(1);
  while (note.Take(Id(readers), {})) {
    ASSERT_LT(++readers, 60);
    note.left.resize(1);  // the upper ones are done
  }
  EXPECT_GT(readers, 10);
  EXPECT_OK(ScrubNote::Decode(note.Encode()));
}

TEST(ScrubNote, AfterAllGroupsComesTheEndForOneOfThem) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 4);
  ASSERT_TRUE(note.Take(kAlice, {}));
  ASSERT_TRUE(note.Take(kBob, {}));
  EXPECT_EQ(note.Advance(kBob, {4}), ScrubPlace{4});
  EXPECT_THAT(note.left, SizeIs(1)) << "the other one has not read its part yet";
  EXPECT_EQ(note.Advance(kAlice, {3}), ScrubPlace{2})
      << "it has read something of the other part as well";
  EXPECT_DOUBLE_EQ(note.Done(), 1);
  const auto part = note.Take(kBob, {});
  ASSERT_TRUE(part);
  EXPECT_TRUE(note.IsEnd(*part));
  EXPECT_FALSE(note.Take(kAlice, {}));
  EXPECT_TRUE(note.Take(kAlice, {kBob})) << "who dies then is replaced, too";
}

TEST(ScrubNote, AReaderMayBeInTheMiddleOfAFile) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 10);
  ASSERT_TRUE(note.Take(kAlice, {}));
  const ScrubPlace place{.group = 4, .file = 77, .block = 1'000'000};
  EXPECT_EQ(note.Advance(kAlice, place), ScrubPlace{10});
  EXPECT_FALSE(note.Advance(kAlice, {.group = 4, .file = 77, .block = 3})) << "never back";
  ASSERT_TRUE(note.Take(kBob, {}));
  EXPECT_EQ(note.left[0].next, place) << "the upper half begins with a group";
  EXPECT_EQ(note.left[1].next, ScrubPlace{7});
  note.Release(kAlice);
  EXPECT_EQ(note.Take(Id(9), {})->next, place);
}

TEST(ScrubNote, OneThatDiedIsReplacedWhereItWas) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 10);
  ASSERT_TRUE(note.Take(kAlice, {}));
  ASSERT_TRUE(note.Advance(kAlice, {4}));
  const auto part = note.Take(kBob, {kAlice});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->next.group, 4u);
  EXPECT_EQ(part->end, ScrubPlace{10});
  EXPECT_FALSE(note.Advance(kAlice, {5})) << "it was not dead, and learns of it";
  note.Release(kBob);
  EXPECT_EQ(note.Take(kAlice, {})->next.group, 4u);
}

TEST(ScrubNote, WhatWasOutOfReachIsReadOnceMore) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 100);
  ASSERT_TRUE(note.Take(kAlice, {}));
  note.ReadAgain({10, 20});
  note.ReadAgain({30, 40});
  note.ReadAgain({20, 22});
  note.ReadAgain({39, 41});
  EXPECT_THAT(note.again, ElementsAre(GroupRange{10, 22}, GroupRange{30, 41}));
  ASSERT_TRUE(note.Advance(kAlice, {100}));
  EXPECT_EQ(note.round, 2);
  EXPECT_THAT(note.again, IsEmpty());
  EXPECT_EQ(note.Take(kAlice, {})->next.group, 10u);
  note.ReadAgain({10, 22});
  EXPECT_THAT(note.again, IsEmpty()) << "there is no third time";
  ASSERT_TRUE(note.Advance(kAlice, {22}));
  EXPECT_EQ(note.Take(kAlice, {})->next.group, 30u);
  ASSERT_TRUE(note.Advance(kAlice, {41}));
  EXPECT_TRUE(note.IsEnd(*note.Take(kAlice, {})));
}

TEST(ScrubNote, ThereIsNoSecondRoundForDrivesThatStayAway) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 100);
  ASSERT_TRUE(note.Take(kAlice, {}));
  note.ReadAgain({10, 20}, 5, {3});
  note.ReadAgain({30, 40}, 6, {3, 4});
  EXPECT_THAT(note.away, ElementsAre(3, 4));
  ASSERT_TRUE(note.Advance(kAlice, {100}, /*one_is_back=*/false));
  EXPECT_TRUE(note.IsEnd(*note.Take(kAlice, {})));
  EXPECT_EQ(note.found.unread, 11u);
}

TEST(ScrubNote, ManyRangesBecomeFewerThatHaveAllOfThem) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 60'000);
  std::mt19937 random(1);
  std::set<uint32_t> wanted;
  for (int i = 0; i < 3000; ++i) {
    const uint32_t group = random() % 60'000;
    wanted.insert(group);
    note.ReadAgain({group, group + 1});
  }
  EXPECT_LE(note.again.size(), kMostScrubRanges);
  ASSERT_OK(ScrubNote::Decode(note.Encode()));
  ASSERT_TRUE(note.Take(kAlice, {}));
  ASSERT_TRUE(note.Advance(kAlice, {60'000}));
  EXPECT_LE(note.left.size(), kMostScrubParts);
  for (const uint32_t group : wanted) {
    EXPECT_TRUE(std::ranges::any_of(note.left, [&](const ScrubPart& part) {
      return part.next.group <= group && group < part.end.group;
    })) << group;
  }
}

TEST(ScrubNote, WhatIsFoundHasABound) {
  ScrubFound found;
  ScrubFound more{.blocks = 2, .damaged = 1};
  for (uint64_t i = 0; i < kMostScrubBlocks + 5; ++i) more.not_whole.emplace(7, i);
  for (size_t i = 0; i < kMostScrubTexts + 3; ++i) more.contradicted.emplace_back(7, "shard 1");
  found.Add(more);
  found.Add(more);
  EXPECT_EQ(found.blocks, 4u);
  EXPECT_EQ(found.damaged, 2u);
  EXPECT_THAT(found.not_whole, SizeIs(kMostScrubBlocks));
  EXPECT_EQ(found.more_not_whole, 10u);
  EXPECT_THAT(found.contradicted, SizeIs(kMostScrubTexts));
  EXPECT_EQ(found.more_contradicted, kMostScrubTexts + 6);

  ScrubNote largest = ScrubNote::Begin(Id(1), -1, 60'000);
  largest.found = found;
  for (auto& one : largest.found.contradicted) one.second = std::string(400, 'x');
  for (uint32_t i = 0; i < kMostScrubRanges; ++i) largest.ReadAgain({i * 3, i * 3 + 1});
  for (uint8_t i = 1; i <= kMostScrubParts; ++i) ASSERT_TRUE(largest.Take(Id(i), {}));
  EXPECT_FALSE(largest.Take(Id(200), {}));
  EXPECT_LT(largest.Encode().size(), 64u << 10) << "a register has room for twice as much";
  const auto again = ScrubNote::Decode(largest.Encode());
  ASSERT_OK(again);
  EXPECT_EQ(*again, largest);
}

// Readers come, read, stop, die and are taken for dead by mistake, in any order. Every file is
// read, those of which something was out of reach a second time, and only then comes the end.
TEST(ScrubNote, EveryFileIsReadWhateverHappens) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    const uint32_t groups = 1 + random() % (seed % 2 == 0 ? 3 : 40);
    std::map<ScrubPlace, int> read;  // how often, of all files
    for (uint32_t i = 0; i < 100; ++i) {
      read[{.group = static_cast<uint32_t>(random() % groups), .file = 1 + random()}];
    }
    ScrubNote note = ScrubNote::Begin(Id(1), 100, groups);
    struct Reader {
      ScrubId id;
      std::optional<ScrubPart> part;
    };
    std::vector<Reader> readers;
    for (uint8_t i = 0; i < 4; ++i) readers.push_back({Id(10 + i), std::nullopt});
    bool ended = false;
    for (int step = 0; step < 10'000 && !ended; ++step) {
      Reader& reader = readers[random() % readers.size()];
      if (!reader.part) {
        std::set<ScrubId> dead;
        if (random() % 8 == 0) dead.insert(readers[random() % readers.size()].id);
        dead.erase(reader.id);
        reader.part = note.Take(reader.id, dead);
        ended = reader.part && note.IsEnd(*reader.part);
        continue;
      }
      if (random() % 16 == 0) {  // stops, or loses its memory
        if (random() % 2 == 0) note.Release(reader.id);
        reader.part.reset();
        continue;
      }
      // Reads some files, and goes on after the last of them.
      ScrubPart& part = *reader.part;
      const ScrubPlace first = part.next;
      auto file = read.lower_bound(first);
      for (uint64_t left = 1 + random() % 5; left > 0 && file != read.end(); --left, ++file) {
        if (file->first >= part.end) break;
        ++file->second;
        part.next = {file->first.group, file->first.file + 1};
      }
      if (file == read.end() || file->first >= part.end) part.next = part.end;
      // One that was replaced has read something once more, no matter how.
      const bool is_its = std::ranges::any_of(
          note.left, [&](const ScrubPart& each) { return each.reader == reader.id; });
      if (note.round == 1 && is_its && random() % 8 == 0) {
        const GroupRange again{first.group, std::min(part.next.group + 1, groups)};
        for (auto& [place, count] : read) {
          if (place.group >= again.first && place.group < again.end) count = 0;
        }
        note.ReadAgain(again);
      }
      const auto end = note.Advance(reader.id, part.next);
      if (!end || part.next >= *end) {
        reader.part.reset();
      } else {
        part.end = *end;
      }
      // No two parts have anything in common, and the bytes say all.
      ScrubPlace last;
      for (const ScrubPart& each : note.left) {
        ASSERT_GE(each.next, last);
        ASSERT_LT(each.next, each.end);
        last = each.end;
      }
      const auto decoded = ScrubNote::Decode(note.Encode());
      ASSERT_OK(decoded);
      ASSERT_EQ(*decoded, note);
    }
    ASSERT_TRUE(ended);
    for (const auto& [place, count] : read) ASSERT_GT(count, 0) << place.group;
  }
}

// ---- The format

ScrubNote NoteOfAScrub() {
  ScrubNote note = ScrubNote::Begin(Id(1), 1'700'000'000'000'000'000, 512);
  note.touched = note.began + 1;
  EXPECT_TRUE(note.Take(kAlice, {}));
  EXPECT_TRUE(note.Advance(kAlice, {3, 258, 300}));
  note.ReadAgain({1, 2}, 11, {3, 258});
  note.found = {.blocks = 1,
                .damaged = 2,
                .missing = 3,
                .written = 4,
                .relocated = 5,
                .bytes_read = 300,
                .bytes_written = 6,
                .unread = 7};
  note.found.not_whole.emplace(258, 9);
  note.found.more_not_whole = 8;
  note.found.contradicted.emplace_back(258, "block 9: shard 2");
  note.found.more_contradicted = 10;
  return note;
}

// These bytes are the format.
TEST(ScrubNote, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(ScrubNoteKey())), "4307");
  EXPECT_EQ(Hex(AsBytes(NoteOfAScrub().Encode())),
            "01"
            "01010101010101010101010101010101"
            "17979cfe362a0000"
            "17979cfe362a0001"
            "00000200"
            "01"
            "01"
            "00000003"
            "0000000000000102"
            "ac02"
            "00000200"
            "0000000000000000"
            "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"
            "01"
            "01"
            "00000001"
            "00000002"
            "0b"
            "02"
            "0003"
            "0102"
            "0102030405"
            "ac02"
            "06"
            "07"
            "01"
            "0000000000000102"
            "0000000000000009"
            "08"
            "01"
            "0000000000000102"
            "10626c6f636b20393a2073686172642032"
            "0a");
  const auto note = ScrubNote::Decode(NoteOfAScrub().Encode());
  ASSERT_OK(note);
  EXPECT_EQ(*note, NoteOfAScrub());
}

TEST(ScrubNote, AnythingElseIsDamage) {
  const std::string note = NoteOfAScrub().Encode();
  for (size_t size = 0; size < note.size(); ++size) {
    EXPECT_FAILS(ScrubNote::Decode(note.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(ScrubNote::Decode(note + '\0'), EBADMSG);
  const auto broken = [](const std::function<void(ScrubNote&)>& change) {
    ScrubNote bad = NoteOfAScrub();
    change(bad);
    EXPECT_FAILS(ScrubNote::Decode(bad.Encode()), EBADMSG);
  };
  broken([](ScrubNote& bad) { bad.round = 3; });
  broken([](ScrubNote& bad) { bad.round = 0; });
  broken([](ScrubNote& bad) { bad.left[0].end.group = 513; });
  broken([](ScrubNote& bad) { bad.left[0].next = bad.left[0].end; });
  broken([](ScrubNote& bad) { bad.left.push_back(bad.left[0]); });
  broken([](ScrubNote& bad) { bad.left.push_back({.next = {512}, .end = {513}}); });
  broken([](ScrubNote& bad) { bad.again.push_back({2, 3}); });
  broken([](ScrubNote& bad) { bad.again[0].end = 600; });
  broken([](ScrubNote& bad) { bad.found.contradicted[0].second = "\x1b[31m"; });
}

}  // namespace
}  // namespace pinstripe
