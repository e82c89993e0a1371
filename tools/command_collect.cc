// pinstripe collect: removes what died clients left behind.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "fs/collector.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/progress.h"

namespace pinstripe {
namespace {

struct CollectOptions {
  std::string config;
  std::string older_than = "7 d";
  bool dry_run = false;
  bool json = false;
};

constexpr int kExitDone = 0;
constexpr int kExitNotAll = 1;

Result<Duration> ParseAge(std::string_view text) {
  constexpr std::chrono::seconds kMost = std::chrono::hours(24 * 36500);
  static constexpr std::pair<std::string_view, int64_t> kUnits[] = {
      {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, seconds] : kUnits) {
    if (unit != name || digits == 0 || digits > 6) continue;
    const std::chrono::seconds age(std::stoll(std::string(text.substr(0, digits))) * seconds);
    if (age > kMost) break;
    return age;
  }
  return Fail(EINVAL,
              "--older-than {}: write a number and s, min, h or d, such as 7d, at most 100 years",
              text);
}

std::string ReportJson(const CollectReport& report, bool dry_run) {
  const nlohmann::ordered_json json{{"dry_run", dry_run},
                                    {"inodes", report.inodes},
                                    {"entries", report.entries},
                                    {"shards", report.shards},
                                    {"counts", report.counts},
                                    {"tombstones", report.tombstones},
                                    {"waiting", report.waiting},
                                    {"too_young", report.too_young},
                                    {"not_collected", report.not_collected}};
  return DumpJson(json);
}

std::string ReportText(const CollectReport& report, const CollectOptions& options) {
  std::string text;
  for (const std::string& what : report.not_collected) text += fmt::format("stays    {}\n", what);
  text += fmt::format(
      "{} {} inodes without a name, {} entries that lead nowhere, {} unused shards, and the last "
      "traces of {} removed names and inodes\n",
      options.dry_run ? "would remove" : "removed", report.inodes, report.entries, report.shards,
      report.tombstones);
  if (report.counts > 0) {
    text += fmt::format("{} the subdirectories of {} directories\n",
                        options.dry_run ? "would count" : "counted", report.counts);
  }
  if (report.waiting > 0) {
    text += fmt::format("the traces of {} removed names stay until there is a next epoch\n",
                        report.waiting);
  }
  if (report.too_young > 0) {
    text +=
        fmt::format("{} stay that are not older than {}\n", report.too_young, options.older_than);
  }
  return text;
}

Result<int> RunCollect(Runtime& runtime, const CollectOptions& options) {
  const Duration older_than = TRY(ParseAge(options.older_than));
  const auto connected = TRY(Connect(runtime, options.config));
  Progress progress(runtime);
  Collector collector(connected->cluster(), {.older_than = older_than,
                                             .dry_run = options.dry_run,
                                             .progress = [&](std::string_view phase, double done) {
                                               progress.Show(phase, done);
                                             }});
  const CollectReport& report = collector.Run();
  progress.Clear();
  fmt::print("{}",
             options.json ? ReportJson(report, options.dry_run) : ReportText(report, options));
  return report.not_collected.empty() ? kExitDone : kExitNotAll;
}

}  // namespace

void AddCollectCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CollectOptions>();
  CLI::App* command = app.add_subcommand("collect", "Remove what died clients left behind");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command
      ->add_option("--older-than", options->older_than,
                   "Leave alone what is younger: a number and s, min, h or d")
      ->capture_default_str();
  command->add_flag("--dry-run", options->dry_run, "Only say what would be removed");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "May run beside clients at any time. An upload that has been under way for longer than\n"
      "--older-than fails at its end. Exit code: 0 done; 1 something stays, because it could not\n"
      "be looked at or removed, or the command failed.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunCollect(runtime, *options); };
  });
}

}  // namespace pinstripe
