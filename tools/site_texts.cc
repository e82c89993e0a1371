#include "tools/site_texts.h"

#include <algorithm>

#include "base/toml_text.h"

namespace pinstripe {
namespace {

constexpr std::string_view kMadeBy =
    "Made by `pinstripe init` for the site {}. Edit SITE.toml and run it again with --update.";

std::string MadeBy(const SiteDescription& site) {
  return fmt::format(fmt::runtime(kMadeBy), site.name);
}

std::string InConfig(std::string_view name) { return fmt::format("{}/{}", kConfigDirectory, name); }
std::string InGateway(std::string_view name) {
  return fmt::format("{}/{}", kGatewayDirectory, name);
}

std::string DomainOf(const SiteDescription& site, const SiteHost& host) {
  switch (site.domain) {
    case SiteDomain::kHost: return host.name;
    case SiteDomain::kRack: return host.rack;
    case SiteDomain::kDrive: return "";
  }
  return "";
}

std::string DaemonText(const SiteDescription& site, const SiteHost& host,
                       const std::vector<SiteDrive>& drives) {
  TomlText text;
  text.Comment(MadeBy(site));
  text.Table("daemon");
  text.Set("listen", host.listen);
  text.Set("credentials", "pinstriped-credentials.toml");
  text.Set("tls_certificate", "tls.crt");
  text.Set("tls_key", "tls.key");
  if (site.metrics_port != 0) text.Set("metrics", MetricsAddress(site, host, false));
  for (const SiteDrive& drive : drives) {
    if (drive.host != host.name || drive.retired) continue;
    text.NewTable("drive");
    text.Set("path", drive.disk);
    text.Set("tls_port", drive.port);
  }
  return text.Take();
}

std::string DaemonKeysText(const SiteDescription& site, const SiteKeys& keys) {
  TomlText text;
  text.Comment(MadeBy(site));
  for (const SiteIdentity& identity : keys.identities) {
    text.NewTable("identity");
    text.Set("id", identity.id);
    text.Set("key", identity.key);
    // All that clients of a cluster need. Nobody can set identities and PINs, or lock and erase.
    text.NewTable("identity.scope");
    text.Set("permissions", std::vector<std::string>{"read", "write", "delete", "range", "setup",
                                                     "p2p", "getlog"});
    text.Set("tls_required", true);
  }
  return text.Take();
}

std::string GatewayText(const SiteDescription& site, const SiteHost& host) {
  const uint16_t main_port = host.root_gateway ? site.root_port : site.https_port;
  std::string text = fmt::format(
      "# {}\n"
      "# It serves everybody who reaches it. Who may do what is said by lines of\n"
      "# xrootd-pinstripe-sss.cfg or xrootd-pinstripe-token.cfg (docs/operations.md).\n"
      "\n"
      "all.export / nolock\n"
      "xrd.port {}\n"
      "ofs.osslib +cksio +xattr libXrdOssPinstripe.so {}{}\n"
      "xrootd.chksum max 2 chkcgi adler32 crc32c md5\n"
      "xrootd.async off\n"
      "all.adminpath /var/spool/xrootd\n"
      "all.pidpath /run/xrootd\n",
      MadeBy(site), main_port, InConfig("cluster.toml"),
      site.metrics_port != 0 ? " metrics=" + MetricsAddress(site, host, true) : "");
  if (host.root_gateway) {
    text += fmt::format(
        "\n"
        "# Copies from other servers (`xrdcp --tpc only`).\n"
        "ofs.tpc ttl 60 120 xfr 4 pgm /usr/libexec/pinstripe/xrootd-tpc root://localhost:{}\n",
        site.root_port);
  }
  if (host.https_gateway) {
    text += fmt::format(
        "\n"
        "# HTTPS and WebDAV, with copies between servers; and roots:// for who asks for it.\n"
        "xrd.tls {} {}\n"
        "xrd.tlsca certfile {}\n"
        "xrd.protocol XrdHttp:{} libXrdHttp.so\n"
        "http.exthandler xrdtpc libXrdHttpTPC.so\n",
        InGateway("pinstripe-tls.crt"), InGateway("pinstripe-tls.key"), InConfig("ca.pem"),
        site.https_port);
  }
  return text;
}

}  // namespace

std::string ClusterText(const SiteDescription& site, const std::vector<SiteDrive>& drives) {
  TomlText text;
  text.Comment(MadeBy(site));
  text.Table("cluster");
  text.Set("name", site.name);
  text.Set("credentials", "credentials.toml");
  text.Set("tls", true);
  text.Set("ca", "ca.pem");
  text.Table("layout");
  text.Set("data_shards", site.layout.data_shards);
  text.Set("parity_shards", site.layout.parity_shards);
  for (const SiteDrive& drive : drives) {
    const auto host = std::ranges::find(site.hosts, drive.host, &SiteHost::name);
    if (drive.retired || host == site.hosts.end()) continue;
    text.NewTable("drive");
    text.Set("id", drive.id);
    text.Set("address", DriveAddress(*host, drive.port));
    const std::string domain = DomainOf(site, *host);
    if (!domain.empty()) text.Set("domain", domain);
    if (host->disk_bytes != 0) {
      text.Set("weight", std::clamp<uint64_t>(host->disk_bytes >> 30, 1, 1 << 20));
    }
  }
  return text.Take();
}

std::string ClientKeysText(const SiteKeys& keys) {
  const auto current = std::ranges::find(keys.identities, keys.current, &SiteIdentity::id);
  TomlText text;
  text.Comment("The key that all drives of the site believe.");
  text.Table("default");
  text.Set("identity", current->id);
  text.Set("key", current->key);
  return text.Take();
}

std::vector<BundleFile> FilesOf(const SiteTexts& texts, const SiteHost& host,
                                const KeyPair& certificate) {
  const SiteDescription& site = texts.site;
  std::vector<BundleFile> files;
  files.push_back({InConfig("ca.pem"), "root", 0644, texts.authority});
  if (!host.disks.empty()) {
    files.push_back({InConfig("tls.crt"), "root", 0644, certificate.certificate});
    files.push_back({InConfig("tls.key"), "pinstripe", 0600, certificate.key});
    files.push_back({InConfig("pinstriped-credentials.toml"), "pinstripe", 0600,
                     DaemonKeysText(site, texts.keys)});
    files.push_back(
        {InConfig("pinstriped.toml"), "root", 0644, DaemonText(site, host, texts.drives)});
  }
  if (host.https_gateway) {
    files.push_back({InGateway("pinstripe-tls.crt"), "root", 0644, certificate.certificate});
    files.push_back({InGateway("pinstripe-tls.key"), "xrootd", 0600, certificate.key});
  }
  if (host.is_gateway()) {
    files.push_back({InGateway("xrootd-pinstripe.cfg"), "root", 0644, GatewayText(site, host)});
  }
  // A gateway reads the keys as its own user. Root can in any case.
  files.push_back({InConfig("credentials.toml"), host.is_gateway() ? "xrootd" : "root", 0600,
                   ClientKeysText(texts.keys)});
  files.push_back({InConfig("cluster.toml"), "root", 0644, ClusterText(site, texts.drives)});
  return files;
}

}  // namespace pinstripe
