// A cluster for a command of the administrator. After a loss of power whoever opens the cluster
// first may have to compare its drives, and nobody else would tell of that.

#pragma once

#include <memory>
#include <string>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/connect.h"

namespace pinstripe {

// Tells of the drives that were compared, waits up to 5 s until that is kept, and closes.
struct TellAndClose {
  void operator()(ConnectedCluster* connected) const;
};
using CommandCluster = std::unique_ptr<ConnectedCluster, TellAndClose>;

// Fails as Connect() does. `runtime` outlives the answer.
Result<CommandCluster> ConnectCommand(Runtime& runtime, const std::string& config_file);

}  // namespace pinstripe
