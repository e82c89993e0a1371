// LogReclaim: gives the space of a LogStore's log back: trims segments that ended, punches out what
// is free, removes segments that are dead, and, where too much lies free between small entries,
// moves those together. Costs time, which no flush waits for.
//
// Thread-safe; Compact() by one thread at a time.

#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/status.h"
#include "store/log_index.h"
#include "store/log_ledger.h"
#include "store/log_writer.h"
#include "store/segment_files.h"

namespace pinstripe {

class LogReclaim {
 public:
  struct Parts {
    LogIndex& index;
    SegmentFiles& files;
    LogLedger& ledger;
    LogWriter& writer;
  };
  // All outlive it. `path` is the store's, for messages. Of the file system, in segments, so much
  // may neither be used nor given back.
  LogReclaim(Parts parts, std::string path, uint64_t slack_bytes)
      : parts_(parts), path_(std::move(path)), slack_bytes_(slack_bytes) {}

  // Gives back what is free.
  Status ReturnSpace();

  // Moves a bounded piece of a segment's entries to the end of the log, if there is one that has
  // too much slack. The next flush makes its space free.
  Result<bool> Compact();

 private:
  class LiveEntries;
  using Gap = LogLedger::Gap;

  Result<Gap> GapAround(LogLocation location, LiveEntries& live);
  Status RemoveDeadSegments();
  Status MeasureSegments(const std::set<uint32_t>& segments);

  const Parts parts_;
  const std::string path_;
  const uint64_t slack_bytes_;
};

}  // namespace pinstripe
