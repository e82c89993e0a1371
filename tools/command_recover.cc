// pinstripe recover: brings back as a file what is left of an inode that is lost.

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "upkeep/command_cluster.h"
#include "upkeep/host_care.h"
#include "upkeep/recovery.h"

namespace pinstripe {
namespace {

struct RecoverOptions {
  std::string config;
  std::string inode;
  std::string path;
  bool json = false;
};

constexpr int kExitWhole = 0;
constexpr int kExitNotWhole = 3;

Result<InodeId> ParseInode(std::string_view text) {
  InodeId id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
  if (error != std::errc() || end != text.data() + text.size() || id == 0) {
    return Fail(EINVAL, "{}: write the inode as `pinstripe check` does, 16 hexadecimal digits",
                text);
  }
  return id;
}

Result<int> RunRecover(Runtime& runtime, const RecoverOptions& options) {
  const InodeId id = TRY(ParseInode(options.inode));
  const auto connected = TRY(ConnectCommand(runtime, options.config));
  const auto fs = TRY(FileSystem::Open(connected->cluster(), {.caretaker = &MakeHostCare}));
  Progress progress(runtime,
                    {.when_interrupted = "What is left of it is as it was; run it again."});
  const auto recovered =
      RecoverInode(connected->cluster(), *fs, id, options.path,
                   [&](std::string_view phase, double done) { progress.Show(phase, done); });
  progress.Clear();
  const RecoverReport report = TRY(recovered);
  if (options.json) {
    fmt::print("{}", DumpJson({{"directory", report.is_directory},
                               {"bytes", report.bytes},
                               {"blocks", report.blocks},
                               {"entries", report.entries},
                               {"had_copy", report.had_copy},
                               {"lost", report.lost}}));
  } else {
    fmt::print("{}", RecoverText(report, options.path));
  }
  return report.lost.empty() ? kExitWhole : kExitNotWhole;
}

}  // namespace

void AddRecoverCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<RecoverOptions>();
  CLI::App* command =
      app.add_subcommand("recover", "Bring back as a file what is left of an inode that is lost");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_option("INODE", options->inode, "As `pinstripe check` names it")->required();
  command->add_option("PATH", options->path, "In the cluster; nothing may be there yet")
      ->required();
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Takes for each block the newest write that can be read. Removes nothing of what is\n"
      "left. Exit code: 0 all that is left is there again; 3 some of it is not, or may be older\n"
      "than it was: the lines say which blocks; 1 nothing was made.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunRecover(runtime, *options); };
  });
}

}  // namespace pinstripe
