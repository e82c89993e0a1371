// pinstripe status: each drive, the space, and whether anything is wrong.

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/commands.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

struct StatusOptions {
  std::string config;
  bool json = false;
};

Result<int> ShowStatus(Runtime& runtime, const StatusOptions& options) {
  const Result<Survey> survey = TakeSurvey(runtime, options.config);
  if (!survey) {
    fmt::print(stderr, "pinstripe: {}\n", survey.error().message());
    return ExitCodeOf(Health::kUnavailable);
  }
  fmt::print("{}", options.json ? SurveyJson(*survey) : SurveyText(*survey));
  return ExitCodeOf(HealthOf(*survey));
}

}  // namespace

void AddStatusCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("status", "Show the drives, the space and the health");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Also tells what the last look through the cluster found (check, repair, scrub, verify).\n"
      "Exit code: 0 healthy; 1 degraded: drives are down, missing in CONFIG, full or being "
      "drained,\n"
      "or something is short or not known, but all that is known can be read; 2 damaged, "
      "something\n"
      "is lost, or unavailable, or the status could not be found out.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return ShowStatus(runtime, *options); };
  });
}

}  // namespace pinstripe
