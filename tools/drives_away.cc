#include "tools/drives_away.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/try.h"

namespace pinstripe {
namespace {

// What care tells of drives bears this as its work.
constexpr std::string_view kCareNotes = "care";

// What all of them tell at one moment.
struct Told {
  DriveTroubles troubles;
  AwayNotes notes;
  std::map<DriveId, DriveAway> away;
  std::set<DriveId> well_again;
};

Result<Told> Look(Cluster& cluster) {
  Told told{.troubles = FindDriveTroubles(cluster)};
  EventFollower follower(cluster);
  const auto events = TRY(follower.Poll());
  told.notes = TRY(FindAwayNotes(cluster));
  told.away = DrivesAwayBy(events, told.notes, told.troubles, ThisProcess().host,
                           cluster.runtime().WallClock(), told.well_again);
  return told;
}

}  // namespace

DriveTroubles FindDriveTroubles(Cluster& cluster) {
  DriveTroubles troubles;
  for (const DriveStatus& drive : cluster.Drives(cluster.config().drive_timeout)) {
    if (cluster.IsRetired(drive.id)) continue;
    if (!drive.info.has_value()) {
      troubles[drive.id] = "";
    } else if (!drive.info->failure.empty()) {
      troubles[drive.id] = drive.info->failure;
    }
  }
  return troubles;
}

std::map<DriveId, DriveAway> DrivesAwayBy(const std::vector<Event>& events, const AwayNotes& notes,
                                          const DriveTroubles& troubles, const std::string& host,
                                          int64_t now, std::set<DriveId>& well_again) {
  std::map<DriveId, DriveAway> away;
  for (const auto& [drive, trouble] : troubles) away[drive];
  std::set<DriveId> failed;  // as care has noted
  for (const auto& [drive, note] : notes) {
    if (!note.failure.empty()) failed.insert(drive);
  }
  const auto add = [&](const Event& event, DriveId drive) {
    const bool is_of_care = event.work == kCareNotes;
    const auto found = away.find(drive);
    if (event.kind == EventKind::kDriveCame) {
      // Hosts see a drive that answers, though it has failed. Care knows better.
      const auto trouble = troubles.find(drive);
      const bool has_failed = trouble != troubles.end() && !trouble->second.empty();
      if (!is_of_care && has_failed && failed.contains(drive)) return;
      if (is_of_care) failed.erase(drive);
      if (found != away.end()) found->second.was_back = true;
      return;
    }
    if (!is_of_care) return;
    if (!event.text.empty()) failed.insert(drive);
    if (found != away.end()) found->second.was_back = false;
  };
  for (const Event& event : events) {
    if (event.kind != EventKind::kDriveWent && event.kind != EventKind::kDriveCame) continue;
    for (const DriveId drive : event.drives) add(event, drive);
  }
  for (auto& [drive, its] : away) {
    const auto note = notes.find(drive);
    if (note == notes.end() || its.was_back) continue;
    its.is_moved = note->second.moved != 0;
    const AwayNote::Watcher* const ours = note->second.Find(host, now);
    if (ours != nullptr) its.since = ours->since;
  }
  well_again = std::move(failed);
  for (const auto& [drive, trouble] : troubles) well_again.erase(drive);
  return away;
}

std::map<DriveId, DriveAway> FindDrivesAway(Cluster& cluster) {
  const auto told = Look(cluster);
  if (told.has_value()) return told->away;
  std::map<DriveId, DriveAway> away;
  for (const auto& [drive, trouble] : FindDriveTroubles(cluster)) away[drive];
  return away;
}

void NoteDrivesAway(Cluster& cluster) {
  const auto told = Look(cluster);
  if (!told.has_value()) return;  // the next time
  const std::string host = ThisProcess().host;
  const int64_t now = cluster.runtime().WallClock();
  std::map<std::string, std::vector<DriveId>> went;  // by what is wrong
  for (const auto& [drive, away] : told->away) {
    const std::string& trouble = told->troubles.at(drive);
    bool is_news = false;
    const Status noted = EditAwayNote(cluster, drive, [&](AwayNote& note) {
      // What others have noted before the drive was back, or a week ago, does not count any more.
      const bool is_watched = std::ranges::any_of(note.watchers, [now](const auto& watcher) {
        const auto [earlier, later] = std::minmax(watcher.seen, now);
        return TimeBetween(earlier, later) < AwayNote::kStaleAfter;
      });
      is_news = away.was_back || !is_watched;
      if (is_news) note = AwayNote();
      if (!trouble.empty()) {
        is_news |= note.failure.empty();
        note.failure = trouble;
      }
      note.See(host, away.since.value_or(now), now);
      return true;
    });
    if (noted.ok() && is_news) went[trouble].push_back(drive);
  }
  for (const auto& [drive, note] : told->notes) {
    if (!told->troubles.contains(drive)) (void)ForgetAwayNote(cluster, drive);
  }
  EventLog log(cluster);
  const auto tell = [&](EventKind kind, std::vector<DriveId> drives, const std::string& text) {
    Event event{.kind = kind, .actor = {}, .drives = std::move(drives)};
    event.work = kCareNotes;
    event.text = text;
    log.Add(std::move(event));
  };
  for (auto& [trouble, drives] : went) tell(EventKind::kDriveWent, std::move(drives), trouble);
  if (!told->well_again.empty()) {
    tell(EventKind::kDriveCame, {told->well_again.begin(), told->well_again.end()}, "");
  }
  (void)log.Flush();
}

}  // namespace pinstripe
