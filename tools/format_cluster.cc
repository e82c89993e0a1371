#include "tools/format_cluster.h"

#include "base/byte_text.h"
#include "base/try.h"
#include "cluster/cluster.h"
#include "cluster/connect.h"
#include "kinetic/io.h"
#include "upkeep/events.h"
#include "upkeep/last_look.h"

namespace pinstripe {

namespace {

// What an engine takes for name and inode of a file, with its index and the history that it keeps
// for some time (bench/README.md).
constexpr uint64_t kEngineBytesOfFile = 2 << 10;
// etcd does not tell which one it has.
constexpr uint64_t kUsualEtcdQuota = UINT64_C(2) << 30;

// An empty cluster is in order, and all of it was looked at. Whoever asks can do without.
void TellOfFormat(Cluster& cluster) {
  const LastLook now{.at = cluster.runtime().WallClock()};
  for (const LookKind kind : {LookKind::kListed, LookKind::kRead, LookKind::kCollected}) {
    (void)NoteLastLook(cluster, kind, now);
  }
  (void)NoteLastPlaces(cluster, {.at = now.at, .epoch = cluster.map().epoch});
  EventLog events(cluster);
  Event event{.kind = EventKind::kConfiguration, .actor = {}};
  event.work = "format";
  event.text = fmt::format("it is new, on {} drives", cluster.map().drives.size());
  events.Add(std::move(event));
  (void)events.Flush();
}

}  // namespace

Result<FormatAnswer> FormatCluster(Runtime& runtime, const std::string& config_file,
                                   const FormatRequest& request) {
  const ClusterConfig config = TRY(ClusterConfig::Load(config_file));
  {
    KineticIo io(runtime);
    TRY(Cluster::Format(
        runtime, config, RealDriveFactory(io, config.drive_timeout),
        {.force = request.force, .features = FeaturesOfNewCluster(config.engine.has_value())}));
  }
  const auto connected = TRY(Connect(runtime, config_file));
  TRY(FileSystem::Format(connected->cluster(), request.owner, request.mode));
  TellOfFormat(connected->cluster());
  uint64_t names_room = 0;
  if (config.engine) {
    const EngineState state = TRY(connected->LookAtEngine(config.drive_timeout));
    uint64_t limit = state.limit_bytes;
    if (limit == 0 && config.engine->kind == "etcd") limit = kUsualEtcdQuota;
    names_room = limit / kEngineBytesOfFile;
  }
  return FormatAnswer{.name = config.name,
                      .uuid = UuidText(connected->cluster().uuid()),
                      .drives = config.drives.size(),
                      .names_on = config.engine ? config.engine->kind : "",
                      .names_room = names_room};
}

}  // namespace pinstripe
