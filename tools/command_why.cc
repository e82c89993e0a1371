// pinstripe why: on which drives a file is, and whether it can be read.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/try.h"
#include "fs/file_system.h"
#include "tools/commands.h"
#include "upkeep/command_cluster.h"
#include "upkeep/whereabouts.h"

namespace pinstripe {
namespace {

struct WhyOptions {
  std::string config;
  std::string path;
  bool json = false;
};

constexpr int kExitShort = 3;

Result<int> RunWhy(Runtime& runtime, const WhyOptions& options) {
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  const auto fs = TRY(FileSystem::Open(connected->cluster(), {}));
  const Attributes attributes = TRY_CONTEXT(fs->Resolve(options.path), "{}", options.path);
  const auto place = fs->ResolveTarget(options.path);  // of the root there is none
  const InodeId directory = place.has_value() ? place->directory : 0;
  const Whereabouts found =
      TRY_CONTEXT(FindWhereabouts(connected->cluster(), attributes.inode, {.directory = directory}),
                  "{}", options.path);
  fmt::print("{}", options.json ? WhereaboutsJson(found) : WhereaboutsText(found));
  switch (found.state()) {
    case Whereabouts::State::kWhole: return 0;
    case Whereabouts::State::kShort: return kExitShort;
    case Whereabouts::State::kUnreadable: break;
  }
  return kExitFailed;
}

}  // namespace

void AddWhyCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<WhyOptions>();
  CLI::App* command =
      app.add_subcommand("why", "Show on which drives a file is, and why it can(not) be read");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("PATH", options->path, "In the cluster, from its root on")->required();
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Goes by the maps and by which drives answer, and reads no data. Exit code: 0 all of it is\n"
      "there; 1 it cannot be read now, or is not found; 3 it can be read, but a part of it is "
      "away,\n"
      "was not stored yet, or is on a damaged drive.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunWhy(runtime, *options); };
  });
}

}  // namespace pinstripe
