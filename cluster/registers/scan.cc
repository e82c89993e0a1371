// Listing registers, and reading them so that what is read stays so.

#include <algorithm>
#include <set>

#include "cluster/registers/store_impl.h"

namespace pinstripe {
namespace {

constexpr uint32_t kLeastScanRecords = 32;  // asked for at once: removed registers are among them

}  // namespace

// The registers `names`, in ascending order, of which the answers to a range tell most. Replicas
// are asked about those alone on which the answers do not agree.
std::vector<Result<RegisterValue>> RegisterStore::Impl::ReadListed(
    const GroupReplicas& replicas, const std::vector<RegisterName>& names,
    const RegisterRange& range, const Listers* listers) {
  std::vector<std::unique_ptr<RegisterCall>> calls;
  std::vector<RegisterCall*> unclear;
  const std::vector<RegisterRange::Answer>& answers = range.answers;
  std::vector<size_t> at(answers.size());
  for (const RegisterName& name : names) {
    RegisterCall& call =
        *calls.emplace_back(std::make_unique<RegisterCall>(context_, name, replicas));
    bool all_told = true;
    for (size_t i = 0; i < answers.size(); ++i) {
      const std::vector<RangeRecord>& records = answers[i].records;
      while (at[i] < records.size() && records[at[i]].key < call.key()) ++at[i];
      const bool told =
          at[i] < records.size() && records[at[i]].key == call.key() && records[at[i]].has_value;
      if (told) call.Learn(answers[i].replica, range.asked, records[at[i]].record);
      all_told = all_told && told;
    }
    if (!all_told || !call.KnowsEnough()) unclear.push_back(&call);
  }
  // A second look shows what was only on its way to some of them.
  if (listers != nullptr) std::ranges::for_each(unclear, &RegisterCall::ForgetStates);
  Ask(unclear);
  const bool they_count = listers != nullptr && runtime_.Now() < listers->count_until;
  std::vector<Result<RegisterValue>> values;
  for (const auto& call : calls) {
    const bool is_clear = listers == nullptr || (they_count && call->AgreesWith(listers->replicas));
    values.push_back(is_clear ? Finish(*call) : Pin(*call));
  }
  return values;
}

Result<RegisterValue> RegisterStore::Impl::Pin(RegisterCall& call) {
  call.Begin();  // others may have been pinned before
  const Chosen chosen = TRY(call.Pin());
  context_.cache->Forget(call.key());  // the replicas have promised since
  return ValueOf(call, chosen);
}

Result<RegisterValue> RegisterStore::Impl::ReadPinned(const RegisterName& name) {
  TRY(CheckName(name));
  return WhileTheyStay(name.group, [&](const GroupReplicas& replicas) {
    RegisterCall call(context_, name, replicas);
    return Pin(call);
  });
}

Result<RegisterStore::ScanPage> RegisterStore::Impl::Scan(uint32_t group, const std::string& first,
                                                          const std::string& last, size_t max) {
  return UnderNewestMap(group, [&](const GroupReplicas& replicas) {
    return TryScan(replicas, /*mark=*/nullptr, group, first, last, max);
  });
}

Result<RegisterStore::Impl::Listers> RegisterStore::Impl::HoldersAmong(
    const GroupReplicas& replicas, RegisterHolding& mark) {
  const auto holds = [&mark](const Drive* drive) {
    return drive != nullptr && std::ranges::find(mark.drives, drive) != mark.drives.end();
  };
  const auto up = std::ranges::count_if(
      replicas.drives, [&](const Drive* drive) { return holds(drive) && drive->IsUp(); });
  const bool enough = static_cast<size_t>(up) > replicas.drives.size() / 2;
  if (!enough || runtime_.Now() + context_.options.drive_timeout >= mark.counts_until) {
    RegisterCall call(context_, mark.name, replicas);
    mark.drives = TRY(call.FindHolders(mark.slot));
    mark.counts_until = call.counts_until();
  }
  Listers listers{replicas, mark.counts_until};
  for (Drive*& drive : listers.replicas.drives) {
    if (!holds(drive)) drive = nullptr;
  }
  return listers;
}

// Each range by drives that held the mark before they were asked for this one.
Result<RegisterRange> RegisterStore::Impl::ReadRangeOf(const GroupReplicas& replicas,
                                                       RegisterHolding& mark,
                                                       const RegisterRange::Question& question,
                                                       Listers& listers) {
  for (bool is_last = false;; is_last = true) {
    listers = TRY(HoldersAmong(replicas, mark));
    auto range = RegisterRange::Read(context_, mark.name.group, listers.replicas, question);
    const bool counts = runtime_.Now() < mark.counts_until;
    if (range.has_value() ? counts : is_last || CodeOf(range) == EREMCHG) return range;
    if (is_last) {
      return Fail(EIO, "list registers of group {}: it took too long", mark.name.group);
    }
    mark.drives.clear();  // others may hold it by now
  }
}

Result<RegisterStore::ScanPage> RegisterStore::Impl::ScanAfter(RegisterHolding& mark,
                                                               const std::string& first,
                                                               const std::string& last,
                                                               size_t max) {
  return WhileTheyStay(mark.name.group, [&](const GroupReplicas& replicas) {
    return TryScan(replicas, &mark, mark.name.group, first, last, max);
  });
}

Result<RegisterStore::ScanPage> RegisterStore::Impl::TryScan(const GroupReplicas& replicas,
                                                             RegisterHolding* mark, uint32_t group,
                                                             const std::string& first,
                                                             const std::string& last, size_t max) {
  size_t wanted = std::max<size_t>(max, 1);
  const std::string prefix = RegisterRecordKey(context_.options.prefix, {group, ""});
  ScanPage page;
  page.next = first;
  while (page.next.has_value() && page.entries.empty()) {
    if (*page.next > last) return ScanPage{};
    const auto asked =
        static_cast<uint32_t>(std::clamp<size_t>(wanted, kLeastScanRecords, kMaxRangeRecords));
    const RegisterRange::Question question{prefix + *page.next, prefix + last, asked,
                                           /*patient=*/false};
    Listers listers;
    const RegisterRange range =
        TRY(mark != nullptr ? ReadRangeOf(replicas, *mark, question, listers)
                            : RegisterRange::Read(context_, group, replicas, question));
    const std::set<std::string> keys = range.Keys();
    std::vector<RegisterName> names;
    for (const std::string& key : keys) {
      if (names.size() == wanted) break;
      names.push_back({group, key.substr(prefix.size())});
    }
    // The lowest key after the one that was looked at last.
    if (names.size() < keys.size()) {
      page.next = names.back().key + '\0';
    } else if (range.through.has_value()) {
      page.next = range.through->substr(prefix.size()) + '\0';
    } else {
      page.next.reset();
    }
    const auto values = ReadListed(replicas, names, range, mark != nullptr ? &listers : nullptr);
    // Where many were removed it is soon known whether anything is left.
    if (mark != nullptr) wanted = std::max<size_t>(wanted, kPageRecords);
    for (size_t i = 0; i < names.size(); ++i) {
      const RegisterValue value = TRY(values[i]);
      if (value.value.has_value()) page.entries.push_back({names[i].key, value});
    }
  }
  return page;
}

}  // namespace pinstripe
