#include "tools/drain_room.h"

#include <algorithm>
#include <map>

#include "base/byte_text.h"

namespace pinstripe {

DrainRoom RoomWithout(const DriveMap& map, const std::vector<DriveStatus>& drives,
                      const std::set<DriveId>& drained) {
  std::map<DriveId, const DriveInfo*> infos;
  for (const DriveStatus& drive : drives) {
    if (drive.info.has_value()) infos[drive.id] = &*drive.info;
  }
  DrainRoom room;
  double weight_left = 0;  // of drives that are to be empty, and do not answer
  double used = 0;         // on all that answer and take new data
  double weight = 0;       // of these
  for (const MappedDrive& drive : map.drives) {
    const bool is_draining = drive.state == DriveState::kDraining || drained.contains(drive.id);
    const auto found = infos.find(drive.id);
    if (found == infos.end()) {
      // A drive that was drained before, and is away, may have been emptied.
      if (drained.contains(drive.id)) weight_left += drive.weight;
      continue;
    }
    const auto capacity = static_cast<double>(found->second->capacity_bytes);
    const double portion = std::clamp(found->second->portion_full, 0.0, 1.0);
    if (drive.state == DriveState::kActive) {
      used += capacity * portion;
      weight += drive.weight;
    }
    const bool takes_changes = found->second->failure.empty();
    if (is_draining) {
      room.held_bytes += static_cast<uint64_t>(capacity * portion);
    } else if (takes_changes) {
      room.free_bytes += static_cast<uint64_t>(capacity * (1 - portion));
    }
  }
  if (weight > 0) room.held_bytes += static_cast<uint64_t>(used / weight * weight_left);
  return room;
}

Status CheckRoomWithout(const DriveMap& map, const std::vector<DriveStatus>& drives,
                        const std::set<DriveId>& drained) {
  const DrainRoom room = RoomWithout(map, drives, drained);
  if (room.held_bytes <= room.free_bytes) return {};
  return Fail(ENOSPC,
              "what is to be moved ({}) does not fit on the drives that are left, which have {} "
              "free: add drives first. Nothing was changed",
              BytesText(room.held_bytes), BytesText(room.free_bytes));
}

}  // namespace pinstripe
