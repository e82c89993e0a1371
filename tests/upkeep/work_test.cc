// Everybody sees who is at work, and can have them pause, go on, slow down and end.

#include "upkeep/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"
#include "tests/upkeep/actors.h"
#include "upkeep/care_notes.h"

namespace pinstripe {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

WorkRecord SmallRecord() {
  WorkRecord record{.actor = On("box1"), .work = "drain", .arguments = "--force"};
  for (size_t i = 0; i < record.run.size(); ++i) record.run[i] = static_cast<uint8_t>(i);
  record.drives = {3, 258};
  record.since = 1'700'000'000'000'000'000;
  record.renewed = record.since + 60'000'000'000;
  record.state = WorkAsk::kPause;
  record.takes_rate = true;
  record.rate = 300;
  record.doing = "moving";
  record.done = 500'000;
  record.bytes = 1;
  record.bytes_per_second = 2;
  record.seconds_left = 3;
  return record;
}

constexpr const char* kActorBytes =
    "04626f78310000010209"
    "70696e7374726970650561"
    "6c696365";

// These bytes are the format.
TEST(WorkRecord, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(WorkKey(3))), "5003");
  EXPECT_EQ(Hex(AsBytes(WorkOrderKey(3))), "5103");
  EXPECT_EQ(Hex(AsBytes(SmallRecord().Encode())), std::string("01"
                                                              "000102030405060708090a0b0c0d0e0f") +
                                                      kActorBytes +
                                                      "05647261696e"
                                                      "072d2d666f726365"
                                                      "0200030102"
                                                      "17979cfe362a0000"
                                                      "17979d0c2e715800"
                                                      "02"
                                                      "01"
                                                      "ac02"
                                                      "066d6f76696e67"
                                                      "a0c21e"
                                                      "010203");
  const WorkOrder order{.run = SmallRecord().run,
                        .ask = WorkAsk::kStop,
                        .rate = 300,
                        .actor = On("box1"),
                        .at = 1'700'000'000'000'000'000};
  EXPECT_EQ(Hex(AsBytes(order.Encode())), std::string("01"
                                                      "000102030405060708090a0b0c0d0e0f"
                                                      "03"
                                                      "01"
                                                      "ac02") +
                                              kActorBytes + "17979cfe362a0000");
}

TEST(WorkRecord, AnythingElseIsDamage) {
  const std::string good = SmallRecord().Encode();
  ASSERT_OK(WorkRecord::Decode(good));
  const WorkOrder order{.ask = WorkAsk::kStop, .rate = 300, .actor = On("box1")};
  const std::string good_order = order.Encode();
  ASSERT_OK(WorkOrder::Decode(good_order));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(WorkRecord::Decode(good.substr(0, size)), EBADMSG);
  }
  for (size_t size = 0; size < good_order.size(); ++size) {
    EXPECT_FAILS(WorkOrder::Decode(good_order.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(WorkRecord::Decode(good + '\0'), EBADMSG);
  EXPECT_FAILS(WorkOrder::Decode(good_order + '\0'), EBADMSG);
  EXPECT_FAILS(WorkRecord::Decode("\x02" + good.substr(1)), EBADMSG);
  for (const auto& [from, to] : {std::pair("drain", "dr\x1bin"), std::pair("moving", "mov\nng")}) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), std::string(from).size(), to);
    EXPECT_FAILS(WorkRecord::Decode(bytes), EBADMSG);
  }
  WorkRecord record = SmallRecord();
  record.state = WorkAsk{4};
  EXPECT_FAILS(WorkRecord::Decode(record.Encode()), EBADMSG);
}

class WorkTest : public testing::Test {
 protected:
  WorkTest() : sim_(1), machines_(sim_, {.drives = 5, .layout = {2, 1, 64 << 10}, .groups = 4}) {
    SetLogLevel(LogLevel::kError);
    EXPECT_OK(machines_.Format());
  }
  ~WorkTest() override { SetLogLevel(LogLevel::kInfo); }

  // A process at work.
  struct Worker {
    Worker(std::unique_ptr<Cluster> cluster_in, const std::string& host, RunningWorkOptions what)
        : cluster(std::move(cluster_in)), log(*cluster, {.actor = On(host)}) {
      what.actor = On(host);
      work = std::make_unique<RunningWork>(*cluster, log, std::move(what));
    }
    std::unique_ptr<Cluster> cluster;
    EventLog log;
    std::unique_ptr<RunningWork> work;
  };

  std::unique_ptr<Cluster> Open(std::shared_ptr<ClientLife> life = nullptr) {
    auto cluster = machines_.Open(std::move(life));
    EXPECT_OK(cluster);
    return *std::move(cluster);
  }
  std::unique_ptr<Worker> Begin(const std::string& host, const std::string& work,
                                std::vector<DriveId> drives = {},
                                std::shared_ptr<ClientLife> life = nullptr) {
    auto worker = std::make_unique<Worker>(
        Open(std::move(life)), host,
        RunningWorkOptions{.work = work, .drives = std::move(drives), .takes_rate = true});
    sim_.Sleep(seconds(1));
    return worker;
  }
  static std::vector<WorkSeen> All(Cluster& cluster) {
    const auto all = ReadWork(cluster);
    EXPECT_OK(all);
    return all.has_value() ? *all : std::vector<WorkSeen>();
  }
  static std::vector<std::string> Names(const std::vector<WorkSeen>& all) {
    std::vector<std::string> names;
    for (const WorkSeen& seen : all)
      names.push_back(fmt::format("{} {}", seen.Name(), seen.State()));
    return names;
  }
  std::vector<std::string> EventNames(Cluster& cluster) {
    std::vector<std::string> names;
    const auto list = ReadEvents(cluster, INT64_MIN);
    EXPECT_OK(list);
    for (const Event& event : list->events) names.push_back(event.Name());
    return names;
  }

  SimRuntime sim_;
  TestCluster machines_;
};

TEST_F(WorkTest, IsSeenByAllAsLongAsItLasts) {
  const auto watcher = Open();
  EXPECT_THAT(All(*watcher), IsEmpty());
  EXPECT_EQ(WorkText({}, 0), "Nothing is being worked on.\n");
  {
    const auto worker = Begin("box1", "scrub");
    worker->work->Show("scrubbing", 0, 1000);
    sim_.Sleep(seconds(100));
    worker->work->Show("scrubbing", 0.25, 51'000'000);
    sim_.Sleep(seconds(4));
    const auto all = All(*watcher);
    ASSERT_THAT(Names(all), ElementsAre("scrub running"));
    EXPECT_EQ(all[0].record.actor, On("box1"));
    EXPECT_EQ(all[0].record.done, 250'000u);
    EXPECT_NEAR(static_cast<double>(all[0].record.bytes_per_second), 500'000, 25'000);
    EXPECT_NEAR(static_cast<double>(all[0].record.seconds_left), 300, 15);
    EXPECT_THAT(WorkText(all, sim_.WallClock()), HasSubstr("25 % scrubbing, "));
    EXPECT_THAT(WorkText(all, sim_.WallClock()), HasSubstr("5 min left"));
    const auto json = nlohmann::json::parse(WorkJson(all));
    EXPECT_EQ(json["work"][0]["state"], "running");
    EXPECT_EQ(json["work"][0]["done"], 0.25);
    const auto other = Begin("box2", "drain", {3, 4});
    EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub running", "drain 3 4 running"));
    worker->work->End(WorkResult::kDone, "");
    EXPECT_THAT(Names(All(*watcher)), ElementsAre("drain 3 4 running"));
    ASSERT_TRUE(worker->log.Flush());
    EXPECT_THAT(EventNames(*watcher), ElementsAre("work-began", "work-began", "work-ended"));
  }
  EXPECT_THAT(All(*watcher), IsEmpty());
}

TEST_F(WorkTest, PausesAndGoesOnAndIsSlower) {
  const auto watcher = Open();
  const auto worker = Begin("box1", "scrub");
  EXPECT_TRUE(worker->work->GoOn());
  ASSERT_OK(
      AskOfWork(*watcher, All(*watcher)[0], {.ask = WorkAsk::kPause, .rate = {}}, On("box2")));
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub pausing"));
  sim_.Sleep(seconds(8));
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub paused"));
  EXPECT_THAT(WorkText(All(*watcher), sim_.WallClock()),
              HasSubstr("as alice on box2 (pinstripe, process 258) asked"));
  bool went_on = false;
  sim_.Spawn("worker", [&] { went_on = worker->work->GoOn(); });
  sim_.Sleep(minutes(10));
  EXPECT_FALSE(went_on);
  // It is alive all the time, and keeps what was asked before.
  ASSERT_OK(AskOfWork(*watcher, All(*watcher)[0], {.ask = {}, .rate = 1000}));
  sim_.Sleep(seconds(8));
  EXPECT_FALSE(went_on);
  EXPECT_EQ(worker->work->rate(), 1000u);
  ASSERT_OK(AskOfWork(*watcher, All(*watcher)[0], {.ask = WorkAsk::kGoOn, .rate = {}}));
  sim_.Sleep(seconds(8));
  EXPECT_TRUE(went_on);
  EXPECT_EQ(worker->work->rate(), 1000u);
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub running"));
  ASSERT_OK(AskOfWork(*watcher, All(*watcher)[0], {.ask = {}, .rate = 0}));
  sim_.Sleep(seconds(8));
  EXPECT_EQ(worker->work->rate(), 0u);
}

TEST_F(WorkTest, IsStoppedByOthersAndDoesNotGoOn) {
  const auto watcher = Open();
  const auto worker = Begin("box1", "scrub");
  const auto seen = All(*watcher)[0];
  ASSERT_OK(AskOfWork(*watcher, seen, {.ask = WorkAsk::kPause, .rate = {}}));
  sim_.Sleep(seconds(8));
  ASSERT_OK(AskOfWork(*watcher, seen, {.ask = WorkAsk::kStop, .rate = {}}, On("box2")));
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub stopping"));
  EXPECT_FALSE(worker->work->GoOn());  // waits for the order
  EXPECT_TRUE(worker->work->IsStopped());
  EXPECT_FAILS(worker->work->Check(), ECANCELED);
  EXPECT_THAT(std::string(worker->work->Check().message()), HasSubstr("stopped by alice on box2"));
  ASSERT_OK(AskOfWork(*watcher, seen, {.ask = WorkAsk::kGoOn, .rate = {}}));
  sim_.Sleep(seconds(8));
  EXPECT_FALSE(worker->work->GoOn());
  worker->work->End(WorkResult::kStopped, "");
  EXPECT_THAT(All(*watcher), IsEmpty());
}

TEST_F(WorkTest, AnOrderIsForOneRunAlone) {
  const auto watcher = Open();
  {
    const auto worker = Begin("box1", "scrub");
    ASSERT_OK(AskOfWork(*watcher, All(*watcher)[0], {.ask = WorkAsk::kStop, .rate = {}}));
    sim_.Sleep(seconds(8));
  }
  const auto next = Begin("box1", "scrub");
  sim_.Sleep(seconds(8));
  EXPECT_TRUE(next->work->GoOn());
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub running"));
  WorkSeen check = All(*watcher)[0];
  check.record.takes_rate = false;
  EXPECT_FAILS(AskOfWork(*watcher, check, {.ask = {}, .rate = 1}), EINVAL);
}

TEST_F(WorkTest, WhoDiedIsShownAndTakenOver) {
  const auto watcher = Open();
  const auto life = std::make_shared<ClientLife>();
  const auto dead = Begin("box1", "drain", {3}, life);
  dead->work->Show("moving", 0.4);
  sim_.Sleep(seconds(5));
  life->Crash();
  sim_.Sleep(seconds(20));
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("drain 3 running"));
  sim_.Sleep(seconds(20));
  auto all = All(*watcher);
  EXPECT_THAT(Names(all), ElementsAre("drain 3 died"));
  EXPECT_THAT(WorkText(all, sim_.WallClock()), HasSubstr("resume 1` takes it over"));
  EXPECT_FAILS(AskOfWork(*watcher, all[0], {.ask = WorkAsk::kPause, .rate = {}}), ESRCH);
  // Other work leaves it alone.
  const auto other = Begin("box2", "scrub");
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("drain 3 died", "scrub running"));
  // Whoever goes on with it takes it away, as soon as its own clock says that it stands still.
  const auto next = Begin("box3", "drain", {3});
  EXPECT_THAT(Names(All(*watcher)),
              ElementsAre("drain 3 died", "scrub running", "drain 3 running"));
  sim_.Sleep(seconds(40));
  all = All(*watcher);
  EXPECT_THAT(Names(all), ElementsAre("scrub running", "drain 3 running"));
  EXPECT_EQ(all[1].record.actor.host, "box3");
  ASSERT_TRUE(next->log.Flush());
  const auto events = ReadEvents(*watcher, INT64_MIN)->events;
  const auto died = std::ranges::find(events, WorkResult::kDied, &Event::result);
  ASSERT_NE(died, events.end());
  EXPECT_THAT(died->Sentence(),
              HasSubstr("drain of drive 3 ended: its process died; it was begun by "
                        "alice on box1 (pinstripe, process 258), who gave no sign "
                        "of life since "));
}

TEST_F(WorkTest, WhoDiedIsForgottenAndTheLivingIsNot) {
  const auto watcher = Open();
  const auto life = std::make_shared<ClientLife>();
  const auto dead = Begin("box1", "scrub", {}, life);
  const WorkSeen alive = All(*watcher)[0];
  EXPECT_FAILS(ForgetWork(*watcher, alive), EBUSY);
  life->Crash();
  sim_.Sleep(minutes(1));
  ASSERT_OK(ForgetWork(*watcher, All(*watcher)[0]));
  EXPECT_THAT(All(*watcher), IsEmpty());
}

// Two people who would go on with it do not both do so.
TEST_F(WorkTest, WhoDiedIsForgottenOnce) {
  const auto watcher = Open();
  const auto life = std::make_shared<ClientLife>();
  const auto dead = Begin("box1", "scrub", {}, life);
  life->Crash();
  sim_.Sleep(minutes(1));
  const WorkSeen seen = All(*watcher)[0];
  ASSERT_OK(ForgetWork(*watcher, seen));
  EXPECT_FAILS(ForgetWork(*watcher, seen), ESRCH);
  // The first one could not go on with it after all.
  ASSERT_OK(RestoreWork(*watcher, seen));
  EXPECT_FAILS(RestoreWork(*watcher, seen), EBUSY);
  ASSERT_THAT(Names(All(*watcher)), ElementsAre("scrub died"));
  ASSERT_OK(ForgetWork(*watcher, All(*watcher)[0]));
  const auto other = Begin("box2", "drain", {3});
  EXPECT_FAILS(ForgetWork(*watcher, seen), ESRCH);
}

TEST_F(WorkTest, WhoSteersItIsToldAndCareLeavesAloneWhatWasStopped) {
  const auto watcher = Open();
  const auto worker = Begin("box1", "scrub");
  const auto other = Begin("box1", "drain", {3});
  const auto all = All(*watcher);
  ASSERT_OK(SteerWork(*watcher, all[0], {.ask = WorkAsk::kPause, .rate = 1'000'000}, On("box2")));
  EXPECT_THAT(*FindWorkStops(*watcher), IsEmpty());
  ASSERT_OK(SteerWork(*watcher, all[0], {.ask = WorkAsk::kStop, .rate = {}}, On("box2")));
  ASSERT_OK(SteerWork(*watcher, all[1], {.ask = WorkAsk::kStop, .rate = {}}, On("box2")));
  EXPECT_THAT(*FindWorkStops(*watcher), ElementsAre(testing::Key("scrub")));
  sim_.Sleep(seconds(8));
  EXPECT_TRUE(worker->work->IsStopped());
  std::vector<std::string> told;
  const auto list = ReadEvents(*watcher, INT64_MIN);
  ASSERT_OK(list);
  for (const Event& event : list->events) {
    if (event.kind == EventKind::kWorkAsked) told.push_back(event.Sentence());
  }
  EXPECT_THAT(told,
              ElementsAre("scrub was asked to pause and take at most 1.0 MB a second by alice on "
                          "box2 (pinstripe, process 258)",
                          "scrub was asked to stop by alice on box2 (pinstripe, process 258)",
                          "drain of drive 3 was asked to stop by alice on box2 (pinstripe, "
                          "process 258)"));
}

constexpr int64_t kHour = 3600 * int64_t{1'000'000'000};

// A host whose clock is far ahead died.
TEST_F(WorkTest, WhoDiedInTheFutureIsDead) {
  const auto watcher = Open();
  const RegisterName name{kMapGroup, WorkKey(0)};
  for (const int64_t renewed : {sim_.WallClock() + kHour, INT64_MAX, INT64_MIN, int64_t{0}}) {
    WorkRecord record = SmallRecord();
    record.renewed = renewed;
    const auto seen = watcher->registers().Read(name);
    ASSERT_OK(seen);
    ASSERT_OK(watcher->registers().Change(name, *seen, record.Encode()).why);
    EXPECT_THAT(Names(All(*watcher)), ElementsAre("drain 3 258 died")) << renewed;
    EXPECT_THAT(WorkText(All(*watcher), sim_.WallClock()),
                HasSubstr(renewed > sim_.WallClock() ? "of the future" : "no sign of life for "));
  }
  // By a clock that is a little ahead, it seems alive until it is watched.
  WorkRecord record = SmallRecord();
  record.renewed = sim_.WallClock() + kHour / 30;
  const auto seen = watcher->registers().Read(name);
  ASSERT_OK(watcher->registers().Change(name, *seen, record.Encode()).why);
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("drain 3 258 paused"));
  std::vector<std::string> waited_for;
  const auto watched = WatchWork(*watcher, All(*watcher), [&](const WorkSeen& silent) {
    waited_for.push_back(silent.Name());
  });
  ASSERT_OK(watched);
  EXPECT_THAT(waited_for, ElementsAre("drain 3 258"));
  EXPECT_THAT(Names(*watched), ElementsAre("drain 3 258 died"));
  EXPECT_OK(ForgetWork(*watcher, watched->front()));
  EXPECT_THAT(All(*watcher), IsEmpty());
}

// The same as who looks has a clock that is ahead.
TEST_F(WorkTest, WhoSeemsDeadByOurClockIsWatchedAndIsAlive) {
  const auto watcher = Open();
  const auto worker = Begin("box1", "scrub");
  auto all = All(*watcher);
  ASSERT_EQ(all.size(), 1u);
  all[0].is_alive = false;
  const Time begun = sim_.Now();
  const auto watched = WatchWork(*watcher, all, [](const WorkSeen&) { FAIL(); });
  ASSERT_OK(watched);
  EXPECT_LT(sim_.Now() - begun, seconds(6));
  EXPECT_THAT(Names(*watched), ElementsAre("scrub running"));
  EXPECT_FAILS(ForgetWork(*watcher, all[0]), EBUSY);  // it has moved
  worker->work->End(WorkResult::kDone, "");
  EXPECT_THAT(*WatchWork(*watcher, *watched), IsEmpty());
}

// Who looks again and again, as the console does, needs no clock but its own.
TEST_F(WorkTest, WhoseRegisterMovesIsAliveWhateverTheClocksSay) {
  const auto watcher = Open();
  WorkWatch watch(sim_);
  const auto look = [&] {
    auto all = All(*watcher);
    for (WorkSeen& seen : all) seen.is_alive = false;  // as clocks that differ have it
    watch.Judge(all);
    return Names(all);
  };
  const auto life = std::make_shared<ClientLife>();
  const auto worker = Begin("box1", "scrub", {}, life);
  for (int i = 0; i < 40; ++i) {
    ASSERT_THAT(look(), ElementsAre("scrub running"));
    sim_.Sleep(seconds(2));
  }
  sim_.Sleep(minutes(10));
  EXPECT_THAT(look(), ElementsAre("scrub running"));
  life->Crash();
  sim_.Sleep(seconds(29));
  EXPECT_THAT(look(), ElementsAre("scrub running"));
  sim_.Sleep(seconds(2));
  EXPECT_THAT(look(), ElementsAre("scrub died"));
  EXPECT_THAT(look(), ElementsAre("scrub died"));
}

// Places of those whose clocks are wrong are used again, and those of the living are not.
TEST_F(WorkTest, ClocksDoNotMatterToWhoTakesAPlace) {
  const auto watcher = Open();
  for (uint8_t place = 0; place < kWorkPlaces; ++place) {
    WorkRecord record = SmallRecord();
    record.run[0] = static_cast<uint8_t>(100 + place);
    record.renewed = sim_.WallClock() + 24 * 365 * kHour;
    const auto seen = watcher->registers().Read({kMapGroup, WorkKey(place)});
    ASSERT_OK(seen);
    ASSERT_OK(watcher->registers().Change({kMapGroup, WorkKey(place)}, *seen, record.Encode()).why);
  }
  const auto worker = Begin("box1", "scrub");
  sim_.Sleep(seconds(20));
  EXPECT_THAT(Names(All(*watcher)), testing::Not(testing::Contains("scrub running")));
  sim_.Sleep(seconds(20));
  EXPECT_THAT(Names(All(*watcher)), testing::Contains("scrub running"));
}

TEST_F(WorkTest, EndsWhenItMayNotGoOn) {
  const auto cluster = Open();
  EventLog log(*cluster, {.actor = On("box1")});
  Status may;
  RunningWork work(*cluster, log, {.work = "scrub", .may_go_on = [&] { return may; }});
  EXPECT_TRUE(work.GoOn());
  may = Fail(EBUSY, "somebody else took over");
  EXPECT_FALSE(work.GoOn());
  may = {};
  EXPECT_FALSE(work.GoOn());
  EXPECT_FAILS(work.Check(), ECANCELED);
  EXPECT_EQ(work.Check().message(), "somebody else took over");
}

TEST(Work, IsTakenOverWithTheRateThatIsAskedFor) {
  WorkRecord dead = SmallRecord();
  using testing::Optional;
  EXPECT_THAT(CommandToTakeOver("c.toml", dead, {}),
              Optional(ElementsAre("pinstripe", "drain", "c.toml", "3", "258", "--force", "--rate",
                                   "300")));
  EXPECT_THAT(
      CommandToTakeOver("c.toml", dead, 7),
      Optional(ElementsAre("pinstripe", "drain", "c.toml", "3", "258", "--force", "--rate", "7")));
  EXPECT_THAT(CommandToTakeOver("c.toml", dead, 0),
              Optional(ElementsAre("pinstripe", "drain", "c.toml", "3", "258", "--force")));
  dead.work = "sh";
  EXPECT_EQ(CommandToTakeOver("c.toml", dead, {}), std::nullopt);
}

// It stood still for so long that it was forgotten, or somebody took its place.
TEST_F(WorkTest, WhoStoodStillIsSeenAgain) {
  const auto watcher = Open();
  const auto worker = Begin("box1", "scrub");
  ASSERT_OK(watcher->registers().Change(
      {kMapGroup, WorkKey(0)}, *watcher->registers().Read({kMapGroup, WorkKey(0)}), "garbage"));
  EXPECT_THAT(All(*watcher), IsEmpty());
  sim_.Sleep(seconds(10));
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub running"));
}

TEST_F(WorkTest, MoreThanThereIsRoomForWorkAllTheSame) {
  const auto watcher = Open();
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < kWorkPlaces + 2; ++i) workers.push_back(Begin("box1", fmt::format("w{}", i)));
  EXPECT_EQ(All(*watcher).size(), kWorkPlaces);
  EXPECT_TRUE(workers.back()->work->GoOn());
  workers.erase(workers.begin());
  sim_.Sleep(seconds(10));
  EXPECT_EQ(All(*watcher).size(), kWorkPlaces);
}

TEST_F(WorkTest, WorkGoesOnWhereNobodyCanBeTold) {
  const auto worker = Begin("box1", "scrub");
  const auto watcher = Open();
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, true);
  sim_.Sleep(minutes(2));
  EXPECT_TRUE(worker->work->GoOn());
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, false);
  sim_.Sleep(minutes(1));
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub running"));
}

TEST_F(WorkTest, SurvivesLostAnswers) {
  const auto watcher = Open();
  const auto worker = Begin("box1", "scrub");
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.lose_request = 0.05, .lose_answer = 0.1, .duplicate_request = 0.2});
  }
  sim_.Sleep(minutes(20));
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
  sim_.Sleep(seconds(30));
  EXPECT_THAT(Names(All(*watcher)), ElementsAre("scrub running"));
  worker->work->End(WorkResult::kDone, "");
  EXPECT_THAT(All(*watcher), IsEmpty());
}

}  // namespace
}  // namespace pinstripe
