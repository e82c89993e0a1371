// pinstripe upgrade: a cluster that an earlier version has formatted uses what new ones do.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/try.h"
#include "cluster/beside.h"
#include "cluster/membership/drive_claim.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/long_runs.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

struct UpgradeRequest {
  std::string config;
  bool dry_run = false;
  bool json = false;
};

void Print(const UpgradeRequest& options, const std::vector<Feature>& features) {
  if (options.json) {
    nlohmann::ordered_json names = nlohmann::ordered_json::array();
    for (const Feature& feature : features) names.push_back(feature.name);
    fmt::print("{}", DumpJson({{"features", std::move(names)}}));
    return;
  }
  if (features.empty()) return fmt::print("the cluster uses all that new clusters do\n");
  fmt::print("the cluster {}:\n", options.dry_run ? "would use" : "uses from now on");
  for (const Feature& feature : features) {
    fmt::print("  {:<18} {}\n", feature.name, FindFeature(feature.name)->what);
  }
}

Result<int> RunUpgradeCommand(Runtime& runtime, const UpgradeRequest& options) {
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  Cluster& cluster = connected->cluster();
  const std::vector<Feature> features =
      FeaturesToUse(cluster.map().features, AreNamesOnEngine(cluster));
  // One that was interrupted has made its epoch, perhaps, and not told everybody.
  const bool is_done = features.empty() && cluster.IsSettled();
  if (is_done || options.dry_run) {
    Print(options, features);
    return 0;
  }
  LongWork work(cluster, {.work = "upgrade", .arguments = ""}, std::string(kUpgradeGoesOn));
  DriveClaim claim(cluster, kDriveMap, DriveWork::kExpand);
  const Status ours = claim.Take([&](const Status& who) { work.Say(std::string(who.message())); });
  const Status status =
      ours.ok() ? RunUpgrade(work, cluster, features, [&] { return claim.IsLost(); }) : ours;
  if (const auto stopped = work.Stopped()) return *stopped;
  if (status.code() == EBUSY || claim.IsLost()) {
    const Status why = claim.IsLost() ? claim.Check() : status;
    work.Say(fmt::format("pinstripe: {}", why.message()));
    return work.End(kExitBusy, std::string(why.message()));
  }
  if (!status.ok()) return Failed(work.End(status));
  Print(options, features);
  return work.End(0, fmt::format("{} features", features.size()));
}

}  // namespace

void AddUpgradeCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<UpgradeRequest>();
  CLI::App* command =
      app.add_subcommand("upgrade", "Let an older cluster use all that new clusters do");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_flag("--dry-run", options->dry_run, "Only say what the cluster would use");
  command->add_flag("--json", options->json, "Print the features as JSON");
  command->footer(
      "A cluster goes on as the version formatted it that made it, as hosts of that version may\n"
      "be at work. When all hosts have this one, this lets the cluster use what is new. It holds\n"
      "for what is written from then on, and there is no way back: versions that do not know a\n"
      "feature refuse the cluster. Files can be used meanwhile as before. `pinstripe clients`\n"
      "says which version each host has, and `pinstripe status` what the cluster uses.\n"
      "Exit code: 0 done, or nothing to do; 1 it failed; 4 somebody else changes the drive map;\n"
      "5 stopped by `pinstripe work`.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunUpgradeCommand(runtime, *options); };
  });
}

}  // namespace pinstripe
