#include "engines/etcd/plan.h"

#include <optional>
#include <set>

namespace pinstripe {
namespace {

// etcd takes 128 comparisons, and 128 steps, and requests of 1.5 MiB where nobody has set less.
// Each condition has up to two comparisons; there is the fence's, and there may be reads.
constexpr size_t kMostConditions = 60;
constexpr size_t kMostKeys = 60;
constexpr size_t kMostBytes = 1 << 20;

// The records as the changes so far leave them, if what was supposed is true.
class Supposed {
 public:
  Supposed(const EtcdSeenRecords* seen, std::vector<EtcdCondition>& conditions)
      : seen_(seen), conditions_(conditions) {}

  // The record that must have this version for somebody to go on.
  const EtcdSeen& Look(const std::string& key, const std::string& wanted) {
    const auto known = records_.find(key);
    if (known != records_.end()) return known->second;
    EtcdCondition condition{.key = key};
    EtcdSeen found;
    if (seen_ != nullptr) {
      const auto seen = seen_->find(key);
      if (seen != seen_->end()) found = seen->second;
      condition.kind = EtcdCondition::Kind::kRevision;
      condition.revision = found.revision;
    } else if (!wanted.empty()) {
      found = {.exists = true, .version = wanted};
      condition.kind = EtcdCondition::Kind::kVersion;
      condition.version = wanted;
    }
    conditions_.push_back(std::move(condition));
    return records_.emplace(key, std::move(found)).first->second;
  }

  void Set(const std::string& key, const std::optional<Record>& record) {
    records_[key] = {.exists = record.has_value(), .version = record ? record->version : ""};
  }

 private:
  const EtcdSeenRecords* const seen_;
  std::vector<EtcdCondition>& conditions_;
  std::map<std::string, EtcdSeen> records_;
};

Failed Damaged() { return Fail(EBADMSG, "the record is damaged, or is not one of ours"); }

Status Decide(const EngineChange& change, Supposed& records) {
  if (const auto& expected = change.expected.version()) {
    const EtcdSeen& record = records.Look(change.key, *expected);
    if (record.damaged) return Damaged();
    if (!change.put && !record.exists) return Fail(ENOENT, "no such key");
    if (record.version != *expected) return Fail(ESTALE, "the record has another version");
  }
  if (change.guard) {
    const std::string& expected = *change.guard->expected.version();
    const EtcdSeen& record = records.Look(change.guard->key, expected);
    if (record.damaged) return Damaged();
    if (record.version != expected) return Fail(ECANCELED, "the guard has another version");
  }
  return {};
}

}  // namespace

EtcdPlan PlanChanges(std::span<const EngineChange> changes, const EtcdSeenRecords* seen) {
  EtcdPlan plan;
  Supposed records(seen, plan.conditions);
  for (size_t i = 0; i < changes.size(); ++i) {
    const EngineChange& change = changes[i];
    plan.answers.push_back(Decide(change, records));
    if (!plan.answers.back().ok()) continue;
    plan.effects[change.key] = i;
    records.Set(change.key, change.put);
  }
  return plan;
}

std::vector<std::string> KeysOf(std::span<const EngineChange> changes) {
  std::set<std::string> keys;
  for (const EngineChange& change : changes) {
    keys.insert(change.key);
    if (change.guard) keys.insert(change.guard->key);
  }
  return {keys.begin(), keys.end()};
}

size_t CountTogether(std::span<const EngineChange> changes, std::span<const size_t> value_bytes) {
  size_t count = 0;
  size_t conditions = 0;
  size_t keys = 0;
  size_t bytes = 0;
  for (const EngineChange& change : changes) {
    size_t more = value_bytes[count] + 3 * change.key.size();
    if (change.expected.version()) {
      conditions += 1;
      more += 2 * (change.key.size() + change.expected.version()->size());
    }
    keys += 1;
    if (change.guard) {
      keys += 1;
      conditions += 1;
      more += 3 * change.guard->key.size() + 2 * change.guard->expected.version()->size();
    }
    bytes += more;
    const bool fits = conditions <= kMostConditions && keys <= kMostKeys && bytes <= kMostBytes;
    if (!fits && count > 0) return count;
    ++count;
  }
  return count;
}

}  // namespace pinstripe
