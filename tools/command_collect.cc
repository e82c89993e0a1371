// pinstripe collect: removes what died clients left behind.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/long_runs.h"
#include "tools/state_option.h"
#include "tools/time_span.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

struct CollectOptions {
  std::string config;
  std::string older_than = "7 d";
  bool dry_run = false;
  bool lost = false;
  bool json = false;
  std::string state;
};

// For whoever goes on with it.
std::string ArgumentsOf(const CollectOptions& options) {
  std::string age = options.older_than;
  std::erase(age, ' ');
  return fmt::format("--older-than {}{}{}", age, options.dry_run ? " --dry-run" : "",
                     options.lost ? " --lost" : "");
}

Result<int> RunCollect(Runtime& runtime, const CollectOptions& options) {
  const Duration older_than = TRY(ParseSpan("--older-than", options.older_than));
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  LongWork work(connected->cluster(), {.work = "collect", .arguments = ArgumentsOf(options)},
                HowToGoOn(kCollectionGoesOn, options.state),
                /*ends_itself=*/!options.state.empty());
  const auto say = [&](const std::string& line) { work.Say(line); };
  auto state = OpenState(connected->cluster(), options.state, say);
  if (!state.has_value()) return tl::unexpected(work.End(state.error()));
  const auto report = RunCollect(work, connected->cluster(),
                                 {.older_than = older_than,
                                  .dry_run = options.dry_run,
                                  .lost = options.lost,
                                  .state = state->get()});
  if (report && *state) TRY((*state)->Remove());
  if (!report) return work.Stopped().value_or(kExitStopped);
  fmt::print("{}", options.json ? DumpJson(CollectReportJson(*report, options.dry_run))
                                : CollectText(*report, options.dry_run, options.older_than));
  return work.End(ExitCodeOf(*report), CollectSummary(*report, options.dry_run));
}

}  // namespace

void AddCollectCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CollectOptions>();
  CLI::App* command = app.add_subcommand("collect", "Remove what died clients left behind");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command
      ->add_option("--older-than", options->older_than,
                   "Leave alone what is younger: a number and s, min, h or d")
      ->capture_default_str();
  command->add_flag("--dry-run", options->dry_run, "Only say what would be removed");
  command->add_flag("--lost", options->lost,
                    "Remove what is left of inodes that are lost, too, for ever");
  command->add_flag("--json", options->json, "Print it as JSON");
  AddStateOption(*command, options->state);
  command->footer(
      "May run beside clients at any time. An upload that has been under way for longer than\n"
      "--older-than fails at its end. Exit code: 0 done; 1 something stays, because it could not\n"
      "be looked at or removed, or because its inode is lost, or the command failed; 5 stopped by\n"
      "`pinstripe work`.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunCollect(runtime, *options); };
  });
}

}  // namespace pinstripe
