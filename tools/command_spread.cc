// pinstripe spread: spreads the names of a very large directory over all drives.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/try.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/long_runs.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

struct SpreadRequest {
  std::string config;
  std::string directory;
  bool json = false;
};

std::string Text(const SpreadRequest& options, const SpreadReport& report) {
  if (report.moved == 0 && report.cleared == 0) {
    return fmt::format("{} is spread over all drives already\n", options.directory);
  }
  return fmt::format("{} is spread over all drives; {} names were moved\n", options.directory,
                     report.moved);
}

Result<int> RunSpreadCommand(Runtime& runtime, const SpreadRequest& options) {
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  Cluster& cluster = connected->cluster();
  const InodeId directory = TRY(FindDirectory(cluster, options.directory));
  // Everybody may see what work is under way, and the names of directories are not for everybody.
  LongWork work(cluster, {.work = "spread", .arguments = "of a directory"},
                std::string(kSpreadingGoesOn));
  const auto report = RunSpread(work, cluster, directory);
  if (!report.has_value()) return Failed(work.End(report.error().Context(options.directory)));
  if (!report->ended) return work.Stopped().value_or(kExitStopped);
  const nlohmann::ordered_json json{{"moved", report->moved}, {"cleared", report->cleared}};
  fmt::print("{}", options.json ? DumpJson(json) : Text(options, *report));
  return work.End(0, fmt::format("{} names were moved", report->moved));
}

}  // namespace

void AddSpreadCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<SpreadRequest>();
  CLI::App* command =
      app.add_subcommand("spread", "Spread the names of a very large directory over all drives");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("DIRECTORY", options->directory, "In the cluster, from its root on; it alone")
      ->required();
  command->add_flag("--json", options->json, "Print what was done as JSON");
  command->footer(
      "The names in a directory lie on a few drives, as many as there are replicas. A directory\n"
      "with hundreds of thousands of names is spread over all drives, once and for ever. Mounts\n"
      "and gateways do so by themselves when they have made or listed 262144 names in one, if the\n"
      "cluster was formatted by this version or a later one. The directory is used meanwhile as\n"
      "before. It takes some minutes at least, as everybody must have heard of each step, and may\n"
      "be begun again when it was interrupted. To list a small directory that was spread takes\n"
      "longer than before. Versions that do not know it refuse the cluster from then on.\n"
      "Exit code: 0 done; 1 it failed; 5 stopped by `pinstripe work`.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunSpreadCommand(runtime, *options); };
  });
}

}  // namespace pinstripe
