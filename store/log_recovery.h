// LogRecovery: what opening a LogStore does, alone, before anybody else may use it. Entries beyond
// the mark are verified; those that power loss tore were never durable, and are undone, as if never
// put, with what they had replaced restored. What follows the last entry is cut off, and space that
// a kill has kept from being given back is.

#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "store/directory.h"
#include "store/log_index.h"
#include "store/log_ledger.h"
#include "store/log_reader.h"
#include "store/segment_files.h"

namespace pinstripe {

class LogRecovery {
 public:
  struct Parts {
    StoreDirectory& directory;
    LogIndex& index;
    SegmentFiles& files;
    LogLedger& ledger;
    LogReader& reader;
  };
  // All outlive it.
  explicit LogRecovery(Parts parts) : parts_(parts) {}

  // Once. What it has decided is durable only after the next flush.
  Status Run();

  // How many entries power loss had torn.
  uint64_t torn_entries() const { return torn_entries_; }

 private:
  Status SettleLog();
  Status UndoTornEntries();
  Status UndoTornEntry(LogLocation location, const PlaceRecord& place);
  Result<std::string> LastRecordBefore(LogLocation location, const std::string& key);
  Status LoadCounts();
  Status FindCursor();
  Status CutTails();
  Status ReturnForgottenSpace();
  Status PunchGaps(uint32_t segment);

  const Parts parts_;
  LogLocation durable_;  // the mark
  uint64_t torn_entries_ = 0;
};

}  // namespace pinstripe
