#include "tools/site_state.h"

#include <algorithm>
#include <ctime>
#include <set>

#include "base/config.h"
#include "base/toml_text.h"
#include "base/try.h"

namespace pinstripe {
namespace {

std::chrono::sys_seconds SecondOf(Runtime& runtime) {
  return std::chrono::sys_seconds(
      std::chrono::floor<std::chrono::seconds>(std::chrono::nanoseconds(runtime.WallClock())));
}

// 256 bits, as hexadecimal digits.
std::string NewKeyText(Runtime& runtime) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:016x}", runtime.Random());
  return text;
}

Status Certify(Runtime& runtime, const SiteHost& host, SiteState& state) {
  state.certificates[host.name] =
      TRY(IssueCertificate(state.authority, host.name, host.address, SecondOf(runtime)));
  return {};
}

}  // namespace

Result<SiteState> NewSite(Runtime& runtime, std::string description, SiteDescription site) {
  SiteState state;
  state.drives = TRY(AssignDrives(site, {}, {}));
  state.keys.identities.push_back({.id = 1, .key = NewKeyText(runtime)});
  state.keys.current = 1;
  state.authority = TRY(MakeAuthority(site.name, SecondOf(runtime)));
  for (const SiteHost& host : site.hosts) TRY(Certify(runtime, host, state));
  state.description = std::move(description);
  state.site = std::move(site);
  return state;
}

Status UpdateSite(Runtime& runtime, std::string description, SiteDescription site,
                  const SiteChange& change, SiteState& state) {
  if (site.name != state.site.name) {
    return Fail(
        EINVAL,
        "the site was made with the name {}, and is described with the name {}: all records "
        "of a cluster begin with its name, so it never changes",
        state.site.name, site.name);
  }
  state.drives = TRY(AssignDrives(site, state.drives, change));
  TRY(ForgetEnded(state.authority, SecondOf(runtime)));
  std::set<std::string> names;
  for (const SiteHost& host : site.hosts) {
    names.insert(host.name);
    const auto known = state.certificates.find(host.name);
    const bool is_good =
        known != state.certificates.end() &&
        CheckCertificate(state.authority, known->second.certificate, host.name, host.address).ok();
    if (!is_good) TRY(Certify(runtime, host, state));
  }
  std::erase_if(state.certificates, [&](const auto& one) { return !names.contains(one.first); });
  state.description = std::move(description);
  state.site = std::move(site);
  return {};
}

Status RenewCertificates(Runtime& runtime, SiteState& state) {
  for (const SiteHost& host : state.site.hosts) TRY(Certify(runtime, host, state));
  return {};
}

Status RenewAuthority(Runtime& runtime, SiteState& state) {
  state.authority = TRY(RenewAuthority(state.site.name, state.authority, SecondOf(runtime)));
  return {};
}

Status RotateKeys(Runtime& runtime, SiteState& state) {
  if (state.keys.identities.size() > 1) {
    return Fail(EBUSY,
                "the keys are being changed: when every host has joined with the new one, take the "
                "old one away with --drop-old-keys");
  }
  const int64_t next = state.keys.current + 1;
  state.keys.identities.push_back({.id = next, .key = NewKeyText(runtime)});
  state.keys.current = next;
  return {};
}

SiteKeys KeysUntilDrop(const SiteKeys& keys) {
  SiteKeys old = keys;
  old.current = keys.identities.front().id;
  return old;
}

Status DropOldKeys(SiteState& state) {
  if (state.keys.identities.size() < 2) {
    return Fail(ENOENT, "there is no old key: --rotate-keys makes a new one first");
  }
  std::erase_if(state.keys.identities,
                [&](const SiteIdentity& one) { return one.id != state.keys.current; });
  return {};
}

Bundle BundleOf(const SiteState& state, const SiteHost& host, const std::string& version,
                const std::string& made) {
  Bundle bundle{.site = state.site.name,
                .host = host.name,
                .version = version,
                .made = made,
                .generation = state.generation,
                .disks = host.disks,
                .gateway = host.is_gateway(),
                .mounts = host.mounts};
  bundle.files = FilesOf({state.site, state.drives, state.keys, state.authority.certificate}, host,
                         state.certificates.at(host.name));
  return bundle;
}

std::string TimeText(Runtime& runtime) {
  const time_t seconds = SecondOf(runtime).time_since_epoch().count();
  std::tm fields{};
  gmtime_r(&seconds, &fields);
  char text[40];
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &fields);
  return text;
}

std::string DrivesText(const std::vector<SiteDrive>& drives) {
  TomlText text;
  text.Comment("The drives of the site. A number belongs to its drive for ever.");
  for (const SiteDrive& drive : drives) {
    text.NewTable("drive");
    text.Set("id", drive.id);
    text.Set("host", drive.host);
    text.Set("disk", drive.disk);
    text.Set("port", drive.port);
    if (drive.retired) text.Set("retired", true);
  }
  return text.Take();
}

Result<std::vector<SiteDrive>> ParseDrives(std::string_view text, const std::string& name) {
  const ConfigFile file = TRY(ConfigFile::Parse(text, name));
  std::vector<SiteDrive> drives;
  std::set<DriveId> ids;
  for (ConfigTable& table : file.root().Tables("drive")) {
    SiteDrive drive;
    drive.id = static_cast<DriveId>(table.Integer("id", std::nullopt, 1, UINT16_MAX));
    drive.host = table.Text("host");
    drive.disk = table.Text("disk");
    drive.port = static_cast<uint16_t>(table.Integer("port", std::nullopt, 1, UINT16_MAX));
    drive.retired = table.Flag("retired", false);
    if (!ids.insert(drive.id).second) {
      table.Refuse("id", fmt::format("two drives have the number {}", drive.id));
    }
    drives.push_back(std::move(drive));
  }
  TRY(file.Finish());
  return drives;
}

std::string GenerationText(int64_t generation) {
  TomlText text;
  text.Comment("How often the site has changed. A host refuses bundles that are older than it is.");
  text.Set("generation", generation);
  return text.Take();
}

Result<int64_t> ParseGeneration(std::string_view text, const std::string& name) {
  const ConfigFile file = TRY(ConfigFile::Parse(text, name));
  const int64_t generation = file.root().Integer("generation", std::nullopt, 1, INT64_MAX - 1);
  TRY(file.Finish());
  return generation;
}

std::string KeysText(const SiteKeys& keys) {
  TomlText text;
  text.Comment("The keys of the site: keep them to yourself. Drives believe all of them.");
  text.Table("keys");
  text.Set("current", keys.current);
  for (const SiteIdentity& identity : keys.identities) {
    text.NewTable("identity");
    text.Set("id", identity.id);
    text.Set("key", identity.key);
  }
  return text.Take();
}

Result<SiteKeys> ParseKeys(std::string_view text, const std::string& name) {
  const ConfigFile file = TRY(ConfigFile::Parse(text, name));
  ConfigTable root = file.root();
  ConfigTable table = root.Table("keys");
  SiteKeys keys;
  keys.current = table.Integer("current", std::nullopt, 1, INT64_MAX);
  for (ConfigTable& one : root.Tables("identity")) {
    SiteIdentity identity;
    identity.id = one.Integer("id", std::nullopt, 1, INT64_MAX);
    identity.key = one.Text("key");
    keys.identities.push_back(std::move(identity));
  }
  if (std::ranges::count(keys.identities, keys.current, &SiteIdentity::id) != 1) {
    table.Refuse("current", fmt::format("there is no identity {}", keys.current));
  }
  TRY(file.Finish());
  return keys;
}

}  // namespace pinstripe
