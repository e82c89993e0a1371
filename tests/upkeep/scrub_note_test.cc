// What is noted of a scrub: every group is read, whoever comes, goes and dies meanwhile.

#include "upkeep/scrub_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
  EXPECT_EQ(part->end, 10u);
  EXPECT_EQ(note.Take(kAlice, {}), part) << "who asks once more has it already";
}

TEST(ScrubNote, TheSecondReaderTakesTheUpperHalf) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 10);
  ASSERT_TRUE(note.Take(kAlice, {}));
  EXPECT_EQ(note.Advance(kAlice, {4}), 10u);
  EXPECT_DOUBLE_EQ(note.Done(), 0.4);
  const auto part = note.Take(kBob, {});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->next.group, 7u);
  EXPECT_EQ(part->end, 10u);
  EXPECT_EQ(note.Advance(kAlice, {5}), 7u) << "the first one learns where its part ends now";
  EXPECT_TRUE(note.IsTakenByOthers(kAlice));
}

TEST(ScrubNote, WhoIsAtOneGroupKeepsIt) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 1);
  ASSERT_TRUE(note.Take(kAlice, {}));
  EXPECT_FALSE(note.Take(kBob, {}));
}

TEST(ScrubNote, AfterAllGroupsComesTheEndForOneOfThem) {
  ScrubNote note = ScrubNote::Begin(Id(1), 100, 4);
  ASSERT_TRUE(note.Take(kAlice, {}));
  ASSERT_TRUE(note.Take(kBob, {}));
  EXPECT_EQ(note.Advance(kBob, {4}), 4u);
  EXPECT_THAT(note.left, SizeIs(1)) << "the other one has not read its part yet";
  EXPECT_EQ(note.Advance(kAlice, {3}), 2u) << "it has read something of the other part as well";
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
  EXPECT_EQ(note.Advance(kAlice, place), 10u);
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
  EXPECT_EQ(part->end, 10u);
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
      return part.next.group <= group && group < part.end;
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

// Readers come, read, stop, die and are taken for dead by mistake, in any order. Every group is
// read, those of which something was out of reach a second time, and only then comes the end.
TEST(ScrubNote, EveryGroupIsReadWhateverHappens) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const uint32_t groups = 1 + random() % 40;
    ScrubNote note = ScrubNote::Begin(Id(1), 100, groups);
    struct Reader {
      ScrubId id;
      std::optional<ScrubPart> part;
    };
    std::vector<Reader> readers;
    for (uint8_t i = 0; i < 4; ++i) readers.push_back({Id(10 + i), std::nullopt});
    std::vector<int> read(groups + 1);
    bool ended = false;
    for (int step = 0; step < 10'000 && !ended; ++step) {
      Reader& reader = readers[random() % readers.size()];
      if (!reader.part) {
        std::set<ScrubId> dead;
        if (random() % 8 == 0) dead.insert(readers[random() % readers.size()].id);
        dead.erase(reader.id);
        reader.part = note.Take(reader.id, dead);
        if (!reader.part || !note.IsEnd(*reader.part)) continue;
        ended = true;
        break;
      }
      if (random() % 16 == 0) {  // stops, or loses its memory
        if (random() % 2 == 0) note.Release(reader.id);
        reader.part.reset();
        continue;
      }
      const uint32_t first = reader.part->next.group;
      const uint32_t count = 1 + random() % (reader.part->end - first);
      // One that was replaced has read something once more, no matter how.
      const bool is_its = std::ranges::any_of(
          note.left, [&](const ScrubPart& part) { return part.reader == reader.id; });
      const bool first_round = note.round == 1 && is_its;
      for (uint32_t group = first; group < first + count; ++group) ++read[group];
      if (first_round && random() % 8 == 0) {
        for (uint32_t group = first; group < first + count; ++group) read[group] = 0;
        note.ReadAgain({first, first + count});
      }
      const auto end = note.Advance(reader.id, {first + count});
      reader.part->next = {first + count};
      if (!end || first + count >= *end) {
        reader.part.reset();
      } else {
        reader.part->end = *end;
      }
      // Parts never have a group twice, and the bytes say all.
      uint32_t last = 0;
      for (const ScrubPart& part : note.left) {
        ASSERT_GE(part.next.group, last);
        ASSERT_LT(part.next.group, part.end);
        last = part.end;
      }
      const auto decoded = ScrubNote::Decode(note.Encode());
      ASSERT_OK(decoded);
      ASSERT_EQ(*decoded, note);
    }
    ASSERT_TRUE(ended);
    for (uint32_t group = 0; group < groups; ++group) ASSERT_GT(read[group], 0) << group;
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
  broken([](ScrubNote& bad) { bad.left[0].end = 513; });
  broken([](ScrubNote& bad) { bad.left[0].next.group = bad.left[0].end; });
  broken([](ScrubNote& bad) { bad.left.push_back(bad.left[0]); });
  broken([](ScrubNote& bad) { bad.left.push_back({.next = {512}, .end = 513}); });
  broken([](ScrubNote& bad) { bad.again.push_back({2, 3}); });
  broken([](ScrubNote& bad) { bad.again[0].end = 600; });
  broken([](ScrubNote& bad) { bad.found.contradicted[0].second = "\x1b[31m"; });
}

}  // namespace
}  // namespace pinstripe
