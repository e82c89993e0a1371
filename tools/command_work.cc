// pinstripe work: what is being worked on in the cluster, wherever it was begun; and what is asked
// of it.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/config.h"
#include "base/try.h"
#include "tools/commands.h"
#include "upkeep/care_notes.h"
#include "upkeep/command_cluster.h"
#include "upkeep/events.h"
#include "upkeep/work.h"

namespace pinstripe {
namespace {

struct WorkOptions {
  std::string config;
  std::string action;
  std::string which;
  std::string rate;
  bool json = false;
};

// The one that is meant, by number or name; or the only one.
Result<WorkSeen> Choose(const std::vector<WorkSeen>& all, const std::string& which) {
  std::vector<const WorkSeen*> found;
  for (const WorkSeen& seen : all) {
    const bool is_it = which.empty() || which == fmt::format("{}", seen.Number()) ||
                       which == seen.record.work || which == seen.Name();
    if (is_it) found.push_back(&seen);
  }
  if (found.size() == 1) return *found.front();
  if (all.empty()) return Fail(ESRCH, "nothing is being worked on");
  if (found.empty()) {
    return Fail(ESRCH, "{}: there is no such work; `pinstripe work CONFIG` lists what there is",
                which);
  }
  std::vector<std::string> names;
  for (const WorkSeen* seen : found) {
    names.push_back(fmt::format("{} ({})", seen->Number(), seen->Name()));
  }
  return Fail(EINVAL, "several are at work: say which by its number: {}", fmt::join(names, ", "));
}

Status Forget(Cluster& cluster, const WorkSeen& dead, bool goes_on) {
  TRY(ForgetWork(cluster, dead));
  EventLog events(cluster);
  events.Add(EventOfDeath(dead.record, goes_on));
  (void)events.Flush();
  return {};
}

// In the place of this process.
Status TakeOver(Cluster& cluster, const std::string& config, const WorkSeen& dead,
                std::optional<uint64_t> rate) {
  if (rate && !dead.record.takes_rate) {
    return Fail(EINVAL, "{} has no rate that could be set", dead.Name());
  }
  auto command = CommandToTakeOver(config, dead.record, rate);
  if (!command) return Fail(EINVAL, "{} cannot be taken over: begin it anew", dead.Name());
  std::vector<std::string>& words = *command;
  TRY(Forget(cluster, dead, /*goes_on=*/true));
  fmt::print(stderr, "going on with what died: {}\n", fmt::join(words, " "));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
  const int code = errno;
  const Status restored = RestoreWork(cluster, dead);
  return Fail(code, "begin {} anew: {}{}", dead.Name(), ErrnoText(code),
              restored.ok() ? "" : fmt::format("; {}", restored.message()));
}

Result<WorkChange> ChangeOf(const WorkOptions& options) {
  WorkChange change;
  if (options.action == "pause") change.ask = WorkAsk::kPause;
  if (options.action == "resume") change.ask = WorkAsk::kGoOn;
  if (options.action == "stop") change.ask = WorkAsk::kStop;
  if (options.rate.empty()) {
    if (options.action == "rate") return Fail(EINVAL, "say which rate, with --rate");
    return change;
  }
  const auto rate = options.rate == "none" ? 0 : ParseByteCount(options.rate);
  if (!rate || (*rate == 0 && options.rate != "none")) {
    return Fail(EINVAL, "--rate {}: write a number of bytes per second, such as 100MB, or none",
                options.rate);
  }
  change.rate = *rate;
  return change;
}

Result<int> Ask(ConnectedCluster& connected, const WorkOptions& options) {
  Cluster& cluster = connected.cluster();
  const WorkChange change = TRY(ChangeOf(options));
  const WorkSeen chosen = TRY(Choose(TRY(ReadWork(cluster)), options.which));
  // The clock of its host may be wrong, and so may ours: what it does now says whether it is alive.
  const auto watched = TRY(WatchWork(cluster, {chosen}, [](const WorkSeen& silent) {
    fmt::print(stderr, "{} gives no sign of life; it is watched for {:.0f} seconds\n",
               silent.Name(), std::chrono::duration<double>(kWorkIsDeadAfter).count());
  }));
  if (watched.empty()) {
    fmt::print("{} has ended meanwhile.\n", chosen.Name());
    return 0;
  }
  const WorkSeen& seen = watched.front();
  if (!seen.is_alive && change.ask == WorkAsk::kStop) {
    TRY(Forget(cluster, seen, /*goes_on=*/false));
    fmt::print("{} had died; it is forgotten. Running it again goes on with it.\n", seen.Name());
    return 0;
  }
  if (!seen.is_alive && change.ask == WorkAsk::kGoOn) {
    TRY(TakeOver(cluster, options.config, seen, change.rate));
  }
  TRY(SteerWork(cluster, seen, change));
  fmt::print("{} was asked to {}; it does within a few seconds.\n", seen.Name(), TextOf(change));
  if (change.ask == WorkAsk::kStop && CareWouldDo(seen.record.work)) {
    fmt::print("`pinstripe care` does not begin a {} again for the next {} hours.\n",
               seen.record.work,
               std::chrono::duration_cast<std::chrono::hours>(kCareWaitsAfterStop).count());
  }
  return 0;
}

Result<int> ShowOrAsk(Runtime& runtime, const WorkOptions& options) {
  const bool asks = !options.action.empty() || !options.rate.empty();
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  if (asks) return Ask(*connected, options);
  const std::vector<WorkSeen> all = TRY(ReadWork(connected->cluster()));
  fmt::print("{}", options.json ? WorkJson(all) : WorkText(all, runtime.WallClock()));
  return 0;
}

}  // namespace

void AddWorkCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<WorkOptions>();
  CLI::App* command = app.add_subcommand("work", "Show what is being worked on, and steer it");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command
      ->add_option("ACTION", options->action,
                   "pause, resume or stop; without one, and without --rate: show all")
      ->check(CLI::IsMember({"pause", "resume", "stop", "rate"}));
  command->add_option("WHICH", options->which, "Its number or name, where there are several");
  command->add_option(
      "--rate", options->rate,
      "Have it read and write no more than so much a second, such as 100MB; or none");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Repairs, scrubs, drains, collections and so on, wherever they were begun: how far they "
      "are,\n"
      "how fast, how long still, and who began them. Work that was stopped ends with 5 and says "
      "how\n"
      "to go on. Work whose process died is shown for that: `resume` begins it anew here, and "
      "`stop`\n"
      "forgets it. The action `rate` sets --rate and nothing else.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return ShowOrAsk(runtime, *options); };
  });
}

}  // namespace pinstripe
