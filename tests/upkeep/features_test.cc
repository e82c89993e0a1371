// Features of the drive map under a cluster that is in use: what this version does not know, and
// may ignore, is handed on; what must be understood shuts it out, and it changes nothing any more.

#include "cluster/map/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cluster/beside.h"
#include "cluster/gather.h"
#include "cluster/kept_layout.h"
#include "cluster/map/history.h"
#include "cluster/map_group.h"
#include "cluster/membership/comparison.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/epoch_change.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"
#include "upkeep/stop.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kSection("\0\xff\x01 its own", 11);
const Feature kIgnorable{"made-up.ignorable", FeatureKind::kMayBeIgnored, kSection};
const Feature kRequired{"made-up", FeatureKind::kMustBeUnderstood, kSection};
constexpr std::string_view kSentence =
    "the cluster 'test' uses the feature 'made-up', which must be understood, and which this "
    "version of pinstripe does not know: use a newer pinstripe";

class FeaturesTest : public FsTest {
 protected:
  FeaturesTest() : FsTest({.drives = 7, .layout = {2, 1, 64 << 10}, .groups = 16, .replicas = 3}) {
    SetLogLevel(LogLevel::kError);
    new_drive_ = machines_.config().drives.back();
    machines_.config().drives.pop_back();
  }

  void SetUp() override {
    FsTest::SetUp();
    SetLogLevel(LogLevel::kError);
    contents_ = Pattern(1, 3 * kTestBlock + 77);
    Make("file", contents_);
    Make("small", "a few bytes");
  }

  // As another version makes epochs: one more, with the same drives and these bytes; and the drives
  // refuse everybody who has not heard of it.
  void PutEpoch(Epoch epoch, const std::string& bytes) {
    ASSERT_TRUE(admin_->registers()
                    .Change({kMapGroup, EpochKey(epoch)}, {}, bytes, Durability::kWriteThrough)
                    .applied());
    Gather<Status> gather(sim_);
    for (DriveId id = 1; id <= 6; ++id) {
      machines_.memory(id).SetClusterVersion(ClusterVersionOf(epoch), Time::max(), gather.Ask(id));
    }
    while (const auto answer = gather.Next(Time::max())) ASSERT_OK(answer->value);
  }
  DriveMap NextWith(std::vector<Feature> features) {
    DriveMap next = admin_->map();
    ++next.epoch;
    next.features = std::move(features);
    return next;
  }
  void OpenAdmin() {
    auto opened = machines_.Open();
    ASSERT_OK(opened);
    admin_ = *std::move(opened);
  }
  void BeginEpochWith(std::vector<Feature> features) {
    OpenAdmin();
    const DriveMap next = NextWith(std::move(features));
    PutEpoch(next.epoch, next.Encode());
  }

  // All records of all drives.
  std::map<std::string, std::string> Everything() {
    std::map<std::string, std::string> records;
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      std::string first(kLowestKey);
      for (bool more = true; more;) {
        Gather<Result<RangeRecords>> gather(sim_);
        machines_.memory(id).ListRecords(first, std::string(kMaxKeyBytes, '\xff'), kMaxRangeRecords,
                                         false, kMaxRegisterBytes, Time::max(), gather.Ask(0));
        const auto page = std::move(gather.Next(Time::max())->value);
        EXPECT_OK(page);
        for (const RangeRecord& each : page->records) {
          records[fmt::format("{} {}", id, each.key)] =
              each.record.version + "/" + std::string(each.record.value.text());
        }
        more = page->more && !page->records.empty();
        if (more) first = page->records.back().key + '\0';
      }
    }
    return records;
  }

  template <typename T>
  static Status StatusOf(const Result<T>& result) {
    return result.has_value() ? Status() : result.error();
  }
  static Status StatusOf(const Status& status) { return status; }
  template <typename R>
  static void ExpectRefused(const R& result, const char* what) {
    const Status status = StatusOf(result);
    EXPECT_EQ(status.code(), EIO) << what << ": " << status.message();
    EXPECT_THAT(std::string(status.message()), HasSubstr(kSentence)) << what;
  }

  DriveConfig new_drive_;
  std::string contents_;
  std::unique_ptr<Cluster> admin_;
};

// ---- That this version knows

// Who is interrupted between making the epoch and telling everybody has made it all the same.
// Nobody uses the feature, until somebody ends what was begun.
TEST_F(FeaturesTest, OneThatWasHalfTakenIntoUseIsUsedWhenTheNextOneHasEndedThat) {
  OpenAdmin();
  EpochChangeOptions options;
  options.is_cancelled = [&] { return admin_->map().epoch == 2; };
  const std::vector<Feature> features{NewFeature(kGapsFeature)};
  EXPECT_FALSE(UseFeatures(*admin_, features, options).ok());
  ASSERT_EQ(admin_->map().features, features);
  EXPECT_FALSE(admin_->IsSettled());
  EXPECT_FALSE(MayHaveGaps(*admin_));
  ASSERT_OK(UseFeatures(*admin_, features));
  EXPECT_TRUE(admin_->IsSettled());
  EXPECT_TRUE(MayHaveGaps(*admin_));
  EXPECT_EQ(admin_->map().epoch, 2u);
  // A change of drives that lasts is no reason to do without.
  EpochChangeOptions stopped;
  stopped.is_cancelled = [&] { return admin_->map().epoch == 3; };
  EXPECT_FALSE(
      ChangeDrives(*admin_, machines_.Factory(), {{.id = 3, .weight = 300}}, stopped).has_value());
  EXPECT_EQ(admin_->map().epoch, 3u);
  EXPECT_TRUE(MayHaveGaps(*admin_));
  ASSERT_OK(SettleEpoch(*admin_));
}

// ---- That may be ignored

TEST_F(FeaturesTest, WhatMayBeIgnoredIsHandedOnByteForByte) {
  BeginEpochWith({kIgnorable});
  host_ = {};
  // Another weight, a drive that goes, one that comes, and an epoch of the same drives.
  OpenAdmin();
  ASSERT_EQ(admin_->map().features, std::vector{kIgnorable});
  ASSERT_OK(ChangeDrives(*admin_, machines_.Factory(), {{.id = 3, .weight = 101}}));
  ASSERT_OK(ChangeDrives(*admin_, machines_.Factory(),
                         {{.id = 2, .weight = 100, .state = DriveState::kDraining}}));
  machines_.config().drives.push_back(new_drive_);
  OpenAdmin();
  ASSERT_OK(ChangeDrives(*admin_, machines_.Factory(), {{.id = new_drive_.id, .weight = 100}}));
  ASSERT_OK(RenewEpoch(*admin_));
  ASSERT_EQ(admin_->map().epoch, 6u);
  for (Epoch epoch = 2; epoch <= 6; ++epoch) {
    const auto value = admin_->registers().Read({kMapGroup, EpochKey(epoch)});
    ASSERT_OK(value);
    const auto map = DriveMap::Decode(*value->value);
    ASSERT_OK(map);
    EXPECT_EQ(map->features, std::vector{kIgnorable}) << epoch;
  }
  // And by the history, by which the next ones open it.
  const auto history = admin_->registers().Read({kMapGroup, HistoryKey()});
  ASSERT_OK(history);
  ASSERT_TRUE(history->value);
  const auto epochs = DecodeHistory(*history->value);
  ASSERT_OK(epochs);
  EXPECT_TRUE(epochs->front().features.empty());
  EXPECT_EQ(epochs->back().features, std::vector{kIgnorable});
  host_ = NewHost();
  fs_ = host_.fs.get();
  EXPECT_EQ(host_.cluster->map().features, std::vector{kIgnorable});
  EXPECT_TRUE(Contents("/file") == contents_);
}

TEST_F(FeaturesTest, WhoRunsGoesOnWithWhatMayBeIgnored) {
  BeginEpochWith({kIgnorable});
  Make("another", contents_);
  EXPECT_TRUE(Contents("/file") == contents_);
  EXPECT_OK(host_.cluster->Replicas(kMapGroup).refused);
  EXPECT_EQ(host_.cluster->map().features, std::vector{kIgnorable});
}

TEST_F(FeaturesTest, StatusListsThem) {
  EXPECT_THAT(SurveyText(SurveyOf(*host_.cluster)), HasSubstr("\nfeatures  none\n"));
  BeginEpochWith({kIgnorable, {"made-up.other", FeatureKind::kMayBeIgnored, ""}});
  const Survey survey = SurveyOf(*host_.cluster);
  EXPECT_THAT(SurveyText(survey),
              HasSubstr("\nfeatures  made-up.ignorable (unknown here, may be ignored), "
                        "made-up.other (unknown here, may be ignored)\n"));
  const auto features = nlohmann::json::parse(SurveyJson(survey))["features"];
  ASSERT_EQ(features.size(), 2u);
  EXPECT_EQ(features[0],
            (nlohmann::json{{"name", "made-up.ignorable"}, {"required", false}, {"known", false}}));
}

// ---- That must be understood

TEST_F(FeaturesTest, WhoDoesNotKnowWhatMustBeUnderstoodDoesNotOpenTheCluster) {
  BeginEpochWith({kRequired, kIgnorable});
  const auto before = Everything();
  const Status refused = machines_.Open().error();
  EXPECT_EQ(refused.code(), ENOTSUP);
  EXPECT_EQ(refused.message(), kSentence);
  EXPECT_EQ(Everything(), before);
}

// It was in use all the time, and learns of it from the drives.
TEST_F(FeaturesTest, WhoRunsLeavesTheClusterAlone) {
  const auto attributes = fs_->Resolve("/file");
  ASSERT_OK(attributes);
  const auto file = fs_->Open(attributes->inode, FileSystem::Access::kRead);
  ASSERT_OK(file);
  EXPECT_TRUE(ReadAll(**file) == contents_);
  std::mutex mutex;
  std::string log;
  SetLogSink([&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    log += std::string(line) + "\n";
  });
  BeginEpochWith({kRequired});
  Cluster& cluster = *host_.cluster;
  const auto before = Everything();

  ExpectRefused(fs_->MakeDirectory(kRootInode, "new", 0755, {}), "make a directory");
  EXPECT_EQ(cluster.map().epoch, 1u);
  ExpectRefused(cluster.Replicas(kMapGroup).refused, "the cluster");
  ExpectRefused(cluster.Refresh(), "look for epochs");
  ExpectRefused(fs_->Resolve("/small"), "look a name up");
  ExpectRefused(fs_->ReadDirectory(kRootInode, "", 10, true), "list");
  ExpectRefused(cluster.registers().Read({kMapGroup, LayoutKey()}), "read of the map's group");
  ExpectRefused(KeepLayout(cluster.registers(), cluster.config()), "keep a layout");
  ExpectRefused(KeepHistory(cluster.registers(), cluster.config()), "keep the history");
  ExpectRefused(cluster.StripeDrives(1, 1, 0, {2, 1}), "look for shards");
  ExpectRefused(RenewEpoch(cluster), "make an epoch");
  ExpectRefused(SettleEpoch(cluster), "settle an epoch");
  ExpectRefused(ChangeDrives(cluster, machines_.Factory(), {{.id = 3, .weight = 101}}),
                "change a drive");
  ExpectRefused(cluster.LearnStarts(), "learn who has a say");
  ExpectRefused(MayStop(cluster, SurveyOf(cluster), {"1"}), "whether a drive may stop");

  Repairer repairer(cluster, {});
  EXPECT_FALSE(repairer.Run().check.not_checked.empty());
  Collector collector(cluster, {});
  (void)collector.Run();
  (void)CompareDrives(cluster);
  sim_.Sleep(std::chrono::minutes(5));
  EXPECT_EQ(Everything(), before) << "somebody was at work";

  SetLogSink(nullptr);
  const std::string_view line = "this process leaves the cluster alone";
  const size_t at = log.find(line);
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find(line, at + 1), std::string::npos) << "it is said once: " << log;
  EXPECT_THAT(log, HasSubstr("made-up"));
}

TEST_F(FeaturesTest, StatusOfWhoRunsSaysWhy) {
  BeginEpochWith({kRequired});
  const Survey survey = SurveyOf(*host_.cluster);
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  EXPECT_EQ(survey.drives.size(), 6u);
  EXPECT_THAT(SurveyText(survey), AllOf(HasSubstr("health   unavailable"), HasSubstr(kSentence)));
  EXPECT_THAT(std::string(nlohmann::json::parse(SurveyJson(survey))["health"]["reason"]),
              HasSubstr(kSentence));
}

// A write that is under way is refused by the drives, and its file is not changed.
TEST_F(FeaturesTest, AWriteUnderWayIsNotCommitted) {
  const auto attributes = fs_->Resolve("/file");
  ASSERT_OK(attributes);
  const auto file = fs_->Open(attributes->inode, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  const std::string other = Pattern(2, kTestBlock);
  BeginEpochWith({kRequired});
  Status status = StatusOf((*file)->Write(0, AsBytes(other)));
  if (status.ok()) status = (*file)->Sync();
  ExpectRefused(status, "a write and its sync");
}

// An epoch is as it was made; what counts is what the newest says.
TEST_F(FeaturesTest, WhatIsUsedNoMoreKeepsNobodyOut) {
  BeginEpochWith({kRequired});
  EXPECT_FAILS(machines_.Open(), ENOTSUP);
  DriveMap without = NextWith({});
  ++without.epoch;
  PutEpoch(without.epoch, without.Encode());
  host_ = NewHost();
  fs_ = host_.fs.get();
  EXPECT_EQ(host_.cluster->map().epoch, 3u);
  EXPECT_TRUE(host_.cluster->map().features.empty());
  EXPECT_TRUE(Contents("/file") == contents_);
}

// ---- Of a format that is not known

// It is no damage of what was asked for.
TEST_F(FeaturesTest, ALaterFormatIsNoDamageOfAnInode) {
  OpenAdmin();
  std::string bytes = NextWith({}).Encode();
  bytes[0] = 9;
  PutEpoch(2, bytes);
  const Status status = StatusOf(fs_->Resolve("/small"));
  EXPECT_EQ(status.code(), EIO);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the drive map has changed, and cannot be read"),
                    HasSubstr("format 9 is not known here")));
  const Status refused = machines_.Open().error();
  EXPECT_EQ(refused.code(), EBADMSG);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("format 9 is not known here"));
}

}  // namespace
}  // namespace pinstripe
