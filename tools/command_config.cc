// pinstripe config: the configuration as it is understood, defaults included; or what is wrong with
// it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/try.h"
#include "tools/commands.h"
#include "tools/config_text.h"

namespace pinstripe {

void AddConfigCommand(CLI::App& app, Action& chosen) {
  auto file = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("config", "Check a configuration and print it, defaults included");
  command->add_option("CONFIG", *file, "cluster.toml")->required();
  command->footer("Reads the two files and asks no drive. Keys are not printed.");
  command->callback([file, &chosen] {
    chosen = [file](Runtime&) -> Result<int> {
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
