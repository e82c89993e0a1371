// The drive map: which drives a cluster has, as one numbered, immutable epoch. And the superblock:
// the record by which a drive proves which cluster it belongs to and which of its drives it is.
// docs/format.md, "Superblock" and "Drive map", has the bytes.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/map/features.h"

namespace pinstripe {

// Names a drive within its cluster for ever; never reused. 0 is not a drive.
using DriveId = uint16_t;
using Epoch = uint32_t;  // 1 is the one that `pinstripe format` makes

enum class DriveState : uint8_t {
  kActive = 1,    // takes new data
  kDraining = 2,  // keeps what it has, takes nothing new
};

struct MappedDrive {
  DriveId id = 0;
  uint32_t weight = 0;  // relative capacity, 1..2^20; by custom, GiB
  std::string domain;   // what fails together: a host or a rack; may be empty: its own domain
  DriveState state = DriveState::kActive;
  // What placement goes by: with what it gets its part by its weight
  // (cluster/membership/drive_pulls.h). Either all drives of a map have one, or it is 0 for all:
  // then they pull as they weigh.
  uint32_t pull = 0;

  uint32_t Pull() const { return pull != 0 ? pull : weight; }
  friend bool operator==(const MappedDrive&, const MappedDrive&) = default;
};

struct DriveMap {
  Epoch epoch = 0;
  uint32_t groups = 512;  // placement groups P: a power of two, fixed when the cluster is formatted
  uint8_t replicas = 0;   // of a register: odd
  std::vector<MappedDrive> drives;  // ascending by id
  std::vector<Feature> features;    // that the cluster uses, ascending by name; not judged here

  std::string Encode() const;
  static Result<DriveMap> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const DriveMap&, const DriveMap&) = default;
};

// The register of an epoch, in the group of the map.
std::string EpochKey(Epoch epoch);  // "M" U32

// All drives that have heard of an epoch carry this as their Kinetic cluster version. They refuse
// everybody who decides anything in an earlier epoch (docs/format.md, "Changing the drive map").
constexpr int64_t ClusterVersionOf(Epoch epoch) { return int64_t{epoch} - 1; }

// The register that says that the homes which an epoch has given to registers have a say. Absent:
// they have none yet. Its value: drives that still hold what they held as homes before.
std::string SettlementKey(Epoch epoch);  // "V" U32
struct Settlement {
  std::vector<DriveId> to_clear;  // ascending

  std::string Encode() const;
  static Result<Settlement> Decode(std::string_view bytes);  // EBADMSG
};

// The register that says that a drive that was drained is retired: everything has left it, and
// nothing says any more that it should be there, so it may be taken away. It counts as long as the
// drive is drained in that epoch and in all after it.
std::string RetirementKey(DriveId drive);  // "G" U16
struct Retirement {
  Epoch epoch = 0;  // the newest when that was found

  std::string Encode() const;
  static Result<Retirement> Decode(std::string_view bytes);  // EBADMSG
};

enum class DriveService : uint8_t {
  kInService = 1,
  kBeingRebuilt = 2,  // what it holds of registers is not complete: nobody may count on it
};

struct Superblock {
  std::string cluster_name;
  std::string cluster_uuid;  // 16 random bytes, made by format
  DriveId drive = 0;
  std::vector<DriveId> map_drives;  // where the registers of the drive map epochs live; odd number
  int64_t formatted_at = 0;         // nanoseconds since 1970; of a rebuilt drive: when that began
  uint32_t incarnation = 0;         // 0: of format; one more for each drive that took its place
  DriveService service = DriveService::kInService;

  std::string Encode() const;
  static Result<Superblock> Decode(std::string_view bytes);  // EBADMSG

  // The record's version, so that a change of it can require what was there before.
  std::string Version() const;
};

// The register of a drive's incarnation, in the group of the map: its key and its value. Absent: 0.
std::string IncarnationKey(DriveId drive);  // "D" U16
// That of the highest incarnation that anybody was given for a device of that name, whether it came
// into use or not. Its value is of the same form.
std::string GivenIncarnationKey(DriveId drive);  // "N" U16
std::string EncodeIncarnation(uint32_t incarnation);
Result<uint32_t> DecodeIncarnation(std::string_view bytes);  // EBADMSG

// All keys of a cluster begin with its name, length first, so that no name is a prefix of another.
//   prefix = U8(length of name) name
// 1 to 32 characters of a-z 0-9 - _ . ; EINVAL otherwise.
Status CheckClusterName(std::string_view name);
std::string ClusterPrefix(std::string_view name);
std::string SuperblockKey(std::string_view name);  // prefix "S"

}  // namespace pinstripe
