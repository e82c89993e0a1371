// What a site is to become, before anything is made: its description as somebody wrote it down,
// what in it cannot be, which failures it would survive, and which number and port each of its
// drives has. Pure functions over plain data; tools/site_file.h reads the description, and
// tools/site_directory.h writes what is made of it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/config.h"

namespace pinstripe {

// What fails together, and so has no more than m shards of a stripe.
enum class SiteDomain { kHost, kRack, kDrive };

struct SiteHost {
  std::string name;                // as `hostname` prints it
  std::string address;             // a name or an address that the others know it by
  std::string listen;              // the address at which its drives listen
  std::string rack;                // for SiteDomain::kRack
  std::vector<std::string> disks;  // directories, one for each drive
  uint64_t disk_bytes = 0;         // how large each is; 0: it is not said
  bool root_gateway = false;       // root://
  bool https_gateway = false;
  std::vector<std::string> mounts;  // mount points

  bool is_gateway() const { return root_gateway || https_gateway; }
};

struct SiteDescription {
  std::string name;
  Geometry layout;
  SiteDomain domain = SiteDomain::kHost;
  uint16_t first_port = 8443;  // of the first drive of each host, with TLS
  uint16_t root_port = 1094;
  uint16_t https_port = 8080;
  uint16_t metrics_port = 0;  // of pinstriped; gateways have the next one; 0: nobody serves metrics
  std::vector<SiteHost> hosts;
};

// A mistake, and the setting to blame.
struct SiteMistake {
  std::optional<size_t> host;  // none: [site]
  std::string key;
  std::string reason;
};

// Everything that cannot be, each as a sentence of its own.
std::vector<SiteMistake> FindMistakes(const SiteDescription& site);

// "" for a path that is good for a disk or a mount: absolute, written in one way only, and nothing
// that a unit or a configuration would understand as something else. Otherwise "ends with a slash".
std::string ComplaintAboutPath(const std::string& path);

// Where a host listens unless it is told.
std::string DefaultListen(const std::string& address);

// What the layout on these hosts survives: "any 2 drives, or any one host".
std::string SurvivalText(const SiteDescription& site);

// A drive keeps its number for ever, and its port as long as it is there.
struct SiteDrive {
  DriveId id = 0;
  std::string host;
  std::string disk;
  uint16_t port = 0;
  bool retired = false;  // the site no longer has it; its number is never used again
  friend bool operator==(const SiteDrive&, const SiteDrive&) = default;
};

// A drive that goes on elsewhere, with its number, in a disk that the description has.
struct SiteMove {
  DriveId id = 0;
  std::string host;
  std::string disk;
};

// "10=store5:/srv/pinstripe/disk4". EINVAL: it is none.
Result<SiteMove> ParseMove(const std::string& text);

// What becomes of drives whose disks the description no longer has.
struct SiteChange {
  std::vector<DriveId> without;
  std::vector<SiteMove> moves;
};

// The drives of the site: those that it had `before`, and those that the description has beyond
// them. EINVAL: the description lacks the disk of one that the change does not name, the change
// names one whose disk it has or a place that cannot be, or there is no port left; lists all of
// these.
Result<std::vector<SiteDrive>> AssignDrives(const SiteDescription& site,
                                            const std::vector<SiteDrive>& before,
                                            const SiteChange& change);

// "host:port", with brackets around IPv6 addresses.
std::string DriveAddress(const SiteHost& host, uint16_t port);

// Where pinstriped of the host serves its metrics, or its gateway does: "" for nowhere.
std::string MetricsAddress(const SiteDescription& site, const SiteHost& host, bool gateway);

// The name of the unit that mounts at `path`: what `systemd-escape --path` says.
std::string MountUnit(const std::string& path);

// Whether it is an address, and no name.
bool IsIp(const std::string& text);

}  // namespace pinstripe
