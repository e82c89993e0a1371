// pinstripe status: each drive, the space, and whether anything is wrong.

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/commands.h"
#include "tools/survey.h"

namespace pinstripe {
namespace {

struct StatusOptions {
  std::string config;
  bool json = false;
};

// 1 means degraded here, so everything that keeps us from knowing is 2.
constexpr int kExitHealthy = 0;
constexpr int kExitDegraded = 1;
constexpr int kExitUnavailable = 2;

int ExitCodeOf(Health health) {
  switch (health) {
    case Health::kHealthy: return kExitHealthy;
    case Health::kDegraded: return kExitDegraded;
    case Health::kUnavailable: return kExitUnavailable;
  }
  return kExitUnavailable;
}

Result<int> ShowStatus(Runtime& runtime, const StatusOptions& options) {
  const Result<Survey> survey = TakeSurvey(runtime, options.config);
  if (!survey) {
    fmt::print(stderr, "pinstripe: {}\n", survey.error().message());
    return kExitUnavailable;
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
      "Exit code: 0 healthy; 1 degraded, some drives are down but everything can be read; 2\n"
      "unavailable, or the status could not be found out.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return ShowStatus(runtime, *options); };
  });
}

}  // namespace pinstripe
