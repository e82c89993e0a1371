#include "cluster/registers/eraser.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "cluster/gather.h"

namespace pinstripe {
namespace {

constexpr size_t kDeletesAtOnce = 256;

const RangeRecord* FindRecord(const std::vector<RangeRecord>& records, const std::string& key) {
  const auto found =
      std::lower_bound(records.begin(), records.end(), key,
                       [](const RangeRecord& a, const std::string& b) { return a.key < b; });
  return found == records.end() || found->key != key ? nullptr : &*found;
}

}  // namespace

RegisterEraser::RegisterEraser(const RegisterContext& context, uint32_t group,
                               GroupReplicas replicas)
    : context_(context),
      group_(group),
      prefix_(RegisterRecordKey(context.options.prefix, {group, ""})),
      replicas_(std::move(replicas)),
      drives_(replicas_.drives) {}

// Null if any replica holds a value. One that has nothing, or has promised something only, may have
// missed it all, or was erased by somebody who did not get any further.
std::optional<RegisterEraser::Grave> RegisterEraser::GraveOf(
    const std::string& key, const std::vector<const RangeRecord*>& records) const {
  Grave grave{{key.substr(prefix_.size())}, std::vector<std::string>(drives_.size())};
  Tombstone& tombstone = grave.tombstone;
  const uint64_t floor = SlotFloor(replicas_.cluster_version);
  tombstone.of_former_epoch = IsReusable(tombstone.key);
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (records[i] == nullptr) continue;
    if (!records[i]->has_value) return std::nullopt;
    const auto state = StateFrom(key, *drives_[i], records[i]->record);
    if (!state.has_value()) return std::nullopt;
    if (state->accepted.slot > 0 && state->proposal->removed_at == 0) {
      if (context_.options.erase_unheard) continue;
      return std::nullopt;
    }
    grave.versions[i] = EncodeRegisterVersion(state->promised, state->accepted);
    const uint64_t former = state->proposal->former_slot;
    tombstone.slot = std::max(tombstone.slot, former != 0 ? former : state->accepted.slot);
    tombstone.removed_at = std::max(tombstone.removed_at, state->proposal->removed_at);
    // A proposer that was promised something in this epoch relies on it.
    if (state->promised.slot > floor) tombstone.of_former_epoch = false;
  }
  if (tombstone.slot == 0) return std::nullopt;
  return grave;
}

std::vector<RegisterEraser::Grave> RegisterEraser::GravesOn(const RegisterRange& range) const {
  std::vector<Grave> graves;
  for (const std::string& key : range.Keys()) {
    std::vector<const RangeRecord*> records(drives_.size(), nullptr);
    for (const RegisterRange::Answer& answer : range.answers) {
      records[answer.replica] = FindRecord(answer.records, key);
    }
    if (auto grave = GraveOf(key, records)) graves.push_back(*std::move(grave));
  }
  return graves;
}

// Or a loss of power could take the removal from one replica, which would have the last value
// again, after it was erased on the others.
Status RegisterEraser::FlushAll() {
  Gather<Status> gather(context_.runtime);
  const Time deadline = context_.runtime.Now() + context_.options.timeout;
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (drives_[i] != nullptr)
      drives_[i]->Flush({deadline, replicas_.cluster_version}, gather.Ask(i));
  }
  Status failed;
  while (auto answer = gather.Next(Time::max(), drives_.size())) {
    if (!answer->value.ok()) failed = answer->value;
  }
  return context_.options.erase_unheard ? Status() : failed;
}

// Where a replica is in another state by now, or does not answer, its record stays for the next
// time.
void RegisterEraser::EraseAll(const std::vector<Grave>& graves, EraseReport& report) {
  Gather<Status> gather(context_.runtime);
  std::vector<bool> erased(graves.size(), true);
  const size_t total = graves.size() * drives_.size();
  size_t sent = 0;
  while (sent < total || gather.outstanding() > 0) {
    for (; sent < total && gather.outstanding() < kDeletesAtOnce; ++sent) {
      const Grave& grave = graves[sent / drives_.size()];
      Drive* drive = drives_[sent % drives_.size()];
      const std::string& version = grave.versions[sent % drives_.size()];
      if (drive == nullptr || version.empty()) continue;
      drive->Delete(
          prefix_ + grave.tombstone.key, Expected::Version(version), Durability::kWriteBack,
          {context_.runtime.Now() + context_.options.drive_timeout, replicas_.cluster_version},
          gather.Ask(sent / drives_.size()));
    }
    const auto answer = gather.Next(Time::max());
    if (answer == nullptr) break;
    // Somebody else may erase it, too.
    if (!answer->value.ok() && answer->value.code() != ENOENT) erased[answer->index] = false;
  }
  for (size_t i = 0; i < graves.size(); ++i) {
    context_.cache->Forget(prefix_ + graves[i].tombstone.key);
    ++(erased[i] ? report.erased : report.failed);
  }
}

Result<RegisterRange> RegisterEraser::ReadPage(const std::string& first) {
  const std::string last = prefix_ + std::string(kMaxRegisterKeyBytes, '\xff');
  RegisterRange range = TRY(RegisterRange::Read(context_, group_, replicas_,
                                                {first, last, kPageRecords, /*patient=*/true}));
  if (range.answers.size() < drives_.size() && !context_.options.erase_unheard) {
    return Fail(EHOSTUNREACH, "group {}: {} of its {} drives answered, and all are needed", group_,
                range.answers.size(), drives_.size());
  }
  return range;
}

Result<EraseReport> RegisterEraser::Run(const RegisterStore::MayErase& may_erase) {
  EraseReport report;
  std::string first = prefix_ + '\0';
  for (;;) {
    const RegisterRange range = TRY(ReadPage(first));
    std::vector<Grave> graves = GravesOn(range);
    std::vector<Tombstone> tombstones;
    for (const Grave& grave : graves) tombstones.push_back(grave.tombstone);
    report.tombstones += tombstones.size();
    if (!tombstones.empty()) {
      const std::vector<bool> may_go = TRY(may_erase(tombstones));
      size_t number = 0;
      std::erase_if(graves, [&](const Grave&) { return !may_go[number++]; });
    }
    if (!graves.empty()) {
      TRY(FlushAll());
      // A replica may have lost its record before it was flushed, and its value is back: what is
      // there now is safe.
      const RegisterRange now = TRY(ReadPage(first));
      const std::vector<Grave> there = GravesOn(now);
      std::erase_if(graves, [&](const Grave& grave) {
        return std::ranges::none_of(there, [&](const Grave& same) {
          return same.tombstone.key == grave.tombstone.key && same.versions == grave.versions;
        });
      });
      EraseAll(graves, report);
    }
    if (!range.through.has_value()) return report;
    first = *range.through + '\0';
  }
}

}  // namespace pinstripe
