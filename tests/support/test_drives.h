// A row of memory drives, each behind a FaultyDrive, with a drive map: what stripes and registers
// are tested on without a whole cluster around them.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "cluster/map/placement.h"
#include "cluster/stripes/store.h"
#include "daemon/memory_drive.h"
#include "tests/support/faulty_drive.h"

namespace pinstripe {

class TestDrives final : public DriveDirectory {
 public:
  TestDrives(Runtime& runtime, size_t count, uint64_t capacity = MemoryStore::kDefaultCapacity)
      : runtime_(runtime), placement_(MapOf(count)) {
    for (size_t i = 1; i <= count; ++i) {
      const std::string name = fmt::format("drive {}", i);
      memory_.push_back(std::make_shared<MemoryDrive>(runtime, name, capacity));
      faulty_.push_back(std::make_unique<FaultyDrive>(runtime, memory_.back()));
    }
  }

  size_t size() const { return faulty_.size(); }
  FaultyDrive& faulty(DriveId id) { return *faulty_[id - 1u]; }
  MemoryDrive& memory(DriveId id) { return *memory_[id - 1u]; }

  void SetDown(DriveId id, bool down) {
    DriveFaults faults = faulty(id).faults();
    faults.down = down;
    faulty(id).Set(faults);
  }

  // An empty drive stands in its place.
  void Replace(DriveId id) {
    memory_[id - 1u] = std::make_shared<MemoryDrive>(runtime_, fmt::format("drive {}", id));
    faulty(id).ReplaceBy(memory_[id - 1u]);
  }

  DriveRequests requests() const {
    DriveRequests sum;
    for (const auto& drive : faulty_) {
      const DriveRequests one = drive->requests();
      sum.get += one.get;
      sum.put += one.put;
      sum.remove += one.remove;
    }
    return sum;
  }

  // DriveDirectory
  Epoch CurrentEpoch() override { return 1; }
  Result<std::vector<DriveId>> StripeDrives(Epoch epoch, uint64_t object, uint64_t block,
                                            Geometry geometry) override {
    if (epoch != 1) return Fail(EIO, "epoch {} is not known", epoch);
    return placement_.Order(GroupOfStripe(placement_.map(), object, block),
                            static_cast<size_t>(geometry.shards()),
                            static_cast<size_t>(geometry.parity_shards));
  }
  Drive* FindDrive(DriveId id) override {
    return id >= 1 && id <= faulty_.size() ? faulty_[id - 1u].get() : nullptr;
  }

 private:
  static DriveMap MapOf(size_t count) {
    DriveMap map;
    map.epoch = 1;
    map.groups = 64;
    map.replicas = 1;
    for (size_t i = 1; i <= count; ++i) {
      map.drives.push_back({static_cast<DriveId>(i), 100, "", DriveState::kActive});
    }
    return map;
  }

  Runtime& runtime_;
  Placement placement_;
  std::vector<std::shared_ptr<MemoryDrive>> memory_;
  std::vector<std::unique_ptr<FaultyDrive>> faulty_;
};

}  // namespace pinstripe
