#include "upkeep/command_cluster.h"

#include "base/try.h"
#include "upkeep/host_events.h"

namespace pinstripe {

void TellAndClose::operator()(ConnectedCluster* connected) const {
  {
    EventLog log(connected->cluster());
    if (TellOfComparisons(connected->cluster(), log) > 0) (void)log.Flush();
  }
  delete connected;
}

Result<CommandCluster> ConnectCommand(Runtime& runtime, const std::string& config_file) {
  return CommandCluster(TRY(Connect(runtime, config_file)).release());
}

}  // namespace pinstripe
