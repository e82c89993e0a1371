// Formatting and opening a cluster, and every way in which that is refused.

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/gather.h"
#include "cluster/stripes/shard.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() : sim_(1), machines_(sim_, {}) {}

  static void ExpectMessage(const Status& status, std::string_view part) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }

  // Writes and reads a register and a stripe.
  void ExpectWorks(Cluster& cluster, uint64_t object) {
    const RegisterName name{cluster.GroupOfObject(object), "I" + std::to_string(object)};
    const auto outcome = cluster.registers().Change(name, {}, "an inode");
    ASSERT_OK(outcome);
    EXPECT_TRUE(outcome.applied());
    const auto value = cluster.registers().Read(name);
    ASSERT_OK(value);
    EXPECT_EQ(value->value, "an inode");

    const StripeLayout layout = cluster.config().layout;
    auto buffer = std::make_shared<StripeBuffer>(layout);
    CopyBytes(buffer->data(), AsBytes("hello"));
    const StripeId id{object, 0, {}};
    const auto place = cluster.stripes().StartWrite(id, buffer, 5)->Wait();
    ASSERT_OK(place);
    std::string text(5, '?');
    ASSERT_OK(cluster.stripes().Read(
        {id, layout, 5, &*place, 0, {reinterpret_cast<std::byte*>(text.data()), 5}}));
    EXPECT_EQ(text, "hello");
  }

  // What lies under a key of a drive, past all faults.
  Result<Record> Stored(DriveId drive, const std::string& key) {
    Gather<Result<Record>> gather(sim_);
    machines_.memory(drive).Get(key, {}, Time::max(), gather.Ask(0));
    return std::move(gather.Next(Time::max())->value);
  }
  void Put(DriveId drive, const std::string& key, const std::string& value) {
    Gather<Status> gather(sim_);
    machines_.memory(drive).Put(
        {.key = key, .value = SharedBytes(value), .tag = RecordTag(Crc32c(AsBytes(value)))},
        Time::max(), gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  Superblock SuperblockOf(DriveId drive) {
    return *Superblock::Decode(Stored(drive, SuperblockKey("test"))->value.text());
  }

  SimRuntime sim_;
  TestCluster machines_;
};

TEST_F(ClusterTest, WhatWasFormattedCanBeOpenedByAnyNumberOfClients) {
  ASSERT_OK(machines_.Format());
  const auto one = machines_.Open();
  const auto two = machines_.Open();
  ASSERT_OK(one);
  ASSERT_OK(two);
  EXPECT_EQ((*one)->uuid().size(), 16u);
  EXPECT_EQ((*one)->uuid(), (*two)->uuid());
  EXPECT_EQ((*one)->map().epoch, 1u);
  EXPECT_EQ((*one)->map().groups, 64u);
  EXPECT_EQ((*one)->map().replicas, 5);
  EXPECT_EQ((*one)->map().drives.size(), 8u);
  EXPECT_EQ((*one)->CurrentEpoch(), 1u);
  EXPECT_FAILS((*one)->StripeDrives(2, 1, 0, {4, 2}), EIO);
  EXPECT_EQ((*one)->FindDrive(99), nullptr);
  ExpectWorks(**one, 1);
  ExpectWorks(**two, 2);
}

TEST_F(ClusterTest, WorksUnderEveryGeometryAndNumberOfDrives) {
  for (const auto& [drives, layout] : {std::pair<size_t, StripeLayout>{1, {1, 0, kCellBytes}},
                                       {3, {1, 2, kCellBytes}},
                                       {12, {10, 2, kCellBytes}},
                                       {36, {32, 4, kCellBytes}}}) {
    SCOPED_TRACE(drives);
    TestCluster machines(sim_, {.drives = drives, .layout = layout});
    ASSERT_OK(machines.Format());
    const auto cluster = machines.Open();
    ASSERT_OK(cluster);
    ExpectWorks(**cluster, 1);
  }
}

TEST_F(ClusterTest, DrivesThatAreAwayAreLeftForLater) {
  ASSERT_OK(machines_.Format());
  machines_.SetDown(2, true);
  machines_.SetDown(7, true);
  const Time begin = sim_.Now();
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  EXPECT_LT(sim_.Now() - begin, seconds(3));
  ExpectWorks(**cluster, 1);
  machines_.SetDown(2, false);
  machines_.SetDown(7, false);
  machines_.SetDown(1, true);
  machines_.SetDown(3, true);
  ExpectWorks(**cluster, 2);
}

TEST_F(ClusterTest, DrivesThatComeWithinTheTimeAreWaitedFor) {
  ASSERT_OK(machines_.Format());
  for (DriveId id = 1; id <= 8; ++id) machines_.SetDown(id, true);
  sim_.Spawn("boot", [&] {
    sim_.Sleep(seconds(4));
    for (DriveId id = 1; id <= 8; ++id) machines_.SetDown(id, false);
  });
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  sim_.Run();
}

// Defect 16 of the ancestor: with all drives down at start, limits were undefined.
TEST_F(ClusterTest, NoDriveAtAllIsAClearFailure) {
  ASSERT_OK(machines_.Format());
  for (DriveId id = 1; id <= 8; ++id) machines_.SetDown(id, true);
  const Time begin = sim_.Now();
  const Status status = machines_.Open().error();
  EXPECT_EQ(status.code(), EIO);
  ExpectMessage(status, "no drive of the cluster 'test' can be used: drive 1 (memory:1): ");
  ExpectMessage(status, ". Are they running, and is what cluster.toml says of them right?");
  EXPECT_EQ(status.message().find("drive 1 (memory:1): drive"), std::string::npos)
      << status.message();
  EXPECT_LE(sim_.Now() - begin, seconds(11));
}

TEST_F(ClusterTest, WithoutAMajorityOfTheMapThereIsNoCluster) {
  ASSERT_OK(machines_.Format());
  const std::vector<DriveId> map_drives = SuperblockOf(1).map_drives;
  ASSERT_EQ(map_drives.size(), 5u);
  for (size_t i = 0; i < 3; ++i) machines_.SetDown(map_drives[i], true);
  const Status status = machines_.Open().error();
  EXPECT_EQ(status.code(), EIO);
  ExpectMessage(status, "is on 5 drives, of which 3 must answer, but only 2 do: drive ");
}

TEST_F(ClusterTest, WhatWasNeverFormattedSaysSo) {
  const Status status = machines_.Open().error();
  EXPECT_EQ(status.code(), ENOENT);
  ExpectMessage(status, "no drive of the cluster 'test' is formatted: run `pinstripe format`");
}

TEST_F(ClusterTest, DrivesOfAClusterOfAnotherNameAreNotCalledUnformatted) {
  ASSERT_OK(machines_.Format());
  machines_.SetDown(2, true);
  machines_.config().name = "tset";
  const Status status = machines_.Open().error();
  EXPECT_EQ(status.code(), ENOENT);
  ExpectMessage(
      status,
      "no drive holds the cluster 'tset', but the cluster 'test' is on the drives 1, 3, 4, "
      "5, 6, 7, 8: is the name in cluster.toml right?");
}

TEST_F(ClusterTest, FormattingThatWasNotFinishedSaysSo) {
  ASSERT_OK(machines_.Format());
  const std::string prefix = ClusterPrefix("test") + "R";
  for (DriveId id = 1; id <= 8; ++id) {
    Gather<Status> gather(sim_);
    machines_.memory(id).Delete(prefix + Writer().U32(kMapGroup).Raw("M").U32(1).Take(),
                                Expected::Any(), Durability::kWriteBack, Time::max(),
                                gather.Ask(0));
    gather.Next(Time::max());
  }
  const Status status = machines_.Open().error();
  EXPECT_EQ(status.code(), ENOENT);
  ExpectMessage(status, "has no drive map");
}

// Whoever is about to add or rebuild it need not be alarmed.
TEST_F(ClusterTest, AnEmptyDriveIsNoError) {
  ASSERT_OK(machines_.Format());
  machines_.Replace(4);
  std::string errors;
  std::string all;
  SetLogSink([&](LogLevel level, std::string_view line) {
    (level == LogLevel::kError ? errors : all) += std::string(line) + "\n";
  });
  const auto cluster = machines_.Open();
  SetLogSink(nullptr);
  ASSERT_OK(cluster);
  EXPECT_EQ(errors, "");
  EXPECT_NE(all.find("it is empty. A new one is brought in by"), std::string::npos) << all;
}

TEST_F(ClusterTest, AnEmptyReplacementCountsAsAway) {
  ASSERT_OK(machines_.Format());
  machines_.Replace(4);
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  ExpectWorks(**cluster, 1);
  // Also when it is replaced while the cluster is open: nothing is stored on it.
  machines_.Replace(5);
  for (uint64_t object = 2; object < 12; ++object) ExpectWorks(**cluster, object);
  for (DriveId id : {4, 5}) {
    Gather<Result<std::vector<std::string>>> gather(sim_);
    machines_.memory(id).Range(std::string(1, '\0'), "\xff", 1, false, Time::max(), gather.Ask(0));
    EXPECT_TRUE(gather.Next(Time::max())->value->empty()) << id;
  }
}

// They are away, and nothing is stored on them; all else goes on.
TEST_F(ClusterTest, SwappedDrivesCountAsAway) {
  ASSERT_OK(machines_.Format());
  std::swap(machines_.config().drives[2].addresses, machines_.config().drives[5].addresses);
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  ExpectWorks(**cluster, 1);
  for (const DriveStatus& status : (*cluster)->Drives(std::chrono::seconds(1))) {
    EXPECT_EQ(status.info.has_value(), status.id != 3 && status.id != 6) << status.id;
    if (status.id != 3) continue;
    ExpectMessage(status.info.error(), "it is drive 6 of the cluster, not drive 3");
  }
}

// But where too few are left to know what the cluster is, the reason is named.
TEST_F(ClusterTest, WhereMostDrivesAreWrongTheReasonIsNamed) {
  ASSERT_OK(machines_.Format());
  for (size_t i = 0; i + 1 < machines_.config().drives.size(); i += 2) {
    std::swap(machines_.config().drives[i].addresses, machines_.config().drives[i + 1].addresses);
  }
  const Status status = machines_.Open().error();
  EXPECT_EQ(status.code(), EINVAL);
  ExpectMessage(status, "it is drive 2 of the cluster, not drive 1");
}

TEST_F(ClusterTest, DrivesThatHaveMovedAreFoundWhenTheConfigurationIsReadAgain) {
  ASSERT_OK(machines_.Format());
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  ExpectWorks(**cluster, 1);
  // Two drives change places.
  auto third = machines_.Replace(3);
  auto sixth = machines_.Plug(6, third);
  machines_.Plug(3, sixth);
  const auto count_up = [&] {
    const auto statuses = (*cluster)->Drives(seconds(1));
    return std::count_if(statuses.begin(), statuses.end(),
                         [](const DriveStatus& status) { return status.info.has_value(); });
  };
  EXPECT_EQ(count_up(), 6);
  const DriveLosses before = (*cluster)->CountLosses();
  std::swap(machines_.config().drives[2].addresses, machines_.config().drives[5].addresses);
  ASSERT_OK((*cluster)->Reload());
  EXPECT_EQ(count_up(), 8);
  ExpectWorks(**cluster, 2);
  const DriveLosses after = (*cluster)->CountLosses();
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    EXPECT_EQ(after.at(id) > before.at(id), id == 3 || id == 6) << id;
  }
}

// What the new way needs, as the certificates of those who are believed, lies in files.
TEST_F(ClusterTest, ADiskThatHangsWhileTheConfigurationIsReadAgainHoldsUpNobodyElse) {
  ASSERT_OK(machines_.Format());
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  auto third = machines_.Replace(3);
  auto sixth = machines_.Plug(6, third);
  machines_.Plug(3, sixth);
  std::swap(machines_.config().drives[2].addresses, machines_.config().drives[5].addresses);
  std::vector<std::future<Drive*>> others;
  machines_.on_redirect = [&] {
    others.push_back(std::async(std::launch::async, [&] { return (*cluster)->FindDrive(1); }));
    EXPECT_EQ(others.back().wait_for(seconds(10)), std::future_status::ready);
  };
  ASSERT_OK((*cluster)->Reload());
  EXPECT_EQ(others.size(), 2u);
  machines_.on_redirect = nullptr;
}

TEST_F(ClusterTest, AConfigurationThatCannotBeUsedChangesNothing) {
  ASSERT_OK(machines_.Format());
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  const ClusterConfig good = machines_.config();
  machines_.config().name = "other";
  machines_.config().drives[0].addresses = machines_.config().drives[1].addresses;
  EXPECT_FAILS((*cluster)->Reload(), EINVAL);
  ExpectWorks(**cluster, 1);
  machines_.config() = good;
  machines_.config().layout.data_shards = 0;
  EXPECT_FAILS((*cluster)->Reload(), EINVAL);
  machines_.config() = good;
  machines_.config().drives.pop_back();  // is in use, and stays
  EXPECT_OK((*cluster)->Reload());
  ExpectWorks(**cluster, 2);
  EXPECT_NE((*cluster)->FindDrive(8), nullptr);
}

TEST_F(ClusterTest, ADriveWhoseNewWayCannotBeUsedIsLeftAsItWas) {
  ASSERT_OK(machines_.Format());
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  machines_.config().drives[2].addresses = {"memory:99"};
  const Result<ClusterConfig> reloaded = (*cluster)->Reload();
  EXPECT_FAILS(reloaded, EINVAL);
  ExpectMessage(reloaded.error(), "drive 3 (memory:99): no drive at memory:99");
  EXPECT_TRUE((*cluster)->FindDrive(3)->IsUp());
  ExpectWorks(**cluster, 1);
}

TEST_F(ClusterTest, WithoutASourceNothingIsReadAgain) {
  ASSERT_OK(machines_.Format());
  auto cluster = Cluster::Open(sim_, machines_.config(), machines_.Factory());
  ASSERT_OK(cluster);
  EXPECT_FAILS((*cluster)->Reload(), ENOTSUP);
  ExpectWorks(**cluster, 1);
}

TEST_F(ClusterTest, SettingsThatNeedARestartAreTold) {
  const ClusterConfig before = machines_.config();
  ClusterConfig after = before;
  after.memory_bytes += 1;
  after.drives.clear();
  EXPECT_TRUE(before.FixedSettingsThatDiffer(after).empty());
  after.durable_close = !after.durable_close;
  after.inline_limit += 1;
  EXPECT_EQ(before.FixedSettingsThatDiffer(after),
            (std::vector<std::string>{"layout.inline_limit", "files.close"}));
}

TEST_F(ClusterTest, ADriveOfAnotherClusterOfThisNameCountsAsAway) {
  ASSERT_OK(machines_.Format());
  Superblock block = SuperblockOf(3);
  block.cluster_uuid = "another cluster!";
  Put(3, SuperblockKey("test"), block.Encode());
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  for (uint64_t object = 1; object < 6; ++object) ExpectWorks(**cluster, object);
  for (const DriveStatus& status : (*cluster)->Drives(std::chrono::seconds(1))) {
    EXPECT_EQ(status.info.has_value(), status.id != 3) << status.id;
    if (status.id != 3) continue;
    ExpectMessage(status.info.error(), "it belongs to another cluster of the name 'test'");
  }
}

// Nobody can tell which of two whole clusters of one name is meant.
TEST_F(ClusterTest, WhereNoClusterHasAMajorityItIsRefused) {
  ASSERT_OK(machines_.Format());
  for (DriveId id = 1; id <= 8; ++id) {
    Superblock block = SuperblockOf(id);
    block.cluster_uuid = fmt::format("another clust {}!", id / 2);
    Put(id, SuperblockKey("test"), block.Encode());
  }
  const Status status = machines_.Open().error();
  EXPECT_EQ(status.code(), EINVAL);
  ExpectMessage(status, "the drives belong to different clusters of the name 'test'");
}

// What a flipped bit made of a superblock is damage, not another cluster: the drive is away, no
// more.
TEST_F(ClusterTest, ADamagedSuperblockIsNotBelieved) {
  ASSERT_OK(machines_.Format());
  Superblock block = SuperblockOf(3);
  block.cluster_uuid = "another cluster!";
  Gather<Status> gather(sim_);
  machines_.memory(3).Put(
      {.key = SuperblockKey("test"), .value = SharedBytes(block.Encode()), .tag = "sum!"},
      Time::max(), gather.Ask(0));
  ASSERT_OK(gather.Next(Time::max())->value);
  ASSERT_OK(machines_.Open());
}

TEST_F(ClusterTest, DrivesThatTheConfigurationLacksCountAsAway) {
  ASSERT_OK(machines_.Format());
  std::vector<DriveConfig>& drives = machines_.config().drives;
  const DriveConfig last = drives.back();
  drives.erase(drives.begin() + 6, drives.end());  // two, as may be away: 6 are left for 4+2
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  ExpectWorks(**cluster, 1);
  const std::vector<MissingDrive> missing = (*cluster)->MissingDrives();
  ASSERT_EQ(missing.size(), 2u);
  EXPECT_EQ(missing[0].id, 7);
  EXPECT_EQ(missing[1].id, 8);
  EXPECT_FALSE(missing[0].is_draining);
  EXPECT_EQ(missing[1].keeps_map, std::ranges::count((*cluster)->map_drives(), 8) > 0);
  EXPECT_EQ((MissingDrive{.id = 7}.Text("cluster.toml")),
            "the drive map has it, and cluster.toml does not list it: list it again, or, if it is "
            "lost, give it up with `pinstripe drain`");

  // It is met as soon as it is listed again.
  drives.push_back(last);
  ASSERT_OK((*cluster)->Refresh());
  EXPECT_EQ((*cluster)->MissingDrives().size(), 1u);
  EXPECT_NE((*cluster)->FindDrive(8), nullptr);
  ExpectWorks(**cluster, 2);
}

TEST_F(ClusterTest, AConfigurationThatLacksMoreDrivesThanMayBeAwayIsRefused) {
  ASSERT_OK(machines_.Format());
  machines_.config().drives.resize(5);
  const Status status = machines_.Open().error();
  EXPECT_EQ(status.code(), EINVAL);
  ExpectMessage(status,
                "the drives 6, 7, 8 belong to the cluster 'test', but cluster.toml does not list "
                "them, and no more than 2 may be away");
}

TEST_F(ClusterTest, WhatIsFormattedHasAsManyDrivesAsAStripe) {
  machines_.config().drives.resize(5);
  const Status status = machines_.Format();
  EXPECT_EQ(status.code(), EINVAL);
  ExpectMessage(status, "4 data and 2 parity shards need 6 drives, but only 5 are listed");
}

TEST_F(ClusterTest, AConfigurationThatCannotWorkIsRefusedBeforeAnyDriveIsAsked) {
  machines_.config().layout.shard_bytes = 1000;
  EXPECT_FAILS(machines_.Open(), EINVAL);
  EXPECT_FAILS(machines_.Format(), EINVAL);
}

// Formatting -------------------------------------------------------------------------------------

TEST_F(ClusterTest, FormattingAgainNeedsForceAndErasesEverything) {
  ASSERT_OK(machines_.Format());
  const std::string old_uuid = SuperblockOf(1).cluster_uuid;
  {
    const auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    ExpectWorks(**cluster, 1);
  }
  const Status status = machines_.Format();
  EXPECT_EQ(status.code(), EEXIST);
  ExpectMessage(status, "drive 1 belongs to the cluster 'test' already");
  ExpectMessage(status, "--force");

  ASSERT_OK(machines_.Format({.force = true}));
  EXPECT_NE(SuperblockOf(1).cluster_uuid, old_uuid);
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  ExpectWorks(**cluster, 1);  // the register of object 1 is new again
}

// Defect 5 of the ancestor: clusters on shared drives, the name of one a prefix of the other's.
TEST_F(ClusterTest, ClustersThatShareDrivesDoNotDamageEachOther) {
  ASSERT_OK(machines_.Format());
  const auto first = machines_.Open();
  ASSERT_OK(first);
  ExpectWorks(**first, 1);

  machines_.config().name = "test2";
  EXPECT_FAILS(machines_.Format(), EEXIST);
  ASSERT_OK(machines_.Format({.force = true}));
  const auto second = machines_.Open();
  ASSERT_OK(second);
  ExpectWorks(**second, 1);
  ASSERT_OK(machines_.Format({.force = true}));

  machines_.config().name = "test";
  const auto again = machines_.Open();
  ASSERT_OK(again);
  EXPECT_EQ((*again)->uuid(), (*first)->uuid());
  const auto value = (*again)->registers().Read({(*again)->GroupOfObject(1), "I1"});
  ASSERT_OK(value);
  EXPECT_EQ(value->value, "an inode");
}

TEST_F(ClusterTest, ADriveWithOtherRecordsIsNotFormatted) {
  Put(5, "photos", "of the family");
  const Status status = machines_.Format();
  EXPECT_EQ(status.code(), EEXIST);
  ExpectMessage(status, "drive 5 holds records of something else");
  EXPECT_FAILS(Stored(1, SuperblockKey("test")), ENOENT);
}

TEST_F(ClusterTest, AllDrivesMustAnswerToBeFormatted) {
  machines_.SetDown(6, true);
  const Status status = machines_.Format();
  EXPECT_EQ(status.code(), EIO);
  ExpectMessage(status, "all drives must answer before they are formatted: drive 6");
  EXPECT_FAILS(Stored(1, SuperblockKey("test")), ENOENT);
}

TEST_F(ClusterTest, TwoAddressesOfOneDeviceAreNotTwoDrives) {
  machines_.config().drives[6].addresses = {"memory:2"};
  machines_.config().drives[1].addresses = {"memory:2"};
  EXPECT_FAILS(machines_.Format(), EINVAL);  // said by Check()
  // The same device under another name: known by its serial number.
  const DriveFactory plain = machines_.Factory();
  const DriveFactory aliased = [&](DriveConfig config, std::string key, IdentityCheck check) {
    if (config.addresses.front() == "alias:2") config.addresses = {"memory:2"};
    return plain(config, key, check);
  };
  machines_.config().drives[6].addresses = {"alias:2"};
  const Status status = Cluster::Format(sim_, machines_.config(), aliased, {});
  EXPECT_EQ(status.code(), EINVAL);
  ExpectMessage(status, "drives 2 and 7 are the same device");
}

// Status -----------------------------------------------------------------------------------------

TEST_F(ClusterTest, SpaceIsNetOfParity) {
  ASSERT_OK(machines_.Format());
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  const auto space = (*cluster)->Space();
  ASSERT_OK(space);
  EXPECT_EQ(space->raw_bytes, 8 * MemoryStore::kDefaultCapacity);
  EXPECT_NEAR(static_cast<double>(space->usable_bytes),
              static_cast<double>(space->raw_bytes) * 4 / 6, 10);
  EXPECT_LE(space->usable_free_bytes, space->usable_bytes);

  // A drive that goes away keeps its last figures; nobody at all is a failure.
  machines_.SetDown(1, true);
  sim_.Sleep(seconds(10));
  EXPECT_EQ((*cluster)->Space()->raw_bytes, space->raw_bytes);
  for (DriveId id = 1; id <= 8; ++id) machines_.SetDown(id, true);
  EXPECT_OK((*cluster)->Space());  // fresh enough
  sim_.Sleep(seconds(10));
  EXPECT_FAILS((*cluster)->Space(), EIO);
}

TEST_F(ClusterTest, EveryDriveHasAStatus) {
  ASSERT_OK(machines_.Format());
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  machines_.SetDown(3, true);
  const std::vector<DriveStatus> statuses = (*cluster)->Drives(seconds(1));
  ASSERT_EQ(statuses.size(), 8u);
  EXPECT_EQ(statuses[0].id, 1);
  EXPECT_EQ(statuses[0].address, "memory:1");
  EXPECT_OK(statuses[0].info);
  EXPECT_FAILS(statuses[2].info, EHOSTUNREACH);
}

}  // namespace
}  // namespace pinstripe
