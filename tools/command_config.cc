// pinstripe config: the configuration as it is understood, defaults included; or what is wrong with
// it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/try.h"
#include "cluster/kept_layout.h"
#include "tools/commands.h"
#include "tools/config_text.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

// Has the cluster keep the layout of the file, which other files are compared with.
Result<int> ApplyLayout(Runtime& runtime, const std::string& file) {
  const auto connected = TRY(ConnectCommand(runtime, file));
  Cluster& cluster = connected->cluster();
  const auto before = TRY(KeepLayout(cluster.registers(), cluster.config()));
  if (!before) {
    fmt::print("The cluster keeps the layout of {} now.\n", file);
    return 0;
  }
  const auto changes = CompareConfig(cluster.config(), {}, before);
  for (const ConfigDifference& change : changes) {
    fmt::print("{}: {} instead of {}\n", change.what, change.in_file, change.in_cluster);
  }
  fmt::print("{}", changes.empty()
                       ? "The cluster keeps this layout already; nothing was changed.\n"
                       : "The cluster keeps this from now on. Files and directories that are there "
                         "stay as they are.\n");
  return 0;
}

}  // namespace

void AddConfigCommand(CLI::App& app, Action& chosen) {
  auto file = std::make_shared<std::string>();
  auto apply = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("config", "Check a configuration and print it, defaults included");
  command->add_option("CONFIG", *file, "cluster.toml")->required();
  command->add_flag("--apply", *apply,
                    "Have the cluster keep this layout, which other files are compared with");
  command->footer("Reads the two files and, without --apply, asks no drive. Keys are not printed.");
  command->callback([file, apply, &chosen] {
    chosen = [file, apply](Runtime& runtime) -> Result<int> {
      if (*apply) return ApplyLayout(runtime, *file);
      const ClusterConfig config = TRY(ClusterConfig::Load(*file));
      fmt::print("{}", ConfigText(config));
      const auto open_to_all = std::ranges::count_if(config.drives, HasFactoryKey);
      if (open_to_all > 0) {
        fmt::print(
            stderr,
            "pinstripe: warning: {} of {} drives have the factory's key, which everybody "
            "knows: give them one of their own (docs/operations.md, \"Who may use a drive\")\n",
            open_to_all, config.drives.size());
      }
      if (const Status enough = config.CheckForFormat(); !enough.ok()) {
        fmt::print(stderr,
                   "pinstripe: warning: {}: enough for a cluster that has lost drives, not to "
                   "format one\n",
                   enough.message());
      }
      return 0;
    };
  });
}

}  // namespace pinstripe
