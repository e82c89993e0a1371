#include "upkeep/survey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace pinstripe {
namespace {

using testing::HasSubstr;

DriveMap MapOf(const Survey& survey) {
  DriveMap map;
  map.epoch = 1;
  map.groups = 64;
  map.replicas = static_cast<uint8_t>(survey.config.replicas);
  for (const DriveReport& drive : survey.drives) {
    if (drive.is_added) map.drives.push_back({drive.id, 100, drive.domain, DriveState::kActive});
  }
  return map;
}

// As SurveyOf() does it.
void ComputeMarginOf(Survey& survey) {
  MarginQuestion question;
  question.placements = {std::make_shared<Placement>(MapOf(survey))};
  question.stripes = {survey.config.layout.geometry(), {1, survey.config.layout.parity_shards}};
  question.map_drives = question.placements.back()->RegisterHomes(0);
  for (const DriveReport& drive : survey.drives) {
    if (!drive.info) question.away.insert(drive.id);
    if (drive.info && !drive.IsUp()) question.read_only.insert(drive.id);
  }
  survey.margin = ComputeMargin(question);
}

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
  survey.keeps_layout = true;
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
  ComputeMarginOf(survey);
  return survey;
}

void LoseDrive(Survey& survey, DriveId id) {
  survey.drives[id - 1u].info = tl::unexpected(
      Status(EHOSTUNREACH, "connection refused").OfDrive(fmt::format("drive {} (h:1)", id)));
}

void Lose(Survey& survey, int count) {
  for (DriveId id = 1; id <= count; ++id) LoseDrive(survey, id);
  ComputeMarginOf(survey);
}

TEST(Status, SaysWhenItWillBeFull) {
  Survey survey = EightDrives();
  EXPECT_THAT(SurveyText(survey), Not(HasSubstr("\nfull ")));
  survey.forecast = FillForecast{
      .over = std::chrono::hours(163), .bytes_a_day = 1.2e9, .left = std::chrono::hours(23 * 24)};
  EXPECT_THAT(
      SurveyText(survey),
      HasSubstr("\nfull      in 23.0 days, if it goes on as in the last 6.8 days: 1.2 GB a day\n"));
  survey.forecast->left.reset();
  EXPECT_THAT(SurveyText(survey),
              HasSubstr("\nfull      not, if it goes on as in the last 6.8 days\n"));
}

// Four hosts of two drives.
Survey FourHosts() {
  Survey survey = EightDrives();
  for (DriveReport& drive : survey.drives) {
    drive.domain = fmt::format("host{}", (drive.id + 1) / 2);
  }
  ComputeMarginOf(survey);
  return survey;
}

TEST(Health, OneLostDriveIsDegradedAndMoreThanAnythingStandsIsUnavailable) {
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
  ComputeMarginOf(survey);
  EXPECT_EQ(survey.margin->reading.drives, 1);
  Lose(survey, 2);
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  EXPECT_THAT(SurveyText(survey), HasSubstr("some names can be neither read nor changed"));
}

TEST(Health, AHostThatIsAwayIsDegradedAndItsNameIsSaid) {
  Survey survey = FourHosts();
  EXPECT_THAT(SurveyText(survey), HasSubstr("survives  2 more drives, or 1 more host"));
  LoseDrive(survey, 3);
  LoseDrive(survey, 4);
  ComputeMarginOf(survey);
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
  const std::string text = SurveyText(survey);
  EXPECT_THAT(text, HasSubstr("degraded: all 2 drives of host2 are down"));
  EXPECT_THAT(text,
              HasSubstr("survives  not one more drive, before something cannot be read: first "));
  EXPECT_THAT(text, HasSubstr("host2: 0 of 2 drives up\n"));
  EXPECT_THAT(text, HasSubstr("host3: 2 of 2 drives up, 20.0 MB of 2.0 GB used\n"));
  LoseDrive(survey, 5);
  ComputeMarginOf(survey);
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  EXPECT_THAT(SurveyText(survey), HasSubstr("survives  something is out of reach already"));
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
  ComputeMarginOf(survey);
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
  EXPECT_THAT(SurveyText(survey), HasSubstr("FAILED: it could not sync"));
  EXPECT_THAT(SurveyText(survey), HasSubstr("writes    survive 1 more drive\n"));
  const auto json = nlohmann::json::parse(SurveyJson(survey));
  EXPECT_EQ(json["drives"][4]["up"], false);
  EXPECT_EQ(json["drives"][4]["state"], "failed");
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

// Each has its own name, and its own advice; none of the last three is a drive that is down.
TEST(Health, DrivesThatAreNotInUseAreNotDown) {
  Survey survey = EightDrives();
  survey.drives[5].drain = DrainReport{.retired = true};
  LoseDrive(survey, 6);
  survey.drives[6].drain = DrainReport{.keeps_map = true, .left = DriveContents()};
  survey.drives[7].is_added = false;
  LoseDrive(survey, 8);
  EXPECT_EQ(survey.DrivesDown(), 0u);
  EXPECT_EQ(HealthOf(survey), Health::kHealthy);
  const std::string text = SurveyText(survey);
  EXPECT_THAT(text, HasSubstr(" drained: it may be taken out of the configuration, and away\n"));
  EXPECT_THAT(text, HasSubstr(" drained: it keeps a part of the drive map, and has to stay; "));
  EXPECT_THAT(text, HasSubstr(" not added: `pinstripe expand` brings it in; now: connection re"));
  const auto json = nlohmann::json::parse(SurveyJson(survey));
  EXPECT_EQ(json["drives"][5]["state"], "drained");
  EXPECT_EQ(json["drives"][6]["state"], "drained");
  EXPECT_EQ(json["drives"][7]["state"], "not added");
  // Empty, and nobody has made sure of it yet.
  survey.drives[6].drain = DrainReport{.left = DriveContents()};
  EXPECT_THAT(SurveyText(survey), HasSubstr(" up, draining: nothing is left; "));
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
}

TEST(SurveyText, SaysHowMuchIsDownAndWhy) {
  Survey survey = EightDrives();
  EXPECT_THAT(SurveyText(survey), HasSubstr("health    healthy\n"));
  EXPECT_THAT(SurveyText(survey), HasSubstr("survives  2 more drives, before something"));
  Lose(survey, 1);
  const std::string text = SurveyText(survey);
  EXPECT_THAT(text, HasSubstr("degraded: 1 of 8 drives is down"));
  EXPECT_THAT(text, HasSubstr("survives  1 more drive, before something"));
  EXPECT_THAT(text, HasSubstr("DOWN: connection refused"));
  EXPECT_THAT(text, HasSubstr("usable    5.3 GB free of 5.3 GB"));
  EXPECT_THAT(text, HasSubstr("5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a"));
}

TEST(SurveyText, SaysWhatLacksShardsSurvivesLess) {
  Survey survey = EightDrives();
  survey.listed = LastLook{.at = 1, .lacking = 3};
  const auto says_so =
      HasSubstr("; what lacks shards or copies, or is not at home, may survive less");
  EXPECT_THAT(SurveyText(survey), says_so);
  survey.listed = std::nullopt;
  EXPECT_THAT(SurveyText(survey), testing::Not(says_so));
  survey.places = LastPlaces{.displaced_blocks = 1};
  EXPECT_THAT(SurveyText(survey), says_so);
}

TEST(SurveyText, SaysWhatIsGarbageAndWhatDiffers) {
  Survey survey = EightDrives();
  survey.places = LastPlaces{.at = 1, .unused_shards = 3, .unused_bytes = 3'000'000};
  survey.differences = {{"domain of drive 2", "a", "b", "correct the file"}};
  survey.keeps_layout = false;
  const std::string text = SurveyText(survey);
  EXPECT_THAT(text,
              HasSubstr("3.0 MB in 3 shards of uploads under way, or for `pinstripe collect`"));
  EXPECT_THAT(text, HasSubstr("differs   domain of drive 2 is a in the file and b in the cluster"));
  EXPECT_THAT(text, HasSubstr("`pinstripe config --apply` notes it"));
  EXPECT_EQ(HealthOf(survey), Health::kHealthy);
}

TEST(SurveyText, SaysHowDrivesDo) {
  Survey survey = EightDrives();
  ServiceTimes service;
  service.reads.of[4] = 100;  // of 200 to 500 us
  survey.drives[1].service = service;
  const Event went{.kind = EventKind::kDriveWent, .drives = {2, 3}};
  const Event found{.kind = EventKind::kDamageFound, .drives = {2}, .count = 7};
  const Event came{.kind = EventKind::kDriveCame, .drives = {2}};
  CountErrors({went, found, came}, survey.drives);
  const std::string text = SurveyText(survey);
  EXPECT_THAT(text, testing::ContainsRegex("TEMP +READS p99 +WRITES p99 +ERRORS +STATE"));
  EXPECT_THAT(text, testing::ContainsRegex("127.0.0.1:8122.* 0.50 ms +- +2 +up"));
  EXPECT_THAT(text, testing::ContainsRegex("127.0.0.1:8123.* - +- +1 +up"));
  EXPECT_EQ(HealthOf(survey), Health::kHealthy) << "it is over";
}

TEST(SurveyJson, HoldsTheSameForPrograms) {
  Survey survey = EightDrives();
  Lose(survey, 3);
  const auto json = nlohmann::json::parse(SurveyJson(survey));
  EXPECT_EQ(json["health"]["state"], "unavailable");
  EXPECT_EQ(json["health"]["drives_down"], 3);
  EXPECT_EQ(json["survives"]["reading"]["drives"], -1);
  EXPECT_EQ(json["space"]["raw_bytes"], 8'000'000'000u);
  EXPECT_EQ(json["drives"][0]["up"], false);
  EXPECT_EQ(json["drives"][0]["reason"], "connection refused");
  EXPECT_EQ(json["drives"][7]["used_bytes"], 10'000'000);
}

void CollectKeys(const nlohmann::json& json, const std::string& at, std::set<std::string>& keys) {
  if (json.is_array()) {
    for (const auto& each : json) CollectKeys(each, at + "[]", keys);
  }
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items()) {
    const std::string name = at.empty() ? key : at + "." + key;
    keys.insert(name);
    CollectKeys(value, name, keys);
  }
}

// The page names each key once, and no other.
TEST(SurveyJson, HasTheKeysThatItsPageNames) {
  Survey survey = FourHosts();
  survey.settled = false;
  survey.features = {{"made-up", FeatureKind::kMayBeIgnored, ""}};
  survey.listed = survey.read = LastLook{.at = 1};
  survey.places = LastPlaces{.at = 1};
  survey.work = survey.map_work = survey.work_unknown = "somebody";
  survey.differences = {{"layout.data_shards", "3", "4", "correct the file"}};
  LoseDrive(survey, 1);
  survey.drives[0].address = "";
  survey.drives[1].doubt = "it lost its power";
  survey.forecast = FillForecast{.over = std::chrono::hours(24), .left = std::chrono::hours(1)};
  survey.drives[2].work = "somebody";
  survey.drives[2].service = ServiceTimes{};
  survey.drives[2].errors = 0;
  survey.drives[3].drain = DrainReport{.left = DriveContents{}};
  survey.names = {NamesPlace::Where::kEngine, "etcd"};
  survey.engine_away = "no member answers";
  survey.engine = Fail(EHOSTUNREACH, "no member answers");
  std::set<std::string> keys;
  CollectKeys(nlohmann::json::parse(SurveyJson(survey)), "", keys);
  survey.engine = EngineState{.limit_bytes = 1, .members = {EngineMember{}}};
  CollectKeys(nlohmann::json::parse(SurveyJson(survey)), "", keys);
  survey.opened = Status(EIO, "no drive answers");
  CollectKeys(nlohmann::json::parse(SurveyJson(survey)), "", keys);

  std::ifstream page(PINSTRIPE_SOURCE_DIR "/docs/reference/status-json.md");
  ASSERT_TRUE(page);
  std::set<std::string> documented;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    const size_t end = line.find('`', 3);
    ASSERT_NE(end, std::string::npos) << line;
    EXPECT_TRUE(documented.insert(line.substr(3, end - 3)).second) << line;
  }
  EXPECT_EQ(keys, documented);
}

TEST(SurveyJson, IsJsonWhateverADriveSays) {
  Survey survey = EightDrives();
  survey.drives[0].info = tl::unexpected(Status(EIO, "\xff\xfe\"\n"));
  EXPECT_FALSE(nlohmann::json::parse(SurveyJson(survey))["drives"][0]["reason"].empty());
}

}  // namespace
}  // namespace pinstripe
