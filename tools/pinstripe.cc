// pinstripe: the administrator's command. docs/man/pinstripe.8 is the manual.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/log.h"
#include "base/program.h"
#include "base/real_runtime.h"
#include "tools/commands.h"
#include "tools/progress.h"

namespace pinstripe {
namespace {

int Main(int argc, char** argv) {
  CLI::App app{
      "Formats Pinstripe clusters, shows how they are, repairs them, and makes small ones to try."};
  app.name("pinstripe");
  app.require_subcommand(1);
  app.set_version_flag("--version", "pinstripe " PINSTRIPE_VERSION);
  bool verbose = false;
  app.add_flag("-v,--verbose", verbose, "Log to standard error what happens on the way");
  std::string progress = "auto";
  app.add_option(
         "--progress", progress,
         "How long work says on standard error how far it is: redrawn (a line that changes, "
         "usual on a terminal), lines (one a minute, usual elsewhere), json (an object a "
         "second) or none")
      ->check(CLI::IsMember({"auto", "redrawn", "lines", "json", "none"}))
      ->default_str("auto");
  // Both may be said behind the subcommand, too.
  app.fallthrough();
  Action chosen;
  AddInitCommand(app, chosen);
  AddJoinCommand(app, chosen);
  AddFormatCommand(app, chosen);
  AddStatusCommand(app, chosen);
  AddOkToStopCommand(app, chosen);
  AddEventsCommand(app, chosen);
  AddClientsCommand(app, chosen);
  AddSlowCommand(app, chosen);
  AddTopCommand(app, chosen);
  AddWhyCommand(app, chosen);
  AddCareCommand(app, chosen);
  AddCheckCommand(app, chosen);
  AddCollectCommand(app, chosen);
  AddRecoverCommand(app, chosen);
  AddPackCommand(app, chosen);
  AddSpreadCommand(app, chosen);
  AddUpgradeCommand(app, chosen);
  AddMetadataCommand(app, chosen);
  AddRmCommand(app, chosen);
  AddRepairCommands(app, chosen);
  AddWorkCommand(app, chosen);
  AddConfigCommand(app, chosen);
  AddBenchCommand(app, chosen);
  AddDevCommand(app, chosen);
  AddDoctorCommand(app, chosen);
  AddCompletionCommand(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }

  ChooseProgress(progress);
  const auto commands = app.get_subcommands();
  RaiseDescriptorLimit();
  SetProgram({.name = "pinstripe",
              .version = PINSTRIPE_VERSION,
              .detail = commands.empty() ? "" : commands.front()->get_name()});
  SetLogLevel(verbose ? LogLevel::kDebug : LogLevel::kError);
  RealRuntime runtime;
  const Result<int> exit_code = chosen(runtime);
  if (exit_code) return *exit_code;
  fmt::print(stderr, "pinstripe: {}\n", exit_code.error().message());
  return kExitFailed;
}

}  // namespace
}  // namespace pinstripe

int main(int argc, char** argv) { return pinstripe::Main(argc, argv); }
