// pinstripe events: what happened in the cluster.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/time_text.h"
#include "base/try.h"
#include "tools/commands.h"
#include "tools/time_span.h"
#include "upkeep/command_cluster.h"
#include "upkeep/events.h"

namespace pinstripe {
namespace {

struct EventsOptions {
  std::string config;
  std::string since = "24h";
  bool follow = false;
  bool json = false;
};

constexpr Duration kLook = std::chrono::seconds(1);

std::string MomentText(int64_t at) {
  return fmt::format("{}, {}", LocalDayText(at), LocalTimeOfDayText(at));
}

// What else there is to know of what was read, for people.
void PrintRest(const EventList& list, int64_t since) {
  if (list.events.empty()) fmt::print("Nothing was noted since {}.\n", MomentText(since));
  if (!list.reaches_back) {
    fmt::print("What happened before {} had to make room for what came later.\n",
               MomentText(list.oldest.value_or(since)));
  }
  if (list.damaged > 0) {
    fmt::print("{} parts of what was noted are damaged, and left out.\n", list.damaged);
  }
}

Result<int> Show(Runtime& runtime, const EventsOptions& options) {
  const int64_t since = TRY(ParseSince("--since", options.since, runtime.WallClock()));
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  const EventList list = TRY(ReadEvents(connected->cluster(), since));
  std::string day;
  if (options.json) {
    fmt::print("{}", EventListJson(list, since));
  } else {
    fmt::print("{}", EventsText(list.events, day));
    PrintRest(list, since);
  }
  return 0;
}

// Until a signal ends the process.
Result<int> Follow(Runtime& runtime, const EventsOptions& options) {
  const int64_t since = TRY(ParseSince("--since", options.since, runtime.WallClock()));
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  EventFollower follower(connected->cluster());
  std::string day;
  bool could_read = true;
  for (;;) {
    auto events = follower.Poll();
    if (!events.has_value() && could_read) {
      fmt::print(stderr, "pinstripe: {}; trying again\n", events.error().message());
    }
    could_read = events.has_value();
    if (could_read) {
      std::erase_if(*events, [since](const Event& event) { return event.at < since; });
      if (!options.json) fmt::print("{}", EventsText(*events, day));
      for (const Event& event : *events) {
        if (options.json) fmt::print("{}\n", EventJson(event));
      }
      std::fflush(stdout);
    }
    runtime.NewSignal()->WaitUntil(runtime.Now() + kLook);
  }
}

}  // namespace

void AddEventsCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<EventsOptions>();
  CLI::App* command = app.add_subcommand("events", "Tell what happened in the cluster");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command
      ->add_option("--since", options->since,
                   "How long ago, such as 30min, 12h or 7d, or a time such as \"2026-11-24 20:30\"")
      ->capture_default_str();
  command->add_flag("--follow", options->follow, "Go on telling what happens, until interrupted");
  command->add_flag("--json", options->json,
                    "Print it as JSON; with --follow, an object a line for each event");
  command->footer(
      "Drives that went and came, damage that was found and mended, work that began and ended, "
      "and\n"
      "changes of the cluster, in local time. The drives keep some thousands of events.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) {
      return options->follow ? Follow(runtime, *options) : Show(runtime, *options);
    };
  });
}

}  // namespace pinstripe
