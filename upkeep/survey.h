// Survey: how a cluster and each of its drives is doing, as one picture; also when the cluster
// cannot be opened at all, because that is when somebody asks.

#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/config.h"
#include "cluster/fullness.h"
#include "cluster/kept_layout.h"
#include "cluster/map/names_place.h"
#include "cluster/membership/drive_contents.h"
#include "cluster/membership/epoch_change.h"
#include "engines/engine.h"
#include "upkeep/checker.h"
#include "upkeep/cluster_use.h"
#include "upkeep/events.h"
#include "upkeep/fill_history.h"
#include "upkeep/last_look.h"
#include "upkeep/margin.h"

namespace pinstripe {

// For a drive that is to become empty.
struct DrainReport {
  bool retired = false;    // it may be taken out of the configuration, and away
  bool keeps_map = false;  // a part of the drive map, so that it has to stay
  // The rest, up to kMaxRangeKeys of each; null: it does not say.
  std::optional<DriveContents> left;
};

// In one word each, for people and programs.
enum class DriveCondition {
  kUp,
  kFailed,    // its store takes no changes any more
  kDown,      // it does not answer, or is not what it should be
  kMissing,   // the drive map has it, and the configuration does not list it
  kNotAdded,  // the configuration lists it, and the drive map does not have it yet
  kDraining,  // something is to leave it yet, or nobody has found that nothing is
  kDrained,   // it is empty, and is not needed, but may keep a part of the drive map
};
std::string_view NameOf(DriveCondition condition);

struct DriveReport {
  DriveId id = 0;
  std::string address;  // empty: the configuration does not list it
  std::string domain;
  Result<DriveInfo> info;  // or why it does not serve
  bool is_added = true;    // the drive map has it
  std::optional<DrainReport> drain;
  // The process that rebuilds, drains, ... it, if there is one; and whether that gives signs of
  // life, as far as the clocks of two machines tell.
  std::string work;
  bool is_work_alive = false;
  bool is_work_known = true;  // else there may be one all the same
  Fullness fullness() const {
    return info.has_value() ? FullnessOf(info->portion_full) : Fullness::kPlenty;
  }
  // Something is to leave it yet, or it was not made sure of that nothing is.
  bool IsBeingDrained() const;
  std::optional<ServiceTimes> service;  // null: it does not tell, as no other Kinetic device does
  // How often somebody noted in the last day that it went, or was damaged; null: that is not known.
  std::optional<uint64_t> errors;
  // Why it has no say in names and inodes, though it is up; empty: it has.
  std::string doubt;

  // Whether it takes part in everything: one whose store has failed serves reads at best, and
  // cannot be written to.
  bool IsUp() const { return info.has_value() && info->failure.empty(); }
  bool IsMissing() const { return address.empty(); }
  // Whether redundancy is lacking because of it.
  bool CountsAsDown() const { return is_added && !IsUp() && !(drain && drain->retired); }
  DriveCondition Condition() const;
};

// What keeps a cluster from being healthy though all can be read.
struct Shortcoming {
  enum class Kind {
    kDrivesDown,
    kEngine,       // of names
    kWritesShort,  // new blocks get fewer shards than they should have
    kDoubt,
    kFull,
    kNearlyFull,
    kDraining,
    kUnsettled,  // the drive map
    kNotesUnread,
    kLacking,  // files
    kReplicasBehind,
    kNotLookedAt,
    kOverdue,
  };
  Kind kind = Kind::kDrivesDown;
  std::string what;  // for people
};

struct Survey {
  ClusterConfig config;
  Status opened;  // why the cluster cannot be opened, if so; what is from there to `space` is then
                  // empty
  std::string uuid;
  Epoch epoch = 0;
  bool settled = true;            // whether the change of the drive map that made it is complete
  size_t active = 0;              // drives of the map that take new data
  std::vector<Feature> features;  // that the cluster uses
  NamesPlace names;
  std::string engine_away;  // why nobody can ask the engine of names; empty: it can be asked
  std::optional<Result<EngineState>> engine;  // what it says; null: none is used, or nobody asked
  std::optional<Margin> margin;
  // The cluster keeps which layout it has. And that, if it is understood here.
  bool keeps_layout = false;
  std::optional<KeptLayout> kept_layout;
  std::vector<ConfigDifference> differences;
  std::optional<SpaceInfo> space;
  std::optional<FillForecast> forecast;
  std::vector<DriveReport> drives;  // ascending by id
  // The findings of the last look by what drives list, and of the last one by reading all of it.
  std::optional<LastLook> listed;
  std::optional<LastLook> read;
  std::optional<LastPlaces> places;  // of the last look by what drives list
  bool knows_notes = true;           // each of these was read, or nobody has noted it
  std::vector<std::string> overdue;  // what should have been done by now: upkeep/due.h
  // Who repairs or scrubs the cluster, or changes the drive map, as DriveReport::work.
  std::string work;
  bool is_work_alive = false;
  std::string map_work;
  bool is_map_work_alive = false;
  // Of whom nobody can tell whether somebody works on them, and why; empty: all could be read.
  std::string work_unknown;

  bool IsLost() const { return (listed && listed->lost > 0) || (read && read->lost > 0); }
  // Why something cannot be read or written now, though the cluster is open; empty: all can be.
  std::vector<std::string> OutOfReach() const;
  // Empty: it is healthy.
  std::vector<Shortcoming> FindShortcomings() const;
  std::vector<std::string> Shortcomings() const;  // for people

  size_t DrivesDown() const;
  size_t DrivesInDoubt() const;
};

// kDamaged: all drives may be up, and something is lost.
enum class Health { kHealthy, kDegraded, kDamaged, kUnavailable };
Health HealthOf(const Survey& survey);
std::string_view NameOf(Health health);
// The name, and why.
std::string HealthText(const Survey& survey);

// 0 healthy, 1 degraded, 2 damaged or unavailable.
int ExitCodeOf(Health health);

// Only for a cluster that is open.
Survey SurveyOf(Cluster& cluster);

enum class FullDrives : uint8_t { kTakeData, kTakeNoData };

// What the drive map says of the cluster as the survey has found its drives, with these away, too.
// A drive that is said to be full may still take some data; but it is not to be relied upon.
Margin MarginOf(Cluster& cluster, const Survey& survey, const std::set<DriveId>& also_away = {},
                FullDrives full = FullDrives::kTakeData);

// SurveyOf() the cluster of a configuration, with what its drives tell of their service, and what
// was noted of them. Fails only when the configuration is no good. Takes no longer than
// open_timeout and drive_timeout of the configuration together; and, when drives are drained or
// down, as long as these take to say what is left on them, and registers of the drive map to be
// read.
Result<Survey> TakeSurvey(Runtime& runtime, const std::string& config_file);

// Notes in each drive's report how often these name it .
void CountErrors(const std::vector<Event>& events, std::vector<DriveReport>& drives);

// For people, and for programs (docs/reference/status-json.md).
std::string SurveyText(const Survey& survey);
std::string SurveyJson(const Survey& survey);

// "2 more drives, or 1 more host", and which part of the cluster goes first.
std::string MarginText(const MarginCount& count, const Survey& survey);

// Whether some drives share a failure domain, so that domains are worth a word.
bool HasDomains(const Survey& survey);

uint64_t UsedBytes(const DriveInfo& info);

}  // namespace pinstripe
