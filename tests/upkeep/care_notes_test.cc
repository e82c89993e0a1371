// What care has noted stays for as long as it is so, and is understood by all.

#include "upkeep/care_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;

AwayNote SmallNote() {
  return {.failure = "no sync",
          .moved = 1'700'000'000'000'000'000,
          .watchers = {{.host = "box1", .since = 1, .seen = 2}, {.host = "b", .since = 3}}};
}

// These bytes are the format.
TEST(CareNotes, TheirBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(AwayNoteKey(258))), "43050102");
  EXPECT_EQ(Hex(AsBytes(SmallNote().Encode())),
            "01"
            "076e6f2073796e63"
            "17979cfe362a0000"
            "02"
            "04626f7831"
            "0000000000000001"
            "0000000000000002"
            "0162"
            "0000000000000003"
            "0000000000000000");
  const auto note = AwayNote::Decode(SmallNote().Encode());
  ASSERT_OK(note);
  EXPECT_EQ(*note, SmallNote());
  EXPECT_EQ(Hex(AsBytes(WorkStopsKey())), "4306");
  const WorkStops stops{{"scrub", 258}};
  EXPECT_EQ(Hex(AsBytes(EncodeWorkStops(stops))),
            "01"
            "01"
            "057363727562"
            "0000000000000102");
  const auto again = DecodeWorkStops(EncodeWorkStops(stops));
  ASSERT_OK(again);
  EXPECT_EQ(*again, stops);
}

TEST(CareNotes, AnythingElseIsDamage) {
  const std::string note = SmallNote().Encode();
  const std::string stops = EncodeWorkStops({{"scrub", 258}});
  for (size_t size = 0; size < note.size(); ++size) {
    EXPECT_FAILS(AwayNote::Decode(note.substr(0, size)), EBADMSG);
  }
  for (size_t size = 0; size < stops.size(); ++size) {
    EXPECT_FAILS(DecodeWorkStops(stops.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(AwayNote::Decode(note + "x"), EBADMSG);
  EXPECT_FAILS(AwayNote::Decode("\x02" + note.substr(1)), EBADMSG);
  EXPECT_FAILS(DecodeWorkStops("\x02" + stops.substr(1)), EBADMSG);
  std::string unprintable = note;
  unprintable[2] = '\x1b';
  EXPECT_FAILS(AwayNote::Decode(unprintable), EBADMSG);
  AwayNote many = SmallNote();
  many.watchers.assign(kMaxWatchers + 1, {.host = "x"});
  EXPECT_FAILS(AwayNote::Decode(many.Encode()), EBADMSG);
}

TEST(CareNotes, WhoLookedLeastLatelyMakesRoomAndWhoHasNotLookedForAWeekKnowsNothing) {
  AwayNote note;
  for (int i = 0; i < 40; ++i) note.See(fmt::format("box{}", i), 7, 100 + i);
  EXPECT_EQ(note.watchers.size(), kMaxWatchers);
  EXPECT_EQ(note.Find("box0", 200), nullptr);
  ASSERT_NE(note.Find("box39", 200), nullptr);
  EXPECT_EQ(note.Find("box39", 200)->since, 7);
  note.See("box39", 7, 300);
  EXPECT_EQ(note.watchers.size(), kMaxWatchers);
  constexpr int64_t kWeek = AwayNote::kStaleAfter.count();
  EXPECT_NE(note.Find("box39", 299 + kWeek), nullptr);
  EXPECT_EQ(note.Find("box39", 300 + kWeek), nullptr);
  EXPECT_EQ(note.Find("box39", 299), nullptr);  // of the future: a clock was wrong
}

TEST(CareNotes, AreKeptAndForgotten) {
  SimRuntime sim(1);
  TestCluster machines(sim, {.drives = 5, .layout = {2, 1, 64 << 10}, .groups = 4});
  ASSERT_OK(machines.Format());
  const auto cluster = *machines.Open();
  EXPECT_THAT(*FindAwayNotes(*cluster), IsEmpty());
  const auto see = [](AwayNote& note) {
    note.See("box1", 1, 2);
    return true;
  };
  for (const DriveId drive : {1, 300, 65535}) ASSERT_OK(EditAwayNote(*cluster, drive, see));
  ASSERT_OK(NoteMoved(*cluster, {2, 300}));  // nobody watches drive 2
  const auto notes = FindAwayNotes(*cluster);
  ASSERT_OK(notes);
  EXPECT_THAT(*notes, ElementsAre(Key(1), Key(300), Key(65535)));
  EXPECT_EQ(notes->at(1).moved, 0);
  EXPECT_NE(notes->at(300).moved, 0);
  for (const DriveId drive : {1, 2, 300}) ASSERT_OK(ForgetAwayNote(*cluster, drive));
  EXPECT_THAT(*FindAwayNotes(*cluster), ElementsAre(Key(65535)));
  EXPECT_THAT(*FindWorkStops(*cluster), IsEmpty());
  for (const char* work : {"scrub", "drain", "check", "scrub"}) {
    ASSERT_OK(NoteWorkStop(*cluster, work));
  }
  EXPECT_THAT(*FindWorkStops(*cluster), ElementsAre(Key("check"), Key("scrub")));
}

}  // namespace
}  // namespace pinstripe
