// The configurations that packages bring, as samples to start from: whoever has not edited one has
// not configured anything.

#pragma once

#include <string>
#include <string_view>

namespace pinstripe {

// Whether a file of that name with these contents is as a package has installed it below `root`
// ("" for this host).
bool IsPackageSample(const std::string& root, const std::string& name, std::string_view contents);

}  // namespace pinstripe
