// Operators, history, alarms and the watch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "console/alarms.h"
#include "console/history.h"
#include "console/operators.h"
#include "console/peer_network.h"
#include "console/request_guard.h"
#include "console/watch.h"
#include "tests/console/fake_cluster.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

class OperatorsTest : public testing::Test {
 protected:
  Status Load(const std::string& text, mode_t mode = 0600) {
    const std::string file = directory_ / "tokens";
    std::ofstream(file) << text;
    chmod(file.c_str(), mode);
    return operators_.Load(file);
  }

  SimRuntime sim_{1};
  TemporaryDirectory directory_;
  Operators operators_{sim_};
};

TEST_F(OperatorsTest, AreKnownByTheirTokens) {
  ASSERT_OK(Load("anna 11111111111111111111\n  # a remark\n\nben\t22222222222222222222\r\n"));
  EXPECT_EQ(operators_.count(), 2u);
  EXPECT_EQ(*operators_.Find("11111111111111111111", "a"), "anna");
  EXPECT_FAILS(operators_.Find("1111111111111111111", "a"), EACCES);
  EXPECT_FAILS(operators_.Find("anna", "a"), EACCES);
}

TEST_F(OperatorsTest, AFileWithMistakesChangesNothing) {
  ASSERT_OK(Load("anna 11111111111111111111\n"));
  for (const char* text :
       {"", "# nobody\n", "anna\n", "anna short\n", "anna 1111111111111111111 2\n",
        "a 11111111111111111111\na 22222222222222222222\n", "\xff 11111111111111111111\n",
        "anna 1111111111%411111111\n"}) {
    EXPECT_FAILS(Load(text), EINVAL) << text;
  }
  EXPECT_FAILS(Load("ben 22222222222222222222\n", 0640), EACCES);
  EXPECT_FAILS(operators_.Load(directory_ / "none"), ENOENT);
  EXPECT_OK(operators_.Find("11111111111111111111", "a"));
}

TEST_F(OperatorsTest, WhoGuessesWaitsAndOperatorsDoNot) {
  ASSERT_OK(Load("anna 11111111111111111111\n"));
  for (int i = 0; i < 5; ++i) EXPECT_FAILS(operators_.Find("x", "evil"), EACCES);
  EXPECT_FAILS(operators_.Find("x", "evil"), EBUSY);
  EXPECT_FAILS(operators_.Find("x", "good"), EACCES);
  EXPECT_OK(operators_.Find("11111111111111111111", "evil"));
  EXPECT_FAILS(operators_.Find("", "evil"), EACCES);
  EXPECT_EQ(operators_.wrong_tokens(), 7u);
  sim_.Sleep(61s);
  EXPECT_FAILS(operators_.Find("x", "evil"), EACCES);
}

TEST_F(OperatorsTest, TheAddressesOfANetworkGuessTogether) {
  ASSERT_OK(Load("anna 11111111111111111111\n"));
  for (int i = 0; i < 5; ++i) {
    EXPECT_FAILS(operators_.Find("x", fmt::format("2001:db8::{}", i)), EACCES);
  }
  EXPECT_FAILS(operators_.Find("x", "2001:db8::ffff:1"), EBUSY);
  EXPECT_FAILS(operators_.Find("x", "2001:db8:0:1::1"), EACCES);
}

TEST_F(OperatorsTest, OperatorsAreTakenWhateverOthersGuess) {
  ASSERT_OK(Load("anna 11111111111111111111\n"));
  for (int i = 0; i < 200; ++i) (void)operators_.Find("x", fmt::format("peer {}", i));
  EXPECT_OK(operators_.Find("11111111111111111111", "peer"));
}

TEST_F(OperatorsTest, ManyWhoGuessAreBoundedTogether) {
  ASSERT_OK(Load("anna 11111111111111111111\n"));
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto found = operators_.Find("x", fmt::format("peer {}", i));
    refused += found.error().code() == EBUSY ? 1 : 0;
  }
  EXPECT_EQ(refused, 900);
}

TEST(PeerNetwork, IsTheHalfOfAnAddressOfSix) {
  EXPECT_EQ(NetworkOf("10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(NetworkOf("::ffff:10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(NetworkOf("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(NetworkOf("2001:db8:1:2::"), "2001:db8:1:2::/64");
  EXPECT_EQ(NetworkOf(""), "");
}

TEST(RequestGuard, TakesAnOriginAsBrowsersSayIt) {
  const auto text = [](std::string_view url) {
    const auto origin = ParseOrigin(url);
    return origin ? fmt::format("{} {}", origin->text, origin->host) : "";
  };
  EXPECT_EQ(text("https://Box.example/"), "https://box.example box.example");
  EXPECT_EQ(text("https://box.example:443"), "https://box.example box.example");
  EXPECT_EQ(text("http://box.example:8070"), "http://box.example:8070 box.example");
  EXPECT_EQ(text("https://[::1]:8070"), "https://[::1]:8070 ::1");
  for (const char* none : {"", "box.example", "https://", "https:///", "ftp://box.example",
                           "https://box.example/page", "https://a@box.example", "https://a b"}) {
    EXPECT_EQ(text(none), "") << none;
  }
}

TEST(RequestGuard, FindsTheHost) {
  EXPECT_EQ(HostWithoutPort("Box.example:80"), "box.example");
  EXPECT_EQ(HostWithoutPort("box"), "box");
  EXPECT_EQ(HostWithoutPort("[::1]:8070"), "::1");
  EXPECT_EQ(HostWithoutPort("[::1]"), "::1");
  for (const char* none : {"", ":80", "[::1", "[::1]x", "box:", "box:8x", "a:1:2"}) {
    EXPECT_EQ(HostWithoutPort(none), "") << none;
  }
}

TEST(History, KeepsASampleAMinuteAndEachChange) {
  History history;
  Survey survey = SurveyOfDrives(2);
  for (int second = 0; second < 300; second += 2) history.Add(1000 + second, survey);
  EXPECT_EQ(history.Of(1).size(), 5u);
  LoseDrive(survey, 0);
  history.Add(1301, survey);
  const auto samples = history.Of(1);
  ASSERT_EQ(samples.size(), 6u);
  EXPECT_EQ(samples.back(), (History::Sample{1301, 10'000'000, DriveLook::kDown}));
  EXPECT_EQ(history.Of(0).back().used_bytes, 20'000'000u);
  EXPECT_TRUE(history.Of(3).empty());
}

TEST(History, KeepsWhatDrivesDidBetweenSamples) {
  History history;
  Survey survey = SurveyOfDrives(2);
  history.Add(1000, survey);
  EXPECT_FALSE(history.IsDue(1059));
  EXPECT_TRUE(history.IsDue(1060));
  EXPECT_TRUE(history.IsDue(999)) << "the clock was set back";
  const Time zero{};
  auto work = WorkSince(UseOfDrives(survey, zero, 0, 0), UseOfDrives(survey, zero + 10s, 100, 20));
  work[1].silent = Status(ETIMEDOUT, "no answer");
  history.Add(1060, survey, work);
  const auto of_first = history.Of(1);
  ASSERT_EQ(of_first.size(), 2u);
  EXPECT_FALSE(of_first[0].work.has_value());
  ASSERT_TRUE(of_first[1].work.has_value());
  EXPECT_EQ(of_first[1].work->bytes_read, 10'000);
  EXPECT_EQ(of_first[1].work->bytes_written, 1000);
  EXPECT_NEAR(of_first[1].work->reads_p99, 0.002, 0.0005);
  EXPECT_FALSE(history.Of(2)[1].work.has_value()) << "it did not tell";
  EXPECT_EQ(history.Of(0)[1].work->bytes_read, 10'000);
  // A change between has a sample, and leaves the others in step.
  LoseDrive(survey, 0);
  history.Add(1090, survey, work);
  EXPECT_FALSE(history.Of(1)[2].work.has_value());
  EXPECT_EQ(history.Of(0).size(), 2u);
  history.Add(1120, survey, work);
  EXPECT_EQ(history.Of(1).size(), 4u);
  EXPECT_EQ(history.Of(2).size(), 3u);
}

TEST(History, IsBoundedByADay) {
  History history;
  const Survey survey = SurveyOfDrives(1);
  for (int minute = 0; minute < 3000; ++minute) history.Add(60 * minute, survey);
  EXPECT_EQ(history.Of(1).size(), History::kMostSamples);
  EXPECT_EQ(history.Of(1).back().at, 60 * 2999);
  history.Add(10, survey);  // the clock was set back
  EXPECT_EQ(history.Of(1).size(), 1u);
  history.Add(20, SurveyOfDrives(0));
  EXPECT_TRUE(history.Of(1).empty());
}

TEST(Alarms, HaveTheirWaysOutAndTheWorstComesFirst) {
  Survey survey = SurveyOfDrives(8);
  EXPECT_TRUE(AlarmsOf(survey).empty());
  survey.drives[0].info->portion_full = 1;
  survey.drives[1].info->failure = "it could not sync";
  LoseDrive(survey, 2);
  survey.settled = false;
  survey.listed = LastLook{.at = 1, .lacking = 3};
  const std::vector<Alarm> alarms = AlarmsOf(survey);
  ASSERT_EQ(alarms.size(), 5u);
  EXPECT_TRUE(alarms[0].is_error);
  EXPECT_TRUE(alarms[1].is_error);
  EXPECT_FALSE(alarms[2].is_error);
  for (const Alarm& alarm : alarms) EXPECT_FALSE(alarm.way_out.empty()) << alarm.what;
}

// A cluster that is not healthy has somebody to do something.
TEST(Alarms, TellOfAllThatKeepsAClusterFromBeingHealthy) {
  const auto check = [](const char* what, const auto& spoil) {
    SCOPED_TRACE(what);
    Survey survey = SurveyOfDrives(8);
    ASSERT_EQ(HealthOf(survey), Health::kHealthy);
    spoil(survey);
    EXPECT_EQ(HealthOf(survey), Health::kDegraded);
    const std::vector<Alarm> alarms = AlarmsOf(survey);
    ASSERT_EQ(alarms.size(), 1u);
    EXPECT_THAT(alarms[0].what, HasSubstr(what));
    EXPECT_FALSE(alarms[0].way_out.empty());
  };
  const auto drain = [](DriveReport& drive) {
    drive.drain = DrainReport{.left = DriveContents{.shards = 1}};
  };
  check("drive 3", [](Survey& survey) { LoseDrive(survey, 2); });
  check("New blocks get fewer shards", [](Survey& survey) {
    survey.margin = Margin{};
    survey.margin->writes_short = true;
  });
  check("no say in names", [](Survey& survey) { survey.drives[2].doubt = "it was away"; });
  check("is full.", [](Survey& survey) { survey.drives[2].info->portion_full = 1; });
  check("Drives that are nearly full: 1.",
        [](Survey& survey) { survey.drives[2].info->portion_full = 0.9; });
  check("Nobody drains drive 3", [&](Survey& survey) { drain(survey.drives[2]); });
  check("Drives that are being drained: 1.", [&](Survey& survey) {
    drain(survey.drives[2]);
    survey.drives[2].is_work_alive = true;
  });
  check("drive map is not complete", [](Survey& survey) { survey.settled = false; });
  check("What was found last cannot be read", [](Survey& survey) { survey.knows_notes = false; });
  check("Files lack shards", [](Survey& survey) { survey.listed = LastLook{.lacking = 1}; });
  check("lack copies", [](Survey& survey) { survey.read = LastLook{.replicas_behind = 1}; });
  check("Not everything", [](Survey& survey) { survey.read = LastLook{.not_looked_at = 1}; });
  check("Nobody has scrubbed the cluster for 80 days", [](Survey& survey) {
    survey.overdue.emplace_back("nobody has scrubbed the cluster for 80 days");
  });
}

TEST(Watch, LooksOftenOnlyWhileSomebodyDoes) {
  SimRuntime sim(1);
  FakeCluster cluster(SurveyOfDrives(8));
  Watch watch(sim, cluster);
  sim.Sleep(600s);
  EXPECT_GE(cluster.looks(), 10);
  EXPECT_LE(cluster.looks(), 12);
  // One or many: it is the same to the cluster.
  int before = cluster.looks();
  for (int second = 0; second < 100; ++second) {
    for (int viewer = 0; viewer < 20; ++viewer) watch.Newest();
    sim.Sleep(1s);
  }
  EXPECT_GE(cluster.looks() - before, 45);
  EXPECT_LE(cluster.looks() - before, 55);
  sim.Sleep(20s);
  before = cluster.looks();
  sim.Sleep(600s);
  EXPECT_LE(cluster.looks() - before, 12);
  watch.End();
}

TEST(Watch, AsksSeldomWhatDrivesDo) {
  SimRuntime sim(3);
  const Survey survey = SurveyOfDrives(8);
  FakeCluster cluster(survey);
  const Time began = sim.Now();
  cluster.SetUse([&]() -> Result<ClusterUse> {
    const auto seconds = static_cast<uint64_t>((sim.Now() - began) / 1s);
    return UseOfDrives(survey, sim.Now(), 10 * seconds, 4 * seconds);
  });
  Watch watch(sim, cluster);
  sim.Sleep(1s);
  EXPECT_EQ(watch.Newest()->activity->unknown.code(), EAGAIN);
  sim.Sleep(600s);
  EXPECT_LE(cluster.uses(), 13) << "one a minute while nobody looks";
  const int before = cluster.uses();
  for (int second = 0; second < 120; ++second) {
    watch.Newest();
    sim.Sleep(1s);
  }
  EXPECT_GE(cluster.uses() - before, 18);
  EXPECT_LE(cluster.uses() - before, 24);
  const PicturePtr picture = watch.Newest();
  const Activity& activity = *picture->activity;
  ASSERT_OK(activity.unknown);
  EXPECT_GE(activity.over, 5s);
  EXPECT_LE(activity.over, 8s);
  ASSERT_EQ(activity.drives.size(), 8u);
  const DriveWorkReport all = WorkOfAll(activity.drives);
  EXPECT_NEAR(all.rates.bytes_read, 80'000, 20'000);
  EXPECT_NEAR(all.rates.bytes_written, 16'000, 4000);
  EXPECT_EQ(activity.client_count, 2u);
  EXPECT_EQ(activity.clients.front().program.detail, "/data");
  // Each sample has the mean of its minute.
  const auto samples = watch.history().Of(0);
  ASSERT_GE(samples.size(), 10u);
  EXPECT_FALSE(samples.front().work.has_value());
  for (size_t i = 1; i < samples.size(); ++i) {
    ASSERT_TRUE(samples[i].work.has_value()) << i;
    EXPECT_NEAR(samples[i].work->bytes_read, 80'000, 4000) << i;
  }
  watch.End();
}

TEST(Watch, WhatNobodyTellsIsNotKnown) {
  SimRuntime sim(4);
  const Survey survey = SurveyOfDrives(8);
  FakeCluster cluster(survey);
  Watch watch(sim, cluster);
  const auto look = [&] {
    for (int second = 0; second < 10; ++second) {
      watch.Newest();
      sim.Sleep(1s);
    }
    return watch.Newest();
  };
  EXPECT_EQ(look()->activity->unknown.message(), "the cluster is not open");
  bool all_tell = false;
  cluster.SetUse([&]() -> Result<ClusterUse> {
    ClusterUse use = UseOfDrives(survey, sim.Now(), 10, 10);
    if (!all_tell) use.drives[2].use = Fail(ETIMEDOUT, "no answer");
    return use;
  });
  look();
  EXPECT_EQ(look()->activity->drives[2].silent.message(), "no answer");
  EXPECT_OK(watch.Newest()->activity->drives[3].silent);
  all_tell = true;
  look();
  EXPECT_OK(look()->activity->drives[2].silent);
  cluster.SetUse([]() -> Result<ClusterUse> { return Fail(EIO, "it was closed"); });
  EXPECT_EQ(look()->activity->unknown.message(), "it was closed");
  EXPECT_TRUE(watch.Newest()->activity->drives.empty());
  watch.End();
}

TEST(Watch, CountsItsLooks) {
  SimRuntime sim(5);
  FakeCluster cluster(SurveyOfDrives(8));
  cluster.Break(Status(EINVAL, "no good"));
  Watch watch(sim, cluster);
  sim.Sleep(90s);
  EXPECT_EQ(watch.CountLooks().failed, 2u);
  EXPECT_FALSE(watch.CountLooks().last_good.has_value());
  cluster.Set(SurveyOfDrives(8));
  sim.Sleep(60s);
  cluster.Break(Status(EINVAL, "no good"));
  sim.Sleep(60s);
  const Watch::Looks looks = watch.CountLooks();
  EXPECT_EQ(looks.took.count(), 4u);
  EXPECT_EQ(looks.failed, 3u);
  ASSERT_TRUE(looks.last_good.has_value());
  EXPECT_GE(*looks.last_good, 60s);
  EXPECT_LE(*looks.last_good, 100s);
  watch.End();
}

TEST(Watch, WhoeverBeginsToLookGetsANewPictureSoon) {
  SimRuntime sim(2);
  FakeCluster cluster(SurveyOfDrives(8));
  Watch watch(sim, cluster);
  sim.Sleep(30s);
  const PicturePtr old = watch.Newest();
  const Time began = sim.Now();
  EXPECT_EQ(watch.WaitForOther(old->number, 30s)->number, old->number + 1);
  EXPECT_LT(sim.Now() - began, 3s);
  watch.End();
}

}  // namespace
}  // namespace pinstripe
