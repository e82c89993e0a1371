// ClusterUse: who uses a cluster, and what its drives do for them, as the drives tell it. Also when
// the cluster cannot be opened: each drive is asked by itself.
//
//   UseWatch watch(runtime, config);
//   const ClusterUse before = watch.Ask();
//   ...
//   for (const ClientReport& client : ClientsSince(before, watch.Ask())) ...

#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/latency_histogram.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/config.h"
#include "kinetic/drive_use.h"

namespace pinstripe {

class ConnectedCluster;
class KineticIo;
struct Survey;

// What the drives said at one time.
struct ClusterUse {
  struct OfDrive {
    DriveId id = 0;
    std::string address;
    Result<DriveUse> use;  // or why it does not tell
  };
  Time when{};
  std::vector<OfDrive> drives;  // as the configuration lists them

  size_t Silent() const;  // drives that do not tell
};

// Of the drives that a survey of it has found, over the connections that it has. A drive that does
// not answer within `patience` does not tell.
ClusterUse UseOf(ConnectedCluster& connected, const Survey& survey, Duration patience);

class UseWatch {
 public:
  // Connects to all drives that the configuration lists, and stays connected. `runtime` outlives
  // it.
  UseWatch(Runtime& runtime, const ClusterConfig& config);
  ~UseWatch();

  ClusterUse Ask();

 private:
  struct One;
  Runtime& runtime_;
  const Duration timeout_;
  std::unique_ptr<KineticIo> io_;
  std::vector<One> drives_;
};

// Per second.
struct UseRates {
  double requests = 0;
  double bytes_read = 0;
  double bytes_written = 0;

  double bytes() const { return bytes_read + bytes_written; }
};

// One program, with all its connections. Programs that do not say who they are, are one for each
// address that they come from.
struct ClientReport {
  ProgramName program;  // name empty: it does not say
  std::string host;     // as it calls itself
  uint32_t process = 0;
  std::string address;           // without port, as the first drive sees it
  std::set<int64_t> identities;  // whose keys have signed
  std::set<DriveId> drives;      // that it is connected to
  size_t connections = 0;
  size_t tls_connections = 0;
  Duration connected{};   // its oldest connection
  uint64_t requests = 0;  // of its connections, since they began
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  UseRates rates;
};

struct DriveWorkReport {
  DriveId id = 0;
  std::string address;
  Status silent;  // why it does not tell; success: it does
  size_t connections = 0;
  UseRates rates;
  LatencyCounts reads;  // those that came between the two times
  LatencyCounts writes;
};

// What a drive did since its process started, by its own clock: without the network.
struct ServiceTimes {
  Duration counted{};  // how long ago that was
  LatencyCounts reads;
  LatencyCounts writes;
};
ServiceTimes ServiceOf(const DriveUse& use);

// "1.2 ms": within which time `share` of them were answered; "-": none was.
std::string TimeTakenText(const LatencyCounts& counts, double share);

// Busiest first, then by name. Without the connections of this process.
std::vector<ClientReport> ClientsSince(const ClusterUse& before, const ClusterUse& now);
// A drive that did not tell before is silent still: nobody knows what it did between.
std::vector<DriveWorkReport> WorkSince(const ClusterUse& before, const ClusterUse& now);
// Of those that tell, together. Silent where none does.
DriveWorkReport WorkOfAll(const std::vector<DriveWorkReport>& drives);

// For people, and for programs: objects, of which the second is one line. In neither has a silent
// drive figures.
std::string ClientsText(const std::vector<ClientReport>& clients, const ClusterUse& now);
std::string ClientsJson(const std::vector<ClientReport>& clients, const ClusterUse& now);
std::string TopText(const std::vector<ClientReport>& clients,
                    const std::vector<DriveWorkReport>& drives);
std::string TopJson(const std::vector<ClientReport>& clients,
                    const std::vector<DriveWorkReport>& drives, int64_t wall_clock);

}  // namespace pinstripe
