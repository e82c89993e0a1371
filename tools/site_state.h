// Everything that a site has made for itself: its description, the numbers of its drives, its keys,
// its authority and the certificates of its hosts. `pinstripe init` makes it, changes it, and keeps
// it in a directory (tools/site_directory.h).

#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "tools/bundle.h"
#include "tools/site_authority.h"
#include "tools/site_plan.h"
#include "tools/site_texts.h"

namespace pinstripe {

struct SiteState {
  std::string description;  // SITE.toml, as it was given
  SiteDescription site;     // what that means
  std::vector<SiteDrive> drives;
  SiteKeys keys;
  int64_t generation = 1;  // counts the changes, so that a host knows an old bundle
  KeyPair authority;
  std::map<std::string, KeyPair> certificates;  // by host
};

Result<SiteState> NewSite(Runtime& runtime, std::string description, SiteDescription site);

// Goes on with another description: hosts and drives that came are added. Hosts that have another
// address than before get another certificate. Fails as AssignDrives() does, and when the name is
// another one.
Status UpdateSite(Runtime& runtime, std::string description, SiteDescription site,
                  const SiteChange& change, SiteState& state);

// Other certificates for all hosts, of the same authority.
Status RenewCertificates(Runtime& runtime, SiteState& state);

// Another authority beside the old one, which hosts believe when they have joined. Their own
// certificates are of the old one until RenewCertificates().
Status RenewAuthority(Runtime& runtime, SiteState& state);

// A further key, which clients use from then on, and drives believe beside the old one. EBUSY:
// keys are being changed already.
Status RotateKeys(Runtime& runtime, SiteState& state);

// A further key and the old one: what clients without a bundle use until the old one is dropped.
SiteKeys KeysUntilDrop(const SiteKeys& keys);

// Takes the old key away. ENOENT: there is only one.
Status DropOldKeys(SiteState& state);

// Of one host.
Bundle BundleOf(const SiteState& state, const SiteHost& host, const std::string& version,
                const std::string& made);

// "2026-11-25 19:30:00 UTC"
std::string TimeText(Runtime& runtime);

std::string DrivesText(const std::vector<SiteDrive>& drives);
Result<std::vector<SiteDrive>> ParseDrives(std::string_view text, const std::string& name);
std::string GenerationText(int64_t generation);
Result<int64_t> ParseGeneration(std::string_view text, const std::string& name);
std::string KeysText(const SiteKeys& keys);
Result<SiteKeys> ParseKeys(std::string_view text, const std::string& name);

}  // namespace pinstripe
