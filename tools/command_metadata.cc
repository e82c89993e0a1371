// pinstripe metadata move: moves the names of a cluster from its drives to an engine, or back.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/try.h"
#include "cluster/membership/drive_claim.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/long_runs.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

struct MoveRequest {
  std::string config;
  std::string to;
  bool json = false;
};

constexpr std::string_view kDrives = "drives";

std::string Text(const MoveRequest& options, const NameMoveReport& report) {
  const std::string place =
      options.to == kDrives ? "the drives" : (options.to == "etcd" ? "etcd" : "PostgreSQL");
  if (report.was_there) return fmt::format("names are on {} already\n", place);
  std::string text = fmt::format("names are on {} now; {} registers were copied and compared\n",
                                 place, report.registers);
  if (!report.not_cleared.empty()) {
    text += fmt::format(
        "the drives {} were away, and still hold what they held: `pinstripe rebalance` removes it "
        "when they are back\n",
        fmt::join(report.not_cleared, ", "));
  }
  return text;
}

Result<int> RunMoveCommand(Runtime& runtime, const MoveRequest& options) {
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  Cluster& cluster = connected->cluster();
  const bool back = options.to == kDrives;
  const auto& engine = cluster.config().engine;
  if (!back && (!engine || engine->kind != options.to)) {
    return Fail(EINVAL, "{} does not say where {} is: give it a table [metadata] first",
                options.config, options.to);
  }
  LongWork work(cluster, {.work = "metadata", .arguments = "move --to " + options.to},
                std::string(kMoveGoesOn));
  DriveClaim claim(cluster, kDriveMap, DriveWork::kExpand);
  const Status ours = claim.Take([&](const Status& who) { work.Say(std::string(who.message())); });
  if (ours.code() == EBUSY) {
    work.Say(fmt::format("pinstripe: {}", ours.message()));
    return work.End(kExitBusy, std::string(ours.message()));
  }
  if (!ours.ok()) return Failed(work.End(ours));
  const auto report = RunNameMove(work, cluster, connected->drive_factory(), back, claim);
  if (const auto stopped = work.Stopped()) return *stopped;
  if (!report.has_value() && (report.error().code() == EBUSY || claim.IsLost())) {
    const Status why = claim.IsLost() ? claim.Check() : report.error();
    work.Say(fmt::format("pinstripe: {}", why.message()));
    return work.End(kExitBusy, std::string(why.message()));
  }
  if (!report.has_value()) return Failed(work.End(report.error()));
  const nlohmann::ordered_json json{{"was_there", report->was_there},
                                    {"registers", report->registers},
                                    {"not_cleared", report->not_cleared}};
  fmt::print("{}", options.json ? DumpJson(json) : Text(options, *report));
  return work.End(0, fmt::format("names are on {}", options.to));
}

}  // namespace

void AddMetadataCommand(CLI::App& app, Action& chosen) {
  CLI::App* metadata =
      app.add_subcommand("metadata", "Where names are kept: on the drives, etcd or PostgreSQL");
  metadata->require_subcommand(1);
  auto options = std::make_shared<MoveRequest>();
  CLI::App* move =
      metadata->add_subcommand("move", "Move all names to an engine, or to the drives");
  move->add_option("CONFIG", options->config, "cluster.toml")->required();
  move->add_option("--to", options->to, "drives, etcd or postgresql")
      ->required()
      ->check(CLI::IsMember({"drives", "etcd", "postgresql"}));
  move->add_flag("--json", options->json, "Print what was done as JSON");
  move->footer(
      "Every host needs the table [metadata] in its cluster.toml before names go to an engine:\n"
      "hosts that lack it cannot go on. Names and files are read meanwhile, and changes wait "
      "until\n"
      "it is done. Everything is copied, then compared with its copy, and only then the former\n"
      "place is left and cleared. It may be stopped at any time: run again, it goes on, and "
      "towards\n"
      "where names came from it is taken back. Versions that know no engine refuse the cluster\n"
      "from then on, until names are on the drives again.\n"
      "Exit code: 0 done; 1 it failed; 4 somebody else changes the drive map; 5 stopped by\n"
      "`pinstripe work`.");
  move->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunMoveCommand(runtime, *options); };
  });
}

}  // namespace pinstripe
