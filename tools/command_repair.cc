// pinstripe repair, scrub and rebuild make everything whole again; verify says whether it is.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/config.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "cluster/rebuild.h"
#include "fs/repairer.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/survey.h"

namespace pinstripe {
namespace {

struct RepairCommand {
  std::string config;
  std::optional<DriveId> rebuild;  // a drive that was replaced by an empty one
  bool force = false;              // though it holds records of others
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

// Of the registers, in which names and inodes are kept.
struct Done {
  SweepReport registers;
  RepairReport files;
};

std::string ReportJson(const Done& done, bool dry_run) {
  const RepairReport& report = done.files;
  nlohmann::ordered_json json{{"dry_run", dry_run},
                              {"registers", done.registers.registers},
                              {"register_replicas_behind", done.registers.behind},
                              {"register_replicas_failed", done.registers.failed},
                              {"register_replicas_unheard", done.registers.unheard},
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

std::string ReportText(const Done& done, bool dry_run) {
  const RepairReport& report = done.files;
  std::string text = FindingsText(report.check, /*all=*/false);
  for (const std::string& where : report.inconsistent) {
    text += fmt::format("error    {}: its parity is not that of its data (inconsistent)\n", where);
  }
  for (const std::string& what : report.failures) {
    text += fmt::format("{:<8} {}\n", dry_run ? "found" : "failed", what);
  }
  if (!dry_run) {
    text += fmt::format("{} registers: {} replicas were behind", done.registers.registers,
                        done.registers.behind);
    if (done.registers.failed > 0) text += fmt::format(", {} still are", done.registers.failed);
    if (done.registers.unheard > 0) {
      text += fmt::format(", {} did not answer", done.registers.unheard);
    }
    text += "\n";
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
  Cluster& cluster = connected->cluster();
  TRY(CheckDrives(cluster.map(), command.without));
  Progress progress(runtime);
  Done done;
  SweepOptions sweep;
  sweep.progress = [&](std::string_view phase, double part) { progress.Show(phase, part); };
  if (command.rebuild) {
    RebuildOptions rebuild;
    static_cast<SweepOptions&>(rebuild) = sweep;
    rebuild.force = command.force;
    const auto rebuilt =
        RebuildDrive(cluster, connected->drive_factory(), *command.rebuild, rebuild);
    progress.Clear();
    done.registers = TRY(rebuilt).registers;
    fmt::print(stderr, "drive {} is in service; its shards come next\n", *command.rebuild);
  } else if (!command.dry_run) {
    done.registers = TRY(SweepRegisters(cluster, sweep));
  }
  Repairer repairer(cluster, {.read_all = command.scrub,
                              .without = {command.without.begin(), command.without.end()},
                              .dry_run = command.dry_run,
                              .bytes_per_second = rate,
                              .progress = [&](std::string_view phase, double part, uint64_t bytes) {
                                progress.Show(phase, part, bytes);
                              }});
  done.files = repairer.Run();
  progress.Clear();
  fmt::print("{}",
             command.json ? ReportJson(done, command.dry_run) : ReportText(done, command.dry_run));
  return ExitCodeOf(done.files);
}

// What they all have.
CLI::App* AddCommand(CLI::App& app, Action& chosen, const std::shared_ptr<RepairCommand>& options,
                     const std::string& name, const std::string& what) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("--rate", options->rate,
                      "Read and write no more than so much a second, such as 100MB");
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
  command->add_flag("--dry-run", repair->dry_run, "Only say what is found");
  command->footer(
      "Brings replicas of names and inodes up to date, finds out which shards are missing by "
      "asking\n"
      "every drive what it holds, writes them again, and brings home those that lie on spares.\n"
      "Drives that are away are waited for, unless they are given up.\n" +
      std::string(kExitCodes));

  auto scrub = std::make_shared<RepairCommand>();
  scrub->scrub = true;
  command = AddCommand(app, chosen, scrub, "scrub",
                       "Read all shards of all files, and repair what is damaged");
  command->add_flag("--dry-run", scrub->dry_run, "Only say what is found");
  command->footer("Everything is compared with its checksums, and parity with data.\n" +
                  std::string(kExitCodes));

  auto verify = std::make_shared<RepairCommand>();
  verify->scrub = true;
  verify->dry_run = true;
  command = AddCommand(app, chosen, verify, "verify",
                       "Read all shards of all files, and say whether everything is whole");
  command->footer(
      "Every name, every shard that a file should have, where it should be, its checksums, and\n"
      "parity against data. Repairs nothing.\n" +
      std::string(kExitCodes));

  auto rebuild = std::make_shared<RepairCommand>();
  command = AddCommand(app, chosen, rebuild, "rebuild",
                       "Bring an empty drive in, in the place of one that is lost");
  command->add_option("DRIVE", rebuild->rebuild, "Its id")->required();
  command->add_flag("--force", rebuild->force,
                    "Though it holds records of others, which it goes on to hold");
  command->footer(
      "The empty drive answers at the address that the configuration gives for that id; the lost\n"
      "one is not running any more. First its part of names and inodes is restored, which takes a\n"
      "minute or more, then it is in service, then its shards are written again.\n" +
      std::string(kExitCodes));
}

}  // namespace pinstripe
