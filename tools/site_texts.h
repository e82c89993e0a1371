// The files that make the hosts of a site one cluster, as texts: cluster.toml, the drives and keys
// of each host, the configuration of a gateway.

#pragma once

#include <string>
#include <vector>

#include "tools/bundle.h"
#include "tools/site_authority.h"
#include "tools/site_plan.h"

namespace pinstripe {

struct SiteIdentity {
  int64_t id = 1;
  std::string key;  // secret
  friend bool operator==(const SiteIdentity&, const SiteIdentity&) = default;
};

// Drives believe all of them; clients use `current`. While keys change there are two.
struct SiteKeys {
  std::vector<SiteIdentity> identities;
  int64_t current = 1;
  friend bool operator==(const SiteKeys&, const SiteKeys&) = default;
};

// ca.pem and credentials.toml are beside it.
std::string ClusterText(const SiteDescription& site, const std::vector<SiteDrive>& drives);

std::string ClientKeysText(const SiteKeys& keys);

struct SiteTexts {
  const SiteDescription& site;
  const std::vector<SiteDrive>& drives;
  const SiteKeys& keys;
  const std::string& authority;  // its certificate
};

// All files of a host.
std::vector<BundleFile> FilesOf(const SiteTexts& texts, const SiteHost& host,
                                const KeyPair& certificate);

}  // namespace pinstripe
