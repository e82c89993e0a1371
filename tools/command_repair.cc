// pinstripe repair, scrub and rebuild make everything whole again; drain, expand and rebalance
// change on which drives it is; verify says whether it is whole and where it should be.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/config.h"
#include "base/try.h"
#include "tools/commands.h"
#include "tools/long_runs.h"
#include "tools/state_option.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

struct RepairCommand : RepairRequest {
  std::string name;
  std::string config;
  std::string rate;
  bool json = false;
};

Result<uint64_t> ParseRate(const std::string& text) {
  if (text.empty()) return 0;
  const auto rate = ParseByteCount(text);
  if (rate && *rate > 0) return *rate;
  return Fail(EINVAL, "--rate {}: write a number of bytes per second, such as 100MB", text);
}

Result<int> RunCommand(Runtime& runtime, RepairCommand& command) {
  command.bytes_per_second = TRY(ParseRate(command.rate));
  const auto connected = TRY(ConnectCommand(runtime, command.config));
  LongWork work(connected->cluster(), WorkOf(command.name, command),
                HowToGoOn(kRepairGoesOn, command.state), /*ends_itself=*/!command.state.empty());
  const auto outcome = RunRepair(work, connected->cluster(), connected->drive_factory(), command);
  if (const auto stopped = work.Stopped()) return *stopped;
  if (!outcome.has_value() && outcome.error().code() == EBUSY) {
    work.Say(fmt::format("pinstripe: {}", outcome.error().message()));
    return work.End(kExitBusy, std::string(outcome.error().message()));
  }
  if (!outcome.has_value()) return tl::unexpected(work.End(outcome.error()));
  fmt::print("{}", command.json ? RepairJson(command, *outcome)
                                : RepairText(command, *outcome, command.config));
  return work.End(ExitCodeOf(command, *outcome));
}

// The options that they all have.
CLI::App* AddCommand(CLI::App& app, Action& chosen, const std::shared_ptr<RepairCommand>& options,
                     const std::string& name, const std::string& what) {
  options->name = name;
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("--rate", options->rate,
                      "Read and write no more than so much a second, such as 100MB");
  AddStateOption(*command, options->state);
  command->add_flag("--json", options->json, "Print it as JSON");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunCommand(runtime, *options); };
  });
  return command;
}

constexpr std::string_view kExitCodes =
    "May run beside clients at any time, be stopped at any time, and run again. Exit code, by "
    "what\n"
    "is so at the end: 0 in order; 1 something is lost or contradicts itself, or the command "
    "failed;\n"
    "2 not everything could be looked at; 3 everything can be read, but shards or copies of names "
    "are\n"
    "missing, or a change of the drive map is not complete; 5 it was stopped by `pinstripe "
    "work`.\n";

constexpr std::string_view kBusyCode =
    "4 somebody else is at work on such a drive, or changes the drive map; the message says who.\n"
    "A command that was killed counts as at work for half a minute, and the next one waits that\n"
    "long.";

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
      "Waits for drives that are away, unless they are given up.\n" +
      std::string(kExitCodes));

  auto scrub = std::make_shared<RepairCommand>();
  scrub->scrub = true;
  command = AddCommand(app, chosen, scrub, "scrub",
                       "Read all shards of all files, and repair what is damaged");
  auto* dry_run = command->add_flag("--dry-run", scrub->dry_run, "Only say what is found");
  command
      ->add_flag("--anew", scrub->anew, "Read everything, also what an unfinished scrub has read")
      ->excludes(dry_run);
  command->footer(
      "Everything is compared with its name and its checksums, and the shards of a block with "
      "each\n"
      "other. A scrub that was interrupted goes on where it was, on whatever host. Begun on "
      "several\n"
      "hosts at once, each reads another part, and the last one says how everything is.\n" +
      std::string(kExitCodes));

  auto verify = std::make_shared<RepairCommand>();
  verify->scrub = true;
  verify->dry_run = true;
  verify->wants_all_at_home = true;
  command = AddCommand(app, chosen, verify, "verify",
                       "Read all shards of all files, and say whether everything is whole");
  command->footer(
      "Every name, every shard that a file should have, where it should be, whose it is, its\n"
      "checksums, and the shards of a block against each other. Repairs nothing.\n" +
      std::string(kExitCodes));

  auto rebuild = std::make_shared<RepairCommand>();
  command = AddCommand(app, chosen, rebuild, "rebuild",
                       "Bring an empty drive in, in the place of one that is lost");
  command->add_option("DRIVE", rebuild->rebuild, "Its id")->required();
  command->add_flag("--force", rebuild->force,
                    "Use a drive that holds records of others; they stay");
  command->footer(
      "The empty drive answers at the address that the configuration gives for that id; the lost\n"
      "one is not running any more. First its part of names and inodes is restored, which takes "
      "35\n"
      "seconds and as long as reading them does. Then it is in service. Then its shards are\n"
      "written again.\n" +
      std::string(kExitCodes) + std::string(kBusyCode));

  auto drain = std::make_shared<RepairCommand>();
  drain->change = MapChange::kDrain;
  drain->wants_all_at_home = true;
  command = AddCommand(app, chosen, drain, "drain", "Move everything off drives");
  command->add_option("DRIVE", drain->drives, "Their ids")->required();
  command->add_flag("--force", drain->force, "Drain although it seems not to fit on the others");
  command->footer(
      "Nothing new goes to them, and names, inodes and shards move to the others. The drives may "
      "be\n"
      "lost already: what they held is made from the rest. Gateways and mounts go on. All of the\n"
      "drives are drained, or none when one of them cannot be.\n" +
      std::string(kExitCodes) + std::string(kBusyCode));

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
      std::string(kExitCodes) + std::string(kBusyCode));

  auto rebalance = std::make_shared<RepairCommand>();
  rebalance->change = MapChange::kRebalance;
  rebalance->wants_all_at_home = true;
  command = AddCommand(app, chosen, rebalance, "rebalance",
                       "Finish changes of the drive map, and bring all shards home");
  command->footer(
      "Does what drain and expand do at their end, after they were stopped or drives were away.\n" +
      std::string(kExitCodes) + std::string(kBusyCode));
}

}  // namespace pinstripe
