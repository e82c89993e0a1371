// A whole cluster in one process: memory drives that all clients share, each client with its own
// way to them, under any Runtime.
//
//   SimRuntime sim(seed);
//   TestCluster machines(sim, {.drives = 8, .layout = {4, 2, 64 << 10}});
//   ASSERT_OK(machines.Format());
//   auto cluster = machines.Open();                        // one client
//   auto life = std::make_shared<ClientLife>();
//   auto other = machines.Open(life);                      // one that can crash: life->Crash()
//   machines.SetDown(3, true);                             // for everybody
//   auto old = machines.Replace(4);                        // an empty drive in its place
//   machines.Plug(4, old);                                 // the old one again
//   auto safe = machines.CopyOf(4);                        // what it has now
//   machines.Plug(4, safe);                                // it has forgotten what came since
//
// Clusters are destroyed before their TestCluster, and that before the runtime.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "cluster/cluster.h"
#include "daemon/memory_drive.h"
#include "tests/support/faulty_drive.h"

namespace pinstripe {

class TestCluster {
 public:
  struct Options {
    size_t drives = 8;
    StripeLayout layout = {4, 2, 64 << 10};
    std::string name = "test";
    uint32_t groups = 64;
    int replicas = 0;  // 0: 2 m + 1, as far as there are drives
    uint64_t drive_bytes = MemoryStore::kDefaultCapacity;
    uint64_t reserve_bytes = 0;  // of these, that data does not get
    bool engine = false;         // there is one for names; SetDown() and so on by kEngineDrive
    bool loses_power = false;    // drives remember what was not synced: see LosePower()
  };

  TestCluster(Runtime& runtime, const Options& options);

  // May be changed before Format() and Open().
  ClusterConfig& config() { return config_; }

  Status Format(Cluster::FormatOptions options = {});

  // One more client; one with a life can crash.
  Result<std::unique_ptr<Cluster>> Open(std::shared_ptr<ClientLife> life = nullptr);
  // Called, by a cluster that reads its configuration again, before it goes another way to a drive.
  std::function<void()> on_redirect;

  // What Open() and Format() use. Drives are found by their first address, so a configuration with
  // the addresses of two drives swapped reaches the wrong ones, as in real life.
  DriveFactory Factory(std::shared_ptr<ClientLife> life = nullptr);

  size_t size() const { return machines_.size(); }
  FaultyDrive& drive(DriveId id) { return *MachineOf(id).faulty; }   // what all clients reach
  MemoryDrive& memory(DriveId id) { return *MachineOf(id).memory; }  // past all faults
  void SetDown(DriveId id, bool down);

  // Another drive stands here. What was on its way to the one before is lost, and clients ask the
  // new one who it is. Returns the one before.
  // `starts`: that it had so far.
  std::shared_ptr<MemoryDrive> Plug(DriveId id, std::shared_ptr<MemoryDrive> drive,
                                    std::vector<DriveStart> starts = {});
  std::shared_ptr<MemoryDrive> Replace(DriveId id);

  // The machines of these drives lose their power and have it again at once. Each drive has
  // forgotten what it did since it was last synced, but for the first `kept` changes of that; what
  // was on its way is lost, and clients connect anew. `loses_power` must have been set.
  void LosePower(DriveId id, size_t kept);
  // Only its process is started anew.
  void StartAnew(DriveId id, bool clean);
  const std::vector<DriveStart>& StartsOf(DriveId id) { return MachineOf(id).starts; }

  // With what it holds. Plugged in later, it is the drive after a loss of power.
  std::shared_ptr<MemoryDrive> CopyOf(DriveId id);

  class Socket;  // where a drive is plugged in

 private:
  struct Machine {
    std::shared_ptr<MemoryDrive> memory;
    std::vector<DriveStart> starts;  // of the memory; newest first
    std::shared_ptr<FaultyDrive> faulty;
    std::shared_ptr<Socket> socket;  // holds `faulty` for the clients
  };
  void AddMachine(DriveId id);
  Result<Machine*> FindMachine(const DriveConfig& config);
  Machine& MachineOf(DriveId id) { return machines_.at(AddressOf(id)); }
  static std::string AddressOf(DriveId id) { return fmt::format("memory:{}", id); }
  // As the drives of a real cluster are named in messages.
  static std::string NameOf(DriveId id) { return fmt::format("drive {} ({})", id, AddressOf(id)); }

  Runtime& runtime_;
  const Options options_;
  ClusterConfig config_;
  std::map<std::string, Machine> machines_;  // by address
};

}  // namespace pinstripe
