#include "tools/site_file.h"

#include <map>

#include "base/config.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::string_view kExample =
    R"(# A site, from which `pinstripe init` makes keys, certificates and the configuration of each host.

[site]
# 1 to 32 characters of a-z 0-9 - _ . ; it never changes.
name = "example"
# Data shards + parity shards. 4+2 survives the loss of any two drives and takes 1.5 times the space.
layout = "4+2"
# What fails together: "host", "rack" (each host says its rack then) or "drive".
#domain = "host"
# Ports: of the first drive of each host (the others follow), and of gateways.
#first_port = 8443
#root_port = 1094
#https_port = 8080
# Where pinstriped serves metrics, to all who reach it; gateways serve theirs at the next port.
#metrics_port = 9464

# One for each machine. Its name is what `hostname` prints there, and its address what the others reach
# it by: a name, or better an address, which works without a name server. Without it: the name.
[[host]]
name = "store1"
address = "192.0.2.11"
# A directory for each disk, where its file system is mounted.
disks = ["/srv/pinstripe/disk1", "/srv/pinstripe/disk2", "/srv/pinstripe/disk3"]
# How large each of them is, where hosts have disks of different sizes.
#disk_size = "4 TB"
#rack = "A"
# The address to listen at, where it is not the one above.
#listen = "0.0.0.0"

[[host]]
name = "store2"
address = "192.0.2.12"
disks = ["/srv/pinstripe/disk1", "/srv/pinstripe/disk2", "/srv/pinstripe/disk3"]

[[host]]
name = "store3"
address = "192.0.2.13"
disks = ["/srv/pinstripe/disk1", "/srv/pinstripe/disk2", "/srv/pinstripe/disk3"]

[[host]]
name = "store4"
address = "192.0.2.14"
disks = ["/srv/pinstripe/disk1", "/srv/pinstripe/disk2", "/srv/pinstripe/disk3"]

# A gateway serves "root" (root://), "https" (HTTPS, WebDAV and roots://), or both.
[[host]]
name = "gate1"
address = "192.0.2.21"
gateway = ["root", "https"]

# A host may have disks, a gateway and mounts.
[[host]]
name = "work1"
address = "192.0.2.31"
mount = "/srv/data"
)";

SiteDomain ReadDomain(ConfigTable& table) {
  const std::string text = table.Text("domain", "host");
  if (text == "rack") return SiteDomain::kRack;
  if (text == "drive") return SiteDomain::kDrive;
  if (text != "host") {
    table.Refuse("domain",
                 fmt::format("'{}' is not a domain; there are host, rack and drive", text));
  }
  return SiteDomain::kHost;
}

uint16_t ReadPort(ConfigTable& table, const char* key, uint16_t usual) {
  return static_cast<uint16_t>(table.Integer(key, usual, 1, UINT16_MAX));
}

SiteHost ReadHost(ConfigTable& table) {
  SiteHost host;
  host.name = table.Text("name");
  host.address = table.Text("address", host.name);
  host.listen = table.Text("listen", DefaultListen(host.address));
  host.rack = table.Text("rack", "");
  host.disks = table.Texts("disks");
  host.disk_bytes = table.ByteCount("disk_size", 0, uint64_t{1} << 30, uint64_t{1} << 50);
  host.mounts = table.Texts("mount");
  for (const std::string& protocol : table.Texts("gateway")) {
    bool& serves = protocol == "https" ? host.https_gateway : host.root_gateway;
    if (protocol != "https" && protocol != "root") {
      table.Refuse("gateway", fmt::format("host {}: a gateway serves root or https, not '{}'",
                                          host.name, protocol));
    } else if (serves) {
      table.Refuse("gateway", fmt::format("host {}: {} is listed twice", host.name, protocol));
    }
    serves = true;
  }
  return host;
}

}  // namespace

Result<SiteDescription> ParseSite(std::string_view text, const std::string& name) {
  const ConfigFile file = TRY(ConfigFile::Parse(text, name));
  ConfigTable root = file.root();
  ConfigTable table = root.Table("site");
  SiteDescription site;
  site.name = table.Text("name");
  const bool has_layout = table.Has("layout");
  const std::string layout = table.Text("layout");
  if (const Result<Geometry> geometry = ParseGeometry(layout); geometry.has_value()) {
    site.layout = *geometry;
  } else if (has_layout && !layout.empty()) {
    table.Refuse("layout", geometry.error().message());
  }
  site.domain = ReadDomain(table);
  site.first_port = ReadPort(table, "first_port", site.first_port);
  site.root_port = ReadPort(table, "root_port", site.root_port);
  site.https_port = ReadPort(table, "https_port", site.https_port);
  if (table.Has("metrics_port")) {
    site.metrics_port =
        static_cast<uint16_t>(table.Integer("metrics_port", std::nullopt, 1, UINT16_MAX - 1));
  }
  std::vector<ConfigTable> hosts = root.Tables("host");
  for (ConfigTable& host : hosts) site.hosts.push_back(ReadHost(host));

  for (const SiteMistake& mistake : FindMistakes(site)) {
    if (mistake.host) {
      // A name that is missing was told of already.
      if (mistake.key == "name" && !hosts[*mistake.host].Has("name")) continue;
      if (mistake.key == "address" && site.hosts[*mistake.host].address.empty()) continue;
      hosts[*mistake.host].Refuse(mistake.key, mistake.reason);
    } else if (mistake.key == "host") {
      root.Refuse("host", mistake.reason);
    } else if (mistake.key != "name" || table.Has("name")) {
      table.Refuse(mistake.key, mistake.reason);
    }
  }
  const std::vector<std::string> mistakes = file.Mistakes();
  if (!mistakes.empty()) return Fail(EINVAL, "{}", fmt::join(mistakes, "\n"));
  return site;
}

std::string_view ExampleSite() { return kExample; }

}  // namespace pinstripe
