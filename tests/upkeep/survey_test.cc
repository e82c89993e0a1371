#include "upkeep/survey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pinstripe {
namespace {

using testing::HasSubstr;
using testing::Not;

// 4+2 on eight drives, names on five: all of it up.
Survey EightDrives() {
  Survey survey;
  survey.config.name = "example";
  survey.config.layout = {.data_shards = 4, .parity_shards = 2, .shard_bytes = 1 << 20};
  survey.config.replicas = 5;
  survey.config.drives.resize(8);
  survey.uuid = std::string(16, '\x5a');
  survey.epoch = 1;
  survey.active = 8;
  survey.space = SpaceInfo{.raw_bytes = 8'000'000'000,
                           .raw_used_bytes = 80'000'000,
                           .usable_bytes = 5'333'333'333,
                           .usable_free_bytes = 5'280'000'000};
  for (DriveId id = 1; id <= 8; ++id) {
    survey.drives.push_back(
        {.id = id,
         .address = fmt::format("127.0.0.1:{}", 8120 + id),
         .domain = "",
         .info = DriveInfo{
             .capacity_bytes = 1'000'000'000, .portion_full = 0.01, .temperature_celsius = 31}});
  }
  return survey;
}

void Lose(Survey& survey, int count) {
  for (int i = 0; i < count; ++i) {
    survey.drives[i].info = tl::unexpected(
        Status(EHOSTUNREACH, "connection refused").OfDrive(fmt::format("drive {} (h:1)", i + 1)));
  }
}

TEST(Health, OneLostDriveIsDegradedAndMoreThanToleratedIsUnavailable) {
  for (const auto& [lost, health] : std::map<int, Health>{{0, Health::kHealthy},
                                                          {1, Health::kDegraded},
                                                          {2, Health::kDegraded},
                                                          {3, Health::kUnavailable}}) {
    Survey survey = EightDrives();
    Lose(survey, lost);
    EXPECT_EQ(HealthOf(survey), health) << lost;
  }
}

TEST(Health, NamesOnThreeDrivesSurviveOneLossOnly) {
  Survey survey = EightDrives();
  survey.config.replicas = 3;
  Lose(survey, 2);
  EXPECT_EQ(survey.Tolerated(), 1u);
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
}

TEST(Health, AClusterThatCannotBeOpenedIsUnavailableEvenIfAllDrivesAnswer) {
  Survey survey = EightDrives();
  survey.opened = Status(EIO, "two drives claim to be drive 3");
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  EXPECT_THAT(SurveyText(survey), HasSubstr("unavailable: two drives claim to be drive 3"));
}

TEST(Health, ADriveWhoseStoreHasFailedIsNoRedundancy) {
  Survey survey = EightDrives();
  survey.drives[4].info->failure = "it could not sync";
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
  EXPECT_THAT(SurveyText(survey), HasSubstr("FAILED: it could not sync"));
  const auto json = nlohmann::json::parse(SurveyJson(survey));
  EXPECT_EQ(json["drives"][4]["up"], false);
  EXPECT_EQ(json["drives"][4]["reason"], "it could not sync");
  EXPECT_EQ(json["health"]["drives_down"], 1);
}

TEST(Health, DrivesThatAreNearlyFullOrFullAreToldOf) {
  Survey survey = EightDrives();
  survey.drives[1].info->portion_full = 0.849;
  EXPECT_EQ(HealthOf(survey), Health::kHealthy);
  survey.drives[1].info->portion_full = 0.85;
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
  EXPECT_THAT(SurveyText(survey), HasSubstr("degraded: drives that are nearly full: 1\n"));
  EXPECT_THAT(SurveyText(survey), HasSubstr("up, nearly full\n"));
  survey.drives[2].info->portion_full = 0.95;
  EXPECT_THAT(SurveyText(survey),
              HasSubstr("degraded: drives that are full: 1; drives that are nearly full: 1\n"));
  EXPECT_THAT(SurveyText(survey), HasSubstr("up, full\n"));
  const auto json = nlohmann::json::parse(SurveyJson(survey));
  EXPECT_EQ(json["drives"][1]["nearly_full"], true);
  EXPECT_EQ(json["drives"][2]["full"], true);
  EXPECT_EQ(json["drives"][3]["full"], false);
}

TEST(SurveyText, SaysHowMuchRedundancyIsUsedAndWhyADriveIsDown) {
  Survey survey = EightDrives();
  EXPECT_THAT(SurveyText(survey), HasSubstr("health   healthy\n"));
  Lose(survey, 1);
  const std::string text = SurveyText(survey);
  EXPECT_THAT(text, HasSubstr("degraded: 1 of 2 tolerated failures used"));
  EXPECT_THAT(text, HasSubstr("DOWN: connection refused"));
  EXPECT_THAT(text, HasSubstr("usable   5.3 GB free of 5.3 GB"));
  EXPECT_THAT(text, HasSubstr("5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a"));
}

TEST(SurveyJson, HoldsTheSameForPrograms) {
  Survey survey = EightDrives();
  Lose(survey, 3);
  const auto json = nlohmann::json::parse(SurveyJson(survey));
  EXPECT_EQ(json["health"]["state"], "unavailable");
  EXPECT_EQ(json["health"]["drives_down"], 3);
  EXPECT_EQ(json["space"]["raw_bytes"], 8'000'000'000u);
  EXPECT_EQ(json["drives"][0]["up"], false);
  EXPECT_EQ(json["drives"][0]["reason"], "connection refused");
  EXPECT_EQ(json["drives"][7]["used_bytes"], 10'000'000);
}

TEST(SurveyJson, IsJsonWhateverADriveSays) {
  Survey survey = EightDrives();
  survey.drives[0].info = tl::unexpected(Status(EIO, "\xff\xfe\"\n"));
  EXPECT_FALSE(nlohmann::json::parse(SurveyJson(survey))["drives"][0]["reason"].empty());
}

TEST(BytesText, UsesTheUnitsOnTheLabel) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(1000), "1.0 kB");
  EXPECT_EQ(BytesText(999'960), "1.0 MB");
  EXPECT_EQ(BytesText(4'000'000'000'000), "4.0 TB");
  EXPECT_EQ(BytesText(UINT64_MAX), "18.4 EB");
}

}  // namespace
}  // namespace pinstripe
