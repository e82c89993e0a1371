// Cluster: the drives of one cluster, opened: identities proven, drive map read, registers and
// stripes ready. The only class of this folder that fs/ is given.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/config.h"
#include "cluster/map/drive_map.h"
#include "cluster/registers/store.h"
#include "cluster/stripes/store.h"
#include "drive/drive.h"

namespace pinstripe {

class Electorate;
class Placement;
struct KeptLayout;

// How a drive is reached. Tests put memory drives behind it; programs KineticDrives.
// The drive must refuse to work (EHOSTUNREACH) with a device whose superblock `check` refuses: it
// reads `identity_key`, and asks for the device's Info(), after every connect, and hands both (or
// their failures) to `check`.
using IdentityCheck =
    std::function<Status(const Result<Record>& superblock, const Result<DriveInfo>& info)>;
using DriveFactory = std::function<Result<std::unique_ptr<Drive>>(
    const DriveConfig& config, std::string identity_key, IdentityCheck check)>;

struct DriveStatus {
  DriveId id = 0;
  std::string address;
  std::string domain;
  uint32_t weight = 0;
  Result<DriveInfo> info;  // or why it does not answer
};

// A drive that the drive map has, in some epoch, and the configuration has not, though it is not
// retired. It counts as away, and nobody can wait for it.
struct MissingDrive {
  DriveId id = 0;
  std::string domain;
  bool is_draining = false;  // it was to become empty
  bool keeps_map = false;    // registers of the drive map, which do not move

  // For people: what is wrong, and the way out.
  std::string Text(const std::string& config_file) const;
};

struct SpaceInfo {
  uint64_t raw_bytes = 0;
  uint64_t raw_used_bytes = 0;
  uint64_t usable_bytes = 0;  // net of parity, under the default layout
  uint64_t usable_free_bytes = 0;
};

// Reads the configuration again. Asked when an epoch of the drive map names a drive that nobody has
// told this process the address of, and by Cluster::Reload().
using ConfigSource = std::function<Result<ClusterConfig>()>;

// Has a drive of the DriveFactory go on where the configuration says now, with the credentials that
// it gives. Requests under way on it fail, and CountLosses() counts that as a loss.
using DriveRedirect = std::function<Status(Drive&, const DriveConfig&)>;

// While a cluster is open its drive map may change: an epoch may add drives, drain one, or change
// weights. The cluster learns of that from the first drive that knows of it, and goes on with the
// new epoch; what the block maps name of earlier ones stays known. Where the new epoch names a
// feature that must be understood, and that this version does not know, the cluster is left alone
// from then on: everything fails with EIO, and Replicas() says why. Thread-safe.
class Cluster final : public ReplicaLocator, public DriveDirectory {
 public:
  // Opens a formatted cluster. Fails within Config::open_timeout, with a sentence that says what to
  // do:
  //   EIO     no drive answers, or no majority of those that keep the drive map;
  //   ENOENT  the drives that answer were never formatted, or formatting them was not finished;
  //   EINVAL  a drive is not the one that the configuration means, drives belong to different
  //           clusters of one name, or the configuration lacks more drives of the map than may be
  //           away;
  //   ENOTSUP the cluster uses a feature that must be understood, and that this version does not
  //           know (cluster/map/features.h).
  // Drives that are merely away are left for later. So are, with an error in the log, drives that
  // the configuration lacks (MissingDrives), and those that are empty, being rebuilt, out of date
  // (another one came in their place) or whose superblock is damaged: they count as away until they
  // were rebuilt (cluster/membership/rebuild.h).
  // `runtime` outlives the cluster. Without `source`, drives that are added later are away; without
  // that or `redirect`, Reload() fails.
  //
  // Drives that may have forgotten something, as after a loss of power, have no say in registers
  // until they were compared with the others (cluster/membership/comparison.h), which an open
  // cluster does in the background. Where too few are left to go on with, Open() does so before it
  // returns, unless `say` is kAsItIs: for those who only look.
  enum class OpenSay { kEnough, kAsItIs };
  static Result<std::unique_ptr<Cluster>> Open(Runtime& runtime, ClusterConfig config,
                                               DriveFactory factory, ConfigSource source = nullptr,
                                               DriveRedirect redirect = nullptr,
                                               OpenSay say = OpenSay::kEnough);
  ~Cluster() override;

  struct FormatOptions {
    // Use drives that are not empty. Everything that a cluster of this name has on them is erased;
    // what belongs to clusters of other names stays, and shares the drives from then on.
    bool force = false;
    std::vector<Feature> features;  // that it uses from its beginning; ascending by name
  };
  // Writes superblocks and the first epoch. EEXIST when a drive is not empty and force is off;
  // EINVAL when two drives are one device; all drives must answer. Does not make the root
  // directory: FileSystem::Format does.
  static Status Format(Runtime& runtime, const ClusterConfig& config, DriveFactory factory,
                       FormatOptions options);

  Runtime& runtime() { return runtime_; }
  const ClusterConfig& config() const { return config_; }
  const DriveMap& map() const;                     // the newest epoch that is known here
  const std::string& uuid() const;                 // 16 bytes
  const std::vector<DriveId>& map_drives() const;  // of the registers of the map group
  // As the cluster keeps it, when this was opened. Null: it does not, or nobody understands it.
  const std::optional<KeptLayout>& kept_layout() const;

  RegisterStore& registers() { return *registers_; }
  StripeStore& stripes() { return *stripes_; }

  // The group in which the registers of an object live.
  uint32_t GroupOfObject(uint64_t object) const;

  // Asks all drives; those that do not answer by the deadline say so in their entry.
  std::vector<DriveStatus> Drives(Duration timeout);

  // From answers at most a few seconds old. EIO when no drive answers.
  Result<SpaceInfo> Space();

  // Reads the configuration again, and goes by what it says of the ways to the drives: addresses,
  // TLS, credentials, and drives that it did not have before. A drive that it has no more stays.
  // Answers all that it says; config() keeps saying what it said at first. EINVAL and others as
  // ClusterConfig::Load: it cannot be used, or is that of another cluster, and nothing has changed.
  // A drive whose TLS files cannot be used fails it, too, and is left as it was.
  Result<ClusterConfig> Reload();

  // Asks the drives for newer epochs. EIO: too few of those that keep the map answer, or this
  // process has to leave the cluster alone.
  Status Refresh();

  // Whether the homes that the newest epoch has given to registers have a say.
  bool IsSettled() const;

  // Drives of the map whose addresses nobody has told this process; ascending by id.
  std::vector<MissingDrive> MissingDrives() const;

  // The drives that are being drained, in the newest epoch. A retired one holds nothing that is
  // needed, and may be taken out of the configuration, and away (RetireDrive).
  std::set<DriveId> DrainingDrives() const;
  bool IsRetired(DriveId drive) const;
  bool WasDrainingSince(DriveId drive, Epoch epoch) const;  // in that one and all after it

  // Drained ones that the configuration has no more: what they should hold is to be elsewhere.
  std::set<DriveId> DrivesLeftBehind() const;

  // The homes of a group's registers in the newest epoch, whether they have a say or not.
  std::vector<DriveId> RegisterHomes(uint32_t group) const;

  // For whoever changes the drive map: those of the newest epoch, and of the one before it (the
  // same in the first).
  std::shared_ptr<Placement> NewestPlacement() const;
  std::shared_ptr<Placement> FormerPlacement() const;

  // ReplicaLocator, DriveDirectory
  GroupReplicas Replicas(uint32_t group) override;
  Status CatchUp(const GroupReplicas& known) override;
  Epoch CurrentEpoch() override;
  Status LookForEpochAfter(Epoch known) override;
  Result<std::vector<DriveId>> StripeDrives(Epoch epoch, uint64_t object, uint64_t block,
                                            Geometry geometry) override;
  // kEngineDrive: the engine that keeps names, or is to; null where none is used, or known.
  Drive* FindDrive(DriveId id) override;

  // For all drives, at this moment.
  DriveLosses CountLosses() const;

  // The drives that have a say.
  Electorate& electorate();
  // The homes of a group's registers that count in this epoch, with a say or not.
  std::vector<bool> HomesThatCount(uint32_t group) const;
  // Reads which starts of drives are noted, and notes those that follow on them without a break.
  // EIO: too few of the drives that keep the map answer.
  Status LearnStarts();
  // The register of the drive's start, as it was read last.
  RegisterValue NotedStart(DriveId drive) const;
  // Notes that the drive has all that counts since this start. False: somebody has changed the
  // register since `seen`.
  Result<bool> NoteStart(DriveId drive, uint64_t start, const RegisterValue& seen);
  // Notes that others go on without the drive.
  Status LeaveOut(DriveId drive);

  // For whoever rebuilds the drive: it is refused here from now on in any older incarnation.
  void ExpectIncarnation(DriveId drive, uint32_t incarnation);

 private:
  class State;
  Cluster(Runtime& runtime, ClusterConfig config);
  Status ReadTheMap();
  Status ConnectAnew(DriveId id);
  Status AddDrives(const std::vector<DriveConfig>& configs);
  void AddMissingDrives();
  void LookNowAndThen();
  Status NoteFollowers();
  bool IsDecidable(uint32_t group);
  Status WaitForSay();
  void ElectOnTheSide();
  void Elect();

  Runtime& runtime_;
  ClusterConfig config_;
  std::unique_ptr<State> state_;
  std::unique_ptr<RegisterStore> registers_;
  std::unique_ptr<StripeStore> stripes_;
};

}  // namespace pinstripe
