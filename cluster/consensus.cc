#include "cluster/consensus.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/try.h"
#include "cluster/connecting.h"
#include "cluster/membership/drive_identity.h"

namespace pinstripe {
namespace {

// Asks, counts who agrees, and says what to do where too few do.
class Asking {
 public:
  Asking(Runtime& runtime, const ClusterConfig& config, const DriveSet& drives,
         DriveIdentities& identities)
      : runtime_(runtime), config_(config), drives_(drives), identities_(identities) {}

  Result<Consensus> Run() {
    answers_ = AskDrives<Record>::Run(
        runtime_, drives_,
        {.ask =
             [this](Drive& drive, Time deadline, Callback<Record> done) {
               drive.Get(SuperblockKey(config_.name), {}, deadline, std::move(done));
             },
         .timeout = config_.drive_timeout,
         .deadline = runtime_.Now() + config_.open_timeout,
         // A drive that fails its check answers as if it were away: the verdict says more.
         .is_final =
             [this](DriveId id, const Result<Record>& record) {
               const Status status = identities_.Judge(id, record);
               return status.ok() || identities_.VerdictOn(id).has_value();
             },
         .is_enough = [this] { return !Majorities().empty(); }});
    // A minority's words about itself keep nobody from the rest: it counts as away.
    const std::vector<Consensus> majorities = Majorities();
    if (majorities.size() == 1) {
      LogUnusable(majorities[0]);
      return majorities[0];
    }
    TRY(RefuseWrongDrives());
    TRY(RefuseIfNoneIsFormatted());
    return Failed(NoMajority(TRY(Agree())));
  }

 private:
  std::optional<Superblock> BlockOf(DriveId id) const {
    const auto verdict = identities_.VerdictOn(id);
    if (!verdict || !verdict->has_value()) return std::nullopt;
    return **verdict;
  }

  // The word of enough drives to read the drive map: one, as a rule.
  std::vector<Consensus> Majorities() const {
    std::map<Consensus, std::set<DriveId>> claims;
    for (const DriveConfig& drive : config_.drives) {
      const auto block = BlockOf(drive.id);
      if (block) claims[{block->cluster_uuid, block->map_drives}].insert(drive.id);
    }
    std::vector<Consensus> majorities;
    for (const auto& [claim, drives] : claims) {
      const auto claimed = [&those = drives](DriveId id) { return those.contains(id); };
      const auto there = std::ranges::count_if(claim.map_drives, claimed);
      if (static_cast<size_t>(there) > claim.map_drives.size() / 2) majorities.push_back(claim);
    }
    return majorities;
  }

  Status RefuseWrongDrives() const {
    for (const DriveConfig& drive : config_.drives) {
      const auto verdict = identities_.VerdictOn(drive.id);
      if (!verdict || verdict->has_value() || verdict->error().code() != EINVAL) continue;
      return Fail(EINVAL, "{}: {}", Where(drive), verdict->error().message());
    }
    return {};
  }

  Status RefuseIfNoneIsFormatted() const {
    std::vector<std::string> empty;
    std::vector<std::string> away;
    for (const DriveConfig& drive : config_.drives) {
      const auto verdict = identities_.VerdictOn(drive.id);
      if (verdict && verdict->has_value()) return {};
      const int code = verdict ? verdict->error().code() : 0;
      if (code == ENOENT || code == EBADMSG) {
        empty.push_back(fmt::format("{}: {}", Where(drive), verdict->error().message()));
      } else {
        away.emplace_back(fmt::format("{}: {}", Where(drive), Reason(drive.id)));
      }
    }
    if (empty.empty()) {
      return Fail(EIO,
                  "no drive of the cluster '{}' can be used: {}. Are they running, and is what {} "
                  "says of them right?",
                  config_.name, Listed(away), config_.file);
    }
    return Fail(ENOENT, "no drive of the cluster '{}' is formatted: run `pinstripe format`. {}",
                config_.name, Listed(empty));
  }

  Result<Consensus> Agree() const {
    std::map<std::string, std::vector<DriveId>> clusters;
    std::map<std::vector<DriveId>, std::vector<DriveId>> maps;
    for (const DriveConfig& drive : config_.drives) {
      const auto block = BlockOf(drive.id);
      if (!block) continue;
      clusters[block->cluster_uuid].push_back(drive.id);
      maps[block->map_drives].push_back(drive.id);
    }
    if (clusters.size() > 1) {
      std::vector<std::string> claims;
      for (const auto& [uuid, ids] : clusters) {
        claims.push_back(
            fmt::format("{} has the drives {}", Hex(AsBytes(uuid)), fmt::join(ids, ", ")));
      }
      return Fail(EINVAL,
                  "the drives belong to different clusters of the name '{}': {}; take those "
                  "of the other one out of {}",
                  config_.name, Listed(claims), config_.file);
    }
    if (maps.size() > 1) {
      return Fail(EINVAL,
                  "the drives of the cluster '{}' disagree about where the drive map is kept: "
                  "formatting was not finished. Run `pinstripe format --force`, which erases the "
                  "cluster",
                  config_.name);
    }
    return Consensus{clusters.begin()->first, maps.begin()->first};
  }

  Status NoMajority(const Consensus& consensus) const {
    std::vector<std::string> reasons;
    for (DriveId id : consensus.map_drives) {
      if (BlockOf(id)) continue;
      reasons.push_back(fmt::format("drive {}: {}", id, Reason(id)));
    }
    const size_t all = consensus.map_drives.size();
    return Fail(EIO,
                "the drive map of the cluster '{}' is on {} drives, of which {} must answer, but "
                "only {} do: {}",
                config_.name, all, all / 2 + 1, all - reasons.size(), Listed(reasons));
  }

  // Why a drive cannot be used.
  std::string Reason(DriveId id) const {
    if (const auto verdict = identities_.VerdictOn(id))
      return std::string(verdict->error().message());
    const auto answer = answers_.find(id);
    if (answer == answers_.end()) return fmt::format("it is not in {}", config_.file);
    return answer->second.error().WithoutDriveName();
  }

  void LogUnusable(const Consensus& consensus) const {
    for (const DriveConfig& drive : config_.drives) {
      const auto block = BlockOf(drive.id);
      if (block && block->cluster_uuid == consensus.uuid) continue;
      const auto verdict = identities_.VerdictOn(drive.id);
      const bool is_away = !verdict.has_value();
      // It is new, or there is work to be done; no one has made a mistake.
      const bool is_empty = verdict && !verdict->has_value() && verdict->error().code() == ENOENT;
      const std::string why =
          block ? fmt::format("it belongs to another cluster of the name '{}'", config_.name)
                : Reason(drive.id);
      Log(is_away || is_empty ? LogLevel::kWarn : LogLevel::kError,
          is_away ? "drive away" : "drive cannot be used, and counts as away",
          {{"cluster", config_.name}, {"drive", Where(drive)}, {"why", why}});
    }
  }

  Runtime& runtime_;
  const ClusterConfig& config_;
  const DriveSet& drives_;
  DriveIdentities& identities_;
  std::map<DriveId, Result<Record>> answers_;
};

}  // namespace

Result<Consensus> FindConsensus(Runtime& runtime, const ClusterConfig& config,
                                const DriveSet& drives, DriveIdentities& identities) {
  return Asking(runtime, config, drives, identities).Run();
}

Status WhatTheyHold(Runtime& runtime, const ClusterConfig& config, const DriveFactory& factory,
                    const Status& otherwise) {
  using Keys = std::vector<std::string>;
  const DriveSet drives = TRY(MakeDrives(config, factory, AnyDrive));
  const auto answers = AskDrives<Keys>::Run(
      runtime, drives,
      {.ask =
           [](Drive& drive, Time deadline, Callback<Keys> done) {
             drive.Range(std::string(kLowestKey), std::string(kMaxKeyBytes, '\xff'), 1, false,
                         deadline, std::move(done));
           },
       .timeout = config.drive_timeout,
       .deadline = runtime.Now() + config.drive_timeout});
  std::map<std::string, std::vector<DriveId>> others;
  for (const auto& [id, keys] : answers) {
    if (!keys.has_value() || keys->empty()) continue;
    const auto name = ClusterOfKey(keys->front());
    if (name && *name != config.name) others[*name].push_back(id);
  }
  if (others.empty()) return otherwise;
  std::vector<std::string> claims;
  for (const auto& [name, ids] : others) {
    claims.push_back(
        fmt::format("the cluster '{}' is on the drives {}", name, fmt::join(ids, ", ")));
  }
  return Fail(ENOENT, "no drive holds the cluster '{}', but {}: is the name in {} right?",
              config.name, Listed(claims), config.file);
}

}  // namespace pinstripe
