// pinstripe repair, pinstripe scrub: make every file whole again.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "fs/repairer.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/survey.h"

namespace pinstripe {
namespace {

struct RepairCommand {
  std::string config;
  std::vector<DriveId> without;
  std::string rate;
  bool scrub = false;
  bool dry_run = false;
  bool json = false;
};

Result<uint64_t> ParseRate(const std::string& text) {
  if (text.empty()) return 0;
  const auto rate = ParseByteCount(text);
  if (rate && *rate > 0) return *rate;
  return Fail(EINVAL, "--rate {}: write a number of bytes per second, such as 100MB", text);
}

// EINVAL: no drive of the cluster.
Status CheckDrives(const DriveMap& map, const std::vector<DriveId>& drives) {
  for (const DriveId id : drives) {
    const bool known = std::any_of(map.drives.begin(), map.drives.end(),
                                   [id](const MappedDrive& drive) { return drive.id == id; });
    if (!known) return Fail(EINVAL, "--without {}: the cluster has no such drive", id);
  }
  return {};
}

std::string ReportJson(const RepairReport& report, bool dry_run) {
  nlohmann::ordered_json json{{"dry_run", dry_run},
                              {"blocks", report.blocks},
                              {"damaged_shards", report.damaged},
                              {"missing_shards", report.missing},
                              {"written_shards", report.written},
                              {"relocated_shards", report.relocated},
                              {"bytes_read", report.bytes_read},
                              {"bytes_written", report.bytes_written},
                              {"blocks_not_whole", report.not_whole.size()},
                              {"inconsistent", report.inconsistent},
                              {"failures", report.failures}};
  json["check"] = CheckReportJson(report.check);
  return DumpJson(json);
}

std::string ReportText(const RepairReport& report, bool dry_run) {
  std::string text = FindingsText(report.check, /*all=*/false);
  for (const std::string& where : report.inconsistent) {
    text += fmt::format("error    {}: its parity is not that of its data (inconsistent)\n", where);
  }
  for (const std::string& what : report.failures) {
    text += fmt::format("{:<8} {}\n", dry_run ? "found" : "failed", what);
  }
  text += fmt::format("{} blocks looked into: {} shards damaged, {} missing\n", report.blocks,
                      report.damaged, report.missing);
  if (!dry_run) {
    text +=
        fmt::format("{} shards written again, {} brought where they belong; {} read, {} written\n",
                    report.written, report.relocated, BytesText(report.bytes_read),
                    BytesText(report.bytes_written));
  }
  if (report.not_whole.empty() && report.inconsistent.empty()) {
    return text + VerdictText(report.check);
  }
  if (!report.inconsistent.empty()) {
    text += fmt::format("{} blocks contradict themselves\n", report.inconsistent.size());
  }
  return text + fmt::format("{} blocks are not whole\n", report.not_whole.size());
}

// Of a damaged shard that is still there the check knows nothing.
int ExitCodeOf(const RepairReport& report) {
  if (!report.inconsistent.empty()) return kExitFailed;
  const int code = ExitCodeOf(report.check);
  return code == 0 && !report.not_whole.empty() ? kExitShort : code;
}

Result<int> RunRepair(Runtime& runtime, const RepairCommand& command) {
  const uint64_t rate = TRY(ParseRate(command.rate));
  const auto connected = TRY(Connect(runtime, command.config));
  TRY(CheckDrives(connected->cluster().map(), command.without));
  Progress progress(runtime);
  Repairer repairer(connected->cluster(),
                    {.read_all = command.scrub,
                     .without = {command.without.begin(), command.without.end()},
                     .dry_run = command.dry_run,
                     .bytes_per_second = rate,
                     .progress = [&](std::string_view phase, double done, uint64_t bytes) {
                       progress.Show(phase, done, bytes);
                     }});
  const RepairReport& report = repairer.Run();
  progress.Clear();
  fmt::print("{}", command.json ? ReportJson(report, command.dry_run)
                                : ReportText(report, command.dry_run));
  return ExitCodeOf(report);
}

// What both have. Returns the command's name.
CLI::App* AddCommand(CLI::App& app, Action& chosen, const std::shared_ptr<RepairCommand>& options,
                     const std::string& name, const std::string& what) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("--rate", options->rate,
                      "Read and write no more than so much a second, such as 100MB");
  command->add_flag("--dry-run", options->dry_run, "Only say what is found");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunRepair(runtime, *options); };
  });
  return command;
}

constexpr std::string_view kExitCodes =
    "May run beside clients at any time, be stopped at any time, and run again. Exit code, by "
    "what\n"
    "is so at the end: 0 in order; 1 something is lost or contradicts itself, or the command "
    "failed;\n"
    "2 not everything could be looked at; 3 everything can be read, but shards are missing.";

}  // namespace

void AddRepairCommands(CLI::App& app, Action& chosen) {
  auto repair = std::make_shared<RepairCommand>();
  CLI::App* command =
      AddCommand(app, chosen, repair, "repair", "Write again the shards that files lack");
  command
      ->add_option("--without", repair->without,
                   "Give up these drives: what they hold goes to others")
      ->delimiter(',');
  command->footer(
      "Finds out which shards are missing by asking every drive what it holds, writes them again,\n"
      "and brings home those that lie on spares. Drives that are away are waited for, unless they\n"
      "are given up.\n" +
      std::string(kExitCodes));

  auto scrub = std::make_shared<RepairCommand>();
  scrub->scrub = true;
  command = AddCommand(app, chosen, scrub, "scrub",
                       "Read all shards of all files, and repair what is damaged");
  command->footer("Everything is compared with its checksums, and parity with data.\n" +
                  std::string(kExitCodes));
}

}  // namespace pinstripe
