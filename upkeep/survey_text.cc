// A survey in words: what a person reads who has just been woken.

#include <algorithm>
#include <map>

#include "base/byte_text.h"
#include "base/table_text.h"
#include "base/time_text.h"
#include "cluster/membership/drive_identity.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// ---- Drives

// Looks what is left on a drive that is being drained.
std::string LeftText(const DrainReport& drain, const DriveReport& drive) {
  if (!drain.left) return "draining";
  const DriveContents& left = *drain.left;
  if (left.shards + left.registers == 0) {
    return "draining: nothing is left; `pinstripe rebalance` finds out whether it may go";
  }
  const auto count = [](uint64_t number) {
    return fmt::format("{}{}", number, number >= kMaxRangeKeys ? " or more" : "");
  };
  return fmt::format("draining: {} are left: {} shards, {} names and inodes",
                     drive.info ? BytesText(UsedBytes(*drive.info)) : "some", count(left.shards),
                     count(left.registers));
}

std::string StateText(const DriveReport& drive) {
  // Why it is down, without its name: that is in the same row.
  const std::string reason =
      drive.info ? drive.info->failure : drive.info.error().WithoutDriveName();
  switch (drive.Condition()) {
    case DriveCondition::kUp:
      if (drive.fullness() == Fullness::kFull) return "up, full";
      return drive.fullness() == Fullness::kNearlyFull ? "up, nearly full" : "up";
    case DriveCondition::kFailed:
      return fmt::format("FAILED: {}{}", reason,
                         drive.drain ? ", " + LeftText(*drive.drain, drive) : "");
    case DriveCondition::kDown:
      return fmt::format("DOWN: {}{}", reason,
                         drive.drain ? "; " + LeftText(*drive.drain, drive) : "");
    case DriveCondition::kMissing: return fmt::format("MISSING: {}", reason);
    case DriveCondition::kNotAdded:
      // The advice for a drive that has no superblock is for others.
      return fmt::format(
          "not added: `pinstripe expand` brings it in{}",
          drive.info || reason.find(kNoSuperblock) != reason.npos ? "" : "; now: " + reason);
    case DriveCondition::kDraining: return "up, " + LeftText(*drive.drain, drive);
    case DriveCondition::kDrained:
      return drive.drain->retired
                 ? "drained: it may be taken out of the configuration, and away"
                 : "drained: it keeps a part of the drive map, and has to stay; an empty device "
                   "anywhere can take its place with `pinstripe rebuild`";
  }
  return "";
}

std::vector<std::string> DriveRow(const DriveReport& drive, bool with_domain) {
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  std::vector<std::string> row{fmt::format("{}", drive.id), or_dash(drive.address)};
  if (with_domain) row.push_back(or_dash(drive.domain));
  if (drive.info) {
    const DriveInfo& info = *drive.info;
    row.push_back(
        fmt::format("{} ({:.1f} %)", BytesText(UsedBytes(info)), 100 * info.portion_full));
    row.push_back(BytesText(info.capacity_bytes));
    row.push_back(info.temperature_celsius > 0 ? fmt::format("{:.0f} C", info.temperature_celsius)
                                               : "-");
  } else {
    row.insert(row.end(), 3, "-");
  }
  row.push_back(drive.service ? TimeTakenText(drive.service->reads, 0.99) : "-");
  row.push_back(drive.service ? TimeTakenText(drive.service->writes, 0.99) : "-");
  row.push_back(drive.errors ? fmt::format("{}", *drive.errors) : "-");
  row.push_back(StateText(drive));
  return row;
}

// "in 23.0 days, if it goes on as in the last 7.0 days: 1.2 TB a day"
std::string ForecastText(const FillForecast& forecast) {
  const auto text = [](Duration duration) {
    return DurationText(std::chrono::duration<double>(duration).count());
  };
  if (!forecast.left) {
    return fmt::format("not, if it goes on as in the last {}", text(forecast.over));
  }
  return fmt::format("in {}, if it goes on as in the last {}: {} a day", text(*forecast.left),
                     text(forecast.over), BytesText(static_cast<uint64_t>(forecast.bytes_a_day)));
}

// "b: 2 of 3 drives up, 1.0 TB of 3.0 TB used"
std::string DomainText(const std::string& domain, const std::vector<const DriveReport*>& drives) {
  const auto count = [&](auto is_so) { return std::ranges::count_if(drives, is_so); };
  const auto is = [&](DriveCondition condition) {
    return count([=](const DriveReport* drive) { return drive->Condition() == condition; });
  };
  std::string text = fmt::format("{}:", domain.empty() ? "no domain" : domain);
  const auto used = static_cast<long>(drives.size()) - is(DriveCondition::kDrained) -
                    is(DriveCondition::kNotAdded);
  const auto up = is(DriveCondition::kUp) + is(DriveCondition::kDraining);
  if (used > 0) {
    text += fmt::format(" {} of {} drives up", up, used);
  } else if (is(DriveCondition::kNotAdded) == 0) {
    text += " drained";
  }
  if (used > 0 && is(DriveCondition::kDrained) > 0) {
    text += fmt::format(", {} drained", is(DriveCondition::kDrained));
  }
  if (is(DriveCondition::kNotAdded) > 0) {
    text += fmt::format("{}{} not added yet", used > 0 ? ", " : " ", is(DriveCondition::kNotAdded));
  }
  uint64_t used_bytes = 0;
  uint64_t bytes = 0;
  for (const DriveReport* drive : drives) {
    if (!drive->info) continue;
    used_bytes += UsedBytes(*drive->info);
    bytes += drive->info->capacity_bytes;
  }
  if (bytes > 0) text += fmt::format(", {} of {} used", BytesText(used_bytes), BytesText(bytes));
  return text;
}

std::string DrivesText(const Survey& survey) {
  const bool by_domain = HasDomains(survey);
  Rows rows{{"DRIVE", "ADDRESS"}};
  if (!by_domain) rows[0].emplace_back("DOMAIN");
  for (const char* head :
       {"USED", "CAPACITY", "TEMP", "READS p99", "WRITES p99", "ERRORS", "STATE"})
    rows[0].emplace_back(head);
  if (!by_domain) {
    for (const DriveReport& drive : survey.drives) rows.push_back(DriveRow(drive, true));
    return TableText(rows);
  }
  std::map<std::string, std::vector<const DriveReport*>> domains;
  for (const DriveReport& drive : survey.drives) domains[drive.domain].push_back(&drive);
  for (const auto& [domain, drives] : domains) {
    rows.push_back({DomainText(domain, drives)});
    for (const DriveReport* drive : drives) rows.push_back(DriveRow(*drive, false));
  }
  return TableText(rows);
}

// ---- The cluster

// `again` finds out how things are now, `mend` mends what can be.
std::string LookText(const std::optional<LastLook>& look, std::string_view again,
                     std::string_view mend) {
  if (!look) return fmt::format("never, as far as is known: `{}`", again);
  std::string text = fmt::format("{}: ", TimeText(look->at));
  if (look->AllIsWell()) return text + "everything was in order";
  std::vector<std::string> found;
  if (look->lost > 0)
    found.push_back(fmt::format("{} LOST or damaged, `{}` names them", look->lost, again));
  if (look->lacking > 0) {
    found.push_back(fmt::format("{} SHORT of shards, for `{}`", look->lacking, mend));
  }
  if (look->replicas_behind > 0) {
    found.push_back(
        fmt::format("{} copies of names and inodes SHORT, for `{}`", look->replicas_behind, mend));
  }
  if (look->not_looked_at > 0) {
    found.push_back(
        fmt::format("{} NOT KNOWN, as they could not be looked at", look->not_looked_at));
  }
  return text + fmt::format("{}", fmt::join(found, "; "));
}

void AddMargin(const Survey& survey, Rows& facts) {
  const Margin& margin = *survey.margin;
  const MarginCount& reading = margin.reading;
  std::string text = MarginText(reading, survey);
  if (reading.drives >= 0) {
    const bool by_domain = HasDomains(survey);
    const MarginPart& worst = by_domain ? reading.worst_by_domains : reading.worst_by_drives;
    text += fmt::format(", before something cannot be read: first {}", worst.Text());
  }
  if (!margin.exact) text += "; by a sample, as there are very many groups";
  const auto is_short = [](const std::optional<LastLook>& look) {
    return look && look->lacking + look->replicas_behind > 0;
  };
  const bool is_displaced = survey.places && survey.places->displaced_blocks > 0;
  if (is_short(survey.listed) || is_short(survey.read) || is_displaced) {
    text += "; what lacks shards or copies, or is not at home, may survive less";
  }
  facts.push_back({"survives", std::move(text)});
  const MarginCount& writing = margin.writing;
  if (reading.drives < 0 ||
      (writing.drives >= reading.drives && writing.domains >= reading.domains)) {
    return;
  }
  facts.push_back({"writes", writing.drives < 0
                                 ? "something cannot be written already"
                                 : fmt::format("survive {}", MarginText(writing, survey))});
}

void AddPlaces(const Survey& survey, Rows& facts) {
  if (!survey.places) return;
  const LastPlaces& places = *survey.places;
  if (places.unused_shards > 0) {
    facts.push_back(
        {"garbage",
         fmt::format("{}: {} in {} shards of uploads under way, or for `pinstripe "
                     "collect`",
                     TimeText(places.at), BytesText(places.unused_bytes), places.unused_shards)});
  }
  if (places.displaced_blocks > 0) {
    facts.push_back({"displaced", fmt::format("{}: {} blocks not at home, for `pinstripe repair` "
                                              "or `rebalance`",
                                              TimeText(places.at), places.displaced_blocks)});
  }
}

void AddWork(const Survey& survey, Rows& facts) {
  if (!survey.work.empty()) facts.push_back({"work", survey.work});
  if (!survey.map_work.empty()) facts.push_back({"work", survey.map_work});
  if (!survey.work_unknown.empty()) facts.push_back({"work", survey.work_unknown});
  for (const DriveReport& drive : survey.drives) {
    const bool is_under_way = drive.drain && drive.drain->left &&
                              drive.drain->left->shards + drive.drain->left->registers > 0;
    if (!drive.work.empty()) facts.push_back({"work", drive.work});
    if (!drive.doubt.empty()) {
      facts.push_back({"no say", fmt::format("drive {}: {}", drive.id, drive.doubt)});
    }
    if (is_under_way && drive.is_work_known && !drive.is_work_alive) {
      facts.push_back(
          {"work", fmt::format("nobody drains drive {} now: `pinstripe drain` goes on with it, "
                               "`pinstripe expand` takes it back",
                               drive.id)});
    }
  }
}

void AddEngine(const Survey& survey, Rows& facts) {
  if (survey.names.IsMoving()) {
    facts.push_back(
        {"names", fmt::format("being moved {} {}; changes wait",
                              survey.names.OnEngine() ? "from" : "to", survey.names.engine)});
  }
  if (!survey.engine) return;
  if (!survey.engine->has_value()) {
    facts.push_back({"engine", std::string(survey.engine->error().message())});
    return;
  }
  const EngineState& state = **survey.engine;
  std::string text = fmt::format("{}, {} used", state.software, BytesText(state.used_bytes));
  if (state.limit_bytes > 0) text += fmt::format(" of {}", BytesText(state.limit_bytes));
  facts.push_back({"engine", std::move(text)});
  for (const EngineMember& member : state.members) {
    facts.push_back(
        {"member", fmt::format("{} {}: {}{}{}{}", member.name, member.address,
                               member.is_up ? "up" : "down", member.is_leader ? ", leader" : "",
                               member.note.empty() ? "" : ", ", member.note)});
  }
  for (const std::string& alarm : state.alarms) facts.push_back({"alarm", alarm});
  for (const std::string& warning : state.warnings) facts.push_back({"warning", warning});
}

std::string FeaturesText(const std::vector<Feature>& features) {
  std::vector<std::string> texts;
  for (const Feature& feature : features) {
    texts.push_back(feature.name);
    if (FindFeature(feature.name) == nullptr) texts.back() += " (unknown here, may be ignored)";
  }
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::string SurveyText(const Survey& survey) {
  const ClusterConfig& config = survey.config;
  Rows facts{
      {"cluster", config.name},
      {"health", HealthText(survey)},
  };
  if (survey.margin) AddMargin(survey, facts);
  const std::string names =
      survey.names.OnEngine() ? survey.names.engine : fmt::format("{} of them", config.replicas);
  facts.push_back(
      {"layout", fmt::format("{}+{} on {} drives, names on {}", config.layout.data_shards,
                             config.layout.parity_shards,
                             survey.opened.ok() ? survey.active : config.drives.size(), names)});
  AddEngine(survey, facts);
  if (survey.space) {
    const SpaceInfo& space = *survey.space;
    facts.push_back({"raw", fmt::format("{} used of {}", BytesText(space.raw_used_bytes),
                                        BytesText(space.raw_bytes))});
    facts.push_back({"usable", fmt::format("{} free of {}", BytesText(space.usable_free_bytes),
                                           BytesText(space.usable_bytes))});
  }
  if (survey.forecast) facts.push_back({"full", ForecastText(*survey.forecast)});
  if (survey.opened.ok()) {
    facts.push_back({"checked", LookText(survey.listed, "pinstripe check", "pinstripe repair")});
    facts.push_back({"read", LookText(survey.read, "pinstripe verify", "pinstripe scrub")});
  }
  AddPlaces(survey, facts);
  AddWork(survey, facts);
  for (const ConfigDifference& each : survey.differences) {
    facts.push_back({"differs", each.Text()});
  }
  if (survey.opened.ok()) {
    if (!survey.keeps_layout) {
      facts.push_back({"differs",
                       "the cluster does not keep its layout yet, to compare files with: "
                       "`pinstripe config --apply` notes it"});
    }
    facts.push_back({"uuid", UuidText(survey.uuid)});
    facts.push_back({"epoch", fmt::format("{}{}", survey.epoch,
                                          survey.settled ? ""
                                                         : ", not complete: `pinstripe rebalance` "
                                                           "finishes it")});
    facts.push_back({"features", FeaturesText(survey.features)});
  }
  std::string text = TableText(facts) + "\n" + DrivesText(survey);
  if (!survey.opened.ok()) {
    text += fmt::format("\nThe cluster cannot be opened: {}\n", survey.opened.message());
  }
  return text;
}

}  // namespace pinstripe
