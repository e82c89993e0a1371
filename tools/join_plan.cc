#include "tools/join_plan.h"

#include <algorithm>
#include <initializer_list>

#include "base/config.h"
#include "base/toml_text.h"
#include "base/try.h"
#include "tools/site_authority.h"
#include "tools/site_plan.h"

namespace pinstripe {

std::string JoinRecordText(const JoinRecord& record) {
  TomlText text;
  text.Comment("What `pinstripe join` has put into place, so that it knows what was edited since.");
  text.Table("joined");
  text.Set("site", record.site);
  text.Set("host", record.host);
  text.Set("version", record.version);
  for (const auto& [path, sum] : record.sha256) {
    text.NewTable("file");
    text.Set("path", path);
    text.Set("sha256", sum);
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
  for (ConfigTable& one : root.Tables("file")) {
    const std::string path = one.Text("path");
    record.sha256[path] = one.Text("sha256");
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
      const auto joined = record->sha256.find(file.path);
      is_ours =
          is_ours || (joined != record->sha256.end() && joined->second == Sha256(*now.contents));
    }
    steps.push_back(is_ours ? FileStep::kChange : FileStep::kEdited);
  }
  return steps;
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
  const bool other_unit = any_written({"/etc/systemd/system/pinstriped.service.d/site.conf"});
  std::vector<std::vector<std::string>> calls;
  if (other_unit) calls.push_back({"daemon-reload"});
  if (!bundle.disks.empty()) {
    calls.push_back({"enable", "pinstriped.service"});
    const bool other_drives = other_unit || any_written({"/etc/pinstripe/pinstriped.toml"});
    const bool other_keys = any_written({"/etc/pinstripe/pinstriped-credentials.toml",
                                         "/etc/pinstripe/tls.crt", "/etc/pinstripe/tls.key"});
    if (other_drives) {
      calls.push_back({"restart", "pinstriped.service"});
    } else {
      if (other_keys) calls.push_back(Reload("pinstriped.service"));
      calls.push_back({"start", "pinstriped.service"});
    }
  }
  if (bundle.gateway) {
    calls.push_back({"enable", "xrootd@pinstripe.service"});
    const bool other_server =
        any_written({"/etc/xrootd/xrootd-pinstripe.cfg", "/etc/xrootd/pinstripe-tls.crt",
                     "/etc/xrootd/pinstripe-tls.key"});
    if (other_server) {
      // It may wait for a cluster that is formatted later.
      calls.push_back({"restart", "--no-block", "xrootd@pinstripe.service"});
    } else {
      if (way_to_drives) calls.push_back(Reload("xrootd@pinstripe.service"));
      calls.push_back({"start", "--no-block", "xrootd@pinstripe.service"});
    }
  }
  for (const std::string& mount : bundle.mounts) {
    const std::string unit = MountUnit(mount);
    calls.push_back({"enable", unit});
    if (way_to_drives) calls.push_back(Reload(unit));
    calls.push_back({"start", "--no-block", unit});
  }
  return calls;
}

}  // namespace pinstripe
