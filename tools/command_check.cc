// pinstripe check: whether everything that is on the drives fits together.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/long_runs.h"
#include "tools/state_option.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

struct CheckOptions {
  std::string config;
  bool names_only = false;
  bool all = false;
  bool json = false;
  std::string state;
};

constexpr int kExitNotChecked = 2;

Result<int> RunCheck(Runtime& runtime, const CheckOptions& options) {
  auto connected = ConnectCommand(runtime, options.config);
  if (!connected) {
    fmt::print(stderr, "pinstripe: {}\n", connected.error().message());
    return kExitNotChecked;
  }
  Cluster& cluster = (*connected)->cluster();
  LongWork work(cluster, {.work = "check", .arguments = options.names_only ? "--names-only" : ""},
                HowToGoOn(kCheckGoesOn, options.state), /*ends_itself=*/!options.state.empty());
  const auto state =
      OpenState(cluster, options.state, [&](const std::string& line) { work.Say(line); });
  if (!state.has_value()) {
    work.Say(fmt::format("pinstripe: {}", state.error().message()));
    return work.End(kExitNotChecked, std::string(state.error().message()));
  }
  const auto report = RunCheck(work, cluster, options.names_only, state->get());
  if (report && *state) TRY((*state)->Remove());
  if (!report) return work.Stopped().value_or(kExitStopped);
  fmt::print("{}", options.json ? DumpJson(CheckReportJson(*report))
                                : CheckText(*report, cluster.config().file, options.all,
                                            options.names_only));
  return work.End(ExitCodeOf(*report));
}

}  // namespace

void AddCheckCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command =
      app.add_subcommand("check", "Check that names, inodes and shards fit together");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_flag("--names-only", options->names_only, "Do not look for the files' shards");
  command->add_flag("--all", options->all, "Name what died clients left behind, too");
  command->add_flag("--json", options->json, "Print it as JSON");
  AddStateOption(*command, options->state);
  command->footer(
      "Changes only what `status` says of it, besides finishing renames that it meets, as any "
      "reader "
      "does.\n"
      "May run beside clients at any time. Exit code: 0 in order; 1 errors;\n"
      "2 no errors, but not everything could be looked at, CONFIG lacks a drive that nobody\n"
      "drains, or the cluster cannot be opened; 3 everything can be read, but shards are missing,\n"
      "CONFIG lacks a drive whose drain has not come to its end, files have shards on a drive\n"
      "that is being drained, or a drive is full; 5 stopped by `pinstripe work`.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunCheck(runtime, *options); };
  });
}

}  // namespace pinstripe
