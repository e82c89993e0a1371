#include "tools/format_cluster.h"

#include "base/try.h"
#include "cluster/cluster.h"
#include "cluster/connect.h"
#include "kinetic/io.h"
#include "upkeep/survey.h"

namespace pinstripe {

Result<FormatAnswer> FormatCluster(Runtime& runtime, const std::string& config_file,
                                   const FormatRequest& request) {
  const ClusterConfig config = TRY(ClusterConfig::Load(config_file));
  {
    KineticIo io(runtime);
    TRY(Cluster::Format(runtime, config, KineticDriveFactory(io, config.drive_timeout),
                        {.force = request.force}));
  }
  const auto connected = TRY(Connect(runtime, config_file));
  TRY(FileSystem::Format(connected->cluster(), request.owner, request.mode));
  return FormatAnswer{.name = config.name,
                      .uuid = UuidText(connected->cluster().uuid()),
                      .drives = config.drives.size()};
}

}  // namespace pinstripe
