// What happened is there for whoever asks, whoever wrote it, and however much there was.

#include "upkeep/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"
#include "tests/upkeep/actors.h"
#include "upkeep/host_events.h"

namespace pinstripe {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Event SmallEvent() {
  return {.kind = EventKind::kWorkEnded,
          .at = 1'700'000'000'000'000'000,
          .actor = On("box1"),
          .drives = {3, 258},
          .count = 300,
          .work = "drain",
          .result = WorkResult::kShort,
          .text = "hm"};
}

// These bytes are the format.
TEST(Events, TheirBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(EventPageKey(1))), "4a01");
  EXPECT_EQ(Hex(AsBytes(EventPageKey(128 + 5))), "4a05");
  const std::string bytes =
      "08"
      "17979cfe362a0000"
      "04626f7831"
      "00000102"
      "0970696e737472697065"
      "05616c696365"
      "0200030102"
      "ac02"
      "05647261696e"
      "02"
      "02686d";
  EXPECT_EQ(Hex(AsBytes(SmallEvent().Encode())), bytes);
  const EventPage page{.number = 7, .events = {SmallEvent(), SmallEvent()}};
  EXPECT_EQ(Hex(AsBytes(page.Encode())), "010000000000000007" + ("33" + bytes) + ("33" + bytes));
  const auto again = EventPage::Decode(page.Encode());
  ASSERT_OK(again);
  EXPECT_EQ(again->number, 7u);
  EXPECT_EQ(again->events, page.events);
}

TEST(Events, AnythingElseIsDamage) {
  const std::string good = SmallEvent().Encode();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(Event::Decode(good.substr(0, size)), EBADMSG);
  }
  const auto refuses = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return !Event::Decode(bytes).has_value();
  };
  EXPECT_FALSE(refuses("box1", "box2"));
  EXPECT_TRUE(refuses("box1", "b\x1b[m"));
  EXPECT_TRUE(refuses("alice", "al\nce"));
  EXPECT_TRUE(refuses("drain", "dr\xc2\x9bn"));
  EXPECT_TRUE(refuses("hm", "\x07m"));
  const std::string page = EventPage{.number = 7, .events = {SmallEvent()}}.Encode();
  EXPECT_FAILS(EventPage::Decode("\x02" + page.substr(1)), EBADMSG);
  EXPECT_FAILS(EventPage::Decode(page.substr(0, page.size() - 1)), EBADMSG);
  EXPECT_FAILS(EventPage::Decode(EventPage{}.Encode()), EBADMSG);
  EXPECT_FAILS(EventPage::Decode(EventPage{.number = kMaxEventPage + 1, .events = {}}.Encode()),
               EBADMSG);
}

// A later version may know more kinds, and say more of each.
TEST(Events, OfLaterVersionsAreShownAsFarAsTheyAreUnderstood) {
  std::string bytes = SmallEvent().Encode() + "more";
  bytes[0] = 77;
  const auto event = Event::Decode(bytes);
  ASSERT_OK(event);
  EXPECT_EQ(event->Name(), "kind-77");
  EXPECT_EQ(event->Sentence(),
            "something that this version does not know, by alice on box1 (pinstripe, process "
            "258): hm");
}

TEST(Events, WhatIsTooLongOrNotPrintableIsMadeFit) {
  Event event = SmallEvent();
  event.text = std::string(10'000, 'x') + "\n";
  event.work = "r\x1bm";
  event.actor.user = "\xc3\xa9milie";
  event.drives.resize(10'000, 1);
  const auto again = Event::Decode(event.Encode());
  ASSERT_OK(again);
  EXPECT_EQ(again->text, std::string(400, 'x'));
  EXPECT_EQ(again->work, "r?m");
  EXPECT_EQ(again->actor.user, "??milie");
  EXPECT_EQ(again->drives.size(), 256u);
}

TEST(Events, AreToldByTheLocalDay) {
  setenv("TZ", "CET-1", 1);
  tzset();
  Event late = SmallEvent();
  late.at += 90 * minutes(1) / std::chrono::nanoseconds(1);
  std::string day;
  EXPECT_EQ(EventsText({SmallEvent(), late}, day),
            "Tuesday 14 November 2023 (CET)\n"
            "23:13:20  warning drain of drives 3, 258 ended: something is left to do; hm\n"
            "\n"
            "Wednesday 15 November 2023 (CET)\n"
            "00:43:20  warning drain of drives 3, 258 ended: something is left to do; hm\n");
  EXPECT_EQ(EventsText({late}, day),
            "00:43:20  warning drain of drives 3, 258 ended: something is left to do; hm\n");
  const auto json = nlohmann::json::parse(EventJson(SmallEvent()));
  EXPECT_EQ(json["at"], 1'700'000'000);
  EXPECT_EQ(json["kind"], "work-ended");
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["result"], "short");
  EXPECT_EQ(json["drives"], nlohmann::json({3, 258}));
  const auto list = nlohmann::json::parse(EventListJson(
      {.events = {SmallEvent()}, .oldest = 1'600'000'000'000'000'000, .reaches_back = false}, 0));
  EXPECT_EQ(list["events"][0], json);
  EXPECT_EQ(list["oldest"], 1'600'000'000);
  EXPECT_EQ(list["complete"], false);
  unsetenv("TZ");
  tzset();
}

class EventLogTest : public testing::Test {
 protected:
  EventLogTest()
      : sim_(1), machines_(sim_, {.drives = 5, .layout = {2, 1, 64 << 10}, .groups = 4}) {
    SetLogLevel(LogLevel::kError);
    EXPECT_OK(machines_.Format());
  }
  ~EventLogTest() override { SetLogLevel(LogLevel::kInfo); }

  std::unique_ptr<Cluster> Open(std::shared_ptr<ClientLife> life = nullptr) {
    auto cluster = machines_.Open(std::move(life));
    EXPECT_OK(cluster);
    return *std::move(cluster);
  }

  static Event Began(const std::string& work) {
    Event event{.kind = EventKind::kWorkBegan, .actor = {}};
    event.work = work;
    return event;
  }
  static Event OfDrive(EventKind kind, DriveId drive) {
    return {.kind = kind, .actor = {}, .drives = {drive}};
  }
  static std::vector<std::string> Works(const std::vector<Event>& events) {
    std::vector<std::string> works;
    for (const Event& event : events) works.push_back(event.work);
    return works;
  }
  static std::vector<std::string> Names(const std::vector<Event>& events) {
    std::vector<std::string> names;
    for (const Event& event : events) names.push_back(event.Name());
    return names;
  }
  static std::vector<Event> All(Cluster& cluster) {
    const auto list = ReadEvents(cluster, INT64_MIN);
    EXPECT_OK(list);
    return list.has_value() ? list->events : std::vector<Event>();
  }

  SimRuntime sim_;
  TestCluster machines_;
};

TEST_F(EventLogTest, WhatOneTellsTheOthersRead) {
  const auto one = Open();
  const auto two = Open();
  EXPECT_THAT(All(*two), IsEmpty());
  EventFollower follower(*two);
  EXPECT_THAT(*follower.Poll(), IsEmpty());
  EventLog log(*one, {.actor = On("box1")});
  log.Add(Began("scrub"));
  ASSERT_TRUE(log.Flush());
  const auto events = All(*two);
  ASSERT_THAT(Works(events), ElementsAre("scrub"));
  EXPECT_EQ(events[0].actor, On("box1"));
  EXPECT_GT(events[0].at, 0);
  EXPECT_EQ(Works(*follower.Poll()), std::vector<std::string>{"scrub"});
  EXPECT_THAT(*follower.Poll(), IsEmpty());
  // Whoever writes, too.
  EventLog other(*two, {.actor = On("box2")});
  other.Add(Began("check"));
  log.Add(Began("repair"));
  ASSERT_TRUE(log.Flush());
  ASSERT_TRUE(other.Flush());
  EXPECT_THAT(Works(*follower.Poll()), testing::UnorderedElementsAre("check", "repair"));
  EXPECT_THAT(Works(All(*one)), testing::UnorderedElementsAre("scrub", "check", "repair"));
}

TEST_F(EventLogTest, OnlyWhatHappenedSinceThenIsRead) {
  const auto cluster = Open();
  EventLog log(*cluster, {.actor = On("box1")});
  log.Add(Began("old"));
  sim_.Sleep(minutes(10));
  const int64_t since = sim_.WallClock();
  log.Add(Began("new"));
  ASSERT_TRUE(log.Flush());
  const auto list = ReadEvents(*cluster, since);
  ASSERT_OK(list);
  EXPECT_THAT(Works(list->events), ElementsAre("new"));
  EXPECT_TRUE(list->reaches_back);
  EXPECT_LT(*list->oldest, since);
}

// Several at once, each with a way to the drives on which answers get lost: nothing is lost, and
// nothing is there twice.
TEST_F(EventLogTest, ManyWriteAtOnceAndLoseNothing) {
  constexpr int kWriters = 6;
  constexpr int kEach = 40;
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<std::unique_ptr<EventLog>> logs;
  std::vector<std::string> expected;
  for (int i = 0; i < kWriters; ++i) {
    clusters.push_back(Open());
    logs.push_back(std::make_unique<EventLog>(
        *clusters.back(), EventLog::Options{.actor = On(fmt::format("box{}", i))}));
  }
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.lose_request = 0.02, .lose_answer = 0.05, .duplicate_request = 0.1});
  }
  for (int event = 0; event < kEach; ++event) {
    for (int i = 0; i < kWriters; ++i) {
      expected.push_back(fmt::format("{} {}", i, event));
      logs[i]->Add(Began(expected.back()));
    }
    sim_.Sleep(sim_.Between(seconds(0), seconds(1)));
  }
  for (const auto& log : logs) {
    while (!log->Flush(minutes(1))) continue;
  }
  EXPECT_THAT(Works(All(*clusters[0])), testing::UnorderedElementsAreArray(expected));
}

// The oldest make room, and whoever asks for them is told.
TEST_F(EventLogTest, TheRingIsBoundedAndSaysSo) {
  const auto cluster = Open();
  EventFollower follower(*cluster);
  ASSERT_OK(follower.Poll());
  EventLog log(*cluster, {.actor = On("box1"), .most_waiting = 1000});
  uint64_t written = 0;
  Event event = Began("x");
  event.text = std::string(400, 'x');
  uint64_t followed = 0;
  while (written < (kEventPages + 3) * 17) {
    for (int i = 0; i < 100; ++i, ++written) {
      event.count = written;
      log.Add(event);
    }
    ASSERT_TRUE(log.Flush(minutes(1)));
    if (written < 1000) followed += follower.Poll()->size();
  }
  EXPECT_EQ(followed, 900u);
  const auto list = ReadEvents(*cluster, INT64_MIN);
  ASSERT_OK(list);
  EXPECT_FALSE(list->reaches_back);
  EXPECT_TRUE(ReadEvents(*cluster, *list->oldest)->reaches_back);
  EXPECT_EQ(list->damaged, 0u);
  EXPECT_GT(list->events.size(), (kEventPages - 1) * 14);
  EXPECT_LT(list->events.size(), kEventPages * 17);
  for (size_t i = 1; i < list->events.size(); ++i) {
    ASSERT_EQ(list->events[i].count, list->events[i - 1].count + 1);
  }
  EXPECT_EQ(list->events.back().count, written - 1);
  // One that was left behind for long reads on with what is still there.
  EXPECT_EQ(follower.Poll()->back().count, written - 1);
}

TEST_F(EventLogTest, WhatCannotBeKeptIsCountedAndTold) {
  const auto cluster = Open();
  const std::vector<DriveId> map_drives = cluster->map_drives();
  const auto set_down = [&](bool down) {
    for (size_t i = 0; i <= map_drives.size() / 2; ++i) machines_.SetDown(map_drives[i], down);
  };
  EventLog log(*cluster, {.actor = On("box1"), .most_waiting = 4});
  set_down(true);
  log.Add(Began("0"));
  EXPECT_FALSE(log.Flush(minutes(1)));
  for (int i = 1; i < 10; ++i) log.Add(Began(fmt::format("{}", i)));
  EXPECT_FALSE(log.Flush(minutes(1)));
  set_down(false);
  while (!log.Flush(minutes(1))) sim_.Sleep(seconds(1));
  const auto events = All(*cluster);
  ASSERT_THAT(Works(events), ElementsAre("0", "1", "2", "3", ""));
  EXPECT_EQ(events.back().kind, EventKind::kDropped);
  EXPECT_EQ(events.back().count, 6u);
}

// Nobody asks it: it tries again by itself.
TEST_F(EventLogTest, WhatWaitsIsWrittenWhenTheDrivesAreBack) {
  const auto cluster = Open();
  const std::vector<DriveId> map_drives = cluster->map_drives();
  EventLog log(*cluster, {.actor = On("box1")});
  for (size_t i = 0; i <= map_drives.size() / 2; ++i) machines_.SetDown(map_drives[i], true);
  log.Add(Began("scrub"));
  sim_.Sleep(minutes(2));
  for (const DriveId id : map_drives) machines_.SetDown(id, false);
  sim_.Sleep(minutes(2));
  EXPECT_THAT(Works(All(*cluster)), ElementsAre("scrub"));
}

TEST_F(EventLogTest, GarbageInTheRingHurtsNobody) {
  const auto cluster = Open();
  RegisterStore& registers = cluster->registers();
  const auto spoil = [&](uint64_t number, const std::string& bytes) {
    const RegisterName name{kMapGroup, EventPageKey(number)};
    const auto seen = registers.Read(name);
    ASSERT_OK(seen);
    ASSERT_OK(registers.Change(name, *seen, bytes));
  };
  EventLog log(*cluster, {.actor = On("box1")});
  log.Add(Began("1"));
  ASSERT_TRUE(log.Flush());
  EventFollower follower(*cluster);
  EXPECT_THAT(Works(*follower.Poll()), ElementsAre("1"));
  // The next one, one far away, and one in the wrong place.
  spoil(2, "\x09nonsense");
  spoil(99, std::string(40'000, '\xff'));
  spoil(50, EventPage{.number = 51, .events = {SmallEvent()}}.Encode());
  log.Add(Began("2"));
  ASSERT_TRUE(log.Flush());
  EXPECT_THAT(Works(*follower.Poll()), ElementsAre("2"));
  auto list = ReadEvents(*cluster, INT64_MIN);
  ASSERT_OK(list);
  EXPECT_THAT(Works(list->events), ElementsAre("1", "2"));
  EXPECT_EQ(list->damaged, 3u);
  // The one that is written to.
  spoil(1, "");
  log.Add(Began("3"));
  ASSERT_TRUE(log.Flush());
  EXPECT_THAT(Works(All(*cluster)), ElementsAre("3"));
  // An event of a page, which is long enough and none.
  std::string page = EventPage{.number = 1, .events = {SmallEvent(), SmallEvent()}}.Encode();
  page[page.find("box1")] = '\x1b';
  spoil(1, page);
  EXPECT_THAT(Works(All(*cluster)), ElementsAre("drain"));
  log.Add(Began("4"));
  ASSERT_TRUE(log.Flush());
  EXPECT_THAT(Works(All(*cluster)), testing::Contains("4"));
}

// One who is slow appends to a page that is not the last one any more.
TEST_F(EventLogTest, WhatIsAppendedLateIsFollowed) {
  const auto cluster = Open();
  RegisterStore& registers = cluster->registers();
  const auto put = [&](uint64_t number, const std::vector<std::string>& works) {
    EventPage page{.number = number, .events = {}};
    for (const std::string& work : works) page.events.push_back(Began(work));
    const RegisterName name{kMapGroup, EventPageKey(number)};
    const auto seen = registers.Read(name);
    ASSERT_OK(seen);
    ASSERT_OK(registers.Change(name, *seen, page.Encode()).why);
  };
  put(1, {"a"});
  EventFollower follower(*cluster);
  EXPECT_THAT(Works(*follower.Poll()), ElementsAre("a"));
  put(2, {"b"});
  EXPECT_THAT(Works(*follower.Poll()), ElementsAre("b"));
  put(1, {"a", "late"});
  EXPECT_THAT(Works(*follower.Poll()), ElementsAre("late"));
  put(3, {"c"});
  put(2, {"b", "later"});
  EXPECT_THAT(Works(*follower.Poll()), testing::UnorderedElementsAre("c", "later"));
  EXPECT_THAT(*follower.Poll(), IsEmpty());
}

// The drives go at any moment of a look at several pages.
TEST_F(EventLogTest, AFollowerThatFailsHalfwayLosesNothing) {
  const auto cluster = Open();
  EventLog log(*cluster, {.actor = On("box1"), .most_waiting = 1000});
  EventFollower follower(*cluster);
  ASSERT_OK(follower.Poll());
  Event event = Began("x");
  event.text = std::string(400, 'x');
  uint64_t written = 0;
  uint64_t followed = 0;
  int failures = 0;
  const auto set_down = [&](bool down) {
    for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, down);
  };
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 40; ++i) {
      event.count = ++written;
      log.Add(event);
    }
    ASSERT_TRUE(log.Flush(minutes(1)));
    bool is_down = false;
    sim_.Spawn("saboteur", [&] {
      sim_.Sleep(std::chrono::microseconds(200) * round);
      set_down(true);
      is_down = true;
    });
    const auto news = follower.Poll();
    if (news.has_value()) followed += news->size();
    while (!is_down) sim_.Sleep(seconds(1));
    if (!news.has_value() || news->size() < 40) ++failures;
    set_down(false);
    sim_.Sleep(minutes(1));
    for (bool all = false; !all;) {
      const auto more = follower.Poll();
      if (more.has_value()) followed += more->size();
      all = more.has_value() && more->empty();
      if (!all) sim_.Sleep(seconds(1));
    }
    ASSERT_EQ(followed, written) << round;
  }
  EXPECT_GT(failures, 3);
}

// A page that somebody made up does not end the ring.
TEST_F(EventLogTest, ANumberFarFromAllOthersIsDamage) {
  const auto cluster = Open();
  const auto forge = [&](uint64_t number) {
    const RegisterName name{kMapGroup, EventPageKey(number)};
    const auto seen = cluster->registers().Read(name);
    ASSERT_OK(seen);
    const EventPage page{.number = number, .events = {Began("forged")}};
    ASSERT_OK(cluster->registers().Change(name, *seen, page.Encode()).why);
  };
  EventFollower follower(*cluster);
  ASSERT_OK(follower.Poll());
  forge(kMaxEventPage - 3);
  EventLog log(*cluster, {.actor = On("box1")});
  log.Add(Began("1"));
  ASSERT_TRUE(log.Flush());
  forge(kMaxEventPage / 4 + 2);  // the register of the page that follows
  EXPECT_THAT(Works(*follower.Poll()), ElementsAre("1"));
  log.Add(Began("2"));
  ASSERT_TRUE(log.Flush());
  EXPECT_THAT(Works(*follower.Poll()), ElementsAre("2"));
  EXPECT_THAT(Works(All(*cluster)), ElementsAre("1", "2"));
}

TEST(Events, TimesThatDrivesHaveMayBeAnything) {
  EXPECT_EQ(TimeBetween(3, 5).count(), 2);
  EXPECT_EQ(TimeBetween(INT64_MIN, 5).count(), INT64_MAX);
  EXPECT_EQ(TimeBetween(INT64_MAX, -5).count(), -INT64_MAX);
  EXPECT_EQ(TimeBetween(INT64_MAX, -1).count(), -INT64_MAX);
}

// Whoever tells of a drive says what is news.
TEST_F(EventLogTest, OfDrivesOnlyNewsIsTold) {
  const auto one = Open();
  const auto two = Open();
  EventLog first(*one, {.actor = On("gw1")});
  EventLog second(*two, {.actor = On("gw2")});
  const auto tell = [&](EventLog& log, EventKind kind, int64_t at = 0) {
    Event event = OfDrive(kind, 3);
    event.at = at;
    log.Add(std::move(event));
    ASSERT_TRUE(log.Flush());
  };
  tell(first, EventKind::kDriveCame);  // it was never away
  EXPECT_THAT(All(*one), IsEmpty());
  const int64_t begin = sim_.WallClock();
  tell(first, EventKind::kDriveWent);
  tell(second, EventKind::kDriveWent);
  EXPECT_THAT(Names(All(*one)), ElementsAre("drive-went"));
  sim_.Sleep(minutes(5));
  tell(second, EventKind::kDriveCame);
  tell(first, EventKind::kDriveCame);
  EXPECT_THAT(Names(All(*one)), ElementsAre("drive-went", "drive-came"));
  // One that could not tell in time.
  tell(second, EventKind::kDriveWent, begin + 1'000'000'000);
  EXPECT_EQ(All(*one).size(), 2u);
  // A drive among others that everybody knows of.
  first.Add({.kind = EventKind::kDriveWent, .actor = {}, .drives = {3, 4}});
  ASSERT_TRUE(first.Flush());
  second.Add({.kind = EventKind::kDriveWent, .actor = {}, .drives = {3, 4, 5}});
  ASSERT_TRUE(second.Flush());
  ASSERT_EQ(All(*one).size(), 4u);
  EXPECT_THAT(All(*one).back().drives, ElementsAre(5));
}

// Clocks that differ by half a minute: the whole outage is over when the second one tells.
TEST_F(EventLogTest, AnOutageThatIsOverIsToldOnceThoughClocksDiffer) {
  const auto one = Open();
  const auto two = Open();
  EventLog first(*one, {.actor = On("gw1")});
  EventLog second(*two, {.actor = On("gw2")});
  const int64_t now = sim_.WallClock();
  const auto add = [&](EventLog& log, EventKind kind, int second_of_it) {
    Event event = OfDrive(kind, 3);
    event.at = now + second_of_it * int64_t{1'000'000'000};
    log.Add(std::move(event));
  };
  add(first, EventKind::kDriveWent, 0);
  add(first, EventKind::kDriveCame, 20);
  ASSERT_TRUE(first.Flush());
  add(second, EventKind::kDriveWent, 30);
  add(second, EventKind::kDriveCame, 50);
  ASSERT_TRUE(second.Flush());
  EXPECT_THAT(Names(All(*one)), ElementsAre("drive-went", "drive-came"));
  // And one that is not over is told.
  add(second, EventKind::kDriveWent, 55);
  ASSERT_TRUE(second.Flush());
  EXPECT_THAT(Names(All(*one)), ElementsAre("drive-went", "drive-came", "drive-went"));
}

TEST_F(EventLogTest, AHundredHostsTellOfADriveOnce) {
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<std::unique_ptr<HostEvents>> hosts;
  for (int i = 0; i < 100; ++i) {
    clusters.push_back(Open());
    hosts.push_back(std::make_unique<HostEvents>(
        *clusters.back(), HostEvents::Options{.actor = On(fmt::format("mount{}", i))}));
  }
  sim_.Sleep(minutes(1));
  EXPECT_THAT(All(*clusters[0]), IsEmpty());
  machines_.SetDown(3, true);
  machines_.SetDown(4, true);
  sim_.Sleep(minutes(3));
  machines_.SetDown(3, false);
  machines_.SetDown(4, false);
  sim_.Sleep(minutes(1));
  std::map<std::string, std::vector<DriveId>> told;
  for (const Event& event : All(*clusters[0])) {
    auto& drives = told[event.Name()];
    drives.insert(drives.end(), event.drives.begin(), event.drives.end());
  }
  EXPECT_EQ(told.size(), 2u);
  EXPECT_THAT(told["drive-went"], testing::UnorderedElementsAre(3, 4));
  EXPECT_THAT(told["drive-came"], testing::UnorderedElementsAre(3, 4));
  hosts.clear();
}

class HostEventsTest : public EventLogTest {};

TEST_F(HostEventsTest, AShortRestartIsNoNewsAndARestlessDriveIsToldOnce) {
  const auto cluster = Open();
  const HostEvents host(*cluster, {.actor = On("gw1"), .spread = seconds(0)});
  machines_.SetDown(3, true);
  sim_.Sleep(seconds(4));
  machines_.SetDown(3, false);
  sim_.Sleep(minutes(1));
  EXPECT_THAT(All(*cluster), IsEmpty());
  for (int i = 0; i < 30; ++i) {
    machines_.SetDown(3, true);
    sim_.Sleep(seconds(20));
    machines_.SetDown(3, false);
    sim_.Sleep(seconds(20));
  }
  EXPECT_THAT(Names(All(*cluster)), ElementsAre("drive-went", "drive-came"));
  // A real outage after that is told all the same, with the time at which it began.
  const int64_t begin = sim_.WallClock();
  machines_.SetDown(3, true);
  sim_.Sleep(minutes(3));
  const auto events = All(*cluster);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events.back().kind, EventKind::kDriveWent);
  EXPECT_LT(events.back().at - begin, seconds(10) / std::chrono::nanoseconds(1));
}

// The one who saw it go is gone, too.
TEST_F(HostEventsTest, WhoBeginsToWatchPutsRightWhatIsKnown) {
  const auto cluster = Open();
  {
    const HostEvents host(*cluster, {.actor = On("gw1"), .spread = seconds(0)});
    machines_.SetDown(3, true);
    sim_.Sleep(minutes(1));
  }
  machines_.SetDown(3, false);
  machines_.SetDown(4, true);
  sim_.Sleep(minutes(1));
  const HostEvents host(*cluster, {.actor = On("gw2"), .spread = seconds(0)});
  sim_.Sleep(minutes(1));
  const auto events = All(*cluster);
  ASSERT_THAT(Names(events),
              testing::UnorderedElementsAre("drive-went", "drive-came", "drive-went"));
  EXPECT_EQ(events[0].actor.host, "gw1");
  EXPECT_EQ(events[1].actor.host, "gw2");
}

class ComparedDrivesTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    ASSERT_OK(machines_.Format());
  }
  void TearDown() override { SetLogLevel(LogLevel::kInfo); }

  SimRuntime sim_{1};
  TestCluster machines_{
      sim_, {.drives = 5, .layout = {2, 1, 64 << 10}, .groups = 4, .loses_power = true}};
};

// The power of two machines failed. Whoever compares their drives with the others tells of it,
// once.
TEST_F(ComparedDrivesTest, DrivesThatMayHaveForgottenChangesAreToldOfWhenTheyWereCompared) {
  const auto one = machines_.Open();
  const auto two = machines_.Open();
  ASSERT_OK(one);
  ASSERT_OK(two);
  const HostEvents first(**one, {.actor = On("gw1"), .spread = seconds(0)});
  const HostEvents second(**two, {.actor = On("gw2"), .spread = seconds(0)});
  sim_.Sleep(minutes(1));
  for (const DriveId id : {1, 2}) machines_.LosePower(id, 0);
  const auto compared = [&] {
    const auto list = ReadEvents(**one, INT64_MIN);  // who reads meets the drives
    EXPECT_OK(list);
    std::vector<Event> found = list->events;
    std::erase_if(found, [](const Event& e) { return e.kind != EventKind::kDriveCompared; });
    return found;
  };
  for (const Time end = sim_.Now() + minutes(5); sim_.Now() < end;) {
    (void)compared();
    (void)ReadEvents(**two, INT64_MIN);
    sim_.Sleep(seconds(1));
  }
  std::vector<DriveId> drives;
  for (const Event& event : compared()) {
    drives.insert(drives.end(), event.drives.begin(), event.drives.end());
    EXPECT_EQ(event.Level(), EventLevel::kWarning);
    EXPECT_THAT(event.Sentence(), HasSubstr("were compared with the others'"));
    EXPECT_THAT(event.Sentence(), HasSubstr("they may have lost changes with their power"));
  }
  EXPECT_THAT(drives, testing::UnorderedElementsAre(1, 2));
}

// A command that opened the cluster, and had to compare them itself, ends soon.
TEST_F(ComparedDrivesTest, ACommandTellsOfDrivesThatItHasCompared) {
  const auto one = machines_.Open();
  ASSERT_OK(one);
  {  // something to be forgotten
    const HostEvents host(**one, {.actor = On("gw1"), .spread = seconds(0)});
    sim_.Sleep(minutes(1));
  }
  for (const DriveId id : {1, 2, 3, 4}) machines_.LosePower(id, 0);
  const auto command = machines_.Open();
  ASSERT_OK(command);
  EventLog log(**command);
  EXPECT_GT(TellOfComparisons(**command, log), 0u);
  EXPECT_EQ(TellOfComparisons(**command, log), 0u) << "once";
  EXPECT_TRUE(log.Flush());
  const auto list = ReadEvents(**command, INT64_MIN);
  ASSERT_OK(list);
  ASSERT_FALSE(list->events.empty());
  EXPECT_THAT(list->events.back().Sentence(), HasSubstr("were compared with the others'"));
}

TEST_F(HostEventsTest, FilesAreCounted) {
  const auto cluster = Open();
  HostEvents host(*cluster, {.actor = On("gw1"), .spread = seconds(0)});
  for (int i = 0; i < 1000; ++i) host.WrittenShort();
  for (int i = 0; i < 900; ++i) host.Mended();
  sim_.Sleep(minutes(1));
  for (int i = 0; i < 5; ++i) {
    host.Mended();
    sim_.Sleep(seconds(10));
  }
  auto events = All(*cluster);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].count, 1000u);
  EXPECT_EQ(events[1].count, 900u);
  EXPECT_THAT(events[0].Sentence(), HasSubstr("files were written 1000 times by pinstripe on gw1"));
  sim_.Sleep(minutes(10));
  events = All(*cluster);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].count, 5u);
}

// Whoever asks a minute later whether a host may be stopped has to know of it.
TEST_F(HostEventsTest, FilesThatAreWrittenShortAreToldWhenThatBeginsAndWhenItEnds) {
  const auto cluster = Open();
  HostEvents host(*cluster, {.actor = On("gw1"), .spread = seconds(0)});
  const auto write_for = [&](int number) {
    for (int i = 0; i < number; ++i) {
      host.WrittenShort();
      sim_.Sleep(seconds(10));
    }
  };
  const auto counts = [&] {
    std::vector<uint64_t> all;
    for (const Event& event : All(*cluster)) all.push_back(event.count);
    return all;
  };
  write_for(9);
  EXPECT_THAT(counts(), testing::ElementsAre(1));
  sim_.Sleep(minutes(1));
  EXPECT_THAT(counts(), testing::ElementsAre(1, 8));
  // And once more, within the ten minutes.
  write_for(3);
  sim_.Sleep(minutes(1));
  EXPECT_THAT(counts(), testing::ElementsAre(1, 8, 1, 2));
  // But a client that does so again and again does not fill the events.
  for (int i = 0; i < 60; ++i) {
    write_for(1);
    sim_.Sleep(seconds(50));
  }
  EXPECT_LE(counts().size(), 4u + 6u + 7u);
  sim_.Sleep(minutes(10));
  const auto all = counts();
  EXPECT_EQ(std::accumulate(all.begin(), all.end(), uint64_t{0}), 72u);
}

// While files are written short it is told all the same: somebody should look at a disk.
TEST_F(HostEventsTest, DamageIsToldAtOnce) {
  const auto cluster = Open();
  const StripeLayout layout = cluster->config().layout;
  const auto buffer = std::make_shared<StripeBuffer>(layout);
  CopyBytes(buffer->data(), AsBytes("hello"));
  const StripeId id{7, 0, {}};
  const auto place = cluster->stripes().StartWrite(id, buffer, 5)->Wait();
  ASSERT_OK(place);
  HostEvents host(*cluster, {.actor = On("gw1"), .spread = seconds(0)});
  host.WrittenShort();
  sim_.Sleep(minutes(1));
  ASSERT_THAT(Names(All(*cluster)), ElementsAre("spares-used"));
  EXPECT_THAT(All(*cluster)[0].Sentence(),
              HasSubstr("0 shards went to spares, 0 blocks were stored with fewer shards"));

  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    machines_.drive(drive).Set({.flip_bit = 1.0});
    std::string text(5, '?');
    ASSERT_OK(cluster->stripes().Read(
        {id, layout, 5, &*place, 0, {reinterpret_cast<std::byte*>(text.data()), 5}}));
    EXPECT_EQ(text, "hello");
    machines_.drive(drive).Set({});
    sim_.Sleep(seconds(5));
  }
  sim_.Sleep(seconds(10));
  EXPECT_THAT(Names(All(*cluster)), testing::Contains("damage-found"));
}

}  // namespace
}  // namespace pinstripe
