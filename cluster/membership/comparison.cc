#include "cluster/membership/comparison.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/try.h"
#include "cluster/map/electorate.h"
#include "cluster/map/placement.h"
#include "cluster/membership/drive_claim.h"

namespace pinstripe {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(500);
constexpr int kAttempts = 20;  // at a group, while drives come and go

class Comparing {
 public:
  Comparing(Cluster& cluster, const ComparisonOptions& options)
      : cluster_(cluster),
        runtime_(cluster.runtime()),
        electorate_(cluster.electorate()),
        options_(options),
        watched_(options.watched != nullptr ? *options.watched : unwatched_),
        begun_(runtime_.Now()) {}

  Result<ComparisonReport> Run() {
    FindDrives();
    if (drives_.empty()) return std::move(report_);
    TRY(WaitUntilForgotten());
    for (;;) {
      const std::shared_ptr<Placement> placement = cluster_.NewestPlacement();
      const auto done = options_.compare ? CompareGroups(*placement) : SweepReport();
      const bool outdated = !done.has_value() && done.error().code() == EREMCHG;
      if (!done.has_value() && !outdated) return tl::unexpected(done.error());
      // A new epoch may have given them more.
      TRY_CONTEXT(cluster_.Refresh(), "compare drives");
      if (cluster_.map().epoch != placement->map().epoch) continue;
      if (outdated) return tl::unexpected(done.error());
      report_.registers += *done;
      break;
    }
    for (const auto& [id, start] : drives_) {
      // Unless others have gone on without it since: then it is to be compared with them.
      if (!TRY(cluster_.NoteStart(id, start, seen_.at(id)))) continue;
      report_.compared.insert(id);
      electorate_.NoteCompared(id, voters_.at(id).say);
      Log(LogLevel::kInfo, "a drive that may have forgotten changes has been compared",
          {{"cluster", cluster_.config().name},
           {"drive", id},
           {"registers", report_.registers.registers}});
    }
    const MutexLock lock(mutex_);
    report_.left_out = std::move(left_out_);
    return std::move(report_);
  }

 private:
  // Those that answer and that nobody else is at, with the starts that are compared: of one that is
  // started anew meanwhile the next start is not noted.
  void FindDrives() {
    for (const DriveId id : electorate_.Doubtful()) {
      const RegisterValue seen = cluster_.NotedStart(id);
      const auto voter = electorate_.Find(id);
      const Drive* drive = cluster_.FindDrive(id);
      const bool can_be = voter && (voter->say == Say::kForgetful || voter->say == Say::kStale);
      if (!can_be || drive == nullptr || !drive->IsUp()) continue;
      if (options_.claim) {
        std::unique_ptr<DriveClaim>& claim = watched_[id];
        if (claim == nullptr) {
          claim = std::make_unique<DriveClaim>(cluster_, id, DriveWork::kCompare);
        }
        if (!claim->Try().ok()) {
          report_.others.insert(id);
          continue;
        }
        claims_.push_back(std::move(claim));
        watched_.erase(id);
      }
      Log(LogLevel::kWarn, "comparing what a drive holds of names and inodes with what others do",
          {{"cluster", cluster_.config().name}, {"drive", id}, {"why", electorate_.WhyNot(id)}});
      drives_.emplace(id, voter->start());
      seen_.emplace(id, seen);
      voters_.emplace(id, *voter);
    }
  }

  // Nobody counts any more what they said before they forgot it.
  Status WaitUntilForgotten() {
    Time until = runtime_.Now();
    for (const auto& [id, voter] : voters_) {
      const Duration up = std::min(voter.up.value_or(Duration()), options_.forgetting);
      until = std::max(until, voter.met_at + options_.forgetting - up);
    }
    return WaitAndTell(runtime_, until, options_.forgetting,
                       "waiting until nobody counts what was forgotten", options_);
  }

  Result<SweepReport> CompareGroups(Placement& placement) {
    std::vector<uint32_t> groups;
    const auto concerns = [&](const std::vector<DriveId>& homes) {
      return std::ranges::any_of(homes, [&](DriveId id) { return drives_.contains(id); });
    };
    // All registers of the map's group were written through, so only a copy lacks any of them.
    const auto& in_map = cluster_.map_drives();
    const bool map_is_stale = std::ranges::any_of(in_map, [&](DriveId id) { return IsStale(id); });
    if (map_is_stale) groups.push_back(kMapGroup);
    for (uint32_t group = 0; group < placement.map().groups; ++group) {
      if (concerns(placement.RegisterHomes(group))) groups.push_back(group);
    }
    const auto work = [&](uint32_t group,
                          const RegisterStore::SweepProgress& progress) -> Result<SweepReport> {
      if (cluster_.map().epoch != placement.map().epoch) {
        return Fail(EREMCHG, "the drive map has changed");
      }
      return CompareGroup(group, progress);
    };
    return GroupWork(runtime_, std::move(groups), work, options_).Run("comparing registers");
  }

  bool IsStale(DriveId id) const {
    const auto voter = voters_.find(id);
    return voter != voters_.end() && voter->second.say == Say::kStale;
  }

  // The homes that take part in a group.
  struct Part {
    std::vector<DriveId> homes;
    std::vector<bool> count;   // which of them do, in this epoch
    GroupReplicas with_a_say;  // null: away, or without
    GroupReplicas all;         // that answer and go on from no copy, null: others
    size_t voters = 0;
    size_t present = 0;
    bool fits = true;  // all of these are of one epoch
  };
  Part PartOf(uint32_t group) {
    Part part;
    part.homes = cluster_.RegisterHomes(group);
    part.count = cluster_.HomesThatCount(group);
    part.with_a_say = part.all = cluster_.Replicas(group);
    const size_t replicas = part.homes.size();
    // An epoch has begun meanwhile.
    part.fits = part.count.size() == replicas && part.all.drives.size() == replicas;
    if (!part.fits) return part;
    for (size_t i = 0; i < part.homes.size(); ++i) {
      Drive*& voter = part.with_a_say.drives[i];
      Drive*& any = part.all.drives[i];
      if (voter == nullptr || !part.count[i]) continue;
      any = cluster_.FindDrive(part.homes[i]);
      const auto known = electorate_.Find(part.homes[i]);
      const bool is_there = any != nullptr && any->IsUp() && known && known->say != Say::kStale;
      if (!is_there) any = nullptr;
      if (!voter->IsUp()) voter = nullptr;
      if (voter != nullptr) ++part.voters;
      if (any != nullptr) ++part.present;
    }
    return part;
  }

  Result<SweepReport> CompareGroup(uint32_t group, const RegisterStore::SweepProgress& progress) {
    Status last = Fail(EIO, "group {}: too few drives answer", group);
    for (int attempt = 0; attempt < kAttempts;) {
      if (IsCancelled(options_)) return Failed(Cancelled());
      Part part = PartOf(group);
      if (!part.fits) return Fail(EREMCHG, "the drive map has changed");
      const size_t majority = part.homes.size() / 2 + 1;
      const bool all_there = part.present == part.homes.size();
      const bool waited = runtime_.Now() >= begun_ + options_.patience;
      Result<SweepReport> report = tl::unexpected(last);
      if (part.voters >= majority) {
        report = Compare(group, part, part.with_a_say, progress);
      } else if (part.present >= majority && (all_there || waited)) {
        report = Recover(group, part, progress);
      } else {
        if (waited) ++attempt;
        Sleep(runtime_, runtime_.Now() + kLookAgain);
        continue;
      }
      if (report.has_value() || report.error().code() == EREMCHG) return report;
      last = report.error();
      ++attempt;
      Sleep(runtime_, runtime_.Now() + kLookAgain);
    }
    return Failed(last);
  }

  // Compares those homes that are ours with the others.
  Result<SweepReport> Compare(uint32_t group, const Part& part, const GroupReplicas& others,
                              const RegisterStore::SweepProgress& progress) {
    SweepReport sum;
    for (size_t i = 0; i < part.homes.size(); ++i) {
      const DriveId id = part.homes[i];
      if (!drives_.contains(id) || (group == kMapGroup && !IsStale(id))) continue;
      Drive* drive = cluster_.FindDrive(id);
      sum +=
          TRY_CONTEXT(cluster_.registers().Compare(group, i, *drive, IsStale(id), others, progress),
                      "compare drive {}", id);
    }
    return sum;
  }

  // A drive that is not among those that decide has no say until it was compared. That is noted
  // first.
  Result<SweepReport> Recover(uint32_t group, const Part& part,
                              const RegisterStore::SweepProgress& progress) {
    for (size_t i = 0; i < part.homes.size(); ++i) {
      const DriveId id = part.homes[i];
      if (part.all.drives[i] != nullptr || !part.count[i] || options_.leave_others) continue;
      const auto known = electorate_.Find(id);
      if (known && known->say == Say::kStale) continue;
      Log(LogLevel::kWarn,
          "a drive is away, and the others go on without it: what it holds is compared with theirs "
          "when it comes back",
          {{"cluster", cluster_.config().name}, {"drive", id}, {"group", group}});
      TRY(cluster_.LeaveOut(id));
      const MutexLock lock(mutex_);
      left_out_.insert(id);
    }
    SweepReport sum = TRY_CONTEXT(cluster_.registers().Recover(group, part.all, progress),
                                  "decide the registers of group {} anew", group);
    // Those that go on from a copy took no part.
    for (size_t i = 0; i < part.homes.size(); ++i) {
      if (!IsStale(part.homes[i])) continue;
      sum += TRY(cluster_.registers().Compare(group, i, *cluster_.FindDrive(part.homes[i]),
                                              /*is_copy=*/true, part.all, progress));
    }
    return sum;
  }

  Cluster& cluster_;
  Runtime& runtime_;
  Electorate& electorate_;
  const ComparisonOptions& options_;
  WatchedClaims unwatched_;
  WatchedClaims& watched_;
  const Time begun_;
  std::map<DriveId, uint64_t> drives_;     // that are compared, with their starts
  std::map<DriveId, RegisterValue> seen_;  // the registers of their starts, when they were judged
  std::map<DriveId, Electorate::Voter> voters_;
  std::vector<std::unique_ptr<DriveClaim>> claims_;
  ComparisonReport report_;  // but for what groups, beside each other, have found:
  Mutex mutex_;
  std::set<DriveId> left_out_ GUARDED_BY(mutex_);
};

}  // namespace

Result<ComparisonReport> CompareDrives(Cluster& cluster, const ComparisonOptions& options) {
  return Comparing(cluster, options).Run();
}

}  // namespace pinstripe
