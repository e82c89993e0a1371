#include "cluster/registers/range.h"

#include <algorithm>

#include "cluster/gather.h"

namespace pinstripe {
namespace {

// Null when no majority answered well.
std::optional<RegisterRange> Ask(const RegisterContext& context, const GroupReplicas& replicas,
                                 const RegisterRange::Question& question, Time deadline,
                                 std::string& reasons, bool& outdated, bool& are_away) {
  const std::vector<Drive*>& drives = replicas.drives;
  Runtime& runtime = context.runtime;
  const size_t majority = drives.size() / 2 + 1;
  const Time start = runtime.Now();
  const Time until = std::min(deadline, start + context.options.drive_timeout);
  Gather<Result<RangeRecords>> gather(runtime);
  reasons.clear();
  size_t away = 0;
  for (size_t i = 0; i < drives.size(); ++i) {
    if (drives[i] != nullptr && drives[i]->IsUp()) {
      drives[i]->ListRecords(question.first, question.last, question.max, /*reverse=*/false,
                             kRangeValueBytes, {until, replicas.cluster_version}, gather.Ask(i));
    } else {
      ++away;
      reasons += drives[i] == nullptr
                     ? std::string("a drive: away; ")
                     : fmt::format("{}: {}; ", drives[i]->name(), drives[i]->WhyAway());
    }
  }

  RegisterRange page{.asked = start};
  Time patience = deadline;
  while (gather.outstanding() > 0) {
    const auto answer = gather.Next(patience);
    if (answer == nullptr) break;
    const Status status = answer->value.has_value() ? RegisterRange::Check(*answer->value, question)
                                                    : answer->value.error();
    if (!status.ok()) {
      outdated = outdated || status.code() == EREMCHG;
      reasons += fmt::format("{}: {}; ", drives[answer->index]->name(), status.message());
      continue;
    }
    RangeRecords range = *std::move(answer->value);
    // A drive that ended early may hold more behind that: nobody knows what, beyond the lowest of
    // these ends.
    if (range.more) {
      const std::string& end = range.records.back().key;
      page.through = std::min(page.through.value_or(end), end);
    }
    page.answers.push_back({answer->index, std::move(range.records)});
    // The others know what was chosen in a fast round, so they are waited for, too, but not for
    // long.
    if (page.answers.size() == majority && !question.patient) {
      const Duration taken = runtime.Now() - start;
      patience = std::min(deadline, runtime.Now() + std::max(context.options.straggler, taken));
    }
  }
  are_away = away + majority > drives.size();
  if (page.answers.size() < majority) return std::nullopt;
  return page;
}

}  // namespace

std::set<std::string> RegisterRange::Keys() const {
  std::set<std::string> keys;
  for (const Answer& answer : answers) {
    for (const RangeRecord& record : answer.records) {
      if (!through.has_value() || record.key <= *through) keys.insert(record.key);
    }
  }
  return keys;
}

Status RegisterRange::Check(const RangeRecords& range, const Question& question) {
  const std::vector<RangeRecord>& records = range.records;
  const auto out_of_order = [](const RangeRecord& a, const RangeRecord& b) {
    return a.key >= b.key;
  };
  const bool in_order =
      std::adjacent_find(records.begin(), records.end(), out_of_order) == records.end();
  const bool in_range = records.empty() ? !range.more
                                        : records.front().key >= question.first &&
                                              records.back().key <= question.last;
  if (records.size() <= question.max && in_order && in_range) return {};
  return Fail(EBADMSG, "answered a range with keys that were not asked for");
}

Result<RegisterRange> RegisterRange::Read(const RegisterContext& context, uint32_t group,
                                          const GroupReplicas& replicas, const Question& question) {
  Runtime& runtime = context.runtime;
  const Time deadline = runtime.Now() + context.options.timeout;
  Time last_there = runtime.Now();  // when a majority was, as far as is known
  std::string reasons;
  bool outdated = false;
  for (;;) {
    bool are_away = false;
    if (auto page = Ask(context, replicas, question, deadline, reasons, outdated, are_away)) {
      return *std::move(page);
    }
    const Time now = runtime.Now();
    if (!are_away) last_there = now;
    const bool is_patient = question.patient || !are_away;
    const Time last = is_patient ? deadline : std::min(deadline, last_there + kPatienceOfReads);
    if (outdated || now >= last) {
      return Fail(outdated ? EREMCHG : EIO,
                  "list registers of group {}: {} of {} replicas needed: {}", group,
                  replicas.drives.size() / 2 + 1, replicas.drives.size(), reasons);
    }
    runtime.NewSignal()->WaitUntil(std::min(last, now + std::chrono::milliseconds(100)));
  }
}

}  // namespace pinstripe
