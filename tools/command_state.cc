// The option --state, for the commands that have it.

#include <CLI/CLI.hpp>

#include "tools/state_option.h"

namespace pinstripe {

void AddStateOption(CLI::App& command, std::string& directory) {
  command.add_option("--state", directory,
                     "Keep in this directory how far the look at everything is, and go on from "
                     "there after an interruption");
}

}  // namespace pinstripe
