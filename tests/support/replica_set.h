// ReplicaSet: the drives of one register group in memory, each behind faults; and ReplicaClient:
// how one client, which may crash, sees them.

#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "cluster/registers/store.h"
#include "daemon/memory_drive.h"
#include "tests/support/faulty_drive.h"

namespace pinstripe {

class ReplicaSet {
 public:
  ReplicaSet(Runtime& runtime, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      memory.push_back(std::make_shared<MemoryDrive>(runtime, fmt::format("drive {}", i + 1)));
      drives.push_back(std::make_shared<FaultyDrive>(runtime, memory.back()));
    }
  }

  void SetAll(const DriveFaults& faults) {
    for (auto& drive : drives) drive->Set(faults);
  }
  DriveRequests requests() const {
    DriveRequests sum;
    for (const auto& drive : drives) {
      const DriveRequests one = drive->requests();
      sum.get += one.get;
      sum.put += one.put;
      sum.range += one.range;
      sum.flush += one.flush;
      sum.durable_put += one.durable_put;
    }
    return sum;
  }
  void ForgetRequests() {
    for (auto& drive : drives) drive->ForgetRequests();
  }

  std::vector<std::shared_ptr<MemoryDrive>> memory;
  std::vector<std::shared_ptr<FaultyDrive>> drives;  // in front of memory
};

class ReplicaClient final : public ReplicaLocator {
 public:
  ReplicaClient(Runtime& runtime, const ReplicaSet& set) {
    for (const auto& drive : set.drives) {
      drives.push_back(std::make_shared<FaultyDrive>(runtime, drive, life));
      drives.back()->Set({.least_latency = Duration(0), .most_latency = Duration(0)});
    }
  }

  GroupReplicas Replicas(uint32_t) override {
    GroupReplicas replicas;
    for (const auto& drive : drives) replicas.drives.push_back(drive.get());
    replicas.cluster_version = cluster_version;
    replicas.are_moving = are_moving;
    return replicas;
  }

  Status CatchUp(const GroupReplicas& known) override {
    if (!next_cluster_version) return ReplicaLocator::CatchUp(known);
    cluster_version = next_cluster_version;
    return {};
  }

  bool are_moving = false;                      // the registers, as far as this client knows
  std::optional<int64_t> cluster_version;       // of the epoch that this client knows
  std::optional<int64_t> next_cluster_version;  // that it learns of when it is refused

  const std::shared_ptr<ClientLife> life = std::make_shared<ClientLife>();
  std::vector<std::shared_ptr<FaultyDrive>> drives;  // in front of the set's
};

}  // namespace pinstripe
