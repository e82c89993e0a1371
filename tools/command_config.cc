// pinstripe config: the configuration as it is understood, defaults included; or what is wrong with it.

#include <CLI/CLI.hpp>

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
      fmt::print("{}", ConfigText(TRY(ClusterConfig::Load(*file))));
      return 0;
    };
  });
}

}  // namespace pinstripe
