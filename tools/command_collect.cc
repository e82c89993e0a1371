// pinstripe collect: removes what died clients left behind.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "upkeep/collector.h"

namespace pinstripe {
namespace {

struct CollectOptions {
  std::string config;
  std::string older_than = "7 d";
  bool dry_run = false;
  bool lost = false;
  bool json = false;
};

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

Result<int> RunCollect(Runtime& runtime, const CollectOptions& options) {
  const Duration older_than = TRY(ParseAge(options.older_than));
  const auto connected = TRY(Connect(runtime, options.config));
  Progress progress(runtime, {.when_interrupted = "What was removed is gone, and all else is as it "
                                                  "was; run it again to go on."});
  Collector collector(connected->cluster(), {.older_than = older_than,
                                             .dry_run = options.dry_run,
                                             .lost = options.lost,
                                             .progress = [&](std::string_view phase, double done) {
                                               progress.Show(phase, done);
                                             }});
  const CollectReport& report = collector.Run();
  progress.Clear();
  fmt::print("{}", options.json ? DumpJson(CollectReportJson(report, options.dry_run))
                                : CollectText(report, options.dry_run, options.older_than));
  return ExitCodeOf(report);
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
  command->add_flag("--lost", options->lost,
                    "Remove what is left of inodes that are lost, too, for ever");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "May run beside clients at any time. An upload that has been under way for longer than\n"
      "--older-than fails at its end. Exit code: 0 done; 1 something stays, because it could not\n"
      "be looked at or removed, or because its inode is lost, or the command failed.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunCollect(runtime, *options); };
  });
}

}  // namespace pinstripe
