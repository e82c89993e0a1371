// pinstripe rm: removes files, and trees of them, many at once.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_text.h"
#include "base/try.h"
#include "base/utf8.h"
#include "fs/file_system.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/long_work.h"
#include "upkeep/command_cluster.h"
#include "upkeep/tree_remover.h"

namespace pinstripe {
namespace {

struct RmOptions {
  std::string config;
  std::vector<std::string> paths;
  bool recursive = false;
  bool force = false;
  bool no_wait = false;
  bool json = false;
  size_t jobs = TreeRemover::Options().jobs;
};

constexpr size_t kMostListedFailures = 1000;  // as JSON; all are said on standard error
constexpr size_t kMostPathBytes = 4096;       // that are shown of one
constexpr std::string_view kRemovalGoesOn =
    "What was removed is gone, and all else is as it was; run it again to go on. `pinstripe "
    "collect` frees what the last minute has removed.";

std::string Shown(const std::string& path) { return Printable(path, kMostPathBytes); }

std::string CountText(uint64_t count, std::string_view one, std::string_view more) {
  return fmt::format("{} {}", count, count == 1 ? one : more);
}

std::string SummaryText(const RemovalReport& report) {
  std::string text = fmt::format(
      "{} and {} removed, {} of contents", CountText(report.files, "file", "files"),
      CountText(report.directories, "directory", "directories"), BytesText(report.bytes));
  if (report.failures > 0) {
    text += fmt::format("; {}", CountText(report.failures, "name stays", "names stay"));
  }
  return text;
}

// Removes, and tells, what it is told to.
class Removal {
 public:
  Removal(Cluster& cluster, FileSystem& fs, const RmOptions& options)
      : options_(options),
        work_(cluster, {.work = "rm", .arguments = ArgumentsOf(options)},
              std::string(kRemovalGoesOn)),
        remover_(
            cluster.runtime(), fs,
            {.recursive = options.recursive,
             .ignore_missing = options.force,
             .jobs = options.jobs,
             .go_on = [this] { return work_.GoOn(); },
             .progress = [this](const RemovalReport& so_far) { Show(so_far); },
             .failed = [this](const std::string& path, const Status& why) { Fails(path, why); }}) {}

  int Run() {
    for (const std::string& path : options_.paths) {
      if (!remover_.Remove(path)) break;
    }
    bool is_free = true;
    if (!options_.no_wait && !work_.work().IsStopped()) {
      is_free = remover_.WaitUntilFree([this](size_t files) {
        work_.Show(fmt::format("freeing what {} occupied", CountText(files, "file", "files")),
                   kProgressUnknown);
      });
    }
    work_.Clear();
    Print();
    if (const auto stopped = work_.Stopped()) return *stopped;
    if (!is_free) {
      work_.Say(
          "pinstripe: the contents of some of these files cannot be removed from the drives yet; "
          "`pinstripe collect` does it once all drives are up");
    }
    const RemovalReport& report = remover_.report();
    return work_.End(report.failures == 0 ? 0 : kExitFailed, SummaryText(report));
  }

 private:
  // Everybody may see what work is under way, and the names of files are not for everybody.
  static std::string ArgumentsOf(const RmOptions& options) {
    return fmt::format("{}{}", options.recursive ? "-r " : "",
                       CountText(options.paths.size(), "path", "paths"));
  }

  void Show(const RemovalReport& so_far) {
    work_.Show(fmt::format("removing, {} so far", CountText(so_far.names(), "name", "names")),
               kProgressUnknown);
  }

  void Fails(const std::string& path, const Status& why) {
    work_.Say(fmt::format("pinstripe: cannot remove {}: {}", Shown(path), why.message()));
    if (failures_.size() == kMostListedFailures) return;
    failures_.push_back({{"path", path}, {"why", why.message()}});
  }

  void Print() const {
    const RemovalReport& report = remover_.report();
    if (!options_.json) {
      fmt::print("{}.\n", SummaryText(report));
      return;
    }
    fmt::print("{}", DumpJson({{"files", report.files},
                               {"directories", report.directories},
                               {"bytes", report.bytes},
                               {"failed", report.failures},
                               {"failures", failures_}}));
  }

  const RmOptions& options_;
  nlohmann::ordered_json failures_ = nlohmann::ordered_json::array();
  LongWork work_;
  TreeRemover remover_;
};

Result<int> RunRm(Runtime& runtime, const RmOptions& options) {
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  const auto fs = TRY(FileSystem::Open(connected->cluster(), {}));
  return Removal(connected->cluster(), *fs, options).Run();
}

}  // namespace

void AddRmCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RmOptions>();
  CLI::App* command = app.add_subcommand("rm", "Remove files, or trees of them, many at once");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("PATH", options->paths, "In the cluster, from its root on")->required();
  command->add_flag("-r,--recursive", options->recursive,
                    "Remove directories, too, with all that is in them");
  command->add_flag("-f,--force", options->force, "A path that leads nowhere is no failure");
  command->add_option("--jobs", options->jobs, "So many names at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_flag("--no-wait", options->no_wait,
                    "Do not wait until what was removed is gone from the drives");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Asks for no confirmation, and no permission bits: it has the rights of the cluster's keys.\n"
      "Symbolic links are removed, not followed. What cannot be removed is named, and the rest\n"
      "goes on. The contents of files go from the drives a minute after their names; it waits for\n"
      "that. Exit code: 0 all is removed; 1 something stays; 5 stopped by `pinstripe work`.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunRm(runtime, *options); };
  });
}

}  // namespace pinstripe
