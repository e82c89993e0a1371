// What a cluster needs is done by itself, by one at a time; and long work does what is asked of it
// from elsewhere.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/membership/drive_claim.h"
#include "cluster/membership/group_work.h"
#include "tests/fs/fs_test_base.h"
#include "tools/care_run.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/drives_away.h"
#include "tools/long_runs.h"
#include "upkeep/care_notes.h"
#include "upkeep/events.h"
#include "upkeep/last_look.h"
#include "upkeep/survey.h"
#include "upkeep/work.h"

namespace pinstripe {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CareTest : public FsTest {
 protected:
  explicit CareTest(TestCluster::Options options = {.drives = 6,
                                                    .layout = {2, 1, 64 << 10},
                                                    .groups = 8,
                                                    .replicas = 5})
      : FsTest(options) {
    SetLogLevel(LogLevel::kError);
    ChooseProgress("none");
  }
  ~CareTest() override { ChooseProgress("auto"); }

  void SetUp() override {
    FsTest::SetUp();
    Make("file", Pattern(1, 10 * kTestBlock + 17));
    host_.fs.reset();  // its background work is not what is tested here
  }

  Cluster& cluster() { return *host_.cluster; }

  // As `pinstripe format` does.
  void NoteAllLooks(int64_t days_ago = 0) {
    LastLook look{.at = sim_.WallClock() - days_ago * int64_t{86'400} * 1'000'000'000};
    for (const LookKind kind : {LookKind::kListed, LookKind::kRead, LookKind::kCollected}) {
      ASSERT_OK(NoteLastLook(cluster(), kind, look));
    }
  }
  CareOutcome Care(const CareRequest& request = {}) {
    const auto outcome = RunCare(cluster(), nullptr, request);
    EXPECT_OK(outcome);
    return outcome.value_or(CareOutcome());
  }
  static std::vector<std::string> Steps(const CareOutcome& outcome) {
    std::vector<std::string> steps;
    for (const CareStep& step : outcome.steps) {
      steps.push_back(step.about.empty() ? step.work : step.work + " " + step.about);
    }
    return steps;
  }
  std::vector<WorkSeen> AllWork(Cluster& other) {
    const auto all = ReadWork(other);
    EXPECT_OK(all);
    return all.value_or(std::vector<WorkSeen>());
  }
};

TEST_F(CareTest, WhatIsDueIsDoneOnceAndIsNotDueThen) {
  NoteAllLooks();
  EXPECT_THAT(Steps(Care()), IsEmpty());
  EXPECT_EQ(CareText({}, Care()), "Nothing is due.\n");
  sim_.Sleep(hours(25));
  EXPECT_THAT(Steps(Care({.dry_run = true})), ElementsAre("check"));
  EXPECT_THAT(Steps(Care()), ElementsAre("check"));
  EXPECT_THAT(Steps(Care()), IsEmpty());
  NoteAllLooks(8);
  EXPECT_THAT(Steps(Care()), ElementsAre("check", "collect"));
  NoteAllLooks(31);
  const CareOutcome done = Care();
  EXPECT_THAT(Steps(done), ElementsAre("collect", "scrub"));
  EXPECT_EQ(ExitCodeOf(done), 0) << CareText({}, done);
  EXPECT_EQ(CareText({}, done), "collect: in order\nscrub: in order\n");
  EXPECT_EQ(nlohmann::json::parse(CareJson({}, done))["steps"][1]["exit_code"], 0);
  EXPECT_THAT(Steps(Care()), IsEmpty());
  // And all of that was told.
  std::vector<std::string> told;
  const auto list = ReadEvents(cluster(), INT64_MIN);
  ASSERT_OK(list);
  for (const Event& event : list->events) {
    if (event.kind == EventKind::kWorkEnded) told.push_back(event.work);
  }
  EXPECT_THAT(told, ElementsAre("check", "check", "collect", "collect", "scrub"));
}

// Only where it is told to, and as often as all is checked.
TEST_F(CareTest, SmallFilesArePackedWithEachCheck) {
  host_ = NewHost();
  fs_ = host_.fs.get();
  Make("small", Pattern(1, 3000));
  host_.fs.reset();
  NoteAllLooks(2);
  EXPECT_THAT(Steps(Care()), ElementsAre("check"));
  NoteAllLooks(2);
  CareRequest request{.pack_older_than = hours(1)};
  request.dry_run = true;
  EXPECT_THAT(Steps(Care(request)), ElementsAre("check", "pack"));
  request.dry_run = false;
  const CareOutcome done = Care(request);
  EXPECT_THAT(Steps(done), ElementsAre("check", "pack"));
  EXPECT_EQ(ExitCodeOf(done), 0) << CareText(request, done);
  EXPECT_THAT(Steps(Care(request)), IsEmpty()) << "no check is due";
  const auto list = ReadEvents(cluster(), INT64_MIN);
  ASSERT_OK(list);
  EXPECT_EQ(list->events.back().work, "pack");
  EXPECT_EQ(list->events.back().text, "put 0 files of 0 B into 0 packs") << "it is too young";
}

TEST_F(CareTest, StatusSaysWhatIsOverdue) {
  NoteAllLooks();
  EXPECT_THAT(SurveyOf(cluster()).Shortcomings(), IsEmpty());
  NoteAllLooks(10);
  const Survey survey = SurveyOf(cluster());
  EXPECT_THAT(survey.Shortcomings(),
              testing::Contains("nobody has checked the cluster for 10.0 days"));
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
}

TEST_F(CareTest, WhatNobodyEverDidIsDue) {
  EXPECT_THAT(Steps(Care()), ElementsAre("collect", "scrub"));
}

// Many hosts have the timer.
TEST_F(CareTest, OneAtATimeCares) {
  NoteAllLooks(31);
  std::vector<std::unique_ptr<Cluster>> clusters;
  for (int i = 0; i < 5; ++i) clusters.push_back(*machines_.Open());
  int steps = 0;
  int running = 0;
  for (const auto& one : clusters) {
    ++running;
    sim_.Spawn("care", [&] {
      const auto outcome = RunCare(*one, nullptr, {});
      ASSERT_OK(outcome);
      EXPECT_EQ(ExitCodeOf(*outcome), 0);
      steps += static_cast<int>(outcome->steps.size());
      --running;
    });
  }
  while (running > 0) sim_.Sleep(seconds(1));
  EXPECT_EQ(steps, 2);
}

TEST_F(CareTest, OthersAtWorkComeFirst) {
  NoteAllLooks(31);
  const auto other = *machines_.Open();
  {
    LongWork work(*other, {.work = "drain", .drives = {3}}, "");
    sim_.Sleep(seconds(5));
    const CareOutcome later = Care();
    EXPECT_THAT(Steps(later), IsEmpty());
    EXPECT_THAT(CareText({}, later), HasSubstr("others are at work, and come first: drain 3 by "));
    work.End(0);
  }
  EXPECT_THAT(Steps(Care()), ElementsAre("collect", "scrub"));
}

TEST_F(CareTest, ADriveThatStaysAwayIsDoneWithoutAfterAWhile) {
  NoteAllLooks();
  machines_.SetDown(3, true);
  EXPECT_THAT(Steps(Care()), IsEmpty());
  const auto away = FindDrivesAway(cluster());
  ASSERT_EQ(away.size(), 1u);
  const std::optional<int64_t> since = away.at(3).since;
  ASSERT_TRUE(since.has_value());
  sim_.Sleep(hours(12));
  EXPECT_EQ(FindDrivesAway(cluster()).at(3).since, since);
  EXPECT_THAT(Steps(Care()), IsEmpty());
  sim_.Sleep(hours(13));
  EXPECT_THAT(Steps(Care({.replace_after = std::nullopt, .dry_run = true})), ElementsAre("check"));
  const CareOutcome done = Care();
  EXPECT_THAT(Steps(done), ElementsAre("repair without drive 3"));
  EXPECT_TRUE(FindDrivesAway(cluster()).at(3).is_moved);
  EXPECT_THAT(Steps(Care()), IsEmpty());
  // Now another one may go. (Names are on five drives, and bear two that are away.)
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    if (drive == 3) continue;
    machines_.SetDown(drive, true);
    Host host = NewHost();
    EXPECT_TRUE(Contents("/file", host.fs.get()) == Pattern(1, 10 * kTestBlock + 17)) << drive;
    host.fs.reset();
    machines_.SetDown(drive, false);
    sim_.Sleep(minutes(1));
  }
}

TEST_F(CareTest, WhatWentElsewhereComesHomeWhenTheDriveIsBack) {
  NoteAllLooks();
  machines_.SetDown(3, true);
  Care();
  sim_.Sleep(hours(25));
  EXPECT_THAT(Steps(Care()), ElementsAre("repair without drive 3"));
  machines_.SetDown(3, false);
  sim_.Sleep(hours(25));
  const CareOutcome done = Care();
  EXPECT_THAT(Steps(done), ElementsAre("check", "repair"));
  EXPECT_EQ(ExitCodeOf(done), 0) << CareText({}, done);
  sim_.Sleep(hours(25));
  EXPECT_THAT(Steps(Care()), ElementsAre("check"));
}

TEST_F(CareTest, ADriveThatCameAndWentIsWaitedForAnew) {
  NoteAllLooks();
  machines_.SetDown(3, true);
  Care();
  sim_.Sleep(hours(20));
  machines_.SetDown(3, false);
  sim_.Sleep(minutes(1));
  {
    EventLog log(cluster());
    log.Add({.kind = EventKind::kDriveCame, .actor = {}, .drives = {3}});
    ASSERT_TRUE(log.Flush());
  }
  machines_.SetDown(3, true);
  sim_.Sleep(hours(5));
  EXPECT_THAT(Steps(Care()), ElementsAre("check"));
}

// Another host, whose clock is a day behind, saw it go a minute ago.
TEST_F(CareTest, TheClocksOfOthersDoNotMakeADriveLongAway) {
  NoteAllLooks();
  sim_.Sleep(hours(2));
  machines_.SetDown(3, true);
  EventLog log(cluster(), {.actor = {.host = "behind", .process = 1, .program = "mount"}});
  Event went{.kind = EventKind::kDriveWent, .actor = {}, .drives = {3}};
  went.at = sim_.WallClock() - hours(25) / std::chrono::nanoseconds(1);
  log.Add(went);
  went.work = "care";  // so does its care
  log.Add(went);
  ASSERT_TRUE(log.Flush());
  EXPECT_THAT(Steps(Care()), IsEmpty());
  EXPECT_THAT(Steps(Care()), IsEmpty());
  sim_.Sleep(hours(25));
  EXPECT_THAT(Steps(Care()), ElementsAre("repair without drive 3"));
}

// Each restart of a mount tells that a drive came, which answers that it has failed.
TEST(DrivesAwayBy, ADriveThatFailedIsNotBackAsItAnswers) {
  const auto event = [](EventKind kind, const char* work, const char* text) {
    Event one{.kind = kind, .actor = {.host = "box"}, .drives = {3}};
    one.work = work;
    one.text = text;
    return one;
  };
  std::vector<Event> events{
      event(EventKind::kDriveWent, "care", ""), event(EventKind::kDriveCame, "", ""),
      event(EventKind::kDriveWent, "care", "no sync"), event(EventKind::kDriveCame, "", ""),
      event(EventKind::kDriveWent, "", "")};
  AwayNotes notes;
  notes[3].failure = "no sync";
  notes[3].See("box", 10, 90);
  std::set<DriveId> well_again;
  const DriveTroubles troubles{{3, "no sync"}};
  const auto away = DrivesAwayBy(events, notes, troubles, "box", 100, well_again);
  ASSERT_EQ(away.size(), 1u);
  EXPECT_EQ(away.at(3).since, 10);
  EXPECT_THAT(well_again, IsEmpty());
  // By the notes of another host it does not count.
  EXPECT_EQ(DrivesAwayBy(events, notes, troubles, "other", 100, well_again).at(3).since,
            std::nullopt);
  // One that is well again, as care says then.
  EXPECT_THAT(DrivesAwayBy(events, notes, {}, "box", 100, well_again), IsEmpty());
  EXPECT_THAT(well_again, ElementsAre(3));
  events.push_back(event(EventKind::kDriveCame, "care", ""));
  EXPECT_TRUE(DrivesAwayBy(events, notes, troubles, "box", 100, well_again).at(3).was_back);
}

// Events make room for newer ones, and gateways write many of them while a drive is away.
TEST(DrivesAwayBy, WhatIsNotedCountsUntilTheDriveWasBack) {
  const DriveTroubles troubles{{3, ""}};
  AwayNotes notes;
  notes[3].See("box", 10, 90);
  notes[3].moved = 95;
  std::set<DriveId> well_again;
  const auto away = [&](const std::vector<Event>& events, const char* host = "box") {
    return DrivesAwayBy(events, notes, troubles, host, 100, well_again).at(3);
  };
  const DriveAway as_noted{.since = 10, .was_back = false, .is_moved = true};
  EXPECT_EQ(away({}), as_noted);
  EXPECT_EQ(away({}, "other"), (DriveAway{.since = {}, .was_back = false, .is_moved = true}));
  Event came{.kind = EventKind::kDriveCame, .at = 5, .actor = {.host = "x"}, .drives = {3}};
  EXPECT_EQ(away({came}), (DriveAway{.since = {}, .was_back = true, .is_moved = false}));
  Event went = came;
  went.kind = EventKind::kDriveWent;
  EXPECT_TRUE(away({came, went}).was_back);
  // The care of whichever host has noted it again since then.
  went.work = "care";
  EXPECT_EQ(away({came, went}), as_noted);
}

// Many hosts have the timer, and the events are for people.
TEST_F(CareTest, OneOfManyHostsTellsThatADriveIsAway) {
  NoteAllLooks();
  machines_.SetDown(3, true);
  for (int i = 0; i < 3; ++i) {
    NoteDrivesAway(cluster());
    sim_.Sleep(hours(1));
  }
  const auto see = [](AwayNote& note) {
    note.See("other", 1, note.watchers.back().seen);
    return true;
  };
  ASSERT_OK(EditAwayNote(cluster(), 3, see));
  NoteDrivesAway(cluster());
  const auto list = ReadEvents(cluster(), INT64_MIN);
  ASSERT_OK(list);
  EXPECT_EQ(std::ranges::count(list->events, EventKind::kDriveWent, &Event::kind), 1);
  // As soon as it was back nobody counts from before.
  EventLog log(cluster());
  log.Add({.kind = EventKind::kDriveCame, .actor = {}, .drives = {3}});
  ASSERT_TRUE(log.Flush());
  const int64_t before = sim_.WallClock();
  NoteDrivesAway(cluster());
  const auto notes = FindAwayNotes(cluster());
  ASSERT_OK(notes);
  ASSERT_EQ(notes->at(3).watchers.size(), 1u);
  EXPECT_GE(notes->at(3).watchers[0].since, before);
}

TEST_F(CareTest, ADriveStaysLongAwayWhenTheEventsHaveMadeRoom) {
  NoteAllLooks();
  machines_.SetDown(3, true);
  EXPECT_THAT(Steps(Care()), IsEmpty());
  EventLog log(cluster(), {.most_waiting = 1000});
  Event spares{.kind = EventKind::kSparesUsed, .actor = {}};
  spares.text = std::string(400, 'x');
  while (ReadEvents(cluster(), INT64_MIN)->reaches_back) {
    for (int i = 0; i < 500; ++i) log.Add(spares);
    ASSERT_TRUE(log.Flush(minutes(1)));
  }
  for (int hour = 0; hour < 23; ++hour) {
    sim_.Sleep(hours(1));
    EXPECT_THAT(Steps(Care({.intervals = {.check = hours(48)}})), IsEmpty());
  }
  sim_.Sleep(hours(2));
  EXPECT_THAT(Steps(Care()), ElementsAre("repair without drive 3"));
  // And what was noted goes when the drive is back.
  machines_.SetDown(3, false);
  sim_.Sleep(minutes(1));
  Care();
  EXPECT_THAT(*FindAwayNotes(cluster()), IsEmpty());
}

// What is endangered waits for no collection, which somebody may stop.
TEST_F(CareTest, WhatACheckHasFoundIsRepairedAtOnce) {
  NoteAllLooks(8);
  machines_.SetDown(3, true);
  {
    Host host = NewHost();
    fs_ = host.fs.get();
    Make("short", Pattern(2, 10 * kTestBlock));
  }
  machines_.SetDown(3, false);
  sim_.Sleep(minutes(1));
  EXPECT_THAT(Steps(Care()), ElementsAre("check", "repair", "collect"));
}

// Whoever has the right to care at that moment.
TEST_F(CareTest, ADriveIsNotedWhileOthersCare) {
  NoteAllLooks();
  const auto other = *machines_.Open();
  DriveClaim claim(*other, kWholeCluster, DriveWork::kCare);
  ASSERT_OK(claim.Take());
  machines_.SetDown(3, true);
  const CareOutcome later = Care();
  EXPECT_THAT(Steps(later), IsEmpty());
  EXPECT_EQ(ExitCodeOf(later), 0);
  EXPECT_TRUE(FindDrivesAway(cluster()).at(3).since.has_value());
}

TEST_F(CareTest, AScrubOfCareGivesWayToADriveThatIsAwayForTooLong) {
  NoteAllLooks(31);
  sim_.Spawn("drive", [&] {
    while (AllWork(cluster()).empty() || AllWork(cluster())[0].record.work != "scrub") {
      sim_.Sleep(seconds(1));
    }
    machines_.SetDown(3, true);
  });
  const CareRequest request{.replace_after = minutes(5), .bytes_per_second = 500};
  const CareOutcome done = Care(request);
  EXPECT_THAT(Steps(done), ElementsAre("collect", "scrub in part", "repair without drive 3",
                                       "scrub without drive 3"));
  EXPECT_EQ(ExitCodeOf(done), kExitShort) << CareText({}, done);
  EXPECT_FALSE(done.stopped);
  EXPECT_TRUE(FindDrivesAway(cluster()).at(3).is_moved);
  // And the scrub has gone on, which waits for nobody.
  EXPECT_THAT(Steps(Care({.replace_after = minutes(5)})), IsEmpty());
}

// So a scrub of weeks does not keep others from what is to be done each day, and goes on after it.
TEST_F(CareTest, ALongScrubGivesWayToChecks) {
  NoteAllLooks(31);
  const Time began = sim_.Now();
  // The eleven blocks take some hours.
  const CareOutcome done = Care({.intervals = {.check = hours(2)}, .bytes_per_second = 100});
  EXPECT_GT(sim_.Now() - began, hours(4));
  const std::vector<std::string> steps = Steps(done);
  EXPECT_GE(std::ranges::count(steps, "check"), 1);
  EXPECT_GE(std::ranges::count(steps, "scrub in part"), 1);
  EXPECT_EQ(steps.front(), "collect");
  EXPECT_EQ(steps.back(), "scrub");
  EXPECT_EQ(ExitCodeOf(done), 0) << CareText({}, done);
  EXPECT_LT(TimeBetween(FindLastLook(cluster(), LookKind::kRead)->at, sim_.WallClock()), hours(48));
  EXPECT_THAT(Steps(Care({.intervals = {.check = hours(2)}})), IsEmpty()) << "all was read";
}

TEST_F(CareTest, AnotherHostJoinsAScrubWhereItIsToldTo) {
  NoteAllLooks(31);
  std::vector<CareOutcome> done(3);
  RunTogether(3, [&](int client) {
    auto other = machines_.Open();
    ASSERT_OK(other);
    sim_.Sleep(minutes(5) * client);
    CareRequest request{.bytes_per_second = 2000};
    request.joins_scrubs = client == 2;
    const auto outcome = RunCare(**other, nullptr, request);
    ASSERT_OK(outcome);
    done[static_cast<size_t>(client)] = *outcome;
  });
  // One of them reads the last part, and says how everything is.
  EXPECT_THAT(Steps(done[0]), ElementsAre("collect", HasSubstr("scrub")));
  EXPECT_THAT(Steps(done[1]), IsEmpty());
  EXPECT_THAT(Steps(done[2]), ElementsAre(HasSubstr("scrub")));
  EXPECT_EQ((Steps(done[0])[1] == "scrub with others") + (Steps(done[2])[0] == "scrub with others"),
            1);
  for (const CareOutcome& one : done) EXPECT_EQ(ExitCodeOf(one), 0) << CareText({}, one);
  EXPECT_EQ(FindLastLook(cluster(), LookKind::kRead)->not_looked_at, 0u);
}

TEST_F(CareTest, WorkThatSomebodyPausedIsNoReasonToBeSilentForEver) {
  NoteAllLooks(2);
  const auto other = *machines_.Open();
  LongWork work(*other, {.work = "drain", .drives = {4}}, "");
  sim_.Sleep(seconds(5));
  ASSERT_OK(AskOfWork(cluster(), AllWork(cluster())[0], {.ask = WorkAsk::kPause, .rate = {}}));
  sim_.Sleep(seconds(8));
  const CareRequest request{.replace_after = minutes(5)};
  CareOutcome later = Care(request);
  EXPECT_EQ(ExitCodeOf(later), 0) << CareText({}, later);
  EXPECT_THAT(CareText({}, later), HasSubstr(", which is paused"));
  machines_.SetDown(3, true);
  Care(request);
  sim_.Sleep(minutes(5));
  later = Care(request);
  EXPECT_THAT(Steps(later), IsEmpty());
  EXPECT_EQ(ExitCodeOf(later), kExitShort);
  EXPECT_THAT(CareText({}, later), HasSubstr("what was on drive 3 is to go to others"));
  machines_.SetDown(3, false);
  sim_.Sleep(minutes(1));
  EXPECT_EQ(ExitCodeOf(Care(request)), 0);
  NoteAllLooks(5);
  later = Care(request);
  EXPECT_EQ(ExitCodeOf(later), kExitShort);
  EXPECT_THAT(CareText({}, later), HasSubstr("nobody has checked the cluster for 5.0 days"));
  work.End(0);
  EXPECT_THAT(Steps(Care(request)), ElementsAre("check"));
}

// Nor when it is care itself that somebody paused.
TEST_F(CareTest, CareThatSomebodyPausedIsNoReasonToBeSilentForEver) {
  NoteAllLooks(5);
  const auto other = *machines_.Open();
  DriveClaim claim(*other, kWholeCluster, DriveWork::kCare);
  ASSERT_OK(claim.Take());
  LongWork work(*other, {.work = "scrub"}, "");
  sim_.Sleep(seconds(5));
  EXPECT_EQ(ExitCodeOf(Care()), 0);
  ASSERT_OK(AskOfWork(cluster(), AllWork(cluster())[0], {.ask = WorkAsk::kPause, .rate = {}}));
  sim_.Sleep(seconds(8));
  const CareOutcome later = Care();
  EXPECT_EQ(ExitCodeOf(later), kExitShort);
  EXPECT_THAT(CareText({}, later), HasSubstr("nobody has checked the cluster for 5.0 days"));
  work.End(0);
}

// A check by hand moves nothing.
TEST_F(CareTest, WhatIsEndangeredComesFirstWhoeverHasCheckedSince) {
  NoteAllLooks();
  machines_.SetDown(3, true);
  Care();
  sim_.Sleep(hours(23));
  Care();
  sim_.Sleep(hours(2));
  NoteAllLooks();
  EXPECT_THAT(Steps(Care({.dry_run = true})), ElementsAre("repair without drive 3"));
  NoteAllLooks(31);
  EXPECT_THAT(Steps(Care({.dry_run = true})),
              ElementsAre("repair without drive 3", "collect", "scrub without drive 3"));
  // Whoever moves it by hand has done it.
  RepairRequest repair{.without = {3}};
  LongWork work(cluster(), WorkOf("repair", repair), "");
  ASSERT_OK(RunRepair(work, cluster(), nullptr, repair));
  work.End(0);
  NoteAllLooks();
  EXPECT_THAT(Steps(Care()), IsEmpty());
}

TEST_F(CareTest, WhatSomebodyStoppedIsLeftAloneForAWhile) {
  NoteAllLooks(31);
  const auto other = *machines_.Open();
  sim_.Spawn("other", [&] {
    for (;;) {
      const auto all = AllWork(*other);
      if (!all.empty() && all[0].record.work == "scrub") {
        ASSERT_OK(SteerWork(*other, all[0], {.ask = WorkAsk::kStop, .rate = {}}));
        return;
      }
      sim_.Sleep(seconds(1));
    }
  });
  CareOutcome done = Care({.bytes_per_second = 500});
  EXPECT_THAT(Steps(done), ElementsAre("collect", "scrub"));
  EXPECT_EQ(ExitCodeOf(done), kExitStopped);
  done = Care();
  EXPECT_THAT(Steps(done), IsEmpty());
  EXPECT_EQ(ExitCodeOf(done), 0);
  EXPECT_THAT(CareText({}, done),
              HasSubstr("scrub: somebody has stopped it, so it is not begun again before "));
  EXPECT_THAT(Steps(Care({.dry_run = true})), IsEmpty());
  sim_.Sleep(hours(11));
  EXPECT_THAT(Steps(Care()), IsEmpty());
  sim_.Sleep(hours(1));
  EXPECT_THAT(Steps(Care()), ElementsAre("scrub"));
}

// What it has found until then, and its exit code, are not lost.
TEST_F(CareTest, WhoLosesTheClaimEndsAndSaysWhatItDid) {
  NoteAllLooks(31);
  const auto other = *machines_.Open();
  sim_.Spawn("other", [&] {
    const RegisterName name{kMapGroup, CareClaimKey()};
    while (AllWork(*other).empty() || AllWork(*other)[0].record.work != "scrub") {
      sim_.Sleep(seconds(1));
    }
    const DriveClaimRecord record{.work = DriveWork::kCare, .host = "other", .process = 7};
    for (;;) {
      const auto seen = other->registers().Read(name);
      ASSERT_OK(seen);
      if (other->registers().Change(name, *seen, record.Encode()).applied()) break;
    }
  });
  const CareOutcome done = Care({.bytes_per_second = 1000});
  EXPECT_THAT(Steps(done), ElementsAre("collect", "scrub"));
  EXPECT_EQ(ExitCodeOf(done), kExitStopped);
  EXPECT_THAT(CareText({}, done), HasSubstr("somebody else took over: "));
}

TEST_F(CareTest, ADryRunTellsNothingAndWaitsForNobody) {
  NoteAllLooks(31);
  machines_.SetDown(3, true);
  const auto other = *machines_.Open();
  DriveClaim claim(*other, kWholeCluster, DriveWork::kCare);
  ASSERT_OK(claim.Take());
  EXPECT_THAT(Steps(Care({.dry_run = true})), ElementsAre("collect", "scrub"));
  const auto list = ReadEvents(cluster(), INT64_MIN);
  ASSERT_OK(list);
  EXPECT_THAT(list->events, IsEmpty());
}

class FullCareTest : public CareTest {
 protected:
  FullCareTest()
      : CareTest({.drives = 4, .layout = {2, 1, 64 << 10}, .groups = 8, .drive_bytes = 2'000'000}) {
  }
};

TEST_F(FullCareTest, ADriveWhoseContentsDoNotFitElsewhereIsWaitedFor) {
  NoteAllLooks();
  machines_.SetDown(3, true);
  EXPECT_THAT(Steps(Care()), IsEmpty());
  machines_.SetDown(3, false);
  sim_.Sleep(minutes(1));
  {
    Host host = NewHost();
    fs_ = host.fs.get();
    const auto full = [&] {
      double sum = 0;
      for (const DriveStatus& drive : cluster().Drives(seconds(5))) sum += drive.info->portion_full;
      return sum / 4;
    };
    for (int i = 0; full() < 0.8; ++i) Make(fmt::format("f{}", i), Pattern(i, kTestBlock));
  }
  machines_.SetDown(3, true);
  sim_.Sleep(hours(25));
  const CareOutcome done = Care();
  EXPECT_THAT(Steps(done), ElementsAre("check"));
  EXPECT_THAT(CareText({}, done), HasSubstr("what was on drive 3 stays there: "));
  EXPECT_EQ(ExitCodeOf(done), kExitShort);
  // Not only because the check could not look at that drive.
  CareOutcome without_check = done;
  without_check.steps.clear();
  EXPECT_EQ(ExitCodeOf(without_check), kExitShort);
}

// Work that is asked from elsewhere
// -----------------------------------------------------------------

TEST_F(CareTest, AStoppedScrubEndsCleanlyAndSaysSo) {
  const auto other = *machines_.Open();
  RepairRequest scrub{.scrub = true};
  scrub.bytes_per_second = 1000;  // it would take half an hour
  std::optional<int> code;
  sim_.Spawn("scrub", [&] {
    LongWork work(cluster(), WorkOf("scrub", scrub), std::string(kRepairGoesOn));
    const auto outcome = RunRepair(work, cluster(), nullptr, scrub);
    EXPECT_FAILS(outcome, ECANCELED);
    code = work.Stopped();
  });
  sim_.Sleep(seconds(20));
  auto all = AllWork(*other);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].record.doing, "scrubbing");
  EXPECT_FALSE(code.has_value());
  ASSERT_OK(AskOfWork(*other, all[0], {.ask = WorkAsk::kStop, .rate = {}}));
  sim_.Sleep(seconds(30));
  EXPECT_EQ(code, kExitStopped);
  EXPECT_THAT(AllWork(*other), IsEmpty());
  // What was cut short is not noted as if it had been a look.
  EXPECT_FALSE(FindLastLook(*other, LookKind::kRead).has_value());
  EXPECT_EQ(ReadEvents(*other, INT64_MIN)->events.back().result, WorkResult::kStopped);
}

TEST_F(CareTest, AScrubPausesAndIsAsFastAsItIsToBe) {
  const auto other = *machines_.Open();
  RepairRequest scrub{.scrub = true};
  scrub.bytes_per_second = 100'000;
  std::optional<int> code;
  sim_.Spawn("scrub", [&] {
    LongWork work(cluster(), WorkOf("scrub", scrub), std::string(kRepairGoesOn));
    const auto outcome = RunRepair(work, cluster(), nullptr, scrub);
    ASSERT_OK(outcome);
    code = work.End(ExitCodeOf(scrub, *outcome));
  });
  const auto ask = [&](const WorkChange& change) {
    const auto all = AllWork(*other);
    ASSERT_EQ(all.size(), 1u);
    ASSERT_OK(AskOfWork(*other, all[0], change));
  };
  sim_.Sleep(seconds(5));
  ask({.ask = WorkAsk::kPause, .rate = {}});
  sim_.Sleep(hours(1));
  EXPECT_FALSE(code.has_value());
  EXPECT_EQ(AllWork(*other)[0].State(), "paused");
  ask({.ask = WorkAsk::kGoOn, .rate = 0});
  sim_.Sleep(seconds(15));
  EXPECT_EQ(code, 0);
}

TEST_F(CareTest, AStoppedCheckAndCollectionKnowAndRemoveNothing) {
  const auto other = *machines_.Open();
  const auto stop_at_once = [&](const std::string& name, const auto& run) {
    std::optional<bool> finished;
    LongWork work(cluster(), {.work = name}, "");
    sim_.Sleep(seconds(5));
    const auto all = AllWork(*other);
    ASSERT_EQ(all.size(), 1u);
    ASSERT_OK(AskOfWork(*other, all[0], {.ask = WorkAsk::kStop, .rate = {}}));
    sim_.Sleep(seconds(8));
    finished = run(work);
    EXPECT_EQ(finished, false);
    EXPECT_EQ(work.Stopped(), kExitStopped);
  };
  stop_at_once("check", [&](LongWork& work) {
    return RunCheck(work, cluster(), /*names_only=*/false).has_value();
  });
  stop_at_once("collect",
               [&](LongWork& work) { return RunCollect(work, cluster(), {}).has_value(); });
  EXPECT_FALSE(FindLastLook(*other, LookKind::kListed).has_value());
  EXPECT_FALSE(FindLastLook(*other, LookKind::kCollected).has_value());
}

// Two hosts drain one drive: the second one leaves it to the first, until that dies.
TEST_F(CareTest, WorkOfOneThatDiedIsTakenOver) {
  const auto life = std::make_shared<ClientLife>();
  const auto dead = *machines_.Open(life);
  const auto other = *machines_.Open();
  RepairRequest drain{.change = MapChange::kDrain, .drives = {6}, .wants_all_at_home = true};
  bool first_ended = false;
  sim_.Spawn("first", [&] {
    {
      LongWork work(*dead, WorkOf("drain", drain), std::string(kRepairGoesOn));
      EXPECT_FALSE(RunRepair(work, *dead, machines_.Factory(life), drain).has_value());
    }
    first_ended = true;
  });
  sim_.Sleep(seconds(10));
  const auto run = [&] {
    LongWork work(*other, WorkOf("drain", drain), std::string(kRepairGoesOn));
    const auto outcome = RunRepair(work, *other, machines_.Factory(), drain);
    if (!outcome.has_value()) return Status(work.End(outcome.error()));
    work.End(ExitCodeOf(drain, *outcome));
    return Status();
  };
  EXPECT_FAILS(run(), EBUSY);
  life->Crash();
  sim_.Sleep(seconds(40));
  ASSERT_EQ(AllWork(*other).size(), 1u);
  EXPECT_EQ(AllWork(*other)[0].State(), "died");
  EXPECT_OK(run());
  EXPECT_THAT(AllWork(*other), IsEmpty());
  std::vector<std::string> told;
  const auto list = ReadEvents(*other, INT64_MIN);
  ASSERT_OK(list);
  for (const Event& event : list->events) {
    if (event.kind == EventKind::kWorkEnded) told.push_back(event.Sentence());
  }
  EXPECT_THAT(told, testing::Contains(HasSubstr("another process goes on with it")));
  while (!first_ended) sim_.Sleep(seconds(10));
}

}  // namespace
}  // namespace pinstripe
