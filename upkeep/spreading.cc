#include "upkeep/spreading.h"

#include "base/try.h"
#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
#include "fs/names/names.h"
#include "fs/names/records.h"
#include "fs/names/spreader.h"

namespace pinstripe {

Result<SpreadReport> SpreadDirectory(Cluster& cluster, InodeId directory,
                                     const SpreadOptions& options) {
  SpreadReport report;
  report.uses_feature = !UsesFeature(cluster.map().features, kGrownDirectoriesFeature);
  TRY(UseFeature(cluster, kGrownDirectoriesFeature));
  Records records(cluster);
  Names names(records, [](InodeId, const Inode&, uint64_t) {});
  Spreader::Options spreading;
  spreading.go_on = options.go_on;
  spreading.progress = options.progress;
  spreading.waits = options.waits;
  const Spreader::Report done = TRY(Spreader(cluster, records, names, std::move(spreading))
                                        .Run(directory, Spreader::Begin::kYes));
  report.moved = done.moved;
  report.cleared = done.cleared;
  report.ended = done.ended;
  return report;
}

}  // namespace pinstripe
