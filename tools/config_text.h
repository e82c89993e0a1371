// A configuration as text: a cluster.toml with every option spelled out.

#pragma once

#include <string>

#include "cluster/config.h"

namespace pinstripe {

// Reads back as the same configuration. Without keys, which are in another file.
std::string ConfigText(const ClusterConfig& config);

// Whether the drive is spoken to with the Kinetic factory key, which everybody knows.
bool HasFactoryKey(const DriveConfig& drive);

}  // namespace pinstripe
