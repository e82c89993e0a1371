// LogReader: finds and reads the records of a LogStore: the index says where, the log or the index
// itself has the value, and what does not verify is damage (EBADMSG).
//
// Thread-safe, but for ReadFromDisk().

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "store/log_entry.h"
#include "store/log_index.h"
#include "store/segment_files.h"
#include "store/store.h"

namespace pinstripe {

class LogReader {
 public:
  using Wait = KeyLocks::Wait;

  // All outlive it.
  LogReader(LogIndex& index, SegmentFiles& files) : index_(index), files_(files) {}

  // What a record of the index stands for. EAGAIN, where it may not wait.
  Result<StoredRecord> Read(std::string_view key, const IndexRecord& record, ValueRange range = {},
                            Wait wait = Wait::kMay);

  // While opening, alone: from now on the kernel is not believed, or is again. What it shows may
  // never have got to the disk.
  void ReadFromDisk(bool from_disk);

  // As the functions of Store.
  Result<StoredRecord> Get(std::string_view key, ValueRange range);
  Result<StoredRecord> GetAtOnce(std::string_view key, ValueRange range);
  Result<StoredHead> Head(std::string_view key);
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse);
  Result<RangeItems> Items(const KeyRange& range, const RangeLimits& limits, bool reverse);

 private:
  Status ReadPieces(LogLocation at, uint64_t offset, std::span<iovec> into, Wait wait);
  Result<RangeItem> LoadItem(std::string key, std::string_view index_value,
                             const RangeCollector& collector);

  LogIndex& index_;
  SegmentFiles& files_;
  bool from_disk_ = false;
};

}  // namespace pinstripe
