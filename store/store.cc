#include "store/store.h"

#include <algorithm>

#include "base/try.h"

namespace pinstripe {
namespace {

// For messages: versions are arbitrary bytes, and may be long.
std::string Short(std::string_view version) {
  if (version.empty()) return "none";
  return Hex(AsBytes(version.substr(0, 32))) + (version.size() > 32 ? "..." : "");
}

}  // namespace

Status CheckVersion(std::string_view version, const Expected& expected) {
  if (!expected.version() || version == *expected.version()) return {};
  return Fail(ESTALE, "its version is {}, not {}", Short(version), Short(*expected.version()));
}

bool RangeCollector::WantsValue(const StoredHead& head) const {
  return head.value_bytes <= limits_.value_bytes;
}

bool RangeCollector::Add(RangeItem item) {
  const size_t head_bytes = item.key.size() + item.head.version.size() + item.head.tag.size();
  const bool fits = found_.items.size() < limits_.entries &&
                    head_bytes_ + head_bytes <= limits_.all_head_bytes &&
                    value_bytes_ + item.value.size() <= limits_.all_value_bytes;
  if (!fits && !found_.items.empty()) {
    found_.more = true;
    return false;
  }
  head_bytes_ += head_bytes;
  value_bytes_ += item.value.size();
  found_.items.push_back(std::move(item));
  return true;
}

Failed WouldWait() {
  static const Status would_wait(EAGAIN, "this would have to wait");
  return Failed(would_wait);
}

Failed NoSuchKey() { return Fail(ENOENT, "no such key"); }

Status Store::CheckThere(std::string_view key, const Expected& expected) {
  if (!expected.version()) return {};
  const Result<StoredHead> head = Head(key);
  if (!head.has_value() && head.error().code() != ENOENT) return head.error();
  return CheckVersion(head.has_value() ? std::string_view(head->version) : "", expected);
}

std::vector<Status> Store::PutEach(std::span<const StoreChange> puts) {
  std::vector<Status> made;
  made.reserve(puts.size());
  for (const StoreChange& put : puts) {
    if (put.needs && !made[*put.needs].ok()) {
      made.push_back(Fail(ECANCELED, "what it depends on was not put"));
      continue;
    }
    Status may = put.expected == nullptr ? Status() : CheckThere(put.key, *put.expected);
    made.push_back(may.ok() ? Put(put.key, *put.record, put.room) : std::move(may));
  }
  return made;
}

Result<RangeItems> Store::Items(const KeyRange& range, const RangeLimits& limits, bool reverse) {
  RangeCollector collector(limits);
  // One key more tells whether the list is complete.
  for (std::string& key : TRY(Keys(range, limits.entries + 1, reverse))) {
    RangeItem item{.key = std::move(key)};
    const Status found = [&]() -> Status {
      item.head = TRY(Head(item.key));
      if (!collector.WantsValue(item.head)) return {};
      StoredRecord record = TRY(Get(item.key, {}));
      item.head = std::move(record.head);
      item.has_value =
          collector.WantsValue(item.head);  // it may have been replaced by a longer one
      if (item.has_value) item.value = std::move(record.value);
      return {};
    }();
    if (found.code() == ENOENT) continue;  // deleted since its key was found
    item.damaged = found.code() == EBADMSG;
    if (!found.ok() && !item.damaged) return Failed(found);
    if (!collector.Add(std::move(item))) break;
  }
  return collector.Take();
}

}  // namespace pinstripe
