// The commands of `pinstripe`. Each adds its options to the command line; when it is the one that
// was asked for, it leaves what is to be done in `chosen`.

#pragma once

#include <functional>

#include "base/runtime.h"
#include "base/status.h"

namespace CLI {
class App;
}

namespace pinstripe {

// Exit codes: 0 done, 1 failed, 2 wrong usage. Commands that judge a cluster have their own: see
// their help.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
// For commands that work on drives: somebody else does.
inline constexpr int kExitBusy = 4;
// Somebody stopped it from elsewhere (`pinstripe work`).
inline constexpr int kExitStopped = 5;

// Done by main() after the command line was understood. A failure is printed there.
using Action = std::function<Result<int>(Runtime&)>;

void AddInitCommand(CLI::App& app, Action& chosen);
void AddJoinCommand(CLI::App& app, Action& chosen);
void AddDoctorCommand(CLI::App& app, Action& chosen);
void AddFormatCommand(CLI::App& app, Action& chosen);
void AddStatusCommand(CLI::App& app, Action& chosen);
void AddOkToStopCommand(CLI::App& app, Action& chosen);
void AddEventsCommand(CLI::App& app, Action& chosen);
void AddClientsCommand(CLI::App& app, Action& chosen);
void AddSlowCommand(CLI::App& app, Action& chosen);
void AddTopCommand(CLI::App& app, Action& chosen);
void AddWhyCommand(CLI::App& app, Action& chosen);
void AddCareCommand(CLI::App& app, Action& chosen);
void AddCheckCommand(CLI::App& app, Action& chosen);
void AddCollectCommand(CLI::App& app, Action& chosen);
void AddRecoverCommand(CLI::App& app, Action& chosen);
void AddPackCommand(CLI::App& app, Action& chosen);
void AddSpreadCommand(CLI::App& app, Action& chosen);
void AddUpgradeCommand(CLI::App& app, Action& chosen);
void AddMetadataCommand(CLI::App& app, Action& chosen);
void AddRmCommand(CLI::App& app, Action& chosen);
void AddRepairCommands(CLI::App& app,
                       Action& chosen);  // repair, scrub, verify, rebuild, drain, expand, rebalance
void AddConfigCommand(CLI::App& app, Action& chosen);
void AddWorkCommand(CLI::App& app, Action& chosen);
void AddBenchCommand(CLI::App& app, Action& chosen);
void AddDevCommand(CLI::App& app, Action& chosen);
void AddCompletionCommand(CLI::App& app, Action& chosen);

}  // namespace pinstripe
