// RangeSums: the CRC32Cs that came with bytes of a buffer, those of pages of a file mostly. They go
// wherever the bytes are copied to, and are compared once, by whoever has read the bytes for the
// last time. So a bit that turned over anywhere between is found.
//
// Ranges do not overlap. Changed by one thread at a time.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

class RangeSums {
 public:
  struct Range {
    uint64_t first = 0;
    uint32_t size = 0;
    uint32_t crc32c = 0;
    uint64_t end() const { return first + size; }
    friend bool operator==(const Range&, const Range&) = default;
  };

  bool empty() const { return ranges_.empty(); }
  uint64_t end() const { return empty() ? 0 : ranges_.back().end(); }
  std::span<const Range> ranges() const { return ranges_; }

  // Ascending, and side by side with what is there, or where Cut() has made room.
  void Add(std::span<const Range> ranges);

  // Bytes [first, end) of `bytes`, the buffer as it still is, are about to be others. What is left
  // of a range has a sum of its own from then on. If the range was damaged, that sum is a wrong
  // one, so that the damage stays known.
  void Cut(uint64_t first, uint64_t end, Bytes bytes);

  // Bytes [first, end) of `bytes`, whose sums `sums` has, were copied to `target` of this buffer.
  void AddCopied(const RangeSums& sums, Bytes bytes, uint64_t first, uint64_t end, uint64_t target);

  // EDOM: some bytes are not what their sum says.
  Status Check(Bytes bytes) const;

 private:
  std::vector<Range> ranges_;  // ascending
};

// "bytes 4096 to 8191 are not what they were sent as": EDOM.
Status DamagedRange(const RangeSums::Range& range);

}  // namespace pinstripe
