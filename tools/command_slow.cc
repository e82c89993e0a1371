// pinstripe slow: why that was slow.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "base/try.h"
#include "cluster/config.h"
#include "tools/commands.h"
#include "tools/time_span.h"
#include "upkeep/slow_report.h"

namespace pinstripe {
namespace {

constexpr int kExitPartly = 3;

struct SlowOptions {
  std::string config;
  std::string since = "1h";
  std::string at_least = "0s";
  bool json = false;
};

// Nobody tells anything: that is a failure, and no empty list.
Status CheckAny(const ClusterSlow& slow) {
  if (slow.drives.empty() || slow.Silent() < slow.drives.size()) return {};
  const ClusterSlow::OfDrive& first = slow.drives.front();
  return Fail(EIO, "no drive tells what was slow; drive {} ({}): {}", first.id, first.address,
              first.slow.error().WithoutDriveName());
}

Result<int> Show(Runtime& runtime, const SlowOptions& options) {
  SlowFilter filter;
  filter.since = TRY(ParseSince("--since", options.since, runtime.WallClock()));
  filter.at_least = TRY(ParseSpan("--at-least", options.at_least));
  const ClusterConfig config = TRY(ClusterConfig::Load(options.config));
  const ClusterSlow slow = AskSlow(runtime, config);
  TRY(CheckAny(slow));
  const std::vector<SlowEntry> entries = JoinSlow(slow, filter);
  fmt::print("{}", options.json ? SlowJson(entries, slow) : SlowText(entries, slow, filter));
  return slow.Silent() == 0 ? 0 : kExitPartly;
}

}  // namespace

void AddSlowCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<SlowOptions>();
  CLI::App* command = app.add_subcommand("slow", "Tell what took long, and what it waited for");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command
      ->add_option("--since", options->since,
                   "How long ago, such as 30min or 12h, or a time such as \"2026-11-24 20:30\"")
      ->capture_default_str();
  command->add_option("--at-least", options->at_least, "Only what took so long, such as 2s")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Operations of gateways and mounts that took a second or longer, with the drives for which\n"
      "they waited, and where these spent the time; then slow requests of other clients. The "
      "drives\n"
      "keep the last 256 of each in memory. `slow_request` says from when on something is slow.\n"
      "Exit code: 0 all drives have told; 1 none has; 3 some have not, and are named.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return Show(runtime, *options); };
  });
}

}  // namespace pinstripe
