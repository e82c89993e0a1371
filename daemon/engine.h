// Engine: what a drive does, on any store. Limits, versions and conditions, ranges, statistics. The
// daemon's connections and the drives inside a process all go through here, so that none of them
// can differ from another.
//
// A condition and the change it guards are one step: of two changes of a key that expect the same
// version one wins, the other fails with ESTALE. No lock is shared between keys while the disk
// works.
//
// Changes survive a kill of the process once they are answered, and power loss after the next
// Flush(): who asked for write-through is answered after that. Calls may wait for the disk;
// callbacks above (MemoryDrive, LocalDrive, Server) decide on which thread.
//
// Failures, as drive.h has them: ENOENT, ESTALE, EBADMSG, ENOSPC, EINVAL over a limit, EIO.
// Thread-safe.

#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drive/drive.h"
#include "store/key_locks.h"
#include "store/store.h"

namespace pinstripe {

// The most that keys, versions and tags of a list of entries take: with all that is around them
// they fit in a message.
inline constexpr size_t kMaxRangeHeadBytes = size_t{860} << 10;

class Engine {
 public:
  explicit Engine(std::unique_ptr<Store> store);

  Result<StoredRecord> Get(std::string_view key, ValueRange range = {});
  Result<StoredHead> Head(std::string_view key);

  // As Get(), by a thread that must not wait. EAGAIN: ask Get().
  Result<StoredRecord> GetAtOnce(std::string_view key, ValueRange range);

  // The record whose key is the first one above `key`, or the last one below. ENOENT: there is
  // none.
  struct Neighbour {
    std::string key;
    StoredRecord record;
  };
  Result<Neighbour> GetNext(std::string_view key, ValueRange range = {});
  Result<Neighbour> GetPrevious(std::string_view key, ValueRange range = {});

  // EINVAL: a key is over the limit.
  static Status CheckRange(const KeyRange& range);
  // EINVAL: Keys() would refuse this question.
  static Status CheckKeys(const KeyRange& range, uint32_t max);

  // At most `max` keys, 1..kMaxRangeKeys; fewer mean that there are no more.
  Result<std::vector<std::string>> Keys(const KeyRange& range, uint32_t max, bool reverse);

  // EINVAL: Items() would refuse this question.
  static Status CheckItems(const KeyRange& range, const RangeLimits& limits);

  // At most `limits.entries` entries, 1..kMaxRangeRecords, with heads and small values.
  Result<RangeItems> Items(const KeyRange& range, const RangeLimits& limits, bool reverse);

  // An entry that is not there has the empty version. The guard as drive.h has it; EIO: it cannot
  // be read.
  Status Put(std::string_view key, const StoredRecord& record, const Expected& expected,
             Room room = Room::kData, const std::optional<Guard>& guard = {});

  // ENOENT when there is no such key, whatever is expected.
  Status Delete(std::string_view key, const Expected& expected);

  // Changes that are made together. Each one's condition, and its guard, is about the entries as
  // they were before all of them; of several changes of a key the last one stays.
  struct Change {
    std::string key;
    std::optional<StoredRecord> record;  // none: deletes it
    Expected expected = Expected::Any();
    Room room = Room::kData;
    std::optional<Guard> guard = {};
  };
  struct BatchFailure {
    Status status;
    std::optional<size_t> change;  // which one must not be; none: the store failed
  };
  // Puts that came together, and depend on nothing but their order where they are of one key, or
  // one of them changes another one's guard: what Put() would have said of each.
  std::vector<Status> PutEach(std::span<const Change> puts);

  // As PutEach(), by a thread that must not wait. False: nothing was changed, and PutEach() will
  // tell why.
  bool PutAllAtOnce(std::span<const Change> puts);

  // All of them are made, or on failure none, whatever fails. A change is refused for what Put()
  // and Delete() refuse it, except that a delete of any version may find nothing.
  std::optional<BatchFailure> Apply(std::span<const Change> changes);

  Status Flush();

  // As of Store.
  Status Erase() { return store_->Erase(); }
  Status RemoveErased() { return store_->RemoveErased(); }

  StoreUsage Usage() { return store_->Usage(); }
  StoreStarts Starts() { return store_->Starts(); }
  Status EndCleanly() { return store_->EndCleanly(); }

  // As of Store.
  Status Compact(const KeyRange& range, std::atomic<bool>& cancelled);

  // Attempts since the start, and bytes of values moved by those that succeeded.
  struct Count {
    uint64_t operations = 0;
    uint64_t value_bytes = 0;
  };
  enum class Operation { kGet, kHead, kGetNext, kGetPrevious, kKeys, kPut, kDelete, kFlush };
  static constexpr size_t kOperations = 8;
  Count CountOf(Operation operation) const;

 private:
  struct AtomicCount {
    std::atomic<uint64_t> operations = 0;
    std::atomic<uint64_t> value_bytes = 0;
  };

  Result<Neighbour> Find(const KeyRange& from, bool reverse, ValueRange range);
  // Puts that may be made in one step, and what became of each. One that has another of them as its
  // guard needs that one, which gives its key the version that the guard must have.
  struct Group {
    std::vector<StoreChange> puts;
    std::vector<const std::optional<Guard>*> guards;
    std::vector<Status*> statuses;
    std::set<std::string_view> keys;
    std::set<std::string_view> guarding;

    bool Takes(const Change& put) const;
    void Add(const Change& put, Status* status);
  };
  void PutDifferent(Group group);
  Status CheckGuard(const std::optional<Guard>& guard);
  Status CheckGuardOf(const StoreChange& put, const std::optional<Guard>& guard);
  bool IsAtOnceAsExpected(const Guard& guard);
  Status CheckDeletion(std::string_view key, const Expected& expected);
  void CountAttempt(Operation operation);
  void CountBytes(Operation operation, uint64_t value_bytes);

  const std::unique_ptr<Store> store_;
  KeyLocks locks_;
  std::array<AtomicCount, kOperations> counts_;
};

}  // namespace pinstripe
