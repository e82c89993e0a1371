// pinstripe ok-to-stop: whether a host or drives may be stopped now.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/try.h"
#include "tools/commands.h"
#include "upkeep/command_cluster.h"
#include "upkeep/stop.h"

namespace pinstripe {
namespace {

// 1 means no here, so everything that keeps us from knowing is 2.
constexpr int kExitNotKnown = 2;

struct StopOptions {
  std::string config;
  std::vector<std::string> what;
  bool json = false;
};

Result<int> Answer(Runtime& runtime, const StopOptions& options) {
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  Cluster& cluster = connected->cluster();
  const Survey survey = SurveyOf(cluster);
  const StopAnswer answer = TRY(MayStop(cluster, survey, options.what));
  fmt::print("{}", options.json ? StopJson(answer) : StopText(answer, survey));
  return ExitCodeOf(answer);
}

}  // namespace

void AddOkToStopCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<StopOptions>();
  CLI::App* command =
      app.add_subcommand("ok-to-stop", "Say whether a host or drives may be stopped");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("WHAT", options->what, "Ids of drives, and failure domains, as hosts are")
      ->required();
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Says what could not be read or written without them, with the drives that are away already\n"
      "away, too. It changes nothing. Exit code: 0 yes; 1 no; 2 it is not known, for instance as\n"
      "files lack shards, or the cluster cannot be opened, or there is no such drive or host.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) -> Result<int> {
      const Result<int> code = Answer(runtime, *options);
      if (code) return code;
      fmt::print(stderr, "pinstripe: {}\n", code.error().message());
      return kExitNotKnown;
    };
  });
}

}  // namespace pinstripe
