#include "upkeep/stop.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <set>

#include "base/try.h"
#include "upkeep/events.h"

namespace pinstripe {
namespace {

using Verdict = StopAnswer::Verdict;

std::optional<DriveId> AsDrive(const std::string& text) {
  DriveId id = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), id);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return id;
}

// A host may have the name of a drive: both are meant then, so that nothing is promised in vain.
Result<std::set<DriveId>> FindDrives(const DriveMap& map, const std::vector<std::string>& what) {
  std::set<DriveId> drives;
  for (const std::string& each : what) {
    const std::optional<DriveId> id = AsDrive(each);
    bool is_known = false;
    for (const MappedDrive& drive : map.drives) {
      if (drive.id != id && (drive.domain.empty() || drive.domain != each)) continue;
      drives.insert(drive.id);
      is_known = true;
    }
    if (is_known) continue;
    std::vector<DriveId> ids;
    std::set<std::string> domains;
    for (const MappedDrive& drive : map.drives) {
      ids.push_back(drive.id);
      if (!drive.domain.empty()) domains.insert(drive.domain);
    }
    return Fail(EINVAL, "{}: the cluster has no such drive or host. It has the drives {}{}{}", each,
                fmt::join(ids, ", "), domains.empty() ? "" : ", and the hosts ",
                fmt::join(domains, ", "));
  }
  return drives;
}

bool LacksSomething(const std::optional<LastLook>& look) {
  return look && look->lacking + look->replicas_behind + look->not_looked_at > 0;
}

// Events that could not be kept may have said so.
bool SaysThatDrivesWereAway(const Event& event) {
  return event.kind == EventKind::kDriveWent || event.kind == EventKind::kDriveCame ||
         event.kind == EventKind::kSparesUsed || event.kind == EventKind::kDropped;
}

// Why it is not known where all shards are; empty: they are at home, and the map says where that
// is.
std::vector<std::string> WhatIsNotKnown(Cluster& cluster, const Survey& survey) {
  constexpr Duration kLooksCountFor = std::chrono::hours(24 * 7);
  std::vector<std::string> all;
  if (!survey.knows_notes) {
    all.emplace_back("what was found last cannot be read, or not all of it");
    return all;
  }
  if (!survey.places || survey.places->epoch != cluster.map().epoch) {
    all.emplace_back(
        "nobody has looked where all shards are since the drive map was changed: run `pinstripe "
        "check` first");
    return all;
  }
  const LastPlaces& places = *survey.places;
  if (places.displaced_blocks > 0) {
    all.push_back(fmt::format(
        "{} blocks have shards that are not at home, perhaps several on one host: run `pinstripe "
        "repair` first",
        places.displaced_blocks));
  }
  const int64_t now = cluster.runtime().WallClock();
  // Times come from the drives and may be anything.
  if (places.at < 0 || places.at > now || TimeBetween(places.at, now) > kLooksCountFor) {
    all.emplace_back("who looked last did so more than a week ago: run `pinstripe check` first");
    return all;
  }
  const auto events = ReadEvents(cluster, places.at);
  if (!events.has_value()) {
    all.push_back(
        fmt::format("whether drives were away since somebody looked last is not known: {}",
                    events.error().message()));
  } else if (!events->reaches_back || std::ranges::any_of(events->events, SaysThatDrivesWereAway)) {
    all.emplace_back(
        "drives were away since somebody looked last, and what was written meanwhile may be "
        "several times on one host: run `pinstripe check` first");
  } else if (events->damaged > 0) {
    all.emplace_back(
        "a part of the events cannot be read, and may say that drives were away since somebody "
        "looked last: run `pinstripe check` first");
  }
  return all;
}

std::string_view NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kYes: return "yes";
    case Verdict::kNo: return "no";
    case Verdict::kUnknown: return "unknown";
  }
  return "";
}

}  // namespace

Result<StopAnswer> MayStop(Cluster& cluster, const Survey& survey,
                           const std::vector<std::string>& what) {
  TRY(survey.opened);
  const std::set<DriveId> drives = TRY(FindDrives(cluster.map(), what));
  StopAnswer answer;
  answer.drives.assign(drives.begin(), drives.end());
  answer.now = MarginOf(cluster, survey, {}, FullDrives::kTakeNoData);
  answer.then = MarginOf(cluster, survey, drives, FullDrives::kTakeNoData);
  answer.risks = answer.then.OutOfReach();
  answer.verdict = answer.risks.empty() ? Verdict::kYes : Verdict::kNo;
  if (!answer.risks.empty()) {
    if (!answer.now.OutOfReach().empty()) {
      answer.risks.insert(answer.risks.begin(), "something is out of reach already");
    }
    return answer;
  }
  if (LacksSomething(survey.listed) || LacksSomething(survey.read)) {
    answer.verdict = Verdict::kUnknown;
    // Nobody can look at what is on a drive that is down.
    answer.risks.push_back(fmt::format(
        "who looked last found files that lack shards, names that lack copies, or something that "
        "could not be looked at, and these may be out of reach: {}run `pinstripe repair` and "
        "`pinstripe check` first",
        survey.DrivesDown() == 0
            ? ""
            : "bring back the drives that are down, or have what they held written elsewhere with "
              "`pinstripe repair --without`; then "));
  }
  for (std::string& reason : WhatIsNotKnown(cluster, survey)) {
    answer.verdict = Verdict::kUnknown;
    answer.risks.push_back(std::move(reason));
  }
  if (!answer.then.exact) {
    answer.verdict = Verdict::kUnknown;
    answer.risks.emplace_back(
        "there are so many groups or changes of the drive map that only a part was looked at");
  }
  if (answer.then.writes_short) {
    answer.notes.emplace_back(
        "new blocks get fewer shards than they should have, and `pinstripe repair` adds the rest");
  }
  return answer;
}

int ExitCodeOf(const StopAnswer& answer) {
  switch (answer.verdict) {
    case Verdict::kYes: return 0;
    case Verdict::kNo: return 1;
    case Verdict::kUnknown: return 2;
  }
  return 2;
}

std::string StopText(const StopAnswer& answer, const Survey& survey) {
  std::string text =
      fmt::format("{}: drive{} {}\n", NameOf(answer.verdict), answer.drives.size() == 1 ? "" : "s",
                  fmt::join(answer.drives, ", "));
  for (const std::string& risk : answer.risks) text += fmt::format("risk   {}\n", risk);
  if (answer.verdict == Verdict::kNo) {
    if (answer.then.reading.drives < 0) {
      text += fmt::format("first  {}\n", answer.then.reading.worst_by_drives.Text());
    }
    return text;
  }
  for (const std::string& note : answer.notes) text += fmt::format("note   {}\n", note);
  return text + fmt::format("while they are away the cluster survives {}\n",
                            MarginText(answer.then.reading, survey));
}

std::string StopJson(const StopAnswer& answer) {
  const auto margin = [](const Margin& of) -> nlohmann::json {
    return {{"reading", {{"drives", of.reading.drives}, {"domains", of.reading.domains}}},
            {"writing", {{"drives", of.writing.drives}, {"domains", of.writing.domains}}}};
  };
  const nlohmann::json json{{"answer", NameOf(answer.verdict)},
                            {"drives", answer.drives},
                            {"risks", answer.risks},
                            {"notes", answer.notes},
                            {"survives_now", margin(answer.now)},
                            {"survives_then", margin(answer.then)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace pinstripe
