// What new files of a cluster get where no directory says otherwise, as the cluster itself keeps it
// (docs/format.md, "Kept layout"). A process goes by its own file. This is what the file is
// compared with, so that one that says something else is noticed
// (docs/decisions/0040-kept-layout.md).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/config.h"
#include "cluster/map/drive_map.h"
#include "cluster/registers/store.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

struct KeptLayout {
  StripeLayout layout;
  uint32_t inline_limit = 0;
  uint32_t replicate_limit = 0;
  uint8_t min_redundancy = 0;

  static KeptLayout Of(const ClusterConfig& config);
  std::string Encode() const;
  static Result<KeptLayout> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const KeptLayout&, const KeptLayout&) = default;
};

// In the group of the map.
std::string LayoutKey();  // "L"

// Has the cluster keep what the configuration says. The answer is what it kept before; null:
// nothing. EBADMSG: that is of a later version of this program. EBUSY: somebody else does so, too.
Result<std::optional<KeptLayout>> KeepLayout(RegisterStore& registers, const ClusterConfig& config);

// Something that a configuration says otherwise than the cluster.
struct ConfigDifference {
  std::string what;  // "layout.data_shards", "domain of drive 3"
  std::string in_file;
  std::string in_cluster;
  std::string advice;  // how they are made the same

  std::string Text() const;
  friend bool operator==(const ConfigDifference&, const ConfigDifference&) = default;
};

// The differences in layouts, and in domains and weights of drives that both of them have. Without
// `kept` nothing is said about layouts; drives that are to become empty are left out.
std::vector<ConfigDifference> CompareConfig(const ClusterConfig& config, const DriveMap& map,
                                            const std::optional<KeptLayout>& kept);

}  // namespace pinstripe
