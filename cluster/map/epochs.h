// Epochs: the drive map as a process knows it at some time, all its epochs.

#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "cluster/map/drive_map.h"
#include "cluster/map/placement.h"

namespace pinstripe {

// Immutable once it is shared.
struct Epochs {
  std::map<Epoch, std::shared_ptr<Placement>> all;
  bool settled = true;                   // the newest one
  std::set<DriveId> draining;            // in the newest one
  std::map<DriveId, MappedDrive> named;  // in any of them, as in the last that has it
  std::map<DriveId, Epoch> retired;      // of those that are draining, as they were found
  Status refusal;  // why nothing is done with the cluster any more: there is a later epoch than all
                   // of these, and it must not be gone by

  static std::set<DriveId> DrainingIn(const DriveMap& map) {
    std::set<DriveId> ids;
    for (const MappedDrive& drive : map.drives) {
      if (drive.state == DriveState::kDraining) ids.insert(drive.id);
    }
    return ids;
  }

  void Add(DriveMap map) {
    draining = DrainingIn(map);
    for (const MappedDrive& drive : map.drives) named[drive.id] = drive;
    // One that was used again since is not retired any more.
    std::erase_if(retired, [this](const auto& drive) { return !draining.contains(drive.first); });
    const Epoch epoch = map.epoch;
    auto before = all.empty() ? nullptr : all.rbegin()->second;
    all.emplace(epoch, std::make_shared<Placement>(std::move(map), std::move(before)));
  }
  bool WasDrainingSince(DriveId id, Epoch epoch) const {
    if (!all.contains(epoch)) return false;
    return std::all_of(all.find(epoch), all.end(), [id](const auto& each) {
      return DrainingIn(each.second->map()).contains(id);
    });
  }
  // Unless it was used since then.
  void Retire(DriveId id, Epoch epoch) {
    if (WasDrainingSince(id, epoch)) retired[id] = epoch;
  }
  // That of the engine that is used, or was until the newest epoch, which is not settled.
  const NamesPlace& engine_place() const {
    const bool by_newest = settled || newest().names().NamesEngine();
    return by_newest ? newest().names() : before().names();
  }
  Placement& newest() const { return *all.rbegin()->second; }
  Placement& before() const { return all.size() > 1 ? *std::next(all.rbegin())->second : newest(); }
};

}  // namespace pinstripe
