#include "tools/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/byte_text.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

constexpr int kExitInOrder = 0;
constexpr int kExitWrong = 1;
constexpr int kExitNotChecked = 2;

std::string_view NameOf(Severity severity) {
  switch (severity) {
    case Severity::kError: return "error";
    case Severity::kShort: return "short";
    case Severity::kLeftover: return "leftover";
  }
  return "error";
}

}  // namespace

int ExitCodeOf(const CheckReport& report) {
  if (report.Count(Severity::kError) > 0) return kExitWrong;
  const auto is_active = [](const MissingDrive& drive) { return !drive.is_draining; };
  const bool lacks_active = std::ranges::any_of(report.missing_drives, is_active);
  if (!report.not_checked.empty() || lacks_active) return kExitNotChecked;
  if (report.Count(Severity::kShort) > 0 || !report.missing_drives.empty()) return kExitShort;
  if (!report.named_on_draining.empty() || !report.full_drives.empty()) return kExitShort;
  return kExitInOrder;
}

LastLook LookOf(const CheckReport& report, int64_t now) {
  return {.at = now,
          .lost = report.Count(Severity::kError),
          .lacking = report.Count(Severity::kShort),
          .replicas_behind = 0,
          .not_looked_at = report.not_checked.size()};
}

void NoteCheck(Cluster& cluster, const CheckReport& report) {
  LastLook look = LookOf(report, cluster.runtime().WallClock());
  // A check does not compare all replicas, as a repair does.
  if (const auto before = FindLastLook(cluster, LookKind::kListed)) {
    look.replicas_behind = before->replicas_behind;
  }
  (void)NoteLastLook(cluster, LookKind::kListed, look);
  NotePlaces(cluster, report);
  NoteFill(cluster);
}

// Of a look that did not see all places the last note is as good as any.
void NotePlaces(Cluster& cluster, const CheckReport& report) {
  if (!report.not_checked.empty() || !report.knows_all_places) return;
  LastPlaces places{.at = report.began,
                    .epoch = report.epoch,
                    .displaced_blocks = report.displaced_blocks,
                    .unused_shards = report.unused_shards,
                    .unused_bytes = report.unused_bytes};
  for (const auto& [k, m] : report.geometries) places.stripes.push_back({k, m});
  (void)NoteLastPlaces(cluster, places);
}

void NoteCollection(Cluster& cluster, const CollectReport& report) {
  (void)NoteLastLook(
      cluster, LookKind::kCollected,
      {.at = cluster.runtime().WallClock(), .not_looked_at = report.not_collected.size()});
}

std::string CollectSummary(const CollectReport& report, bool dry_run) {
  return fmt::format("{} {} inodes, {} names and {} shards", dry_run ? "would remove" : "removed",
                     report.inodes, report.entries, report.shards);
}

int ExitCodeOf(const PackReport& report) { return report.not_packed.empty() ? 0 : 1; }

std::string PackSummary(const PackReport& report, bool dry_run) {
  return fmt::format("{} {} file{} of {} into {} pack{}", dry_run ? "would put" : "put",
                     report.files, report.files == 1 ? "" : "s", BytesText(report.bytes),
                     report.packs, report.packs == 1 ? "" : "s");
}

std::string PackText(const PackReport& report, bool dry_run, const std::string& older_than) {
  std::string text;
  for (const std::string& what : report.not_packed) text += fmt::format("stays    {}\n", what);
  text += PackSummary(report, dry_run) + "\n";
  if (report.repacked > 0) {
    text += fmt::format("{} of them from {} packs of which less than half was used\n",
                        report.repacked, report.left_packs);
  }
  if (report.changed > 0) {
    text += fmt::format("{} files were changed meanwhile, and stay as they are\n", report.changed);
  }
  if (report.too_young > 0) {
    text +=
        fmt::format("{} small files have changed in the last {}\n", report.too_young, older_than);
  }
  if (report.too_few > 0) {
    text += fmt::format(
        "{} files of {} wait for others: they are too few for a pack (`--least` says how much is "
        "enough)\n",
        report.too_few, BytesText(report.too_few_bytes));
  }
  return text;
}

nlohmann::ordered_json PackReportJson(const PackReport& report, bool dry_run) {
  return {{"dry_run", dry_run},
          {"packs", report.packs},
          {"files", report.files},
          {"bytes", report.bytes},
          {"repacked", report.repacked},
          {"left_packs", report.left_packs},
          {"too_young", report.too_young},
          {"too_few", report.too_few},
          {"too_few_bytes", report.too_few_bytes},
          {"changed", report.changed},
          {"not_packed", report.not_packed}};
}

nlohmann::ordered_json CheckReportJson(const CheckReport& report) {
  nlohmann::ordered_json json{{"directories", report.directories},
                              {"files", report.files},
                              {"entries", report.entries},
                              {"blocks", report.blocks},
                              {"shards", report.shards},
                              {"unused_shards", report.unused_shards},
                              {"unused_bytes", report.unused_bytes},
                              {"displaced_blocks", report.displaced_blocks},
                              {"errors", report.Count(Severity::kError)},
                              {"short", report.Count(Severity::kShort)},
                              {"leftovers", report.Count(Severity::kLeftover)},
                              {"lost_inodes", report.lost_inodes},
                              {"full_drives", report.full_drives},
                              {"shards_to_leave", nlohmann::ordered_json::object()},
                              {"missing_drives", nlohmann::ordered_json::array()},
                              {"findings", nlohmann::ordered_json::array()},
                              {"more_findings", nlohmann::ordered_json::object()},
                              {"not_checked", report.not_checked}};
  for (const auto& [drive, shards] : report.named_on_draining) {
    json["shards_to_leave"][fmt::format("{}", drive)] = shards;
  }
  for (const MissingDrive& drive : report.missing_drives) {
    json["missing_drives"].push_back({{"drive", drive.id},
                                      {"draining", drive.is_draining},
                                      {"keeps_drive_map", drive.keeps_map}});
  }
  for (const Finding& finding : report.findings) {
    json["findings"].push_back({{"severity", NameOf(finding.severity)},
                                {"problem", finding.problem},
                                {"where", finding.where},
                                {"what", finding.what}});
  }
  for (const auto& [problem, untold] : report.untold) {
    json["more_findings"][problem] = untold.count;
  }
  return json;
}

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string FindingsText(const CheckReport& report, const std::string& config_file, bool all) {
  std::string text;
  for (const MissingDrive& drive : report.missing_drives) {
    text += fmt::format("missing  drive {}: {}\n", drive.id, drive.Text(config_file));
  }
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kLeftover && !all) continue;
    text += fmt::format("{:<8} {}: {} ({})\n", NameOf(finding.severity), finding.where,
                        finding.what, finding.problem);
  }
  for (const auto& [problem, untold] : report.untold) {
    if (untold.severity == Severity::kLeftover && !all) continue;
    text += fmt::format("{:<8} {} more of these ({})\n", NameOf(untold.severity), untold.count,
                        problem);
  }
  for (const std::string& what : report.not_checked) text += fmt::format("unknown  {}\n", what);
  return text;
}

std::string CheckText(const CheckReport& report, const std::string& config_file, bool all,
                      bool names_only) {
  std::string text = FindingsText(report, config_file, all);
  text += fmt::format("{} directories, {} files, {} names\n", report.directories, report.files,
                      report.entries);
  if (!names_only) {
    text += fmt::format(
        "{} blocks in {} shards; {} shards of uploads under way or given up{}\n", report.blocks,
        report.shards, report.unused_shards,
        report.unused_bytes > 0 ? fmt::format(", about {}", BytesText(report.unused_bytes)) : "");
  }
  const size_t leftovers = report.Count(Severity::kLeftover);
  if (leftovers > 0) {
    text += fmt::format("{} leftovers of clients that died, which do no harm\n", leftovers);
  }
  return text + VerdictText(report);
}

std::string VerdictText(const CheckReport& report, bool leaves_something) {
  std::string text;
  const size_t errors = report.Count(Severity::kError);
  const size_t short_files = report.Count(Severity::kShort);
  if (errors > 0) text += fmt::format("{} errors\n", errors);
  if (report.lost_inodes > 0) {
    text += fmt::format(
        "{} inodes are lost: what is left of them is kept. `pinstripe recover` brings it back, "
        "`pinstripe collect --lost` removes it\n",
        report.lost_inodes);
  }
  if (short_files > 0) text += fmt::format("{} files with missing shards\n", short_files);
  const size_t drives = report.missing_drives.size();
  if (drives > 0) {
    text += fmt::format("{} missing\n",
                        drives == 1 ? "1 drive of the drive map is"
                                    : fmt::format("{} drives of the drive map are", drives));
  }
  for (const auto& [drive, shards] : report.named_on_draining) {
    text += fmt::format("{} shards are to leave drive {}, which is being drained\n", shards, drive);
  }
  if (!report.full_drives.empty()) {
    text += fmt::format("full: drive {}\n", fmt::join(report.full_drives, ", "));
  }
  const bool is_cramped = !report.named_on_draining.empty() || !report.full_drives.empty();
  if (!report.not_checked.empty()) {
    text += "not everything could be looked at\n";
  } else if (errors + short_files + drives == 0 && !is_cramped) {
    text += leaves_something ? "all files are whole, and something is left to do: see above\n"
                             : "everything is in order\n";
  }
  return text;
}

// ---- Collections, and what was lost

int ExitCodeOf(const CollectReport& report) {
  return report.not_collected.empty() && report.lost.empty() ? kExitInOrder : kExitWrong;
}

nlohmann::ordered_json CollectReportJson(const CollectReport& report, bool dry_run) {
  return {{"dry_run", dry_run},
          {"inodes", report.inodes},
          {"entries", report.entries},
          {"shards", report.shards},
          {"bytes", report.bytes},
          {"counts", report.counts},
          {"tombstones", report.tombstones},
          {"waiting", report.waiting},
          {"too_young", report.too_young},
          {"lost", report.lost},
          {"unfinished", report.unfinished},
          {"not_collected", report.not_collected}};
}

std::string CollectText(const CollectReport& report, bool dry_run, const std::string& older_than) {
  std::string text;
  for (const std::string& what : report.lost) text += fmt::format("lost     {}\n", what);
  for (const std::string& what : report.unfinished) text += fmt::format("kept     {}\n", what);
  for (const std::string& what : report.not_collected) text += fmt::format("stays    {}\n", what);
  text += fmt::format(
      "{} {} inodes without a name, {} entries that lead nowhere, {} unused shards{}, and the last "
      "traces of {} removed names and inodes\n",
      dry_run ? "would remove" : "removed", report.inodes, report.entries, report.shards,
      report.bytes > 0 ? fmt::format(" (about {})", BytesText(report.bytes)) : "",
      report.tombstones);
  if (report.counts > 0) {
    text += fmt::format("{} the subdirectories of {} directories\n",
                        dry_run ? "would count" : "counted", report.counts);
  }
  if (report.waiting > 0) {
    text += fmt::format("the traces of {} removed names stay until there is a next epoch\n",
                        report.waiting);
  }
  if (report.too_young > 0) {
    text += fmt::format("{} stay that are not older than {}\n", report.too_young, older_than);
  }
  if (!report.lost.empty()) {
    text += fmt::format(
        "what is left of {} lost inodes stays: `pinstripe recover` brings it back, "
        "`pinstripe collect --lost` removes it\n",
        report.lost.size());
  }
  return text;
}

std::string RecoverText(const RecoverReport& report, const std::string& path) {
  std::string text;
  for (const std::string& what : report.lost) text += fmt::format("lost     {}\n", what);
  if (report.is_directory) {
    text +=
        fmt::format("{} is there again, a directory with {} names in it\n", path, report.entries);
  } else {
    text +=
        fmt::format("{} is there again: {} bytes, {} blocks\n", path, report.bytes, report.blocks);
  }
  if (!report.had_copy) {
    text +=
        "no copy of its inode was left: mode and owner are a guess, and so is what was written "
        "last and committed\n";
  }
  return text;
}

}  // namespace pinstripe
