// pinstripe clients: who uses the cluster. pinstripe top: what everybody does right now.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "base/time_text.h"
#include "base/try.h"
#include "cluster/config.h"
#include "tools/commands.h"
#include "upkeep/cluster_use.h"

namespace pinstripe {
namespace {

constexpr int kExitPartly = 3;

struct UseOptions {
  std::string config;
  bool json = false;
  double interval = 1;  // seconds
  int count = 0;        // 0: until it is interrupted
};

void Wait(Runtime& runtime, double seconds) {
  const auto time = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  runtime.NewSignal()->WaitUntil(runtime.Now() + time);
}

// Nobody tells anything: that is a failure, and no empty table.
Status CheckAny(const ClusterUse& use) {
  if (use.drives.empty() || use.Silent() < use.drives.size()) return {};
  const ClusterUse::OfDrive& first = use.drives.front();
  return Fail(EIO, "no drive tells who uses it; drive {} ({}): {}", first.id, first.address,
              first.use.error().WithoutDriveName());
}

Result<int> ShowClients(Runtime& runtime, const UseOptions& options) {
  const ClusterConfig config = TRY(ClusterConfig::Load(options.config));
  UseWatch watch(runtime, config);
  const ClusterUse before = watch.Ask();
  TRY(CheckAny(before));
  Wait(runtime, options.interval);
  const ClusterUse now = watch.Ask();
  TRY(CheckAny(now));
  const std::vector<ClientReport> clients = ClientsSince(before, now);
  fmt::print("{}", options.json ? ClientsJson(clients, now) : ClientsText(clients, now));
  return now.Silent() == 0 ? 0 : kExitPartly;
}

Result<int> ShowTop(Runtime& runtime, const UseOptions& options) {
  const ClusterConfig config = TRY(ClusterConfig::Load(options.config));
  UseWatch watch(runtime, config);
  ClusterUse before = watch.Ask();
  TRY(CheckAny(before));
  const bool redraws = !options.json && isatty(STDOUT_FILENO) == 1;
  for (int shown = 0; options.count == 0 || shown < options.count; ++shown) {
    Wait(runtime, options.interval);
    ClusterUse now = watch.Ask();
    const auto clients = ClientsSince(before, now);
    const auto drives = WorkSince(before, now);
    if (options.json) {
      fmt::print("{}", TopJson(clients, drives, runtime.WallClock()));
    } else {
      // To the upper left corner, and nothing below what is drawn now.
      constexpr const char* kClear = "\x1b[H\x1b[J";
      fmt::print("{}{}  {}  {}", redraws ? kClear : "", config.name, TimeText(runtime.WallClock()),
                 TopText(clients, drives));
      if (!redraws) fmt::print("\n");
    }
    if (std::fflush(stdout) != 0) return Fail(errno, "cannot print: {}", ErrnoText(errno));
    before = std::move(now);
  }
  return before.Silent() == 0 ? 0 : kExitPartly;
}

}  // namespace

void AddClientsCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<UseOptions>();
  CLI::App* command = app.add_subcommand("clients", "Show who uses the cluster, and how much");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("--interval", options->interval, "Seconds over which rates are measured")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Drives tell who is connected to them, and programs of Pinstripe tell drives their names:\n"
      "believe an address, and a name only as far as you trust who has a key.\n"
      "Exit code: 0 all drives have told; 1 none has; 3 some have not, and are named.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return ShowClients(runtime, *options); };
  });
}

void AddTopCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<UseOptions>();
  CLI::App* command =
      app.add_subcommand("top", "Show what clients and drives do right now, again and again");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("--interval", options->interval, "Seconds between two pictures")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_option("--count", options->count, "End after so many pictures; 0: never")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print each picture as one line of JSON");
  command->footer(
      "On a terminal the picture is redrawn; elsewhere the next one follows.\n"
      "p50 and p99: within which time half, and 99 of 100, requests were answered.\n"
      "Exit code: 0 all drives have told in the end; 1 none has at the beginning; 3 some have "
      "not.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return ShowTop(runtime, *options); };
  });
}

}  // namespace pinstripe
