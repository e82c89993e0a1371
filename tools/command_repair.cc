// pinstripe repair, scrub and rebuild make everything whole again; drain, expand and rebalance
// change on which drives it is; verify says whether it is whole and where it should be.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/config.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "cluster/epoch_change.h"
#include "cluster/rebuild.h"
#include "fs/repairer.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/drain_room.h"
#include "tools/progress.h"
#include "tools/survey.h"

namespace pinstripe {
namespace {

// What is changed of the drive map before, if anything.
enum class MapChange { kNone, kDrain, kExpand, kRebalance };

struct RepairCommand {
  std::string config;
  MapChange change = MapChange::kNone;
  std::vector<DriveId> drives;     // that it is about; to expand: none means all that are new
  bool wants_all_at_home = false;  // says so with its exit code
  std::optional<DriveId> rebuild;  // a drive that was replaced by an empty one
  bool force = false;  // though it holds records of others; though what is moved does not fit
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
  Epoch epoch = 0;
  std::set<DriveId> not_cleared;               // former homes of registers
  std::map<DriveId, DriveContents> drained;    // what is left on drained drives
  std::vector<DriveId> drained_not_looked_at;  // as they are away
};

// Whether a change of the drive map has left something to do.
bool IsUnfinished(const Done& done) {
  if (!done.not_cleared.empty() || !done.drained_not_looked_at.empty()) return true;
  return std::any_of(done.drained.begin(), done.drained.end(), [](const auto& drive) {
    return drive.second.shards + drive.second.registers > 0;
  });
}

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
  if (done.epoch != 0) {
    json["epoch"] = done.epoch;
    json["former_homes_not_cleared"] = done.not_cleared;
    json["drained"] = nlohmann::ordered_json::array();
    for (const auto& [id, contents] : done.drained) {
      json["drained"].push_back({{"drive", id},
                                 {"shards", contents.shards},
                                 {"registers", contents.registers},
                                 {"map_registers", contents.map_registers}});
    }
    json["drained_not_looked_at"] = done.drained_not_looked_at;
  }
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
  for (const auto& [id, contents] : done.drained) {
    if (contents.shards + contents.registers > 0) {
      text += fmt::format(
          "drive {} still holds {} shards and {} replicas of names and inodes: uploads under way, "
          "or "
          "what clients left that died (`pinstripe collect`)\n",
          id, contents.shards, contents.registers);
    } else if (contents.map_registers > 0) {
      text += fmt::format(
          "drive {} is empty but for its part of the drive map: it has to stay, as small as it "
          "likes "
          "to be\n",
          id);
    } else {
      text += fmt::format("drive {} is empty: take it out of the configuration, then away\n", id);
    }
  }
  for (const DriveId id : done.drained_not_looked_at) {
    text += fmt::format("drive {} is away: what it holds could not be looked at\n", id);
  }
  for (const DriveId id : done.not_cleared) {
    text += fmt::format(
        "drive {} is away, and holds what it held of names and inodes before: `pinstripe "
        "rebalance` "
        "when it is back\n",
        id);
  }
  if (report.check.displaced_blocks > 0) {
    text +=
        fmt::format("{} blocks have shards that are not at home\n", report.check.displaced_blocks);
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

int ExitCodeOf(const RepairCommand& command, const Done& done) {
  const int code = ExitCodeOf(done.files);
  const bool at_home = done.files.check.displaced_blocks == 0 && !IsUnfinished(done);
  return code == 0 && command.wants_all_at_home && !at_home ? kExitShort : code;
}

const MappedDrive* FindDrive(const DriveMap& map, DriveId id) {
  const auto found = std::find_if(map.drives.begin(), map.drives.end(),
                                  [id](const MappedDrive& drive) { return drive.id == id; });
  return found == map.drives.end() ? nullptr : &*found;
}

// The drives as they are to be.
Result<std::vector<MappedDrive>> PlanChange(const Cluster& cluster, const RepairCommand& command) {
  std::vector<MappedDrive> wanted;
  const DriveMap& map = cluster.map();
  for (const DriveId id : command.drives) {
    if (command.change != MapChange::kDrain) break;
    const MappedDrive* drive = FindDrive(map, id);
    if (drive == nullptr) return Fail(EINVAL, "the cluster has no drive {}", id);
    wanted.push_back(*drive);
    wanted.back().state = DriveState::kDraining;
  }
  if (command.change != MapChange::kExpand) return wanted;
  const std::set<DriveId> named(command.drives.begin(), command.drives.end());
  for (const DriveConfig& config : cluster.config().drives) {
    const MappedDrive* known = FindDrive(map, config.id);
    if (!named.empty() && !named.contains(config.id)) continue;
    // One that was drained comes back only when it is named.
    if (named.empty() && known != nullptr && known->state == DriveState::kDraining) continue;
    MappedDrive drive{config.id, config.weight, config.domain, DriveState::kActive};
    if (known != nullptr) drive.pull = known->pull;
    if (known == nullptr || *known != drive) wanted.push_back(drive);
  }
  for (const DriveId id : named) {
    const auto is_it = [id](const DriveConfig& config) { return config.id == id; };
    const auto& configs = cluster.config().drives;
    if (std::any_of(configs.begin(), configs.end(), is_it)) continue;
    return Fail(EINVAL, "drive {} is not in {}: add it first, on every host", id,
                cluster.config().file);
  }
  return wanted;
}

Status ChangeMap(ConnectedCluster& connected, const RepairCommand& command,
                 const SweepOptions& sweep, Done& done) {
  Cluster& cluster = connected.cluster();
  EpochChangeOptions options;
  static_cast<SweepOptions&>(options) = sweep;
  const std::vector<MappedDrive> wanted = TRY(PlanChange(cluster, command));
  const auto is_new = [&](const MappedDrive& drive) {
    const MappedDrive* now = FindDrive(cluster.map(), drive.id);
    return now == nullptr || now->state != drive.state;
  };
  if (command.change == MapChange::kDrain && !command.force &&
      std::any_of(wanted.begin(), wanted.end(), is_new)) {
    TRY(CheckRoomWithout(cluster.map(), cluster.Drives(cluster.config().drive_timeout),
                         {command.drives.begin(), command.drives.end()}));
  }
  const EpochChangeReport changed =
      TRY(ChangeDrives(cluster, connected.drive_factory(), wanted, options));
  done.registers += changed.registers;
  done.not_cleared = changed.not_cleared;
  done.epoch = cluster.map().epoch;
  return {};
}

// What is left on the drives that are to be empty.
void LookAtDrained(Cluster& cluster, const RepairCommand& command, Done& done) {
  if (command.change != MapChange::kDrain) return;
  for (const DriveId id : command.drives) {
    if (cluster.FindDrive(id) == nullptr) continue;  // taken away
    const auto contents = ListDrive(cluster, id);
    if (contents.has_value()) {
      done.drained[id] = *contents;
    } else {
      done.drained_not_looked_at.push_back(id);
    }
  }
}

void SayWhoIsWaitedFor(const Status& who) {
  fmt::print(stderr, "{}; looking for half a minute whether it still works\n", who.message());
}

int SayBusy(const Status& who) {
  fmt::print(stderr, "pinstripe: {}. Leave it to them, or stop them and try again\n",
             who.message());
  return kExitBusy;
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
  std::set<DriveId> without(command.without.begin(), command.without.end());
  if (command.change != MapChange::kNone) {
    const Status changed = ChangeMap(*connected, command, sweep, done);
    progress.Clear();
    TRY(changed);
    if (command.change == MapChange::kDrain) {
      without.insert(command.drives.begin(), command.drives.end());
    }
    fmt::print(stderr, "epoch {} of the drive map; shards are moved next\n", done.epoch);
  } else if (command.rebuild) {
    RebuildOptions rebuild;
    static_cast<SweepOptions&>(rebuild) = sweep;
    rebuild.force = command.force;
    rebuild.waiting = SayWhoIsWaitedFor;
    const auto rebuilt =
        RebuildDrive(cluster, connected->drive_factory(), *command.rebuild, rebuild);
    progress.Clear();
    if (!rebuilt.has_value() && rebuilt.error().code() == EBUSY) return SayBusy(rebuilt.error());
    done.registers = TRY(rebuilt).registers;
    fmt::print(stderr, "drive {} is in service; its shards come next\n", *command.rebuild);
  } else if (!command.dry_run) {
    done.registers = TRY(SweepRegisters(cluster, sweep));
  }
  Repairer repairer(cluster, {.read_all = command.scrub,
                              .without = without,
                              .dry_run = command.dry_run,
                              .bytes_per_second = rate,
                              .progress = [&](std::string_view phase, double part, uint64_t bytes) {
                                progress.Show(phase, part, bytes);
                              }});
  done.files = repairer.Run();
  progress.Clear();
  LookAtDrained(cluster, command, done);
  fmt::print("{}",
             command.json ? ReportJson(done, command.dry_run) : ReportText(done, command.dry_run));
  return ExitCodeOf(command, done);
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
    "2 not everything could be looked at; 3 everything can be read, but shards are missing.\n";

constexpr std::string_view kBusyCode =
    "4 somebody else is at work on the drive; the message says who. Whoever was killed counts as\n"
    "at work for half a minute, which is waited for.";

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
  verify->wants_all_at_home = true;
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
      std::string(kExitCodes) + std::string(kBusyCode));

  auto drain = std::make_shared<RepairCommand>();
  drain->change = MapChange::kDrain;
  drain->wants_all_at_home = true;
  command = AddCommand(app, chosen, drain, "drain", "Move everything off drives");
  command->add_option("DRIVE", drain->drives, "Their ids")->required();
  command->add_flag("--force", drain->force,
                    "Though what they hold seems not to fit on the others");
  command->footer(
      "Nothing new goes to them, and names, inodes and shards move to the others. The drives may "
      "be\n"
      "lost already: what they held is made from the rest. Gateways and mounts go on. All of the\n"
      "drives are drained, or none when one of them cannot be.\n" +
      std::string(kExitCodes));

  auto expand = std::make_shared<RepairCommand>();
  expand->change = MapChange::kExpand;
  expand->wants_all_at_home = true;
  command = AddCommand(app, chosen, expand, "expand", "Add drives, or give them other weights");
  command->add_option("DRIVE", expand->drives,
                      "Their ids; without, all that are new in cluster.toml or have another weight "
                      "there");
  command->footer(
      "Add the drives to cluster.toml on every host first. They are empty. A drive that was "
      "drained\n"
      "comes back when it is named. Gateways and mounts go on, and read cluster.toml again. All "
      "of\n"
      "the drives are added, or none when one of them cannot be.\n" +
      std::string(kExitCodes));

  auto rebalance = std::make_shared<RepairCommand>();
  rebalance->change = MapChange::kRebalance;
  rebalance->wants_all_at_home = true;
  command = AddCommand(app, chosen, rebalance, "rebalance",
                       "Finish changes of the drive map, and bring all shards home");
  command->footer(
      "What drain and expand do at their end: for when they were stopped, or drives were away.\n" +
      std::string(kExitCodes));
}

}  // namespace pinstripe
