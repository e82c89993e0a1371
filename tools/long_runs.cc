#include "tools/long_runs.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "cluster/membership/epoch_change.h"
#include "fs/file_system.h"
#include "tools/check_report.h"
#include "upkeep/care_notes.h"

namespace pinstripe {

Result<InodeId> FindDirectory(Cluster& cluster, const std::string& path) {
  const auto fs = TRY(FileSystem::Open(cluster, {}));
  const Attributes found = TRY_CONTEXT(fs->Resolve(path), "{}", path);
  if (found.kind != FileKind::kDirectory) return Fail(ENOTDIR, "{} is not a directory", path);
  return found.inode;
}

std::optional<CheckReport> RunCheck(LongWork& work, Cluster& cluster, bool names_only,
                                    CheckState* state) {
  Checker checker(cluster,
                  {.data = !names_only,
                   .progress = [&](std::string_view phase, double done) { work.Show(phase, done); },
                   .go_on = [&] { return work.GoOn(); },
                   .state = state});
  CheckReport report = checker.Run();
  if (work.work().IsStopped()) return std::nullopt;
  work.Clear();
  if (!names_only) NoteCheck(cluster, report);
  return report;
}

std::optional<CollectReport> RunCollect(LongWork& work, Cluster& cluster,
                                        Collector::Options options) {
  options.progress = [&](std::string_view phase, double done) { work.Show(phase, done); };
  options.go_on = [&] { return work.GoOn(); };
  const Epoch before = cluster.map().epoch;
  Collector collector(cluster, options);
  CollectReport report = collector.Run();
  if (cluster.map().epoch != before) {
    Event event{.kind = EventKind::kConfiguration, .actor = {}};
    event.work = "collect";
    event.text =
        fmt::format("epoch {} of the drive map, with the same drives", cluster.map().epoch);
    work.events().Add(std::move(event));
  }
  if (work.work().IsStopped()) return std::nullopt;
  work.Clear();
  if (!options.dry_run) NoteCollection(cluster, report);
  return report;
}

namespace {

void TellOfFeature(LongWork& work, Cluster& cluster, std::string command, std::string_view what) {
  Event event{.kind = EventKind::kConfiguration, .actor = {}};
  event.work = std::move(command);
  event.text = fmt::format("epoch {} of the drive map: the cluster uses {} from now on",
                           cluster.map().epoch, what);
  work.events().Add(std::move(event));
}

}  // namespace

Status RunUpgrade(LongWork& work, Cluster& cluster, std::span<const Feature> features,
                  const std::function<bool()>& is_lost) {
  EpochChangeOptions options;
  options.progress = [&](std::string_view phase, double done) { work.Show(phase, done); };
  options.is_cancelled = [&] { return work.work().IsStopped() || is_lost(); };
  Status status;
  if (!features.empty()) {
    status = UseFeatures(cluster, features, options);
  } else if (const auto settled = SettleEpoch(cluster, options); !settled.has_value()) {
    status = settled.error();
  }
  work.Clear();
  TRY(status);
  for (const Feature& feature : features) TellOfFeature(work, cluster, "upgrade", feature.name);
  return {};
}

PackOutcome RunPack(LongWork& work, Cluster& cluster, Packer::Options options, InodeId directory,
                    bool wait) {
  options.progress = [&](const PackReport& so_far) {
    work.Show(fmt::format("packing, {} files so far", so_far.files), kProgressUnknown,
              so_far.bytes);
  };
  options.go_on = [&] { return work.GoOn(); };
  const auto uses_packs = [&] { return UsesFeature(cluster.map().features, kPacksFeature); };
  const bool before = uses_packs();
  Packer packer(cluster, std::move(options));
  PackOutcome outcome;
  outcome.failure = packer.Run(directory);
  outcome.report = packer.report();
  if (uses_packs() && !before) TellOfFeature(work, cluster, "pack", "packs");
  if (wait && outcome.failure.ok() && !work.work().IsStopped()) {
    outcome.is_free = packer.WaitUntilFree([&](size_t files) {
      work.Show(fmt::format("freeing what {} files occupied before", files), kProgressUnknown);
    });
  }
  outcome.stopped = work.work().IsStopped();
  work.Clear();
  return outcome;
}

Result<SpreadReport> RunSpread(LongWork& work, Cluster& cluster, InodeId directory) {
  SpreadOptions options;
  options.go_on = [&] { return work.GoOn(); };
  options.progress = [&](std::string_view phase, uint64_t done) {
    work.Show(fmt::format("{}, {} so far", phase, done), kProgressUnknown);
  };
  options.waits = [&] { work.Show("waiting until everybody has heard of it", kProgressUnknown); };
  auto report = SpreadDirectory(cluster, directory, options);
  if (report.has_value() && report->uses_feature) {
    TellOfFeature(work, cluster, "spread", "directories that grow");
  }
  work.Clear();
  return report;
}

Result<NameMoveReport> RunNameMove(LongWork& work, Cluster& cluster, const DriveFactory& factory,
                                   bool back, const DriveClaim& claim) {
  EpochChangeOptions options;
  options.progress = [&](std::string_view phase, double done) { work.Show(phase, done); };
  // It does not pause: changes wait for it.
  options.is_cancelled = [&] { return work.work().IsStopped() || claim.IsLost(); };
  auto report =
      back ? MoveNamesToDrives(cluster, options) : MoveNamesToEngine(cluster, factory, options);
  work.Clear();
  return report;
}

Result<RepairOutcome> RunRepair(LongWork& work, Cluster& cluster, const DriveFactory& factory,
                                const RepairRequest& request) {
  auto outcome = RunRepair(cluster, factory, request,
                           {.progress = [&](std::string_view phase, double part,
                                            uint64_t bytes) { work.Show(phase, part, bytes); },
                            .say = [&](const std::string& line) { work.Say(line); },
                            .work = &work.work(),
                            .events = &work.events()});
  work.Clear();
  // So that care need not do it again; it can.
  if (outcome.has_value() && !request.dry_run) (void)NoteMoved(cluster, request.without);
  return outcome;
}

}  // namespace pinstripe
