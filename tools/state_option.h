// --state DIRECTORY: where the commands that look at everything keep how far they are
// (upkeep/check_state.h).

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cluster/cluster.h"
#include "upkeep/check_state.h"

namespace CLI {
class App;
}

namespace pinstripe {

void AddStateOption(CLI::App& command, std::string& directory);

// For who interrupts it; `usual`: without a directory.
std::string HowToGoOn(std::string_view usual, const std::string& directory);

using SayLine = std::function<void(const std::string& line)>;

// What --state names, and `say` is told what is gone on with. Null: it names nothing. Failures as
// of CheckState::Open.
Result<std::unique_ptr<CheckState>> OpenState(Cluster& cluster, const std::string& directory,
                                              const SayLine& say);

}  // namespace pinstripe
