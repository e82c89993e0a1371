// How the programs that go by a cluster.toml are to log.

#pragma once

#include <string>

#include "base/log_format.h"
#include "base/status.h"

namespace pinstripe {

// Of a file that ClusterConfig::Load() takes.
Result<LogFormat> LogFormatOf(const std::string& cluster_file);

}  // namespace pinstripe
