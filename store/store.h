// Store: the ordered map under a drive's engine, from keys to records. What a drive promises about
// versions and conditions is not here (engine.h): a store only keeps, finds and forgets.
//
// Keys are up to kMaxKeyBytes arbitrary bytes, the empty one included, ordered as unsigned bytes, a
// prefix first. The tag and its algorithm are kept untouched.
//
// A change that was answered with success survives a kill of the process; after the next successful
// Flush() it survives power loss too. Changes of one key are made one after the other by the
// caller; a change of one key and anything about other keys may happen at the same time, as may
// reads. Calls may wait for the disk. Values are handed in and out without a copy wherever a store
// can.
//
// Failures: ENOENT no such key; EBADMSG the record is damaged, which is found out when it is read;
// ENOSPC full, nothing changed, and everything but Put() goes on; EIO the disk failed.
//
// Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/status.h"
#include "drive/drive.h"
#include "store/starts.h"

namespace pinstripe {

// Everything about a record but its value.
struct StoredHead {
  std::string version;
  std::string tag;
  std::optional<int32_t> algorithm;  // of the tag; what was put, if anything was
  uint32_t value_bytes = 0;          // of the whole value
};

struct StoredRecord {
  StoredHead head;
  SharedBytes value;  // or the part that was asked for
  // Of a put, where somebody has taken it already: the store need not take it once more.
  std::optional<uint32_t> value_crc = {};

  uint32_t ValueCrc() const { return value_crc ? *value_crc : Crc32c(value); }
};

// Keys between two ends. Without `last` there is no upper end; the lower end of all is the empty
// key.
struct KeyRange {
  std::string first;
  bool first_included = true;
  std::optional<std::string> last;
  bool last_included = true;
};

// One of several changes that are made together.
struct StoreChange {
  std::string_view key;
  const StoredRecord* record = nullptr;  // null: deletes it; a key that is not there stays so
  // Of PutEach() and PutAllAtOnce(), which look for it: what has to be there. Null: anything.
  const Expected* expected = nullptr;
  Room room = Room::kData;  // what a put may take
  // Of PutEach(): it is made only if this one was, which comes before it. Null: whatever became of
  // the others.
  std::optional<size_t> needs = {};
};

// What the condition of a change says to the version that is there, which is empty where nothing
// is: success or ESTALE.
Status CheckVersion(std::string_view version, const Expected& expected);

// An entry of a range.
struct RangeItem {
  std::string key;
  StoredHead head;
  SharedBytes value;  // the whole one, if it came along
  bool has_value = false;
  bool damaged = false;  // then nothing else is known of it
};

// What a list of entries may hold at most; the first entry comes whatever it is.
struct RangeLimits {
  size_t entries = 0;
  uint32_t value_bytes = 0;  // longer values stay where they are
  size_t all_value_bytes = 0;
  size_t all_head_bytes = 0;  // keys, versions and tags
};

struct RangeItems {
  std::vector<RangeItem> items;
  bool more = false;  // a limit was reached; there may be further ones
};

// What a log has of space, for metrics.
struct LogCounts {
  uint64_t segments = 0;        // files of the log
  uint64_t dead_bytes = 0;      // of entries that nothing refers to, and that a flush gives back
  uint64_t slack_bytes = 0;     // allocated around entries, until these are moved together
  uint64_t unsynced_bytes = 0;  // written, and not durable yet
  uint64_t moved_bytes = 0;     // by moving entries together, since it was opened
};

struct StoreUsage {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;
  // Why every change is refused until the store is opened again, while reads go on; success: none
  // is.
  Status failure = {};
  std::optional<LogCounts> log = {};  // of a store that is one
  double portion_full() const {
    return capacity_bytes == 0 ? 1.0 : static_cast<double>(used_bytes) / capacity_bytes;
  }
};

// What GetAtOnce() gives at most of a value: to copy it takes no longer than to hand it to another
// thread.
inline constexpr uint32_t kMaxBytesAtOnce = 32 << 10;

// The EAGAIN of who must not wait, which is common and has no sentence to tell.
Failed WouldWait();

Failed NoSuchKey();  // ENOENT

class Store {
 public:
  virtual ~Store() = default;

  virtual Result<StoredRecord> Get(std::string_view key, ValueRange range) = 0;
  virtual Result<StoredHead> Head(std::string_view key) = 0;

  // As Get(), by a thread that must not wait: EAGAIN where the answer would have to come from the
  // disk, where somebody else is in the way, or where it is longer than kMaxBytesAtOnce.
  virtual Result<StoredRecord> GetAtOnce(std::string_view, ValueRange) { return WouldWait(); }

  // Whether what is expected of a key is there. ESTALE: something else is.
  Status CheckThere(std::string_view key, const Expected& expected);

  // Up to `max` keys, lowest first, or with `reverse` highest first.
  virtual Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max,
                                                bool reverse) = 0;

  // The entries of a range, as their keys would come from Keys(), with heads and small values. The
  // default asks for one after the other.
  virtual Result<RangeItems> Items(const KeyRange& range, const RangeLimits& limits, bool reverse);

  // Makes this the key's record. `head.value_bytes` is taken from the value.
  virtual Status Put(std::string_view key, const StoredRecord& record, Room room = Room::kData) = 0;

  // Makes these records of their keys, each key once, and says of each what Put() would have said,
  // or ESTALE where something else is there than was expected. One whose `needs` was not made is
  // not made either: ECANCELED. That they come together saves work. Nobody else changes these keys
  // meanwhile.
  virtual std::vector<Status> PutEach(std::span<const StoreChange> puts);

  // As PutEach(), by a thread that must not wait. True: all were made. False: nothing was changed,
  // for whatever reason, and PutEach() will tell.
  virtual bool PutAllAtOnce(std::span<const StoreChange>) { return false; }

  virtual Status Delete(std::string_view key) = 0;

  // Makes all of these changes, or on failure none; no kill and no power loss leaves a part of
  // them. Each key once.
  virtual Status Apply(std::span<const StoreChange> changes) = 0;

  // Every change that was answered before survives power loss after. Calls that come together share
  // the cost.
  virtual Status Flush() = 0;

  virtual StoreUsage Usage() = 0;

  // What it knows of its starts, and so whether it may have forgotten anything. Nothing for a store
  // in memory, which is forgotten as a whole.
  virtual StoreStarts Starts() { return {}; }

  // Flushes, and notes durably that the store needs nothing that only the kernel has, so that its
  // next start is clean whatever happens to the machine. Nobody calls anything else meanwhile or
  // after. A failure: it is as if it had not been called.
  virtual Status EndCleanly() { return Flush(); }

  // Does a bounded piece of what nobody waits for: gives back space, and makes durable what has
  // become much. True: there may be more to do. To be called now and then, by one thread at a time.
  virtual Result<bool> Tidy() { return false; }

  // Puts what it keeps for these keys in order, so that it takes less space and fewer reads to
  // find. Takes long; ECANCELED once `cancelled` is set. Nothing depends on it.
  virtual Status CompactRange(const KeyRange&, std::atomic<bool>& /*cancelled*/) { return {}; }

  // Forgets all records at once, durably: after a kill or power loss in the middle all are there or
  // none is. What they occupied may come back later. A LogStore or DatabaseStore cannot by itself:
  // an ErasableStore around it can, which hands every call on, and so has to be told of each
  // function added here.
  virtual Status Erase() { return Fail(ENOTSUP, "this store cannot be erased"); }

  // Returns when nothing is left of what was erased.
  virtual Status RemoveErased() { return {}; }
};

// Makes a list of entries that stays within its limits.
class RangeCollector {
 public:
  explicit RangeCollector(const RangeLimits& limits) : limits_(limits) {}

  // Whether this entry's value is to come along.
  bool WantsValue(const StoredHead& head) const;

  // False: the list is full, and ends without this entry.
  bool Add(RangeItem item);

  RangeItems Take() { return std::move(found_); }

 private:
  const RangeLimits limits_;
  RangeItems found_;
  size_t head_bytes_ = 0;
  size_t value_bytes_ = 0;
};

// The part of a value of `value_bytes` bytes that `range` covers, cut at the value's end.
struct ValuePart {
  uint32_t offset = 0;
  uint32_t length = 0;
};
inline ValuePart Clip(ValueRange range, uint32_t value_bytes) {
  const uint32_t offset = range.offset < value_bytes ? range.offset : value_bytes;
  const uint32_t left = value_bytes - offset;
  return {offset, range.length < left ? range.length : left};
}

}  // namespace pinstripe
