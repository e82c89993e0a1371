// A survey for programs. docs/reference/status-json.md has every key, and a test compares them.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/byte_text.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

using Json = nlohmann::json;

Json LookJson(const LastLook& look) {
  return {{"at", look.at / 1'000'000'000},
          {"lost", look.lost},
          {"short", look.lacking},
          {"register_replicas_short", look.replicas_behind},
          {"not_looked_at", look.not_looked_at}};
}

Json PartJson(const MarginPart& part) {
  using Kind = MarginPart::Kind;
  const std::string_view kind = part.kind == Kind::kData    ? "data"
                                : part.kind == Kind::kNames ? "names"
                                                            : "map";
  Json json{{"kind", kind}, {"drives", part.drives}, {"needed", part.needed}};
  if (part.kind != Kind::kMap) {
    json["group"] = part.group;
    json["epoch"] = part.epoch;
  }
  return json;
}

Json CountJson(const MarginCount& count) {
  return {{"drives", count.drives},
          {"domains", count.domains},
          {"first_by_drives", PartJson(count.worst_by_drives)},
          {"first_by_domains", PartJson(count.worst_by_domains)}};
}

Json MarginJson(const Margin& margin) {
  return {{"reading", CountJson(margin.reading)},
          {"writing", CountJson(margin.writing)},
          {"groups", margin.parts},
          {"groups_unreadable", margin.unreadable},
          {"groups_unwritable", margin.unwritable},
          {"data_readable", margin.data_readable},
          {"data_writable", margin.data_writable},
          {"names_readable", margin.names_readable},
          {"names_writable", margin.names_writable},
          {"writes_short", margin.writes_short},
          {"exact", margin.exact}};
}

Json WorkJson(const std::string& what, bool is_alive) {
  return {{"what", what}, {"alive", is_alive}};
}

Json DrainJson(const DrainReport& drain, const DriveReport& drive) {
  Json json{{"finished", drain.retired}, {"keeps_drive_map", drain.keeps_map}};
  if (!drain.left) return json;
  json["bytes_left"] = drive.info ? UsedBytes(*drive.info) : 0;
  json["shards_left"] = drain.left->shards;
  json["registers_left"] = drain.left->registers;
  json["more_left"] = std::max(drain.left->shards, drain.left->registers) >= kMaxRangeKeys;
  return json;
}

Json ServiceJson(const ServiceTimes& service) {
  const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  return {{"counted_seconds", seconds(service.counted)},
          {"reads", service.reads.count()},
          {"reads_p99_seconds", seconds(service.reads.Quantile(0.99))},
          {"writes", service.writes.count()},
          {"writes_p99_seconds", seconds(service.writes.Quantile(0.99))}};
}

Json DriveJson(const DriveReport& drive) {
  Json json{{"id", drive.id},
            {"address", drive.address},
            {"domain", drive.domain},
            {"state", NameOf(drive.Condition())},
            {"up", drive.IsUp()}};
  if (drive.IsMissing()) json["missing"] = true;
  if (!drive.doubt.empty()) json["no_say"] = drive.doubt;
  if (!drive.work.empty()) json["work"] = WorkJson(drive.work, drive.is_work_alive);
  if (drive.errors) json["errors_last_day"] = *drive.errors;
  if (drive.drain) json["drain"] = DrainJson(*drive.drain, drive);
  if (!drive.info) {
    // Its name is in the same object.
    json["reason"] = drive.info.error().WithoutDriveName();
    return json;
  }
  json["capacity_bytes"] = drive.info->capacity_bytes;
  json["used_bytes"] = UsedBytes(*drive.info);
  json["full"] = drive.fullness() == Fullness::kFull;
  json["nearly_full"] = drive.fullness() == Fullness::kNearlyFull;
  json["temperature_celsius"] = drive.info->temperature_celsius;
  json["software"] = drive.info->software_version;
  if (drive.service) json["service"] = ServiceJson(*drive.service);
  if (!drive.IsUp()) json["reason"] = drive.info->failure;
  return json;
}

Json EngineJson(const Survey& survey) {
  Json json{{"kind", survey.names.engine}, {"moving", survey.names.IsMoving()}};
  if (!survey.engine_away.empty()) json["away"] = survey.engine_away;
  if (!survey.engine) return json;
  if (!survey.engine->has_value()) {
    json["failure"] = survey.engine->error().message();
    return json;
  }
  const EngineState& state = **survey.engine;
  json["software"] = state.software;
  json["used_bytes"] = state.used_bytes;
  if (state.limit_bytes > 0) json["limit_bytes"] = state.limit_bytes;
  json["members"] = Json::array();
  for (const EngineMember& member : state.members) {
    json["members"].push_back({{"name", member.name},
                               {"address", member.address},
                               {"up", member.is_up},
                               {"leader", member.is_leader},
                               {"note", member.note}});
  }
  json["alarms"] = state.alarms;
  json["warnings"] = state.warnings;
  return json;
}

Json ForecastJson(const FillForecast& forecast) {
  const auto seconds = [](Duration duration) {
    return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  };
  Json json{{"over_seconds", seconds(forecast.over)}, {"raw_bytes_a_day", forecast.bytes_a_day}};
  if (forecast.left) json["full_in_seconds"] = seconds(*forecast.left);
  return json;
}

}  // namespace

std::string SurveyJson(const Survey& survey) {
  const ClusterConfig& config = survey.config;
  Json json{{"cluster",
             {{"name", config.name},
              {"config", config.file},
              {"data_shards", config.layout.data_shards},
              {"parity_shards", config.layout.parity_shards},
              {"replicas", config.replicas}}},
            {"health",
             {{"state", NameOf(HealthOf(survey))},
              {"text", HealthText(survey)},
              {"drives_down", survey.DrivesDown()}}},
            {"drives", Json::array()}};
  if (survey.opened.ok()) {
    json["cluster"]["uuid"] = UuidText(survey.uuid);
    json["cluster"]["epoch"] = survey.epoch;
    json["cluster"]["keeps_layout"] = survey.keeps_layout;
    if (!survey.settled) json["cluster"]["epoch_complete"] = false;
    json["cluster"]["names"] = survey.names.OnEngine() ? survey.names.engine : "drives";
    if (survey.names.NamesEngine()) json["engine"] = EngineJson(survey);
    json["features"] = Json::array();
    for (const Feature& feature : survey.features) {
      json["features"].push_back({{"name", feature.name},
                                  {"required", feature.kind == FeatureKind::kMustBeUnderstood},
                                  {"known", FindFeature(feature.name) != nullptr}});
    }
    json["health"]["shortcomings"] = survey.Shortcomings();
    json["health"]["out_of_reach"] = survey.OutOfReach();
    if (survey.listed) json["checked"] = LookJson(*survey.listed);
    if (survey.read) json["read"] = LookJson(*survey.read);
    if (survey.places) {
      json["places"] = {{"at", survey.places->at / 1'000'000'000},
                        {"epoch", survey.places->epoch},
                        {"displaced_blocks", survey.places->displaced_blocks},
                        {"unused_shards", survey.places->unused_shards},
                        {"unused_bytes", survey.places->unused_bytes}};
    }
    if (!survey.work.empty()) json["work"] = WorkJson(survey.work, survey.is_work_alive);
    if (!survey.map_work.empty()) {
      json["map_work"] = WorkJson(survey.map_work, survey.is_map_work_alive);
    }
    if (!survey.work_unknown.empty()) json["work_unknown"] = survey.work_unknown;
    json["differences"] = Json::array();
    for (const ConfigDifference& each : survey.differences) {
      json["differences"].push_back({{"what", each.what},
                                     {"in_file", each.in_file},
                                     {"in_cluster", each.in_cluster},
                                     {"advice", each.advice}});
    }
  } else {
    json["health"]["reason"] = std::string(survey.opened.message());
  }
  if (survey.margin) json["survives"] = MarginJson(*survey.margin);
  if (survey.space) {
    json["space"] = {{"raw_bytes", survey.space->raw_bytes},
                     {"raw_used_bytes", survey.space->raw_used_bytes},
                     {"usable_bytes", survey.space->usable_bytes},
                     {"usable_free_bytes", survey.space->usable_free_bytes}};
    if (survey.forecast) json["space"]["forecast"] = ForecastJson(*survey.forecast);
  }
  for (const DriveReport& drive : survey.drives) json["drives"].push_back(DriveJson(drive));
  // A reason may quote bytes that a drive sent.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pinstripe
