// NamesPlace: where a cluster keeps its names, as an epoch of its drive map says: on its drives, or
// on an engine (engines/engine.h). docs/format.md, "Names on an engine", has the bytes and the
// rules of a move from one to the other.

#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "cluster/map/features.h"

namespace pinstripe {

struct NamesPlace {
  enum class Where : uint8_t {
    kDrives = 0,     // on the drives; no engine is named
    kEngine = 1,     // on the engine
    kMovingIn = 2,   // on the drives, and being copied to the engine; nothing changes meanwhile
    kMovingOut = 3,  // on the engine, and being copied to the drives; nothing changes meanwhile
  };

  Where where = Where::kDrives;
  std::string engine;  // "etcd" or "postgresql"; empty for kDrives
  // That of the engine's superblock: another one for each move there, so that nobody takes the
  // store of an earlier one for this.
  uint32_t incarnation = 0;

  // Where registers are read.
  bool OnEngine() const { return where == Where::kEngine || where == Where::kMovingOut; }
  bool IsMoving() const { return where == Where::kMovingIn || where == Where::kMovingOut; }
  bool NamesEngine() const { return where != Where::kDrives; }

  friend bool operator==(const NamesPlace&, const NamesPlace&) = default;
};

// ENOTSUP: a later version has written it, or it is damaged.
Result<NamesPlace> ReadNamesPlace(const DriveMap& map);

// As ReadNamesPlace() of a map that was read and is used, so that it can be understood.
NamesPlace NamesPlaceOf(const DriveMap& map);

// The features of a map whose names are there.
std::vector<Feature> WithNamesPlace(std::vector<Feature> features, const NamesPlace& place);

// The engine as a drive: no drive of a map has this id. It has a superblock as they have.
inline constexpr DriveId kEngineDrive = UINT16_MAX;
std::string TextOfDrive(DriveId id);  // "drive 7", or "the engine of names"

}  // namespace pinstripe
