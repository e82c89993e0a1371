#include "cluster/stripes/listing.h"

#include <algorithm>
#include <tuple>

#include "base/coding.h"
#include "cluster/gather.h"
#include "cluster/stripes/shard.h"

namespace pinstripe {
namespace {

constexpr int kMostFailures = 3;
constexpr auto kPause = std::chrono::milliseconds(100);  // before a drive is asked again

// One drive's answer, if it is what was asked for.
Status CheckKeys(const std::vector<std::string>& keys, const std::string& first,
                 const std::string& last) {
  const bool in_order =
      std::adjacent_find(keys.begin(), keys.end(), std::greater_equal<>()) == keys.end();
  const bool in_range = keys.empty() || (keys.front() >= first && keys.back() <= last);
  if (keys.size() <= kMaxRangeKeys && in_order && in_range) return {};
  return Fail(EBADMSG, "answered a range with keys that were not asked for");
}

}  // namespace

StripeListing::StripeListing(Runtime& runtime, const std::map<DriveId, Drive*>& drives,
                             std::string prefix, Duration timeout, std::optional<uint64_t> object)
    : runtime_(runtime),
      prefix_(std::move(prefix)),
      first_(prefix_ + "D" + (object ? Writer().U64(*object).Take() : "")),
      last_(first_ + std::string(64, '\xff')),
      timeout_(timeout) {
  for (const auto& [id, drive] : drives) cursors_[id] = {.drive = drive, .next = first_};
}

void StripeListing::StartAt(const StripeId& first) {
  std::string key = ShardKey(prefix_, first, 0);
  key.pop_back();  // the shard
  for (auto& [id, cursor] : cursors_) cursor.next = key;
}

std::vector<ListedStripe> StripeListing::Next() {
  for (;;) {
    std::vector<ListedStripe> complete = TakeComplete();
    if (!complete.empty() || pending_.empty()) {
      const bool all_ended = std::all_of(cursors_.begin(), cursors_.end(),
                                         [](const auto& entry) { return entry.second.ended; });
      if (!complete.empty() || all_ended) return complete;
    }
    AskForMore();
  }
}

// Stripes before the place that every drive was listed to.
std::vector<ListedStripe> StripeListing::TakeComplete() {
  const std::string* limit = nullptr;
  for (const auto& [id, cursor] : cursors_) {
    if (!cursor.ended && (!limit || cursor.next < *limit)) limit = &cursor.next;
  }
  std::vector<ListedStripe> complete;
  while (!pending_.empty()) {
    const auto first = pending_.begin();
    // The next key may be another shard of the stripe that the last key belonged to.
    if (limit && !(first->first < *limit && !limit->starts_with(first->first))) break;
    for (const ShardCopy& copy : first->second.copies) --cursors_.at(copy.drive).held;
    complete.push_back(std::move(first->second));
    pending_.erase(first);
    std::sort(complete.back().copies.begin(), complete.back().copies.end(),
              [](const ShardCopy& a, const ShardCopy& b) {
                return std::tie(a.shard, a.drive) < std::tie(b.shard, b.drive);
              });
  }
  return complete;
}

// One page of each drive of which little is left.
void StripeListing::AskForMore() {
  Gather<Result<std::vector<std::string>>> gather(runtime_);
  bool failed_before = false;
  for (const auto& [id, cursor] : cursors_) failed_before |= !cursor.ended && cursor.failures > 0;
  if (failed_before) runtime_.NewSignal()->WaitUntil(runtime_.Now() + kPause);
  const Time deadline = runtime_.Now() + timeout_;
  for (auto& [id, cursor] : cursors_) {
    if (cursor.ended || cursor.held >= kMaxRangeKeys) continue;
    cursor.drive->Range(cursor.next, last_, kMaxRangeKeys, /*reverse=*/false, deadline,
                        gather.Ask(id));
  }
  while (auto answer = gather.Next(Time::max())) {
    Take(static_cast<DriveId>(answer->index), answer->value);
  }
}

void StripeListing::Take(DriveId id, const Result<std::vector<std::string>>& keys) {
  Cursor& cursor = cursors_.at(id);
  Status status = keys.has_value() ? CheckKeys(*keys, cursor.next, last_) : keys.error();
  if (!status.ok()) {
    if (++cursor.failures < kMostFailures) return;
    cursor.ended = true;
    unlisted_.emplace(id, std::move(status));
    return;
  }
  cursor.failures = 0;
  for (const std::string& key : *keys) {
    const auto shard = ParseShardKey(prefix_, key);
    if (!shard) {
      strange_keys_.push_back({id, key});
      continue;
    }
    ListedStripe& stripe = pending_[key.substr(0, key.size() - 1)];
    stripe.id = shard->first;
    stripe.copies.push_back({shard->second, id});
    ++cursor.held;
  }
  if (keys->size() < kMaxRangeKeys) {
    cursor.ended = true;
  } else {
    cursor.next = keys->back() + '\0';
  }
}

}  // namespace pinstripe
