// pinstripe pack: puts small files that have not changed for long together into packs.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/byte_text.h"
#include "base/config.h"
#include "base/try.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/long_runs.h"
#include "tools/time_span.h"
#include "upkeep/command_cluster.h"

namespace pinstripe {
namespace {

struct PackOptions {
  std::string config;
  std::string directory = "/";
  std::string older_than = "1 d";
  std::string least = "4 MiB";
  size_t jobs = Packer::Options().jobs;
  bool dry_run = false;
  bool no_wait = false;
  bool json = false;
};

// Everybody may see what work is under way, and the names of files are not for everybody.
std::string ArgumentsOf(const PackOptions& options) {
  std::string age = options.older_than;
  std::erase(age, ' ');
  return fmt::format("--older-than {}{}{}", age, options.dry_run ? " --dry-run" : "",
                     options.directory == "/" ? "" : " of a directory");
}

Result<int> RunPackCommand(Runtime& runtime, const PackOptions& options) {
  Packer::Options packing{.dry_run = options.dry_run, .jobs = options.jobs};
  packing.older_than = TRY(ParseSpan("--older-than", options.older_than));
  const auto least = ParseByteCount(options.least);
  if (!least || *least == 0 || *least > packing.most_bytes) {
    return Fail(EINVAL, "--least {}: write a size up to {}, such as 1MiB", options.least,
                BytesText(packing.most_bytes));
  }
  packing.least_bytes = *least;
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  Cluster& cluster = connected->cluster();
  const InodeId directory = TRY(FindDirectory(cluster, options.directory));
  LongWork work(cluster, {.work = "pack", .arguments = ArgumentsOf(options)},
                std::string(kPackingGoesOn));
  const auto outcome = RunPack(work, cluster, std::move(packing), directory, !options.no_wait);
  fmt::print("{}", options.json ? DumpJson(PackReportJson(outcome.report, options.dry_run))
                                : PackText(outcome.report, options.dry_run, options.older_than));
  if (!outcome.failure.ok()) return Failed(work.End(outcome.failure));
  if (outcome.stopped) return work.Stopped().value_or(kExitStopped);
  if (!outcome.is_free) {
    work.Say(
        "pinstripe: what these files occupied before cannot be removed from the drives yet; "
        "`pinstripe collect` does it once all drives are up");
  }
  return work.End(ExitCodeOf(outcome.report), PackSummary(outcome.report, options.dry_run));
}

}  // namespace

void AddPackCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<PackOptions>();
  CLI::App* command =
      app.add_subcommand("pack", "Code small files that have not changed for long together");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command
      ->add_option("DIRECTORY", options->directory,
                   "In the cluster, from its root on: with all below it")
      ->capture_default_str();
  command
      ->add_option("--older-than", options->older_than,
                   "Leave alone what has changed since then: a number and s, min, h or d")
      ->capture_default_str();
  command
      ->add_option("--least", options->least,
                   "Files of less than so many bytes together wait for others")
      ->capture_default_str();
  command->add_option("--jobs", options->jobs, "So many files' inodes at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_flag("--dry-run", options->dry_run, "Only say what would be packed");
  command->add_flag("--no-wait", options->no_wait,
                    "Do not wait until what was there before is gone from the drives");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Files of 512 bytes to 64 KiB go into packs of up to 64 MiB, in the order of their names.\n"
      "A pack is coded k+m as a large file is, and not kept as copies. The files read as before,\n"
      "and one that is changed leaves its pack. Packs of which less than half is used are packed\n"
      "anew. May run beside clients at any time. Versions that do not know packs refuse the\n"
      "cluster from the first one on. Exit code: 0 done; 1 some files could not be packed, or the\n"
      "command failed; 5 stopped by `pinstripe work`.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunPackCommand(runtime, *options); };
  });
}

}  // namespace pinstripe
