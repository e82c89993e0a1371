// pinstripe care: does what is due, as a timer has it done.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/config.h"
#include "base/try.h"
#include "tools/care_run.h"
#include "tools/commands.h"
#include "tools/time_span.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

struct CareOptions {
  std::string config;
  std::string check = "24h";
  std::string collect = "7d";
  std::string scrub = "30d";
  std::string replace_after = "24h";
  std::string rate;
  std::string pack_older_than;
  bool join_scrub = false;
  bool dry_run = false;
  bool json = false;
};

Result<CareRequest> RequestOf(const CareOptions& options) {
  CareRequest request;
  request.intervals.check = TRY(ParseSpan("--check", options.check));
  request.intervals.collect = TRY(ParseSpan("--collect", options.collect));
  request.intervals.scrub = TRY(ParseSpan("--scrub", options.scrub));
  request.replace_after.reset();
  if (options.replace_after != "never") {
    request.replace_after = TRY(ParseSpan("--replace-after", options.replace_after));
  }
  request.joins_scrubs = options.join_scrub;
  request.dry_run = options.dry_run;
  if (!options.pack_older_than.empty()) {
    request.pack_older_than = TRY(ParseSpan("--pack-older-than", options.pack_older_than));
  }
  if (options.rate.empty()) return request;
  const auto rate = ParseByteCount(options.rate);
  if (!rate || *rate == 0) {
    return Fail(EINVAL, "--rate {}: write a number of bytes per second, such as 100MB",
                options.rate);
  }
  request.bytes_per_second = *rate;
  return request;
}

Result<int> RunCommand(Runtime& runtime, const CareOptions& options) {
  const CareRequest request = TRY(RequestOf(options));
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  const CareOutcome done = TRY(RunCare(connected->cluster(), connected->drive_factory(), request));
  fmt::print("{}", options.json ? CareJson(request, done) : CareText(request, done));
  return request.dry_run ? 0 : ExitCodeOf(done);
}

}  // namespace

void AddCareCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CareOptions>();
  CLI::App* command =
      app.add_subcommand("care", "Check, collect, scrub and repair what is due, as a timer does");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("--check", options->check, "How often the cluster is checked")
      ->capture_default_str();
  command->add_option("--collect", options->collect, "How often what dead clients left is removed")
      ->capture_default_str();
  command->add_option("--scrub", options->scrub, "How often everything is read")
      ->capture_default_str();
  command
      ->add_option("--replace-after", options->replace_after,
                   "What a drive held that is away for so long goes to others; or never")
      ->capture_default_str();
  command->add_option("--rate", options->rate,
                      "Repair and scrub no more than so many bytes a second, such as 100MB");
  command->add_option("--pack-older-than", options->pack_older_than,
                      "With each check, pack small files that have not changed for so long");
  command->add_flag("--join-scrub", options->join_scrub,
                    "Read a part of what is scrubbed while another host is at it");
  command->add_flag("--dry-run", options->dry_run, "Only say what is due");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "For pinstripe-care.timer, on as many hosts as you like: one at a time does it, and what "
      "one\n"
      "has done is not due for the others. A check that finds shards missing is followed by a\n"
      "repair. While others are at work on the cluster it does nothing, and what somebody has\n"
      "stopped is not begun again for 12 hours. Exit code: 0 nothing was due, or all is in order;\n"
      "1 something failed or is lost; 3 something is left to do, or others keep it from what is\n"
      "overdue; 5 stopped by `pinstripe work`.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunCommand(runtime, *options); };
  });
}

}  // namespace pinstripe
