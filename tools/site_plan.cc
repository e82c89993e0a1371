#include "tools/site_plan.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

#include "base/try.h"
#include "drive/drive.h"

namespace pinstripe {
namespace {

constexpr size_t kMaxHostBytes =
    64;  // of a name that the kernel takes, and of one in a certificate
constexpr size_t kMaxPathBytes = 512;
constexpr int kLastPort = 65535;

bool IsHostName(const std::string& text) {
  if (text.empty() || text.size() > kMaxHostBytes) return false;
  char before = '.';
  for (const char c : text) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!letter && c != '-' && c != '.') return false;
    if (!letter && before == '.') return false;  // a label begins with a letter or digit
    if (c == '.' && before == '-') return false;
    before = c;
  }
  return before != '.' && before != '-';
}

std::string LowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool LiesIn(const std::string& path, const std::string& directory) {
  return path.starts_with(directory + "/");
}

std::string_view NameOf(SiteDomain domain) {
  switch (domain) {
    case SiteDomain::kHost: return "host";
    case SiteDomain::kRack: return "rack";
    case SiteDomain::kDrive: return "drive";
  }
  return "";
}

std::string Counted(size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

size_t CountDrives(const SiteDescription& site) {
  size_t drives = 0;
  for (const SiteHost& host : site.hosts) drives += host.disks.size();
  return drives;
}

// How many drives each domain has. Without a domain each drive is one.
std::vector<size_t> DomainSizes(const SiteDescription& site) {
  std::map<std::string, size_t> sizes;
  for (const SiteHost& host : site.hosts) {
    for (const std::string& disk : host.disks) {
      switch (site.domain) {
        case SiteDomain::kHost: ++sizes[host.name]; break;
        case SiteDomain::kRack: ++sizes[host.rack]; break;
        case SiteDomain::kDrive: ++sizes[host.name + disk]; break;
      }
    }
  }
  std::vector<size_t> counts;
  for (const auto& [domain, count] : sizes) counts.push_back(count);
  return counts;
}

// How many of `pieces` have a place when no domain takes more than `most`.
size_t Places(const std::vector<size_t>& domains, size_t most) {
  size_t places = 0;
  for (const size_t size : domains) places += std::min(size, most);
  return places;
}

// As ClusterConfig chooses it: 2 m + 1 copies of names, as far as there are drives.
size_t NameCopies(const SiteDescription& site) {
  const size_t drives = CountDrives(site);
  const size_t odd = drives - (drives % 2 == 0 ? 1 : 0);
  return std::min<size_t>(2 * static_cast<size_t>(site.layout.parity_shards) + 1, odd);
}

// Whether everything survives the loss of any one domain: its stripes and its names do.
bool SurvivesADomain(const SiteDescription& site, const std::vector<size_t>& domains) {
  const auto shards = static_cast<size_t>(site.layout.shards());
  const auto parity = static_cast<size_t>(site.layout.parity_shards);
  const size_t copies = NameCopies(site);
  return Places(domains, parity) >= shards && Places(domains, (copies - 1) / 2) >= copies;
}

// For messages.
std::string Called(const SiteHost& host) {
  return host.name.empty() ? "without a name" : host.name;
}

class Finder {
 public:
  explicit Finder(const SiteDescription& site) : site_(site) {}

  std::vector<SiteMistake> Find() {
    LookAtSite();
    for (size_t i = 0; i < site_.hosts.size(); ++i) LookAtHost(i);
    LookAtAllHosts();
    return std::move(mistakes_);
  }

 private:
  template <typename... Args>
  void Note(std::optional<size_t> host, std::string key, fmt::format_string<Args...> format,
            Args&&... args) {
    std::string reason = fmt::format(format, std::forward<Args>(args)...);
    for (char& c : reason) {
      if (std::iscntrl(static_cast<unsigned char>(c))) c = '?';  // a sentence stays a line
    }
    mistakes_.push_back({host, std::move(key), std::move(reason)});
  }

  void LookAtSite() {
    if (const Status status = CheckClusterName(site_.name); !status.ok()) {
      Note(std::nullopt, "name", "{}", status.message());
    }
    if (site_.root_port == site_.https_port) {
      Note(std::nullopt, "https_port", "port {} is used twice, by root:// and by HTTPS",
           site_.https_port);
    }
    for (int port = site_.metrics_port; port <= site_.metrics_port + 1; ++port) {
      if (site_.metrics_port == 0 || (port != site_.root_port && port != site_.https_port))
        continue;
      Note(std::nullopt, "metrics_port", "port {} is used twice, by a gateway and for metrics",
           port);
    }
  }

  void LookAtHost(size_t i) {
    const SiteHost& host = site_.hosts[i];
    if (!IsHostName(host.name)) {
      Note(i, "name",
           "'{}' is not the name of a host: write what `hostname` prints there, letters, digits, "
           "'-' and '.', at most {}",
           host.name, kMaxHostBytes);
    } else if (!names_.insert(LowerCase(host.name)).second) {
      Note(i, "name", "the host {} is listed twice", host.name);
    }
    if (!IsIp(host.address) && !IsHostName(host.address)) {
      Note(i, "address", "host {}: '{}' is neither a name nor an address", Called(host),
           host.address);
    } else if (!addresses_.emplace(LowerCase(host.address), host.name).second) {
      Note(i, "address", "host {} has the address {} of host {}", Called(host), host.address,
           addresses_[LowerCase(host.address)]);
    }
    if (!IsIp(host.listen)) {
      Note(i, "listen",
           "host {}: '{}' is not an address to listen at, like 0.0.0.0 or ::", Called(host),
           host.listen);
    }
    LookAtPaths(i);
    LookAtPorts(i);
    LookAtRack(i);
    if (host.disks.empty() && !host.is_gateway() && host.mounts.empty()) {
      Note(i, "name", "host {} has neither disks nor a gateway nor a mount", Called(host));
    }
  }

  void LookAtPaths(size_t i) {
    const SiteHost& host = site_.hosts[i];
    std::vector<std::string> seen;
    const auto look = [&](const char* key, const char* what, const std::string& path) {
      if (const std::string why = ComplaintAboutPath(path); !why.empty()) {
        Note(i, key, "host {}: the {} {} {}", Called(host), what, path, why);
      }
      for (const std::string& other : seen) {
        if (other == path) {
          Note(i, key, "host {}: the {} {} is listed twice", Called(host), what, path);
        } else if (LiesIn(path, other) || LiesIn(other, path)) {
          Note(i, key, "host {}: {} and {} lie in one another", Called(host), other, path);
        }
      }
      seen.push_back(path);
    };
    for (const std::string& disk : host.disks) look("disks", "disk", disk);
    for (const std::string& mount : host.mounts) look("mount", "mount", mount);
  }

  void LookAtPorts(size_t i) {
    const SiteHost& host = site_.hosts[i];
    const int last = site_.first_port + static_cast<int>(host.disks.size()) - 1;
    const bool serves_metrics = site_.metrics_port != 0;
    if (serves_metrics && host.listen.find(':') != std::string::npos) {
      Note(i, "listen", "{} is an address of IPv6, and metrics are served at one of IPv4",
           host.listen);
    }
    if (host.disks.empty()) return;
    if (last > kLastPort) {
      Note(std::nullopt, "first_port",
           "host {} has {}, and from port {} on there are not as many ports", Called(host),
           Counted(host.disks.size(), "disk"), site_.first_port);
    }
    const auto collide = [&](bool serves, int port, const char* key) {
      if (!serves || port < site_.first_port || port > last) return;
      Note(std::nullopt, key, "port {} is one of the drives of host {}, which have {} to {}", port,
           host.name, site_.first_port, last);
    };
    collide(host.is_gateway(), site_.root_port, "root_port");
    collide(host.https_gateway, site_.https_port, "https_port");
    collide(serves_metrics, site_.metrics_port, "metrics_port");
    collide(serves_metrics && host.is_gateway(), site_.metrics_port + 1, "metrics_port");
  }

  void LookAtRack(size_t i) {
    const SiteHost& host = site_.hosts[i];
    if (site_.domain == SiteDomain::kRack && host.rack.empty() && !host.disks.empty()) {
      Note(i, "rack", "host {} does not say in which rack it is, and racks are the domains",
           Called(host));
    }
    if (host.rack.size() > kMaxHostBytes) {
      Note(i, "rack", "host {}: the rack has a name of more than {} bytes", Called(host),
           kMaxHostBytes);
    }
  }

  void LookAtAllHosts() {
    const size_t drives = CountDrives(site_);
    if (site_.hosts.empty()) {
      Note(std::nullopt, "host", "no [[host]] is listed");
      return;
    }
    size_t with_size = 0;
    size_t with_disks = 0;
    for (const SiteHost& host : site_.hosts) {
      if (host.disks.empty()) continue;
      ++with_disks;
      if (host.disk_bytes != 0) ++with_size;
    }
    if (with_size != 0 && with_size != with_disks) {
      for (size_t i = 0; i < site_.hosts.size(); ++i) {
        const SiteHost& host = site_.hosts[i];
        if (host.disks.empty() || host.disk_bytes != 0) continue;
        Note(i, "disk_size",
             "host {} does not say how large its disks are, and others do: say it for all, or for "
             "none",
             Called(host));
      }
    }
    const auto shards = static_cast<size_t>(site_.layout.shards());
    if (shards == 0) return;  // a layout that could not be read, of which somebody has told
    if (drives < shards) {
      Note(std::nullopt, "layout",
           "the layout {}+{} needs {}, and all hosts together have {}: give them more, or choose a "
           "layout for fewer",
           site_.layout.data_shards, site_.layout.parity_shards, Counted(shards, "disk"), drives);
      return;
    }
    LookAtDomains();
  }

  void LookAtDomains() {
    const std::vector<size_t> domains = DomainSizes(site_);
    const int parity = site_.layout.parity_shards;
    if (site_.domain == SiteDomain::kDrive || parity == 0) return;
    if (SurvivesADomain(site_, domains)) return;
    const std::string_view name = NameOf(site_.domain);
    // Stripes need so many, and a majority of the names survives with three.
    const int enough = std::max(3, (site_.layout.shards() + parity - 1) / parity);
    Note(
        std::nullopt, "layout",
        "the layout {}+{} on {} does not survive the loss of one {}, only that of any {}. It takes "
        "{} {}s with as many disks each; or choose a layout with fewer shards, or say domain = "
        "\"drive\" if that is enough",
        site_.layout.data_shards, parity, Counted(domains.size(), name), name,
        Counted(static_cast<size_t>(parity), "drive"), enough, name);
  }

  const SiteDescription& site_;
  std::vector<SiteMistake> mistakes_;
  std::set<std::string> names_;
  std::map<std::string, std::string> addresses_;
};

bool IsDescribed(const SiteDescription& site, const std::string& name, const std::string& disk) {
  return std::ranges::any_of(site.hosts, [&](const SiteHost& host) {
    return host.name == name && std::ranges::count(host.disks, disk) > 0;
  });
}

// Why the drive cannot move there, or "".
std::string ComplaintAboutMove(const SiteDescription& site, const SiteMove& move,
                               const std::vector<SiteDrive>& drives) {
  for (const SiteDrive& drive : drives) {
    if (drive.retired) continue;
    if (drive.id == move.id) {
      if (!IsDescribed(site, drive.host, drive.disk)) continue;
      return fmt::format("host {} still lists {}, where it is", drive.host, drive.disk);
    }
    if (drive.host == move.host && drive.disk == move.disk) {
      return fmt::format("{} of host {} is that of drive {}", move.disk, move.host, drive.id);
    }
  }
  if (IsDescribed(site, move.host, move.disk)) return "";
  return fmt::format("no host {} with the disk {} is described", move.host, move.disk);
}

// A drive that has moved has no port yet.
void MoveDrives(const SiteDescription& site, const SiteChange& change,
                std::vector<SiteDrive>& drives, std::vector<std::string>& mistakes) {
  for (const SiteMove& move : change.moves) {
    const auto drive = std::ranges::find_if(
        drives, [&](const SiteDrive& one) { return one.id == move.id && !one.retired; });
    if (drive == drives.end()) {
      mistakes.push_back(fmt::format("--move: the site has no drive {}", move.id));
      continue;
    }
    if (std::ranges::count(change.without, move.id) > 0) {
      mistakes.push_back(fmt::format("drive {} cannot both move and be given up", move.id));
      continue;
    }
    if (std::string why = ComplaintAboutMove(site, move, drives); !why.empty()) {
      mistakes.push_back(fmt::format("drive {} cannot move: {}", move.id, why));
      continue;
    }
    drive->host = move.host;
    drive->disk = move.disk;
    drive->port = 0;
  }
}

void RetireDrives(const SiteDescription& site, const std::vector<DriveId>& without,
                  std::vector<SiteDrive>& drives, std::vector<std::string>& mistakes) {
  for (SiteDrive& drive : drives) {
    if (drive.retired) continue;
    const bool given_up = std::ranges::count(without, drive.id) > 0;
    const bool is_described = IsDescribed(site, drive.host, drive.disk);
    if (given_up && is_described) {
      mistakes.push_back(fmt::format("drive {} is given up, and host {} still lists {}", drive.id,
                                     drive.host, drive.disk));
    } else if (!given_up && !is_described) {
      mistakes.push_back(fmt::format(
          "drive {}, {} of host {}, is not described any more: drain it first (`pinstripe drain "
          "CONFIG {}`), then say --without {}",
          drive.id, drive.disk, drive.host, drive.id, drive.id));
    }
    drive.retired = given_up;
  }
  for (const DriveId id : without) {
    if (std::ranges::count(drives, id, &SiteDrive::id) == 0) {
      mistakes.push_back(fmt::format("--without {}: the site has no drive {}", id, id));
    }
  }
}

// Gives each disk of the host a drive, and each of its drives a port. `next` is the next new
// number.
void AssignPorts(const SiteDescription& site, const SiteHost& host, int& next,
                 std::vector<SiteDrive>& drives, std::vector<std::string>& mistakes) {
  std::set<int> ports;
  if (host.root_gateway) ports.insert(site.root_port);
  if (host.https_gateway) ports.insert(site.https_port);
  if (site.metrics_port != 0) ports.insert({site.metrics_port, site.metrics_port + 1});
  for (const SiteDrive& drive : drives) {
    if (drive.host != host.name || drive.retired || drive.port == 0) continue;
    if (ports.insert(drive.port).second) continue;
    mistakes.push_back(fmt::format(
        "port {} of the gateway of host {} is the one of its drive {}, which keeps it: give "
        "gateways and metrics another one (root_port, https_port, metrics_port)",
        drive.port, host.name, drive.id));
  }
  for (const std::string& disk : host.disks) {
    auto drive = std::ranges::find_if(drives, [&](const SiteDrive& one) {
      return one.host == host.name && one.disk == disk && !one.retired;
    });
    if (drive != drives.end() && drive->port != 0) continue;
    int port = site.first_port;
    while (ports.contains(port)) ++port;
    if (port > kLastPort || next > UINT16_MAX) {
      mistakes.push_back(
          fmt::format("host {} has no port or number left for the drive in {}", host.name, disk));
      return;
    }
    ports.insert(port);
    if (drive == drives.end()) {
      const SiteDrive added{.id = static_cast<DriveId>(next++), .host = host.name, .disk = disk};
      drive = drives.insert(drives.end(), added);
    }
    drive->port = static_cast<uint16_t>(port);
  }
}

}  // namespace

bool IsIp(const std::string& text) {
  in6_addr unused;
  return inet_pton(AF_INET, text.c_str(), &unused) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &unused) == 1;
}

std::vector<SiteMistake> FindMistakes(const SiteDescription& site) { return Finder(site).Find(); }

std::string ComplaintAboutPath(const std::string& path) {
  if (!path.starts_with('/')) return "is not an absolute path";
  if (path == "/") return "is the root directory";
  if (path.size() > kMaxPathBytes) return "is too long";
  if (path.ends_with('/')) return "ends with a slash";
  for (const char* part : {"//", "/./", "/../"}) {
    if (path.find(part) != std::string::npos) return fmt::format("has \"{}\" in it", part);
  }
  if (path.ends_with("/.") || path.ends_with("/..")) return "ends with a dot";
  for (const char c : path) {
    const bool odd = c == '"' || c == '\'' || c == '\\' || c == '%' || c == '\x7f';
    if (odd || static_cast<unsigned char>(c) <= ' ') {
      return "has a blank, a quote, a backslash or a percent sign in it";
    }
  }
  return "";
}

std::string DefaultListen(const std::string& address) {
  return IsIp(address) ? address : "0.0.0.0";
}

std::string SurvivalText(const SiteDescription& site) {
  const auto parity = static_cast<size_t>(site.layout.parity_shards);
  if (parity == 0) return "no loss at all: each drive that is lost takes files with it";
  std::string text = fmt::format("the loss of any {}", Counted(parity, "drive"));
  const bool by_domain = site.domain != SiteDomain::kDrive;
  if (by_domain && SurvivesADomain(site, DomainSizes(site))) {
    text += fmt::format(", or of any one {}", NameOf(site.domain));
  }
  return text;
}

Result<SiteMove> ParseMove(const std::string& text) {
  const size_t equals = text.find('=');
  const size_t colon = text.find(':', equals == std::string::npos ? 0 : equals);
  int id = 0;
  if (equals != std::string::npos && colon != std::string::npos) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + equals, id);
    if (error != std::errc() || end != text.data() + equals) id = 0;
  }
  if (id < 1 || id > UINT16_MAX) {
    return Fail(EINVAL, "'{}' does not say which drive moves where, as 10=store5:/srv/disk4 does",
                text);
  }
  return SiteMove{.id = static_cast<DriveId>(id),
                  .host = text.substr(equals + 1, colon - equals - 1),
                  .disk = text.substr(colon + 1)};
}

Result<std::vector<SiteDrive>> AssignDrives(const SiteDescription& site,
                                            const std::vector<SiteDrive>& before,
                                            const SiteChange& change) {
  std::vector<std::string> mistakes;
  std::vector<SiteDrive> drives = before;
  MoveDrives(site, change, drives, mistakes);
  RetireDrives(site, change.without, drives, mistakes);
  int next = 1;
  for (const SiteDrive& drive : drives) next = std::max(next, drive.id + 1);
  for (const SiteHost& host : site.hosts) AssignPorts(site, host, next, drives, mistakes);
  if (!mistakes.empty()) return Fail(EINVAL, "{}", fmt::join(mistakes, "\n"));
  return drives;
}

std::string DriveAddress(const SiteHost& host, uint16_t port) {
  const bool six = host.address.find(':') != std::string::npos;
  return six ? fmt::format("[{}]:{}", host.address, port)
             : fmt::format("{}:{}", host.address, port);
}

std::string MetricsAddress(const SiteDescription& site, const SiteHost& host, bool gateway) {
  if (site.metrics_port == 0) return "";
  return fmt::format("{}:{}", host.listen, site.metrics_port + (gateway ? 1 : 0));
}

std::string MountUnit(const std::string& path) {
  std::string escaped;
  for (size_t i = 1; i < path.size(); ++i) {
    const char c = path[i];
    if (c == '/') {
      escaped += '-';
    } else if (std::isalnum(static_cast<unsigned char>(c)) || c == ':' || c == '_' ||
               (c == '.' && i > 1)) {
      escaped += c;
    } else {
      escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return fmt::format("pinstripe-fuse@{}.service", escaped);
}

}  // namespace pinstripe
