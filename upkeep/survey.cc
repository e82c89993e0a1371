#include "upkeep/survey.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/map/electorate.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/membership/drive_identity.h"
#include "kinetic/io.h"
#include "upkeep/command_cluster.h"
#include "upkeep/due.h"
#include "upkeep/events.h"

namespace pinstripe {
namespace {

constexpr int64_t kDay = 86'400'000'000'000;  // nanoseconds

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
  const DriveFactory connect = RealDriveFactory(io, config.drive_timeout);
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

// Those that answer: nobody waits for the others a second time.
void AskForService(ConnectedCluster& connected, Survey& survey) {
  Survey answering;
  std::ranges::copy_if(survey.drives, std::back_inserter(answering.drives),
                       [](const DriveReport& drive) { return drive.info.has_value(); });
  const ClusterUse use = UseOf(connected, answering, survey.config.drive_timeout);
  for (const ClusterUse::OfDrive& told : use.drives) {
    const auto drive = std::ranges::find(survey.drives, told.id, &DriveReport::id);
    if (told.use && drive != survey.drives.end()) drive->service = ServiceOf(*told.use);
  }
}

}  // namespace

std::string_view NameOf(DriveCondition condition) {
  switch (condition) {
    case DriveCondition::kUp: return "up";
    case DriveCondition::kFailed: return "failed";
    case DriveCondition::kDown: return "down";
    case DriveCondition::kMissing: return "missing";
    case DriveCondition::kNotAdded: return "not added";
    case DriveCondition::kDraining: return "draining";
    case DriveCondition::kDrained: return "drained";
  }
  return "";
}

std::string_view NameOf(Health health) {
  switch (health) {
    case Health::kHealthy: return "healthy";
    case Health::kDegraded: return "degraded";
    case Health::kDamaged: return "damaged";
    case Health::kUnavailable: return "unavailable";
  }
  return "";
}

bool DriveReport::IsBeingDrained() const {
  if (!drain || drain->retired) return false;
  const bool is_empty = drain->left && drain->left->shards + drain->left->registers == 0;
  return !(is_empty && drain->keeps_map);
}

DriveCondition DriveReport::Condition() const {
  if (!is_added) return DriveCondition::kNotAdded;
  if (drain && drain->retired) return DriveCondition::kDrained;
  if (IsMissing()) return DriveCondition::kMissing;
  if (!info) return DriveCondition::kDown;
  if (!IsUp()) return DriveCondition::kFailed;
  if (!drain) return DriveCondition::kUp;
  return IsBeingDrained() ? DriveCondition::kDraining : DriveCondition::kDrained;
}

bool HasDomains(const Survey& survey) {
  std::set<std::string> seen;
  return std::ranges::any_of(survey.drives, [&](const DriveReport& drive) {
    return !drive.domain.empty() && !seen.insert(drive.domain).second;
  });
}

namespace {

std::string Counted(size_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// "host b is down with its 3 drives; 1 of 12 drives is missing": whole domains by their names.
std::vector<std::string> WhatIsDown(const Survey& survey) {
  std::map<std::string, std::pair<size_t, size_t>> domains;  // drives that are down, of so many
  size_t in_map = 0;
  for (const DriveReport& drive : survey.drives) {
    if (!drive.is_added || (drive.drain && drive.drain->retired)) continue;
    ++in_map;
    if (drive.domain.empty()) continue;
    auto& [down, all] = domains[drive.domain];
    ++all;
    down += drive.CountsAsDown();
  }
  std::vector<std::string> texts;
  for (const auto& [domain, drives] : domains) {
    if (drives.second < 2 || drives.first < drives.second) continue;
    texts.push_back(fmt::format("all {} drives of {} are down", drives.second, domain));
  }
  size_t down = 0;
  size_t missing = 0;
  for (const DriveReport& drive : survey.drives) {
    if (!drive.CountsAsDown()) continue;
    const auto domain = domains.find(drive.domain);
    if (domain != domains.end() && domain->second.second > 1 &&
        domain->second.first == domain->second.second) {
      continue;
    }
    ++(drive.IsMissing() ? missing : down);
  }
  if (down > 0) {
    texts.push_back(fmt::format("{} of {} drives {} down", down, in_map, down == 1 ? "is" : "are"));
  }
  if (missing > 0) {
    texts.push_back(fmt::format("{} of {} drives {} missing in the configuration", missing, in_map,
                                missing == 1 ? "is" : "are"));
  }
  return texts;
}

}  // namespace

std::vector<std::string> Survey::OutOfReach() const {
  auto parts = margin ? margin->OutOfReach() : std::vector<std::string>();
  if (names.OnEngine() && !engine_away.empty()) {
    parts.push_back(
        fmt::format("names are on {}, which cannot be asked: {}", names.engine, engine_away));
  }
  return parts;
}

namespace {

// What is wrong with an engine that can be asked.
std::vector<Shortcoming> ShortcomingsOf(const EngineState& state) {
  std::vector<Shortcoming> all;
  for (const EngineMember& member : state.members) {
    if (member.is_up) continue;
    all.push_back({Shortcoming::Kind::kEngine,
                   fmt::format("member {} of the engine of names is down", member.name)});
  }
  for (const std::string& alarm : state.alarms) {
    all.push_back({Shortcoming::Kind::kEngine, "the engine of names: " + alarm});
  }
  return all;
}

}  // namespace

std::vector<Shortcoming> Survey::FindShortcomings() const {
  using enum Shortcoming::Kind;
  std::vector<Shortcoming> all;
  for (std::string& what : WhatIsDown(*this)) all.push_back({kDrivesDown, std::move(what)});
  if (engine && engine->has_value())
    std::ranges::move(ShortcomingsOf(**engine), std::back_inserter(all));
  if (names.IsMoving()) {
    all.push_back({kEngine,
                   "names are being moved, and changes wait: `pinstripe metadata move` "
                   "goes on with it"});
  }
  if (margin && margin->writes_short && margin->data_writable) {
    all.push_back({kWritesShort, "new blocks get fewer shards than they should have"});
  }
  if (DrivesInDoubt() > 0) {
    all.push_back({kDoubt, fmt::format("drives that have no say in names and inodes yet: {}",
                                       DrivesInDoubt())});
  }
  const auto count = [this](auto is_so) {
    return std::ranges::count_if(drives, [&](const auto& drive) { return is_so(drive); });
  };
  const auto tell_of = [&](Fullness fullness, Shortcoming::Kind kind, std::string_view name) {
    const auto n = count([&](const DriveReport& drive) { return drive.fullness() == fullness; });
    if (n > 0) all.push_back({kind, fmt::format("drives that are {}: {}", name, n)});
  };
  tell_of(Fullness::kFull, kFull, "full");
  tell_of(Fullness::kNearlyFull, kNearlyFull, "nearly full");
  if (const auto drained = count([](const DriveReport& drive) { return drive.IsBeingDrained(); })) {
    all.push_back({kDraining, fmt::format("drives that are being drained: {}", drained)});
  }
  if (opened.ok() && !settled) {
    all.push_back({kUnsettled, "the change of the drive map is not complete"});
  }
  const auto any = [this](uint64_t LastLook::*what) {
    return (listed && (*listed).*what > 0) || (read && (*read).*what > 0);
  };
  if (!knows_notes) {
    all.push_back({kNotesUnread, "what was found last cannot be read, or not all of it"});
  }
  if (any(&LastLook::lacking)) all.push_back({kLacking, "files lack shards"});
  if (any(&LastLook::replicas_behind)) {
    all.push_back({kReplicasBehind, "names and inodes lack copies"});
  }
  if (any(&LastLook::not_looked_at)) {
    all.push_back({kNotLookedAt, "not everything could be looked at"});
  }
  for (const std::string& what : overdue) all.push_back({kOverdue, what});
  return all;
}

std::vector<std::string> Survey::Shortcomings() const {
  std::vector<std::string> texts;
  for (Shortcoming& each : FindShortcomings()) texts.push_back(std::move(each.what));
  return texts;
}

size_t Survey::DrivesDown() const {
  return std::ranges::count_if(drives,
                               [](const DriveReport& drive) { return drive.CountsAsDown(); });
}

size_t Survey::DrivesInDoubt() const {
  return std::ranges::count_if(drives,
                               [](const DriveReport& drive) { return !drive.doubt.empty(); });
}

Health HealthOf(const Survey& survey) {
  if (!survey.opened.ok() || !survey.OutOfReach().empty()) return Health::kUnavailable;
  if (survey.IsLost()) return Health::kDamaged;
  return survey.Shortcomings().empty() ? Health::kHealthy : Health::kDegraded;
}

std::string HealthText(const Survey& survey) {
  const Health health = HealthOf(survey);
  std::vector<std::string> why;
  if (!survey.opened.ok()) {
    why.emplace_back(survey.opened.message());
  } else {
    why = survey.OutOfReach();
    if (survey.IsLost()) why.emplace_back("something is lost");
    for (std::string& each : survey.Shortcomings()) why.push_back(std::move(each));
  }
  return why.empty() ? std::string(NameOf(health))
                     : fmt::format("{}: {}", NameOf(health), fmt::join(why, "; "));
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

std::string MarginText(const MarginCount& count, const Survey& survey) {
  if (count.drives < 0) return "something is out of reach already";
  if (count.drives == 0) return "not one more drive";
  const auto more = [](int number, std::string_view one, std::string_view many) {
    return number == 0 ? fmt::format("no more {}", one)
                       : Counted(static_cast<size_t>(number), fmt::format("more {}", one),
                                 fmt::format("more {}", many));
  };
  std::string text = more(count.drives, "drive", "drives");
  if (HasDomains(survey)) text += fmt::format(", or {}", more(count.domains, "host", "hosts"));
  return text;
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
  // Times come from the drives and may be anything. Clocks may differ by as much.
  constexpr Duration kMostAhead = std::chrono::hours(1);
  const Duration silent = TimeBetween(claim.renewed, cluster.runtime().WallClock());
  return silent > -kMostAhead && silent < DriveClaimOptions().given_up_after;
}

// What others have noted in the cluster, in one round trip. What cannot be read now is not known.
// Returns how full it was.
FillHistory FindNotes(Cluster& cluster, Survey& survey) {
  const std::vector<RegisterName> names{
      {kMapGroup, LastLookKey(LookKind::kListed)},    {kMapGroup, LastLookKey(LookKind::kRead)},
      {kMapGroup, LastLookKey(LookKind::kPlaces)},    {kMapGroup, LayoutKey()},
      {kMapGroup, LastLookKey(LookKind::kCollected)}, {kMapGroup, FillKey()}};
  const auto values = cluster.registers().ReadMany(names);
  const auto take = [&]<typename Note>(size_t at, std::optional<Note>& note) {
    if (!values[at].has_value()) survey.knows_notes = false;
    if (!values[at].has_value() || !values[at]->value) return false;
    auto decoded = Note::Decode(*values[at]->value);
    if (!decoded.has_value()) survey.knows_notes = false;
    if (decoded.has_value()) note = *std::move(decoded);
    return true;
  };
  take(0, survey.listed);
  take(1, survey.read);
  take(2, survey.places);
  survey.keeps_layout = take(3, survey.kept_layout);
  std::optional<LastLook> collected;
  take(4, collected);
  survey.overdue = Overdue({.listed = survey.listed, .read = survey.read, .collected = collected},
                           cluster.runtime().WallClock());
  FillHistory fill;
  if (values[5].has_value() && values[5]->value) {
    fill = FillHistory::Decode(*values[5]->value).value_or(FillHistory());
  }
  return fill;
}

// Where blocks may lie that nobody has brought home yet. Of very many epochs only the last ones.
std::vector<std::shared_ptr<Placement>> PlacementsSince(std::shared_ptr<Placement> newest,
                                                        Epoch all_at_home, bool& exact) {
  constexpr size_t kMost = 16;
  std::vector<std::shared_ptr<Placement>> placements;
  for (std::shared_ptr<Placement> each = std::move(newest); each != nullptr;
       each = each->before()) {
    exact = placements.size() < kMost;
    if (!exact) break;
    placements.insert(placements.begin(), each);
    if (each->map().epoch <= all_at_home) break;
  }
  return placements;
}

// Finds who works on drives, where somebody may, or on the whole cluster.
void FindWork(Cluster& cluster, Survey& survey) {
  std::set<ClaimSubject> ids{kWholeCluster, kDriveMap};
  for (const DriveReport& drive : survey.drives) {
    const bool is_plain = drive.IsUp() && (!drive.drain || drive.drain->retired);
    if (!is_plain) ids.insert(drive.id);
  }
  const FoundClaims all = FindDriveClaims(cluster, ids);
  survey.work_unknown = all.TextOfUnread();
  const auto& claims = all.found;
  for (DriveReport& drive : survey.drives) {
    drive.is_work_known = all.IsKnown(drive.id);
    const auto claim = claims.find(drive.id);
    if (claim == claims.end()) continue;
    drive.work = claim->second.Text(drive.id);
    drive.is_work_alive = IsAlive(cluster, claim->second);
  }
  if (const auto claim = claims.find(kWholeCluster); claim != claims.end()) {
    survey.work = claim->second.Text(kWholeCluster);
    survey.is_work_alive = IsAlive(cluster, claim->second);
  }
  if (const auto claim = claims.find(kDriveMap); claim != claims.end()) {
    survey.map_work = claim->second.Text(kDriveMap);
    survey.is_map_work_alive = IsAlive(cluster, claim->second);
  }
}

DriveReport ReportOf(DriveStatus drive) {
  return {.id = drive.id,
          .address = std::move(drive.address),
          .domain = std::move(drive.domain),
          .info = std::move(drive.info)};
}

}  // namespace

Survey SurveyOf(Cluster& cluster) {
  // Who only looks, as the console does, is told of no newer drive map by drives, and of no drive
  // that was retired. When nobody can be asked, what was known before counts.
  (void)cluster.Refresh();
  Survey survey{.config = cluster.config(), .opened = cluster.Replicas(kMapGroup).refused};
  if (!survey.opened.ok()) {
    for (DriveStatus& drive : cluster.Drives(survey.config.drive_timeout)) {
      survey.drives.push_back(ReportOf(std::move(drive)));
    }
    return survey;
  }
  const DriveMap& map = cluster.map();
  survey.uuid = cluster.uuid();
  survey.epoch = map.epoch;
  survey.settled = cluster.IsSettled();
  survey.config.replicas = map.replicas;
  survey.features = map.features;
  survey.names = cluster.NewestPlacement()->names();
  if (survey.names.NamesEngine()) {
    const Drive* const engine = cluster.FindDrive(kEngineDrive);
    if (engine == nullptr) survey.engine_away = "the configuration does not say where it is";
    if (engine != nullptr && !engine->IsUp()) survey.engine_away = engine->WhyAway();
  }
  survey.active = map.drives.size() - cluster.DrainingDrives().size();
  for (DriveStatus& drive : cluster.Drives(survey.config.drive_timeout)) {
    survey.drives.push_back(ReportOf(std::move(drive)));
  }
  for (const MissingDrive& drive : cluster.MissingDrives()) {
    survey.drives.push_back({.id = drive.id,
                             .address = "",
                             .domain = drive.domain,
                             .info = Fail(ENODEV, "{}", drive.Text(survey.config.file))});
  }
  std::ranges::sort(survey.drives, {}, &DriveReport::id);
  std::map<DriveId, const MappedDrive*> mapped;
  for (const MappedDrive& drive : map.drives) mapped[drive.id] = &drive;
  for (DriveReport& drive : survey.drives) {
    const auto found = mapped.find(drive.id);
    drive.is_added = found != mapped.end() || drive.IsMissing();
    // What fails together is what the map says, whatever the file does.
    if (found != mapped.end()) drive.domain = found->second->domain;
    drive.drain = DrainOf(cluster, drive);
  }
  FindWork(cluster, survey);
  const FillHistory fill = FindNotes(cluster, survey);
  for (DriveReport& drive : survey.drives) {
    const auto voter = cluster.electorate().Find(drive.id);
    const bool may_have_forgotten =
        voter && (voter->say == Say::kForgetful || voter->say == Say::kStale);
    if (drive.IsUp() && may_have_forgotten) drive.doubt = cluster.electorate().WhyNot(drive.id);
  }
  survey.differences = CompareConfig(cluster.config(), map, survey.kept_layout);
  survey.margin = MarginOf(cluster, survey);
  if (const auto space = cluster.Space()) survey.space = *space;
  if (survey.space && survey.DrivesDown() == 0) {
    survey.forecast = ForecastFill(fill, {cluster.runtime().WallClock(),
                                          survey.space->raw_used_bytes, survey.space->raw_bytes});
  }
  return survey;
}

Margin MarginOf(Cluster& cluster, const Survey& survey, const std::set<DriveId>& also_away,
                FullDrives full) {
  const ClusterConfig& config = cluster.config();
  const Epoch all_at_home =
      survey.places && survey.places->displaced_blocks == 0 ? survey.places->epoch : 0;
  bool has_all_epochs = true;
  MarginQuestion question;
  question.placements = PlacementsSince(cluster.NewestPlacement(), all_at_home, has_all_epochs);
  if (!cluster.IsSettled()) question.unsettled = cluster.FormerPlacement();
  const auto add_stripes = [&](Geometry stripes) {
    if (std::ranges::count(question.stripes, stripes) == 0) question.stripes.push_back(stripes);
  };
  std::vector<StripeLayout> layouts{config.layout};  // with which files are made
  if (survey.kept_layout) layouts.push_back(survey.kept_layout->layout);
  for (const StripeLayout& layout : layouts) {
    add_stripes(layout.geometry());
    // Small files, and patches of large ones, are so many copies.
    add_stripes({1, layout.parity_shards});
  }
  if (survey.places) std::ranges::for_each(survey.places->stripes, add_stripes);
  question.min_redundancy = config.min_redundancy;
  question.map_drives = cluster.map_drives();
  question.away = also_away;
  for (const DriveReport& drive : survey.drives) {
    if (!drive.info) question.away.insert(drive.id);
    if (drive.info && !drive.IsUp()) question.read_only.insert(drive.id);
    const bool is_full = drive.fullness() == Fullness::kFull;
    if (is_full && full == FullDrives::kTakeNoData) question.full.insert(drive.id);
    if (!drive.doubt.empty()) question.without_say.insert(drive.id);
    if (drive.drain && drive.drain->retired) question.retired.insert(drive.id);
  }
  Margin margin = ComputeMargin(question);
  margin.exact &= has_all_epochs;
  return margin;
}

void CountErrors(const std::vector<Event>& events, std::vector<DriveReport>& drives) {
  for (DriveReport& drive : drives) {
    drive.errors = std::ranges::count_if(events, [&](const Event& event) {
      const bool is_error =
          event.kind == EventKind::kDriveWent || event.kind == EventKind::kDamageFound;
      return is_error && std::ranges::count(event.drives, drive.id) > 0;
    });
  }
}

Result<Survey> TakeSurvey(Runtime& runtime, const std::string& config_file) {
  Survey survey;
  survey.config = TRY(ClusterConfig::Load(config_file));
  const auto connected = ConnectCommand(runtime, config_file);
  if (connected) {
    Cluster& cluster = (*connected)->cluster();
    survey = SurveyOf(cluster);
    if (survey.names.NamesEngine()) {
      survey.engine = (*connected)->LookAtEngine(survey.config.drive_timeout);
    }
    const auto events = ReadEvents(cluster, runtime.WallClock() - kDay);
    if (events) CountErrors(events->events, survey.drives);
    AskForService(**connected, survey);
  } else {
    survey.opened = connected.error();
    survey.drives = AskEachDrive(runtime, survey.config);
  }
  return survey;
}

uint64_t UsedBytes(const DriveInfo& info) {
  return static_cast<uint64_t>(static_cast<double>(info.capacity_bytes) * info.portion_full);
}

}  // namespace pinstripe
