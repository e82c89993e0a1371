#include "tools/check_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace pinstripe {
namespace {

constexpr int kExitInOrder = 0;
constexpr int kExitWrong = 1;
constexpr int kExitNotChecked = 2;

std::string_view NameOf(Severity severity) {
  switch (severity) {
    case Severity::kError: return "error";
    case Severity::kShort: return "short";
    case Severity::kLeftover: return "leftover";
  }
  return "error";
}

}  // namespace

int ExitCodeOf(const CheckReport& report) {
  if (report.Count(Severity::kError) > 0) return kExitWrong;
  if (!report.not_checked.empty()) return kExitNotChecked;
  if (report.Count(Severity::kShort) > 0) return kExitShort;
  return kExitInOrder;
}

nlohmann::ordered_json CheckReportJson(const CheckReport& report) {
  nlohmann::ordered_json json{{"directories", report.directories},
                              {"files", report.files},
                              {"entries", report.entries},
                              {"blocks", report.blocks},
                              {"shards", report.shards},
                              {"unused_shards", report.unused_shards},
                              {"displaced_blocks", report.displaced_blocks},
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
  return json;
}

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string FindingsText(const CheckReport& report, bool all) {
  std::string text;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kLeftover && !all) continue;
    text += fmt::format("{:<8} {}: {} ({})\n", NameOf(finding.severity), finding.where,
                        finding.what, finding.problem);
  }
  for (const std::string& what : report.not_checked) text += fmt::format("unknown  {}\n", what);
  return text;
}

std::string VerdictText(const CheckReport& report) {
  std::string text;
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

}  // namespace pinstripe
