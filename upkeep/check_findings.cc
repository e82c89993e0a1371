#include "upkeep/check_findings.h"

#include <algorithm>
#include <span>

namespace pinstripe {
namespace {

constexpr size_t kLateAtOnce = 4096;  // findings whose paths are found out together

// Those that a finding about this inode names: itself, or some of those whose blocks it keeps.
std::span<const InodeId> NamedFor(const InodeId& id, const Keeping* keeping) {
  constexpr size_t kMost = 3;
  if (keeping == nullptr) return {&id, 1};
  return std::span(keeping->files).first(std::min(keeping->files.size(), kMost));
}

std::string WhereOf(InodeId id, const Keeping* keeping,
                    const std::map<InodeId, std::string>& paths) {
  std::vector<std::string> named;
  for (const InodeId file : NamedFor(id, keeping)) named.push_back(paths.at(file));
  if (keeping == nullptr) return named.front();
  if (keeping->files.size() > named.size()) {
    named.push_back(fmt::format("{} more", keeping->files.size() - named.size()));
  }
  return fmt::format("(inode {:016x}, which keeps blocks of {})", id, fmt::join(named, ", "));
}

}  // namespace

size_t CheckReport::Count(Severity severity) const {
  auto count = static_cast<size_t>(std::ranges::count(findings, severity, &Finding::severity));
  for (const auto& [problem, more] : untold) {
    if (more.severity == severity) count += more.count;
  }
  return count;
}

void CheckFindings::Report(Severity severity, std::string_view problem, std::string where,
                           std::string what) {
  if (severity != Severity::kError && ++told_of_[std::string(problem)] > most_told_) {
    CheckReport::Untold& untold = report_.untold[std::string(problem)];
    untold.severity = severity;
    ++untold.count;
    return;
  }
  report_.findings.push_back({severity, std::string(problem), std::move(where), std::move(what)});
}

void CheckFindings::ReportOf(InodeId id, Severity severity, std::string_view problem,
                             std::string what) {
  late_.push_back({id, severity, std::string(problem), std::move(what)});
  if (late_.size() == kLateAtOnce) TellLate();
}

void CheckFindings::TellLate() {
  const std::vector<Late> late = std::exchange(late_, {});
  const auto is_told = [this](const Late& one) {
    return one.severity == Severity::kError || told_of_[one.problem] < most_told_;
  };
  std::set<InodeId> ids;
  for (const Late& one : late) {
    if (!is_told(one)) continue;
    for (const InodeId named : NamedFor(one.id, keeping_of_(one.id))) ids.insert(named);
  }
  const std::map<InodeId, std::string> paths = paths_of_(ids);
  for (const Late& one : late) {
    std::string where = is_told(one) ? WhereOf(one.id, keeping_of_(one.id), paths) : std::string();
    Report(one.severity, one.problem, std::move(where), one.what);
  }
}

void CheckFindings::BeginPart() {
  TellLate();
  first_finding_ = report_.findings.size();
  first_not_checked_ = report_.not_checked.size();
  untold_before_ = report_.untold;
}

void CheckFindings::Archive(StateFile& file) {
  std::vector<Finding> findings;
  std::vector<std::string> not_checked;
  std::map<std::string, CheckReport::Untold> untold;
  if (!file.reads()) {
    const auto from = [](auto& all, size_t first) {
      return all.begin() + static_cast<ptrdiff_t>(first);
    };
    findings.assign(from(report_.findings, first_finding_), report_.findings.end());
    not_checked.assign(from(report_.not_checked, first_not_checked_), report_.not_checked.end());
    untold = report_.untold;
    for (const auto& [problem, before] : untold_before_) untold[problem].count -= before.count;
    std::erase_if(untold, [](const auto& one) { return one.second.count == 0; });
  }
  file.Items(findings, [&](Finding& finding) {
    file.Kind(finding.severity, Severity::kLeftover);
    file.Text(finding.problem);
    file.Text(finding.where);
    file.Text(finding.what);
  });
  file.Items(not_checked, [&](std::string& what) { file.Text(what); });
  file.Items(untold, [&](std::string& problem, CheckReport::Untold& what) {
    file.Text(problem);
    file.Kind(what.severity, Severity::kLeftover);
    file.Number(what.count);
  });
  file.Items(late_, [&](Late& late) {
    file.Number(late.id);
    file.Kind(late.severity, Severity::kLeftover);
    file.Text(late.problem);
    file.Text(late.what);
  });
  if (!file.reads()) return;
  for (Finding& one : findings) {
    Report(one.severity, one.problem, std::move(one.where), std::move(one.what));
  }
  std::ranges::move(not_checked, std::back_inserter(report_.not_checked));
  for (const auto& [problem, more] : untold) {
    CheckReport::Untold& all = report_.untold[problem];
    all.severity = more.severity;
    all.count += more.count;
    told_of_[problem] += more.count;
  }
}

}  // namespace pinstripe
