#include "tools/join_plan.h"

#include <algorithm>
#include <initializer_list>

#include "base/config.h"
#include "base/toml_text.h"
#include "base/try.h"
#include "tools/site_authority.h"
#include "tools/site_plan.h"

namespace pinstripe {
namespace {

constexpr const char* kUnitFile = "/etc/systemd/system/pinstriped.service.d/site.conf";
constexpr const char* kDaemonUnit = "pinstriped.service";
constexpr const char* kGatewayUnit = "xrootd@pinstripe.service";

}  // namespace

std::string JoinRecordText(const JoinRecord& record) {
  TomlText text;
  text.Comment("What `pinstripe join` has put into place, so that it knows what was edited since.");
  text.Table("joined");
  text.Set("site", record.site);
  text.Set("host", record.host);
  text.Set("version", record.version);
  text.Set("generation", record.generation);
  text.Set("drives", record.drives);
  std::set<std::string> paths = record.pending;
  for (const auto* sums : {&record.sha256, &record.coming}) {
    for (const auto& [path, sum] : *sums) paths.insert(path);
  }
  for (const std::string& path : paths) {
    text.NewTable("file");
    text.Set("path", path);
    if (const auto sum = record.sha256.find(path); sum != record.sha256.end()) {
      text.Set("sha256", sum->second);
    }
    if (const auto sum = record.coming.find(path); sum != record.coming.end()) {
      text.Set("coming", sum->second);
    }
    if (record.pending.contains(path)) text.Set("pending", true);
  }
  return text.Take();
}

Result<JoinRecord> ParseJoinRecord(std::string_view text, const std::string& name) {
  const ConfigFile file = TRY(ConfigFile::Parse(text, name));
  ConfigTable root = file.root();
  ConfigTable joined = root.Table("joined");
  JoinRecord record;
  record.site = joined.Text("site");
  record.host = joined.Text("host");
  record.version = joined.Text("version");
  record.generation = joined.Integer("generation", 0, 0, INT64_MAX);
  record.drives = joined.Texts("drives");
  for (ConfigTable& one : root.Tables("file")) {
    const std::string path = one.Text("path");
    if (one.Has("sha256")) record.sha256[path] = one.Text("sha256");
    if (one.Has("coming")) record.coming[path] = one.Text("coming");
    if (one.Flag("pending", false)) record.pending.insert(path);
  }
  TRY(file.Finish());
  return record;
}

std::string WhyNotForHost(const Bundle& bundle, const std::string& hostname) {
  const auto without_domain = [](const std::string& name) {
    return name.substr(0, name.find('.'));
  };
  const bool same = bundle.host == hostname || bundle.host == without_domain(hostname) ||
                    without_domain(bundle.host) == hostname;
  if (same) return "";
  return fmt::format(
      "the bundle is for the host {}, and this is {}: take {}.tar, or say --as {} if this machine "
      "is meant all the same",
      bundle.host, hostname, hostname, bundle.host);
}

std::vector<FileStep> PlanFiles(const Bundle& bundle, const std::optional<JoinRecord>& record,
                                const std::map<std::string, PresentFile>& present) {
  std::vector<FileStep> steps;
  for (const BundleFile& file : bundle.files) {
    const PresentFile& now = present.at(file.path);
    if (!now.contents) {
      steps.push_back(FileStep::kAdd);
      continue;
    }
    if (*now.contents == file.contents) {
      steps.push_back(now.right_owner_and_mode ? FileStep::kKeep : FileStep::kChange);
      continue;
    }
    bool is_ours = now.is_sample;
    if (record) {
      const std::string sum = Sha256(*now.contents);
      for (const auto* sums : {&record->sha256, &record->coming}) {
        const auto known = sums->find(file.path);
        is_ours = is_ours || (known != sums->end() && known->second == sum);
      }
    }
    steps.push_back(is_ours ? FileStep::kChange : FileStep::kEdited);
  }
  return steps;
}

std::string WhyTooOld(const Bundle& bundle, const JoinRecord& record) {
  if (bundle.site != record.site || bundle.generation >= record.generation) return "";
  return fmt::format(
      "the bundle is older than what this host has ({} of the site, made {}, and the host has {}): "
      "it may bring back keys that were dropped. Take the newest one, or say --force",
      bundle.generation, bundle.made, record.generation);
}

std::optional<BundleFile> UnitFileOf(const Bundle& bundle) {
  std::string lines;
  for (const std::string& disk : bundle.disks) {
    if (!disk.starts_with("/srv/pinstripe/")) lines += fmt::format("ReadWritePaths={}\n", disk);
  }
  if (lines.empty()) return std::nullopt;
  return BundleFile{
      kUnitFile, "root", 0644,
      fmt::format("# Made by `pinstripe join`: the disks of this host.\n[Service]\n{}", lines)};
}

namespace {

// Before it is started: a program that does not run reads its files anyway, and a signal that comes
// too early would end it.
std::vector<std::string> Reload(const std::string& unit) { return {"try-reload-or-restart", unit}; }

}  // namespace

std::vector<std::vector<std::string>> PlanUnits(const Bundle& bundle,
                                                const std::set<std::string>& written) {
  const auto any_written = [&](std::initializer_list<const char*> paths) {
    return std::ranges::any_of(paths, [&](const char* path) { return written.contains(path); });
  };
  const bool way_to_drives = any_written(
      {"/etc/pinstripe/cluster.toml", "/etc/pinstripe/credentials.toml", "/etc/pinstripe/ca.pem"});
  const bool other_unit = any_written({kUnitFile});
  std::vector<std::vector<std::string>> calls;
  if (other_unit) calls.push_back({"daemon-reload"});
  if (!bundle.disks.empty()) {
    calls.push_back({"enable", kDaemonUnit});
    const bool other_drives = other_unit || any_written({"/etc/pinstripe/pinstriped.toml"});
    const bool other_keys = any_written({"/etc/pinstripe/pinstriped-credentials.toml",
                                         "/etc/pinstripe/tls.crt", "/etc/pinstripe/tls.key"});
    if (other_drives) {
      calls.push_back({"restart", kDaemonUnit});
    } else {
      if (other_keys) calls.push_back(Reload(kDaemonUnit));
      calls.push_back({"start", kDaemonUnit});
    }
  }
  if (bundle.gateway) {
    calls.push_back({"enable", kGatewayUnit});
    const bool other_server =
        any_written({"/etc/xrootd/xrootd-pinstripe.cfg", "/etc/xrootd/pinstripe-tls.crt",
                     "/etc/xrootd/pinstripe-tls.key"});
    if (other_server) {
      // It may wait for a cluster that is formatted later.
      calls.push_back({"restart", "--no-block", kGatewayUnit});
    } else {
      if (way_to_drives) calls.push_back(Reload(kGatewayUnit));
      calls.push_back({"start", "--no-block", kGatewayUnit});
    }
  }
  for (const std::string& mount : bundle.mounts) {
    const std::string unit = MountUnit(mount);
    calls.push_back({"enable", unit});
    if (way_to_drives) calls.push_back(Reload(unit));
    calls.push_back({"start", "--no-block", unit});
  }
  // One host at a time cares for the cluster, whichever it is.
  calls.push_back({"enable", "--now", "pinstripe-care.timer"});
  return calls;
}

}  // namespace pinstripe
