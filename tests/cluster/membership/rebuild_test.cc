// An empty drive takes the place of a lost one: how that is done, and every way in which it is
// refused.

#include "cluster/membership/rebuild.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "cluster/gather.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/registers/record.h"
#include "cluster/stripes/shard.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;

constexpr DriveId kLost = 4;

class RebuildTest : public testing::Test {
 protected:
  // Five drives that all hold all registers, so that every one is worth losing.
  RebuildTest()
      : sim_(1),
        machines_(sim_, {.drives = 5, .layout = {2, 1, 64 << 10}, .groups = 4, .replicas = 5}) {
    SetLogLevel(LogLevel::kError);
  }
  ~RebuildTest() override { SetLogLevel(LogLevel::kInfo); }

  static void ExpectMessage(const Status& status, std::string_view part) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }

  std::unique_ptr<Cluster> Open() {
    auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    return *std::move(cluster);
  }

  Result<RebuildReport> Rebuild(Cluster& cluster, const RebuildOptions& options = {}) {
    return RebuildDrive(cluster, machines_.Factory(), kLost, options);
  }

  void Change(Cluster& cluster, const std::string& key, std::optional<std::string> value) {
    const RegisterName name{cluster.GroupOfObject(key.size()), key};
    const auto seen = cluster.registers().Read(name);
    ASSERT_OK(seen);
    const auto outcome = cluster.registers().Change(name, *seen, value);
    ASSERT_OK(outcome);
    ASSERT_TRUE(outcome.applied());
    if (value.has_value()) {
      expected_[key] = *value;
    } else {
      expected_.erase(key);
    }
  }

  // Registers of all kinds: small and large ones, changed ones, removed ones.
  void Fill(Cluster& cluster) {
    for (int i = 0; i < 40; ++i) {
      const std::string key = std::string(1 + i % 5, 'k') + std::to_string(i);
      Change(cluster, key, "first");
      if (i % 3 == 0) Change(cluster, key, "second");
      if (i % 7 == 0) Change(cluster, key, std::string(20'000 + i, 'x'));
      if (i % 5 == 0) Change(cluster, key, std::nullopt);
    }
  }

  void ExpectAllIsThere(Cluster& cluster) {
    for (int i = 0; i < 40; ++i) {
      const std::string key = std::string(1 + i % 5, 'k') + std::to_string(i);
      const auto value = cluster.registers().Read({cluster.GroupOfObject(key.size()), key});
      ASSERT_OK(value);
      const auto expected = expected_.find(key);
      EXPECT_EQ(value->value.has_value(), expected != expected_.end()) << key;
      if (expected != expected_.end()) {
        EXPECT_EQ(value->value, expected->second) << key;
      }
    }
  }

  // All records of a drive that begin with `prefix`.
  std::map<std::string, Record> Records(MemoryDrive& drive, const std::string& prefix) {
    std::map<std::string, Record> records;
    std::string first = prefix;
    for (;;) {
      Gather<Result<RangeRecords>> gather(sim_);
      drive.ListRecords(first, prefix + '\xff', kMaxRangeRecords, false, kMaxValueBytes,
                        Time::max(), gather.Ask(0));
      const auto range = *std::move(gather.Next(Time::max())->value);
      for (const RangeRecord& each : range.records) records[each.key] = each.record;
      if (!range.more) return records;
      first = range.records.back().key + '\0';
    }
  }
  std::map<std::string, Record> RegistersOn(MemoryDrive& drive) {
    return Records(drive, ClusterPrefix("test") + "R");
  }

  void Put(const std::string& key, const std::string& value, const std::string& version = {}) {
    Gather<Status> gather(sim_);
    machines_.memory(kLost).Put({.key = key,
                                 .value = SharedBytes(value),
                                 .version = version,
                                 .tag = RecordTag(Crc32c(AsBytes(value)))},
                                Time::max(), gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  Superblock SuperblockOf(DriveId drive) {
    const auto records = Records(machines_.memory(drive), SuperblockKey("test"));
    return *Superblock::Decode(records.at(SuperblockKey("test")).value.text());
  }

  bool IsMet(Cluster& cluster) {
    Gather<Result<DriveInfo>> gather(sim_);
    cluster.FindDrive(kLost)->Info(sim_.Now() + seconds(1), gather.Ask(0));
    return gather.Next(Time::max())->value.has_value();
  }

  SimRuntime sim_;
  TestCluster machines_;
  std::map<std::string, std::string> expected_;
};

TEST_F(RebuildTest, AnEmptyDriveTakesThePlaceOfALostOne) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  const auto lost = machines_.Replace(kLost);
  EXPECT_FALSE(IsMet(*client));

  const auto cluster = Open();
  const auto report = Rebuild(*cluster);
  ASSERT_OK(report);
  EXPECT_EQ(report->incarnation, 1u);
  EXPECT_GT(report->registers.registers, 40u);
  EXPECT_EQ(report->registers.failed, 0u);
  EXPECT_EQ(SuperblockOf(kLost).incarnation, 1u);
  EXPECT_EQ(SuperblockOf(kLost).map_drives, SuperblockOf(1).map_drives);

  // It holds every register that the lost one held, in no older state.
  const auto before = RegistersOn(*lost);
  const auto after = RegistersOn(machines_.memory(kLost));
  for (const auto& [key, record] : before) {
    ASSERT_TRUE(after.contains(key)) << Hex(AsBytes(key));
    EXPECT_GE(DecodeRegister(key, after.at(key))->accepted, DecodeRegister(key, record)->accepted);
    EXPECT_GE(DecodeRegister(key, after.at(key))->promised, DecodeRegister(key, record)->promised);
  }

  // It counts for everybody: now two others may be away.
  EXPECT_TRUE(IsMet(*cluster));
  EXPECT_TRUE(IsMet(*client));
  for (const auto& [one, two] : {std::pair<DriveId, DriveId>{1, 2}, {1, 3}, {2, 5}, {3, 5}}) {
    machines_.SetDown(one, true);
    machines_.SetDown(two, true);
    ExpectAllIsThere(*client);
    ExpectAllIsThere(*Open());
    Change(*client, "k0", fmt::format("without {} and {}", one, two));
    machines_.SetDown(one, false);
    machines_.SetDown(two, false);
  }
}

TEST_F(RebuildTest, ADriveCanBeReplacedAgainAndAgain) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  for (uint32_t time = 1; time <= 3; ++time) {
    machines_.Replace(kLost);
    const auto report = Rebuild(*client);
    ASSERT_OK(report);
    EXPECT_EQ(report->incarnation, time);
  }
  // Each drive of the cluster in turn, so that in the end nothing of the beginning is left.
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.Replace(id);
    ASSERT_OK(RebuildDrive(*client, machines_.Factory(), id));
  }
  ExpectAllIsThere(*client);
  ExpectAllIsThere(*Open());
}

// What clients learnt from the lost drive, they must have forgotten.
TEST_F(RebuildTest, TakesItsTimeBeforeItLooks) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  machines_.Replace(kLost);
  const Time begin = sim_.Now();
  std::vector<std::string> phases;
  Time looked{};
  RebuildOptions options;
  options.progress = [&](std::string_view phase, double done) {
    EXPECT_GE(done, 0);
    EXPECT_LE(done, 1);
    if (phases.empty() || phases.back() != phase) phases.emplace_back(phase);
    if (phases.size() == 2 && looked == Time{}) looked = sim_.Now();
  };
  ASSERT_OK(Rebuild(*client, options));
  EXPECT_EQ(phases, (std::vector<std::string>{"waiting until the lost drive is forgotten",
                                              "restoring registers"}));
  EXPECT_GE(looked - begin, kForgetting);
}

TEST_F(RebuildTest, GoesAtThePaceThatItIsGiven) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  machines_.Replace(kLost);
  const Time begin = sim_.Now();
  RebuildOptions options;
  options.registers_per_second = 2;
  const auto report = Rebuild(*client, options);
  ASSERT_OK(report);
  EXPECT_GE(sim_.Now() - begin, kForgetting + seconds(report->registers.registers / 2));
}

TEST_F(RebuildTest, WhileItIsRebuiltADriveIsAwayForEverybodyElse) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  machines_.Replace(kLost);
  bool looked = false;
  RebuildOptions options;
  options.progress = [&](std::string_view, double) {
    if (SuperblockOf(kLost).service == DriveService::kInService) return;
    EXPECT_FALSE(IsMet(*client));
    if (looked) return;
    looked = true;
    EXPECT_FALSE(IsMet(*Open()));
    Change(*client, "while it is rebuilt", "a value");
  };
  const auto cluster = Open();
  ASSERT_OK(Rebuild(*cluster, options));
  EXPECT_TRUE(looked);
  EXPECT_TRUE(IsMet(*client));
}

TEST_F(RebuildTest, WorksWithAMinorityOfTheOthersAwayAndNotWithMore) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  machines_.Replace(kLost);
  machines_.SetDown(1, true);
  machines_.SetDown(2, true);
  EXPECT_FAILS(Rebuild(*client), EIO);
  machines_.SetDown(1, false);
  ASSERT_OK(Rebuild(*client));
  machines_.SetDown(2, false);
  machines_.SetDown(3, true);
  machines_.SetDown(5, true);
  ExpectAllIsThere(*client);
}

TEST_F(RebuildTest, CanBeCancelledAndDoneAgain) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  machines_.Replace(kLost);
  RebuildOptions options;
  options.is_cancelled = [] { return true; };
  EXPECT_FAILS(Rebuild(*client, options), EINTR);
  const auto report = Rebuild(*client);
  ASSERT_OK(report);
  EXPECT_EQ(report->incarnation, 1u);
}

// kill -9 after any number of requests; the next one goes on.
TEST_F(RebuildTest, WhoDiesAnywhereLeavesItToTheNext) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  bool died = true;
  for (uint64_t requests = 0; died; requests += 1 + requests / 8) {
    SCOPED_TRACE(requests);
    machines_.Replace(kLost);
    {
      const auto life = std::make_shared<ClientLife>();
      const auto cluster = machines_.Open(life);
      ASSERT_OK(cluster);
      life->CrashAfter(requests);
      const auto report = RebuildDrive(**cluster, machines_.Factory(life), kLost);
      died = life->crashed();
      if (!died) {
        ASSERT_OK(report);
      }
    }
    if (died) {
      auto again = Rebuild(*client);
      // What the dead one had sent may have come in between.
      if (!again.has_value() && again.error().code() == EEXIST) again = Rebuild(*client);
      if (!again.has_value()) {
        EXPECT_FAILS(again, EEXIST);  // only the answer to the very last request was not heard
        ASSERT_EQ(SuperblockOf(kLost).service, DriveService::kInService);
      }
    }
    machines_.SetDown(1, true);
    machines_.SetDown(2, true);
    ExpectAllIsThere(*client);
    machines_.SetDown(1, false);
    machines_.SetDown(2, false);
  }
}

// tests/sim/rebuild_sim_test.cc does so in all orders, and has them die.
TEST_F(RebuildTest, TwoAtOnceDoNoHarm) {
  ASSERT_OK(machines_.Format());
  const auto one = Open();
  Fill(*one);
  const auto two = Open();
  machines_.Replace(kLost);
  int done = 0;
  for (Cluster* cluster : {one.get(), two.get()}) {
    sim_.Spawn("rebuild", [&, cluster] {
      const auto report = Rebuild(*cluster, {.claim = false});
      if (report.has_value()) {
        ++done;
      } else {
        EXPECT_FAILS(report, EEXIST);
      }
    });
  }
  sim_.Run();
  EXPECT_GE(done, 1);
  machines_.SetDown(1, true);
  machines_.SetDown(2, true);
  ExpectAllIsThere(*one);
}

TEST_F(RebuildTest, TheSecondOfTwoIsToldWhoIsAtWork) {
  ASSERT_OK(machines_.Format());
  const auto one = Open();
  Fill(*one);
  const auto two = Open();
  machines_.Replace(kLost);
  std::optional<Status> second;
  RebuildOptions options;
  options.progress = [&](std::string_view, double) {
    if (second.has_value()) return;
    second = Status();
    const Time begin = sim_.Now();
    const auto report = Rebuild(*two);
    second = report.has_value() ? Status() : report.error();
    EXPECT_LT(sim_.Now() - begin, seconds(10));
  };
  ASSERT_OK(Rebuild(*one, options));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->code(), EBUSY);
  ExpectMessage(*second, fmt::format("drive 4 is being rebuilt by process {} on ", getpid()));
  ExpectMessage(*second, " since ");
  EXPECT_TRUE(IsMet(*two));
}

// A process that is stopped for long enough is taken for dead; when it goes on it fails cleanly.
TEST_F(RebuildTest, WhoWasTakenForDeadFailsWhenItGoesOn) {
  ASSERT_OK(machines_.Format());
  const auto one = Open();
  Fill(*one);
  const auto two = Open();
  machines_.Replace(kLost);
  bool done = false;
  RebuildOptions options;
  options.progress = [&](std::string_view phase, double) {
    if (phase != "restoring registers" || std::exchange(done, true)) return;
    // As if it had not been renewed all the time.
    const RegisterName name{kMapGroup, DriveClaimKey(kLost)};
    for (bool is_gone = false; !is_gone;) {
      const auto seen = two->registers().Read(name);
      ASSERT_OK(seen);
      const ChangeOutcome gone = two->registers().Change(name, *seen, std::nullopt);
      ASSERT_OK(gone);
      is_gone = gone.applied();  // it may have been renewed just now
    }
    ASSERT_OK(Rebuild(*two));
    sim_.Sleep(seconds(10));
  };
  const auto report = Rebuild(*one, options);
  EXPECT_TRUE(done);
  ASSERT_FAILS(report, EBUSY);
  ExpectMessage(report.error(), "this process stood still, and somebody else took over");
  EXPECT_TRUE(IsMet(*Open()));
  machines_.SetDown(1, true);
  machines_.SetDown(2, true);
  ExpectAllIsThere(*Open());
}

// The old drive again -----------------------------------------------------------------------------

TEST_F(RebuildTest, AnOldDriveThatIsPluggedInAgainIsRefused) {
  ASSERT_OK(machines_.Format());
  const auto client = Open();
  Fill(*client);
  const auto old = machines_.Replace(kLost);
  ASSERT_OK(Rebuild(*client));
  Change(*client, "k1", "of which the old one knows nothing");
  machines_.Plug(kLost, old);

  EXPECT_FALSE(IsMet(*client));
  const auto cluster = Open();
  EXPECT_FALSE(IsMet(*cluster));
  const auto statuses = cluster->Drives(seconds(1));
  ExpectMessage(statuses[kLost - 1].info.error(),
                "it is an old drive 4, in whose place another one came");
  ExpectAllIsThere(*cluster);

  const Status status = Rebuild(*cluster).error();
  EXPECT_EQ(status.code(), EINVAL);
  ExpectMessage(status, "Erase it before it is used again");
}

// Also where it keeps the registers that say so, and others that know better are away.
TEST_F(RebuildTest, AnOldDriveCannotHideThatItWasReplaced) {
  ASSERT_OK(machines_.Format());
  Fill(*Open());
  const auto old = machines_.Replace(kLost);
  machines_.SetDown(1, true);
  ASSERT_OK(Rebuild(*Open()));
  machines_.Plug(kLost, old);
  machines_.SetDown(1, false);
  for (const auto& [one, two] : {std::pair<DriveId, DriveId>{2, 3}, {2, 5}, {3, 5}}) {
    machines_.SetDown(one, true);
    machines_.SetDown(two, true);
    // One that voted, one that did not, and the old one: too few, once the old one is refused.
    EXPECT_FAILS(machines_.Open(), EIO);
    machines_.SetDown(one, false);
    EXPECT_FALSE(IsMet(*Open()));
    machines_.SetDown(two, false);
  }
}

// Refusals ----------------------------------------------------------------------------------------

TEST_F(RebuildTest, ADriveInServiceIsNotRebuilt) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  const Status status = Rebuild(*cluster).error();
  EXPECT_EQ(status.code(), EEXIST);
  ExpectMessage(status, "drive 4 is in service: there is nothing to rebuild");
  machines_.Replace(kLost);
  ASSERT_OK(Rebuild(*cluster));
  EXPECT_FAILS(Rebuild(*cluster), EEXIST);
}

TEST_F(RebuildTest, ADriveThatTheClusterDoesNotHaveIsNotRebuilt) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  const Status status = RebuildDrive(*cluster, machines_.Factory(), 99).error();
  EXPECT_EQ(status.code(), EINVAL);
  ExpectMessage(status, "the cluster 'test' has no drive 99");
}

TEST_F(RebuildTest, TheDriveMustAnswer) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  machines_.Replace(kLost);
  machines_.SetDown(kLost, true);
  const Status status = Rebuild(*cluster).error();
  EXPECT_EQ(status.code(), EIO);
  ExpectMessage(status, "drive 4 must answer: down");
}

TEST_F(RebuildTest, AnotherDriveOfTheClusterIsNotTakenForIt) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  machines_.Replace(kLost);
  const DriveFactory plain = machines_.Factory();
  const DriveFactory wrong = [&](DriveConfig config, std::string key, IdentityCheck check) {
    config.addresses = {"memory:2"};
    return plain(config, key, check);
  };
  const Status status = RebuildDrive(*cluster, wrong, kLost).error();
  EXPECT_EQ(status.code(), EINVAL);
  ExpectMessage(status, "drive 4: it is drive 2 of the cluster, not drive 4");
}

TEST_F(RebuildTest, ADriveOfAnotherClusterOfThisNameIsNotTaken) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  Superblock block = SuperblockOf(kLost);
  block.cluster_uuid = "another cluster!";
  machines_.Replace(kLost);
  Put(SuperblockKey("test"), block.Encode());
  EXPECT_FAILS(Rebuild(*cluster), EINVAL);
}

TEST_F(RebuildTest, ADriveWithADamagedSuperblockIsNotTaken) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  machines_.Replace(kLost);
  Put(SuperblockKey("test"), "what is this?");
  const Status status = Rebuild(*cluster).error();
  EXPECT_EQ(status.code(), EBADMSG);
  ExpectMessage(status, "Erase it before it is rebuilt");
}

TEST_F(RebuildTest, ADriveWithRecordsOfTheClusterIsNotTaken) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  machines_.Replace(kLost);
  Put(ClusterPrefix("test") + "Dshard", "from some time");
  const Status status = Rebuild(*cluster, {.force = true}).error();
  EXPECT_EQ(status.code(), EEXIST);
  ExpectMessage(status, "drive 4 has no superblock, but holds records of the cluster 'test'");
}

TEST_F(RebuildTest, RecordsOfOthersStayWhereThatIsWanted) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  machines_.Replace(kLost);
  const std::string photos = ClusterPrefix("photos") + "Dshard";
  Put(photos, "of the family");
  const Status status = Rebuild(*cluster).error();
  EXPECT_EQ(status.code(), EEXIST);
  ExpectMessage(status, "drive 4 holds records of the cluster 'photos'; nothing was changed");
  ASSERT_OK(Rebuild(*cluster, {.force = true}));
  EXPECT_EQ(Records(machines_.memory(kLost), photos).size(), 1u);
}

// A drive that was being rebuilt when it was lost in its turn, and comes back after the next one.
TEST_F(RebuildTest, AHalfRebuiltDriveOfEarlierIsNotTaken) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  machines_.Replace(kLost);
  RebuildOptions cancelled;
  cancelled.is_cancelled = [] { return true; };
  EXPECT_FAILS(Rebuild(*cluster, cancelled), EINTR);
  const auto half = machines_.Replace(kLost);
  ASSERT_OK(Rebuild(*cluster));
  machines_.Plug(kLost, half);
  EXPECT_FALSE(IsMet(*cluster));
  EXPECT_FALSE(IsMet(*Open()));
  EXPECT_FAILS(Rebuild(*cluster), EINVAL);
}

TEST_F(RebuildTest, WhereRegistersHaveOneReplicaNothingCanBeRebuilt) {
  TestCluster machines(sim_, {.drives = 3, .layout = {1, 0, 64 << 10}, .replicas = 1});
  ASSERT_OK(machines.Format());
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  const Status status = RebuildDrive(**cluster, machines.Factory(), 3).error();
  EXPECT_EQ(status.code(), ENOTSUP);
  ExpectMessage(status, "is nowhere else");
}

// Sweeping ----------------------------------------------------------------------------------------

TEST_F(RebuildTest, DrivesThatWereAwayCatchUp) {
  ASSERT_OK(machines_.Format());
  const auto cluster = Open();
  machines_.SetDown(2, true);
  Fill(*cluster);
  const auto partly = SweepRegisters(*cluster);
  ASSERT_OK(partly);
  EXPECT_GE(partly->unheard, 40u);
  machines_.SetDown(2, false);
  const auto report = SweepRegisters(*cluster);
  ASSERT_OK(report);
  EXPECT_GE(report->behind, 40u);
  EXPECT_EQ(report->failed, 0u);
  EXPECT_EQ(report->unheard, 0u);
  const auto again = SweepRegisters(*cluster);
  ASSERT_OK(again);
  EXPECT_EQ(again->registers, report->registers);
  EXPECT_EQ(again->behind, 0u);

  const auto there = RegistersOn(machines_.memory(2));
  for (const auto& [key, record] : RegistersOn(machines_.memory(1))) {
    ASSERT_TRUE(there.contains(key));
    EXPECT_EQ(there.at(key).version, record.version);
    EXPECT_EQ(there.at(key).value.text(), record.value.text());
  }
}

}  // namespace
}  // namespace pinstripe
