#include "upkeep/survey.h"

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/time_text.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "cluster/gather.h"
#include "cluster/map/electorate.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/membership/drive_identity.h"
#include "kinetic/io.h"

namespace pinstripe {
namespace {

using Json = nlohmann::json;

std::string FirstAddress(const DriveConfig& drive) {
  return drive.addresses.empty() ? "" : drive.addresses.front();
}

// One drive's words about itself, as far as they came in time.
struct Told {
  Result<DriveInfo> info;
  Result<Record> superblock;
  std::vector<std::string> lowest_key;  // one at most
};

// The state of the drive that follows from that.
Result<DriveInfo> Judge(const ClusterConfig& config, DriveId id, Told told) {
  const auto superblock = ReadSuperblock(told.superblock, config.name, id);
  if (superblock.has_value()) {
    TRY(CheckInService(*superblock, superblock->incarnation));
    return std::move(told.info);
  }
  if (superblock.error().code() == ENOENT && !told.lowest_key.empty()) {
    const auto other = ClusterOfKey(told.lowest_key.front());
    if (other && *other != config.name) {
      return tl::unexpected(HoldsAnotherCluster(*other, config.name));
    }
  }
  return tl::unexpected(superblock.error());
}

// Asks every drive by itself: what is left when the cluster cannot be opened.
std::vector<DriveReport> AskEachDrive(Runtime& runtime, const ClusterConfig& config) {
  KineticIo io(runtime);
  const DriveFactory connect = KineticDriveFactory(io, config.drive_timeout);
  const Time deadline = runtime.Now() + config.drive_timeout;
  const Status no_answer = Fail(ETIMEDOUT, "no answer");
  const Told nothing{tl::unexpected(no_answer), tl::unexpected(no_answer), {}};
  std::vector<Told> told(config.drives.size(), nothing);
  std::vector<std::unique_ptr<Drive>> drives;
  Gather<Result<DriveInfo>> infos(runtime);
  Gather<Result<Record>> superblocks(runtime);
  Gather<Result<std::vector<std::string>>> lowest_keys(runtime);
  for (size_t i = 0; i < config.drives.size(); ++i) {
    // Any drive that answers will do: what it is, is judged here.
    auto drive = connect(config.drives[i], "", nullptr);
    if (!drive) {
      told[i].superblock = tl::unexpected(drive.error());
      continue;
    }
    drives.push_back(*std::move(drive));
    drives.back()->Info(deadline, infos.Ask(i));
    drives.back()->Get(SuperblockKey(config.name), {}, deadline, superblocks.Ask(i));
    drives.back()->Range(std::string(kLowestKey), std::string(kMaxKeyBytes, '\xff'), 1, false,
                         deadline, lowest_keys.Ask(i));
  }
  while (auto answer = infos.Next(deadline)) told[answer->index].info = std::move(answer->value);
  while (auto answer = superblocks.Next(deadline)) {
    told[answer->index].superblock = std::move(answer->value);
  }
  while (auto answer = lowest_keys.Next(deadline)) {
    if (answer->value) told[answer->index].lowest_key = *std::move(answer->value);
  }
  std::vector<DriveReport> reports;
  for (size_t i = 0; i < config.drives.size(); ++i) {
    const DriveConfig& drive = config.drives[i];
    reports.push_back({.id = drive.id,
                       .address = FirstAddress(drive),
                       .domain = drive.domain,
                       .info = Judge(config, drive.id, std::move(told[i]))});
  }
  return reports;
}

std::string StateName(Health health) {
  switch (health) {
    case Health::kHealthy: return "healthy";
    case Health::kDegraded: return "degraded";
    case Health::kDamaged: return "damaged";
    case Health::kUnavailable: return "unavailable";
  }
  return "";
}

std::string ShortcomingsText(const Survey& survey) {
  return fmt::format("{}", fmt::join(survey.Shortcomings(), "; "));
}

std::string HealthText(const Survey& survey) {
  switch (HealthOf(survey)) {
    case Health::kHealthy: return "healthy";
    case Health::kDegraded: return fmt::format("degraded: {}", ShortcomingsText(survey));
    case Health::kDamaged: {
      const std::string others = ShortcomingsText(survey);
      return fmt::format("damaged: something is lost{}{}", others.empty() ? "" : "; ", others);
    }
    case Health::kUnavailable:
      if (survey.DrivesDown() <= survey.Tolerated()) {
        return fmt::format("unavailable: {}", survey.opened.message());
      }
      return fmt::format("unavailable: {} drives are down or missing, of which {} can be tolerated",
                         survey.DrivesDown(), survey.Tolerated());
  }
  return "";
}

uint64_t UsedBytes(const DriveInfo& info) {
  return static_cast<uint64_t>(static_cast<double>(info.capacity_bytes) * info.portion_full);
}

// Down columns, padded to the widest cell; the last column as long as it likes.
std::string TableText(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += i + 1 < row.size() ? fmt::format("{:<{}}  ", row[i], widths[i]) : row[i];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

// Why a drive is down, without its name: that is in the same row.
std::string Reason(const DriveReport& drive) { return drive.info.error().WithoutDriveName(); }

// Looks what is left on a drive that is being drained.
std::string LeftText(const DrainReport& drain, const DriveReport& drive) {
  if (drain.retired) return "drained: it may be taken out of the configuration, and away";
  if (!drain.left) return "draining";
  const DriveContents& left = *drain.left;
  if (left.shards + left.registers == 0) {
    return drain.keeps_map ? "drained: it keeps a part of the drive map, and has to stay"
                           : "drained: `pinstripe rebalance` finds out whether it may go";
  }
  const auto count = [](uint64_t number) {
    return fmt::format("{}{}", number, number >= kMaxRangeKeys ? " or more" : "");
  };
  return fmt::format("draining: {} are left: {} shards, {} names and inodes",
                     drive.info ? BytesText(UsedBytes(*drive.info)) : "some", count(left.shards),
                     count(left.registers));
}

std::vector<std::string> DriveRow(const DriveReport& drive) {
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  if (!drive.info) {
    return {
        fmt::format("{}", drive.id),
        or_dash(drive.address),
        or_dash(drive.domain),
        "-",
        "-",
        "-",
        fmt::format("{}: {}{}", drive.IsMissing() ? "MISSING" : "DOWN", Reason(drive),
                    drive.drain && !drive.IsMissing() ? "; " + LeftText(*drive.drain, drive) : "")};
  }
  const DriveInfo& info = *drive.info;
  std::string state = info.failure.empty() ? "up" : fmt::format("FAILED: {}", info.failure);
  if (drive.fullness() == Fullness::kFull) state += ", full";
  if (drive.fullness() == Fullness::kNearlyFull) state += ", nearly full";
  if (drive.drain) state += ", " + LeftText(*drive.drain, drive);
  return {fmt::format("{}", drive.id),
          drive.address,
          or_dash(drive.domain),
          fmt::format("{} ({:.1f} %)", BytesText(UsedBytes(info)), 100 * info.portion_full),
          BytesText(info.capacity_bytes),
          info.temperature_celsius > 0 ? fmt::format("{:.0f} C", info.temperature_celsius) : "-",
          state};
}

}  // namespace

bool DriveReport::IsBeingDrained() const {
  if (!drain || drain->retired) return false;
  const bool is_empty = drain->left && drain->left->shards + drain->left->registers == 0;
  return !(is_empty && drain->keeps_map);
}

std::vector<std::string> Survey::Shortcomings() const {
  std::vector<std::string> all;
  if (DrivesDown() > 0) {
    all.push_back(fmt::format("{} of {} tolerated failures used", DrivesDown(), Tolerated()));
  }
  if (DrivesInDoubt() > 0) {
    all.push_back(
        fmt::format("drives that have no say in names and inodes yet: {}", DrivesInDoubt()));
  }
  const auto count = [this](auto is_so) {
    return std::ranges::count_if(drives, [&](const auto& drive) { return is_so(drive); });
  };
  const auto tell_of = [&](Fullness fullness, std::string_view name) {
    const auto n = count([&](const DriveReport& drive) { return drive.fullness() == fullness; });
    if (n > 0) all.push_back(fmt::format("drives that are {}: {}", name, n));
  };
  tell_of(Fullness::kFull, "full");
  tell_of(Fullness::kNearlyFull, "nearly full");
  if (const auto drained = count([](const DriveReport& drive) { return drive.IsBeingDrained(); })) {
    all.push_back(fmt::format("drives that are being drained: {}", drained));
  }
  if (opened.ok() && !settled) all.push_back("the change of the drive map is not complete");
  const auto any = [this](uint64_t LastLook::*what) {
    return (listed && (*listed).*what > 0) || (read && (*read).*what > 0);
  };
  if (any(&LastLook::lacking)) all.push_back("files lack shards");
  if (any(&LastLook::replicas_behind)) all.push_back("names and inodes lack copies");
  if (any(&LastLook::not_looked_at)) all.push_back("not everything could be looked at");
  return all;
}

size_t Survey::DrivesDown() const {
  return std::count_if(drives.begin(), drives.end(),
                       [](const DriveReport& drive) { return drive.CountsAsDown(); });
}

size_t Survey::DrivesInDoubt() const {
  return std::ranges::count_if(drives,
                               [](const DriveReport& drive) { return !drive.doubt.empty(); });
}

size_t Survey::Tolerated() const {
  const int names = (config.replicas - 1) / 2;
  return std::min<int>(config.layout.parity_shards, names);
}

Health HealthOf(const Survey& survey) {
  if (!survey.opened.ok() || survey.DrivesDown() > survey.Tolerated()) return Health::kUnavailable;
  if (survey.IsLost()) return Health::kDamaged;
  return survey.Shortcomings().empty() ? Health::kHealthy : Health::kDegraded;
}

int ExitCodeOf(Health health) {
  // 1 means degraded here, so everything that keeps us from knowing is 2.
  switch (health) {
    case Health::kHealthy: return 0;
    case Health::kDegraded: return 1;
    case Health::kDamaged:
    case Health::kUnavailable: return 2;
  }
  return 2;
}

namespace {

std::optional<DrainReport> DrainOf(Cluster& cluster, const DriveReport& drive) {
  if (!cluster.DrainingDrives().contains(drive.id)) return std::nullopt;
  DrainReport drain{.retired = cluster.IsRetired(drive.id)};
  drain.keeps_map = std::ranges::count(cluster.map_drives(), drive.id) > 0;
  if (drain.retired || !drive.info) return drain;
  const auto left = PeekIntoDrive(cluster, drive.id);
  if (left) drain.left = *left;
  return drain;
}

bool IsAlive(Cluster& cluster, const DriveClaimRecord& claim) {
  const int64_t silent = cluster.runtime().WallClock() - claim.renewed;
  return silent < DriveClaimOptions().given_up_after.count();
}

// Finds who works on drives, where somebody may, or on the whole cluster.
void FindWork(Cluster& cluster, Survey& survey) {
  std::set<DriveId> ids{kWholeCluster};
  for (const DriveReport& drive : survey.drives) {
    const bool is_plain = drive.IsUp() && (!drive.drain || drive.drain->retired);
    if (!is_plain) ids.insert(drive.id);
  }
  const auto claims = FindDriveClaims(cluster, ids);
  for (DriveReport& drive : survey.drives) {
    const auto claim = claims.find(drive.id);
    if (claim == claims.end()) continue;
    drive.work = claim->second.Text(drive.id);
    drive.is_work_alive = IsAlive(cluster, claim->second);
  }
  if (const auto claim = claims.find(kWholeCluster); claim != claims.end()) {
    survey.work = claim->second.Text(kWholeCluster);
    survey.is_work_alive = IsAlive(cluster, claim->second);
  }
}

}  // namespace

Survey SurveyOf(Cluster& cluster) {
  Survey survey{.config = cluster.config()};
  const DriveMap& map = cluster.map();
  survey.uuid = cluster.uuid();
  survey.epoch = map.epoch;
  survey.settled = cluster.IsSettled();
  survey.config.replicas = map.replicas;
  survey.active = map.drives.size() - cluster.DrainingDrives().size();
  for (DriveStatus& drive : cluster.Drives(survey.config.drive_timeout)) {
    survey.drives.push_back({.id = drive.id,
                             .address = drive.address,
                             .domain = drive.domain,
                             .info = std::move(drive.info)});
  }
  for (const MissingDrive& drive : cluster.MissingDrives()) {
    survey.drives.push_back({.id = drive.id,
                             .address = "",
                             .domain = drive.domain,
                             .info = Fail(ENODEV, "{}", drive.Text(survey.config.file))});
  }
  std::ranges::sort(survey.drives, {}, &DriveReport::id);
  for (DriveReport& drive : survey.drives) drive.drain = DrainOf(cluster, drive);
  FindWork(cluster, survey);
  survey.listed = FindLastLook(cluster, LookKind::kListed);
  survey.read = FindLastLook(cluster, LookKind::kRead);
  for (DriveReport& drive : survey.drives) {
    const auto voter = cluster.electorate().Find(drive.id);
    const bool may_have_forgotten =
        voter && (voter->say == Say::kForgetful || voter->say == Say::kStale);
    if (drive.IsUp() && may_have_forgotten) drive.doubt = cluster.electorate().WhyNot(drive.id);
  }
  if (const auto space = cluster.Space()) survey.space = *space;
  return survey;
}

Result<Survey> TakeSurvey(Runtime& runtime, const std::string& config_file) {
  Survey survey;
  survey.config = TRY(ClusterConfig::Load(config_file));
  const auto connected = Connect(runtime, config_file);
  if (connected) return SurveyOf((*connected)->cluster());
  survey.opened = connected.error();
  survey.drives = AskEachDrive(runtime, survey.config);
  return survey;
}

std::string UuidText(const std::string& uuid) {
  std::string text = Hex(AsBytes(uuid));
  for (const size_t place : {8, 13, 18, 23}) {
    if (place < text.size()) text.insert(place, "-");
  }
  return text;
}

std::string BytesText(uint64_t bytes) {
  constexpr std::array kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (amount >= 999.95 && unit + 1 < kUnits.size()) {
    amount /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

namespace {

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

Json LookJson(const LastLook& look) {
  return {{"at", look.at / 1'000'000'000},
          {"lost", look.lost},
          {"short", look.lacking},
          {"register_replicas_short", look.replicas_behind},
          {"not_looked_at", look.not_looked_at}};
}

}  // namespace

std::string SurveyText(const Survey& survey) {
  const ClusterConfig& config = survey.config;
  std::vector<std::vector<std::string>> facts{
      {"cluster", config.name},
      {"layout",
       fmt::format("{}+{} on {} drives, names on {} of them", config.layout.data_shards,
                   config.layout.parity_shards,
                   survey.opened.ok() ? survey.active : config.drives.size(), config.replicas)}};
  if (survey.opened.ok()) {
    facts.push_back({"uuid", UuidText(survey.uuid)});
    facts.push_back({"epoch", fmt::format("{}{}", survey.epoch,
                                          survey.settled ? ""
                                                         : ", not complete: `pinstripe rebalance` "
                                                           "finishes it")});
  }
  if (survey.space) {
    const SpaceInfo& space = *survey.space;
    facts.push_back({"raw", fmt::format("{} used of {}", BytesText(space.raw_used_bytes),
                                        BytesText(space.raw_bytes))});
    facts.push_back({"usable", fmt::format("{} free of {}", BytesText(space.usable_free_bytes),
                                           BytesText(space.usable_bytes))});
  }
  facts.push_back({"health", HealthText(survey)});
  if (survey.opened.ok()) {
    facts.push_back({"checked", LookText(survey.listed, "pinstripe check", "pinstripe repair")});
    facts.push_back({"read", LookText(survey.read, "pinstripe verify", "pinstripe scrub")});
  }
  if (!survey.work.empty()) facts.push_back({"work", survey.work});
  for (const DriveReport& drive : survey.drives) {
    const bool is_under_way = drive.drain && drive.drain->left &&
                              drive.drain->left->shards + drive.drain->left->registers > 0;
    if (!drive.work.empty()) facts.push_back({"work", drive.work});
    if (!drive.doubt.empty()) {
      facts.push_back({"no say", fmt::format("drive {}: {}", drive.id, drive.doubt)});
    }
    if (is_under_way && !drive.is_work_alive) {
      facts.push_back(
          {"work", fmt::format("nobody drains drive {} now: `pinstripe drain` goes on with it, "
                               "`pinstripe expand` takes it back",
                               drive.id)});
    }
  }

  std::vector<std::vector<std::string>> rows{
      {"DRIVE", "ADDRESS", "DOMAIN", "USED", "CAPACITY", "TEMP", "STATE"}};
  for (const DriveReport& drive : survey.drives) rows.push_back(DriveRow(drive));
  std::string text = TableText(facts) + "\n" + TableText(rows);
  if (!survey.opened.ok()) {
    text += fmt::format("\nThe cluster cannot be opened: {}\n", survey.opened.message());
  }
  return text;
}

std::string SurveyJson(const Survey& survey) {
  const ClusterConfig& config = survey.config;
  Json json{{"cluster",
             {{"name", config.name},
              {"config", config.file},
              {"data_shards", config.layout.data_shards},
              {"parity_shards", config.layout.parity_shards},
              {"replicas", config.replicas}}},
            {"health",
             {{"state", StateName(HealthOf(survey))},
              {"drives_down", survey.DrivesDown()},
              {"tolerated", survey.Tolerated()}}},
            {"drives", Json::array()}};
  if (survey.opened.ok()) {
    json["cluster"]["uuid"] = UuidText(survey.uuid);
    json["cluster"]["epoch"] = survey.epoch;
    if (!survey.settled) json["cluster"]["epoch_complete"] = false;
    json["health"]["shortcomings"] = survey.Shortcomings();
    if (survey.listed) json["checked"] = LookJson(*survey.listed);
    if (survey.read) json["read"] = LookJson(*survey.read);
    if (!survey.work.empty()) {
      json["work"] = {{"what", survey.work}, {"alive", survey.is_work_alive}};
    }
  } else {
    json["health"]["reason"] = std::string(survey.opened.message());
  }
  if (survey.space) {
    json["space"] = {{"raw_bytes", survey.space->raw_bytes},
                     {"raw_used_bytes", survey.space->raw_used_bytes},
                     {"usable_bytes", survey.space->usable_bytes},
                     {"usable_free_bytes", survey.space->usable_free_bytes}};
  }
  for (const DriveReport& drive : survey.drives) {
    Json entry{{"id", drive.id},
               {"address", drive.address},
               {"domain", drive.domain},
               {"up", drive.IsUp()}};
    if (drive.IsMissing()) entry["missing"] = true;
    if (!drive.doubt.empty()) entry["no_say"] = drive.doubt;
    if (!drive.work.empty()) {
      entry["work"] = {{"what", drive.work}, {"alive", drive.is_work_alive}};
    }
    if (drive.drain) {
      const DrainReport& drain = *drive.drain;
      entry["drain"] = {{"finished", drain.retired}, {"keeps_drive_map", drain.keeps_map}};
      if (drain.left) {
        entry["drain"]["bytes_left"] = drive.info ? UsedBytes(*drive.info) : 0;
        entry["drain"]["shards_left"] = drain.left->shards;
        entry["drain"]["registers_left"] = drain.left->registers;
        entry["drain"]["more_left"] =
            std::max(drain.left->shards, drain.left->registers) >= kMaxRangeKeys;
      }
    }
    if (drive.info) {
      entry["capacity_bytes"] = drive.info->capacity_bytes;
      entry["used_bytes"] = UsedBytes(*drive.info);
      entry["full"] = drive.fullness() == Fullness::kFull;
      entry["nearly_full"] = drive.fullness() == Fullness::kNearlyFull;
      entry["temperature_celsius"] = drive.info->temperature_celsius;
      entry["software"] = drive.info->software_version;
      if (!drive.IsUp()) entry["reason"] = drive.info->failure;
    } else {
      entry["reason"] = Reason(drive);
    }
    json["drives"].push_back(std::move(entry));
  }
  // A reason may quote bytes that a drive sent.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pinstripe
