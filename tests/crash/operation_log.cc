#include "tests/crash/operation_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>

namespace pinstripe {

std::vector<uint64_t> OperationLog::Begin(const std::vector<std::string>& keys, bool remove) {
  const std::lock_guard lock(mutex_);
  const uint64_t batch = keys.size() > 1 ? batches_.size() + 1 : 0;
  std::vector<uint64_t> numbers;
  for (const std::string& key : keys) {
    History& history = histories_[key];
    history.changes.push_back({remove, batch});
    numbers.push_back(history.changes.size());
    if (batch != 0) batches_[batch].emplace_back(key, numbers.back());
  }
  changes_ += keys.size();
  return numbers;
}

void OperationLog::Acknowledge(const std::string& key, bool durable) {
  const std::lock_guard lock(mutex_);
  History& history = histories_[key];
  history.acknowledged = history.changes.size();
  if (durable) history.durable = history.acknowledged;
}

std::map<std::string, uint64_t> OperationLog::Acknowledged() const { return Floors(Crash::kKill); }

void OperationLog::Flushed(const std::map<std::string, uint64_t>& acknowledged) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, number] : acknowledged) {
    History& history = histories_[key];
    history.durable = std::max(history.durable, number);
  }
}

StoredRecord OperationLog::RecordOf(const std::string& key, uint64_t number) {
  constexpr size_t kSizes[] = {60, 700, 4'096, 5'000, 20'000, 90'000, 300};
  const size_t hash = std::hash<std::string>()(key);
  std::mt19937_64 random(hash + number);
  std::string value(kSizes[(hash + number) % std::size(kSizes)], '\0');
  for (size_t i = 0; i < value.size(); i += 8) {
    const uint64_t bits = random();
    value.replace(i, std::min<size_t>(8, value.size() - i), reinterpret_cast<const char*>(&bits),
                  std::min<size_t>(8, value.size() - i));
  }
  return {{.version = fmt::format("{}", number), .tag = "tag"}, SharedBytes(std::move(value))};
}

std::map<std::string, uint64_t> OperationLog::Floors(Crash crash) const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, uint64_t> floors;
  for (const auto& [key, history] : histories_) {
    floors[key] = crash == Crash::kKill ? history.acknowledged : history.durable;
  }
  return floors;
}

std::map<std::string, uint64_t> OperationLog::Ceilings() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, uint64_t> ceilings;
  for (const auto& [key, history] : histories_) ceilings[key] = history.changes.size();
  return ceilings;
}

std::optional<uint64_t> OperationLog::NumberOf(const StoredRecord& record) const {
  const std::string& version = record.head.version;
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(version.data(), version.data() + version.size(), number);
  if (error != std::errc() || end != version.data() + version.size()) return std::nullopt;
  return number;
}

std::string OperationLog::Complaint(const std::map<std::string, uint64_t>& floors,
                                    const std::map<std::string, uint64_t>& ceilings,
                                    const Look& look) const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::optional<uint64_t>> found;  // none: no record
  for (const auto& [key, ceiling] : ceilings) {
    const auto floor_of = floors.find(key);
    const uint64_t floor = floor_of == floors.end() ? 0 : floor_of->second;
    const History& history = histories_.at(key);
    const Result<StoredRecord> record = look(key);
    if (!record.has_value() && record.error().code() != ENOENT) {
      return fmt::format("{}: {}", key, record.error().message());
    }
    if (!record.has_value()) {
      found[key] = std::nullopt;
      bool may_be_absent = floor == 0;
      for (uint64_t number = std::max<uint64_t>(floor, 1); number <= ceiling; ++number) {
        may_be_absent = may_be_absent || history.changes[number - 1].remove;
      }
      if (may_be_absent) continue;
      return fmt::format("{}: change {} was promised, and there is no record", key, floor);
    }
    const std::optional<uint64_t> number = NumberOf(*record);
    if (!number || *number == 0 || *number > history.changes.size() ||
        history.changes[*number - 1].remove) {
      return fmt::format("{}: nobody has put version {}", key, record->head.version);
    }
    if (record->value.text() != RecordOf(key, *number).value.text()) {
      return fmt::format("{}: other bytes than change {} has put", key, *number);
    }
    if (*number < floor) {
      return fmt::format("{}: change {} was promised, {} is there", key, floor, *number);
    }
    if (*number > ceiling) return fmt::format("{}: change {} was not begun", key, *number);
    found[key] = number;
  }
  for (const auto& [key, number] : found) {
    const uint64_t batch = number ? histories_.at(key).changes[*number - 1].batch : 0;
    if (batch == 0) continue;
    for (const auto& [other, its_number] : batches_.at(batch)) {
      const auto its_found = found.find(other);
      if (its_found == found.end()) continue;
      const History& history = histories_.at(other);
      bool may_be = its_found->second && *its_found->second >= its_number;
      for (uint64_t later = its_number; !its_found->second && later < ceilings.at(other); ++later) {
        may_be = may_be || history.changes[later].remove;
      }
      if (!may_be) {
        return fmt::format("{} is there as a batch left it, {} of the same batch is not", key,
                           other);
      }
    }
  }
  return "";
}

void OperationLog::GoOnFrom(const Look& look) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, history] : histories_) {
    const Result<StoredRecord> record = look(key);
    const uint64_t last = history.changes.size();
    const std::optional<uint64_t> number =
        record.has_value() ? NumberOf(*record) : std::optional<uint64_t>();
    // The changes between what was found and the last one have not been made and never will be. One
    // more says what there is, for the next crash to be compared with.
    if (number && *number == last) {
      history.acknowledged = last;
    } else if (!number) {
      history.changes.push_back({.remove = true});
      history.acknowledged = history.changes.size();
    } else {
      history.acknowledged = *number;
      for (uint64_t undone = *number; undone < last; ++undone) {
        history.changes[undone].remove = false;
      }
    }
  }
}

uint64_t OperationLog::changes() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

}  // namespace pinstripe
