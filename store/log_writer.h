// LogWriter: makes changes of a LogStore: the entries into the log, then one write to the index,
// which alone decides whether they were made.
//
// Thread-safe. Nobody holds a lock while it waits for the disk, but for the keys that it changes.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "store/key_locks.h"
#include "store/log_index.h"
#include "store/log_ledger.h"
#include "store/log_reader.h"
#include "store/log_room.h"
#include "store/segment_files.h"
#include "store/store.h"
#include "store/store_health.h"

namespace pinstripe {

class LogWriter {
 public:
  static constexpr uint32_t kLeastLoggedBytes = 4096;
  using Wait = KeyLocks::Wait;
  enum class Together { kAllOrNone, kEach };  // what power loss may do to several changes

  struct Parts {
    LogIndex& index;
    SegmentFiles& files;
    LogLedger& ledger;
    LogReader& reader;
    LogRoom& room;
    StoreHealth& health;
  };
  // All outlive it.
  explicit LogWriter(Parts parts) : parts_(parts) {}

  // Each key once. EAGAIN, where it may not wait; ENOSPC. Nothing was changed then.
  Status Make(std::span<const StoreChange> changes, Together together, Wait wait = Wait::kMay);
  Status Delete(std::string_view key);

  // For compaction: puts an entry that is there again, at the end of the log, if it is still there.
  // EBADMSG, ENOENT: it does not verify.
  Status Move(LogLocation location, const PlaceRecord& place);

 private:
  // A record that will be put.
  struct Planned {
    std::string_view key;
    StoredHead head;
    Bytes value;
    uint32_t value_crc = 0;
    std::string header;              // of its entry in the log; empty: it is in the index
    std::optional<std::string> old;  // the record that is there
    uint64_t entry_bytes() const { return header.empty() ? 0 : header.size() + value.size(); }
  };
  // One write to the index, and what it means for the log.
  struct Change {
    IndexBatch batch;
    LogLedger::Change log;
    LogLedger::Written written;  // where the entries were written to
  };

  Status Plan(const StoreChange& asked, Wait wait, Planned& plan, Change& change);
  static void Forget(std::string_view key, const IndexRecord& old, size_t record_bytes,
                     Change& change);
  Status Append(std::span<const Planned> plans, Change& change);
  Status WriteEntries(std::span<const Planned* const> plans, LogLocation begin, Change& change);
  Status SyncEntries(const Change& change);
  Status Commit(Change& change, Wait wait = Wait::kMay);

  const Parts parts_;
  KeyLocks key_locks_;  // whose records are being changed or moved
};

}  // namespace pinstripe
