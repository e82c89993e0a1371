// Survey: how a cluster and each of its drives is doing, as one picture; also when the cluster
// cannot be opened at all, because that is when somebody asks.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/config.h"
#include "cluster/fullness.h"
#include "cluster/membership/epoch_change.h"
#include "upkeep/checker.h"
#include "upkeep/last_look.h"

namespace pinstripe {

// For a drive that is to become empty.
struct DrainReport {
  bool retired = false;    // it may be taken out of the configuration, and away
  bool keeps_map = false;  // a part of the drive map, so that it has to stay
  // The rest, up to kMaxRangeKeys of each; null: it does not say.
  std::optional<DriveContents> left;
};

struct DriveReport {
  DriveId id = 0;
  std::string address;  // empty: the configuration does not list it
  std::string domain;
  Result<DriveInfo> info;  // or why it does not serve
  std::optional<DrainReport> drain;
  // The process that rebuilds, drains, ... it, if there is one; and whether that gives signs of
  // life, as far as the clocks of two machines tell.
  std::string work;
  bool is_work_alive = false;
  Fullness fullness() const {
    return info.has_value() ? FullnessOf(info->portion_full) : Fullness::kPlenty;
  }
  // Something is to leave it yet, or it was not made sure of that nothing is.
  bool IsBeingDrained() const;
  // Why it has no say in names and inodes, though it is up; empty: it has.
  std::string doubt;

  // Whether it takes part in everything: one whose store has failed serves reads at best, and
  // cannot be written to.
  bool IsUp() const { return info.has_value() && info->failure.empty(); }
  bool IsMissing() const { return address.empty(); }
  // Whether redundancy is lacking because of it.
  bool CountsAsDown() const { return !IsUp() && !(drain && drain->retired); }
};

struct Survey {
  ClusterConfig config;
  Status opened;  // why the cluster cannot be opened, if so; what is from there to `space` is then
                  // empty
  std::string uuid;
  Epoch epoch = 0;
  bool settled = true;  // whether the change of the drive map that made it is complete
  size_t active = 0;    // drives of the map that take new data
  std::optional<SpaceInfo> space;
  std::vector<DriveReport> drives;  // ascending by id
  // The findings of the last look by what drives list, and of the last one by reading all of it.
  std::optional<LastLook> listed;
  std::optional<LastLook> read;
  // Who repairs or scrubs the cluster, as DriveReport::work.
  std::string work;
  bool is_work_alive = false;

  bool IsLost() const { return (listed && listed->lost > 0) || (read && read->lost > 0); }
  // What keeps it from being healthy though all can be read, for people; empty: nothing does.
  std::vector<std::string> Shortcomings() const;

  size_t DrivesDown() const;
  size_t DrivesInDoubt() const;
  // How many drives may be away, whichever they are, before something cannot be read.
  size_t Tolerated() const;
};

// kDamaged: all drives may be up, and something is lost.
enum class Health { kHealthy, kDegraded, kDamaged, kUnavailable };
Health HealthOf(const Survey& survey);

// 0 healthy, 1 degraded, 2 damaged or unavailable.
int ExitCodeOf(Health health);

// Only for a cluster that is open.
Survey SurveyOf(Cluster& cluster);

// Fails only when the configuration is no good. Takes no longer than open_timeout and drive_timeout
// of the configuration together; and, when drives are drained or down, as long as these take to say
// what is left on them, and registers of the drive map to be read.
Result<Survey> TakeSurvey(Runtime& runtime, const std::string& config_file);

// For people, and for programs.
std::string SurveyText(const Survey& survey);
std::string SurveyJson(const Survey& survey);

// 16 bytes as 8-4-4-4-12 hexadecimal digits.
std::string UuidText(const std::string& uuid);

// "1.5 GB": decimal units, as on the label of a drive.
std::string BytesText(uint64_t bytes);

}  // namespace pinstripe
