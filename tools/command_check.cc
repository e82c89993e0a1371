// pinstripe check: whether everything that is on the drives fits together.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "cluster/connect.h"
#include "fs/checker.h"
#include "tools/commands.h"
#include "tools/progress.h"

namespace pinstripe {
namespace {

struct CheckOptions {
  std::string config;
  bool names_only = false;
  bool all = false;
  bool json = false;
};

constexpr int kExitInOrder = 0;
constexpr int kExitWrong = 1;
constexpr int kExitNotChecked = 2;
constexpr int kExitShort = 3;

int ExitCodeOf(const CheckReport& report) {
  if (report.Count(Severity::kError) > 0) return kExitWrong;
  if (!report.not_checked.empty()) return kExitNotChecked;
  if (report.Count(Severity::kShort) > 0) return kExitShort;
  return kExitInOrder;
}

std::string_view NameOf(Severity severity) {
  switch (severity) {
    case Severity::kError: return "error";
    case Severity::kShort: return "short";
    case Severity::kLeftover: return "leftover";
  }
  return "error";
}

std::string ReportJson(const CheckReport& report) {
  nlohmann::ordered_json json{{"directories", report.directories},
                              {"files", report.files},
                              {"entries", report.entries},
                              {"blocks", report.blocks},
                              {"shards", report.shards},
                              {"unused_shards", report.unused_shards},
                              {"errors", report.Count(Severity::kError)},
                              {"short", report.Count(Severity::kShort)},
                              {"leftovers", report.Count(Severity::kLeftover)},
                              {"findings", nlohmann::ordered_json::array()},
                              {"not_checked", report.not_checked}};
  for (const Finding& finding : report.findings) {
    json["findings"].push_back({{"severity", NameOf(finding.severity)},
                                {"problem", finding.problem},
                                {"where", finding.where},
                                {"what", finding.what}});
  }
  // Names may be any bytes.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string ReportText(const CheckReport& report, const CheckOptions& options) {
  std::string text;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kLeftover && !options.all) continue;
    text += fmt::format("{:<8} {}: {} ({})\n", NameOf(finding.severity), finding.where,
                        finding.what, finding.problem);
  }
  for (const std::string& what : report.not_checked) text += fmt::format("unknown  {}\n", what);
  text += fmt::format("{} directories, {} files, {} names\n", report.directories, report.files,
                      report.entries);
  if (!options.names_only) {
    text += fmt::format("{} blocks in {} shards; {} shards of uploads under way or given up\n",
                        report.blocks, report.shards, report.unused_shards);
  }
  const size_t leftovers = report.Count(Severity::kLeftover);
  if (leftovers > 0) {
    text += fmt::format("{} leftovers of clients that died, which do no harm\n", leftovers);
  }
  const size_t errors = report.Count(Severity::kError);
  const size_t short_files = report.Count(Severity::kShort);
  if (errors > 0) text += fmt::format("{} errors\n", errors);
  if (short_files > 0) text += fmt::format("{} files with missing shards\n", short_files);
  if (!report.not_checked.empty()) {
    text += "not everything could be looked at\n";
  } else if (errors + short_files == 0) {
    text += "everything is in order\n";
  }
  return text;
}

Result<int> RunCheck(Runtime& runtime, const CheckOptions& options) {
  auto connected = Connect(runtime, options.config);
  if (!connected) {
    fmt::print(stderr, "pinstripe: {}\n", connected.error().message());
    return kExitNotChecked;
  }
  Progress progress(runtime);
  Checker checker((*connected)->cluster(), {.data = !options.names_only,
                                            .progress = [&](std::string_view phase, double done) {
                                              progress.Show(phase, done);
                                            }});
  const CheckReport& report = checker.Run();
  progress.Clear();
  fmt::print("{}", options.json ? ReportJson(report) : ReportText(report, options));
  return ExitCodeOf(report);
}

}  // namespace

void AddCheckCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command =
      app.add_subcommand("check", "Check that names, inodes and shards fit together");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_flag("--names-only", options->names_only, "Do not look for the files' shards");
  command->add_flag("--all", options->all, "Name what died clients left behind, too");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Changes nothing, and may run beside clients at any time. Exit code: 0 in order; 1 errors;\n"
      "2 no errors, but not everything could be looked at; 3 everything can be read, but shards\n"
      "are missing.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return RunCheck(runtime, *options); };
  });
}

}  // namespace pinstripe
