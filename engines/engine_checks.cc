#include "engines/engine_checks.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"
#include "base/utf8.h"
#include "drive/limits.h"

namespace pinstripe {
namespace {

Status CheckSizes(const Record& record) {
  TRY(CheckSize("it sent a value", record.value.size(), 0, kMaxValueBytes));
  TRY(CheckSize("it sent a version", record.version.size(), 0, kMaxVersionBytes));
  return CheckSize("it sent a tag", record.tag.size(), 0, kMaxTagBytes);
}

bool MatchesItsTag(const Record& record) {
  return record.tag.size() != sizeof(uint32_t) || record.tag == EngineTag(record.value);
}

// Keys of a range as it has to be: between its ends, and one after the other.
class KeysInOrder {
 public:
  explicit KeysInOrder(const EngineRange& range) : range_(range) {}

  // `key` stays where it is.
  bool Take(std::string_view key) {
    const bool is_key = !key.empty() && key.size() <= kMaxKeyBytes;
    const bool inside = key >= range_.first && key <= range_.last;
    const bool follows = before_.empty() || (range_.reverse ? key < before_ : key > before_);
    before_ = key;
    return is_key && inside && follows;
  }

 private:
  const EngineRange& range_;
  std::string_view before_;
};

// The first key behind one, which is as long as a key can be. Empty: there is none.
std::string BehindLongest(std::string key) {
  while (!key.empty() && key.back() == '\xff') key.pop_back();
  if (!key.empty()) key.back() = static_cast<char>(key.back() + 1);
  return key;
}

}  // namespace

Status CheckBatch(const EngineBatch& batch) {
  TRY(CheckSize("a batch", batch.changes.size() + batch.reads.size(), 0, kMaxEngineBatch));
  for (const EngineChange& change : batch.changes) {
    Drive::PutRequest request{
        .key = change.key, .expected = change.expected, .guard = change.guard};
    if (change.put) {
      request.value = change.put->value;
      request.version = change.put->version;
      request.tag = change.put->tag;
    }
    TRY(CheckPut(request));
  }
  for (const std::string& key : batch.reads) TRY(CheckKey(key));
  return {};
}

std::string EngineTag(Bytes value) { return Writer().U32(Crc32c(value)).Take(); }

Result<Record> CheckedRecord(Result<Record> record) {
  if (!record) return record;
  if (const Status sizes = CheckSizes(*record); !sizes.ok()) {
    return Fail(EBADMSG, "{}", sizes.message());
  }
  if (!MatchesItsTag(*record)) {
    return Fail(EBADMSG, "its record does not match the checksum that it was stored with");
  }
  return record;
}

Result<RangeRecords> CheckedList(RangeRecords found, const EngineRange& range) {
  if (found.records.size() > range.max) {
    return Fail(EBADMSG, "it answered with more records than were asked for");
  }
  KeysInOrder keys(range);
  for (RangeRecord& each : found.records) {
    if (!keys.Take(each.key)) {
      return Fail(EBADMSG, "it answered with keys that were not asked for");
    }
    const size_t most = each.has_value ? range.value_limit : 0;
    const bool is_whole = CheckSizes(each.record).ok() && each.record.value.size() <= most &&
                          (!each.has_value || MatchesItsTag(each.record));
    if (each.damaged || !is_whole) {
      each.record = {};
      each.has_value = false;
      each.damaged = true;
    }
  }
  if (found.more && found.records.empty()) {
    return Fail(EBADMSG, "it answered with nothing, and that there is more");
  }
  return found;
}

std::optional<EngineRange> RangeBehind(EngineRange range, std::string last, uint32_t max) {
  range.max = max;
  if (range.reverse) {
    // The key before it has one byte less, or is the longest one below it.
    if (last.back() == '\0') {
      last.pop_back();
    } else {
      last.back() = static_cast<char>(last.back() - 1);
      last.resize(kMaxKeyBytes, '\xff');
    }
    range.last = std::move(last);
    if (range.last.empty()) return std::nullopt;
  } else {
    if (last.size() < kMaxKeyBytes) {
      last.push_back('\0');
    } else {
      last = BehindLongest(std::move(last));
    }
    range.first = std::move(last);
    if (range.first.empty()) return std::nullopt;
  }
  if (range.first > range.last) return std::nullopt;
  return range;
}

DriveInfo InfoOfEngine(const EngineState& state, std::string_view store) {
  constexpr size_t kMostText = 256;
  DriveInfo info;
  info.capacity_bytes = state.limit_bytes;
  if (state.limit_bytes > 0) {
    info.portion_full = std::min(
        1.0, static_cast<double>(state.used_bytes) / static_cast<double>(state.limit_bytes));
  }
  const std::string software = Printable(state.software, kMostText);
  const size_t space = std::min(software.find(' '), software.size());
  info.vendor = software.substr(0, space);
  info.model = info.vendor;
  info.software_version = software.substr(std::min(space + 1, software.size()));
  info.serial_number = Hex(AsBytes(store));
  info.failure = Printable(fmt::format("{}", fmt::join(state.alarms, "; ")), 4 * kMostText);
  return info;
}

}  // namespace pinstripe
