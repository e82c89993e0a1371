// The files that a DiskCache writes: segments, which are a header, a table and the bytes of cells.
// In docs/format.md, "Cells on a local disk". Pure.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "fs/cache/cell_cache.h"

namespace pinstripe {

// Cells begin at multiples of this, as pages of memory do, so that none is read by halves.
inline constexpr uint64_t kCellAlignment = 4096;

struct CacheSegmentHeader {
  static constexpr size_t kBytes = 52;
  static constexpr uint32_t kMostSlots = 1 << 28;

  std::string cluster;  // its uuid, 16 bytes: cells of others are not for us
  uint64_t number = 0;  // higher than those of all segments before
  uint32_t slots = 1;   // of the table

  std::string Encode() const;
  static Result<CacheSegmentHeader> Decode(std::string_view bytes);  // EBADMSG

  uint64_t CellsBegin() const;
};

// One slot of the table: a cell of the segment.
struct CacheSlot {
  static constexpr size_t kBytes = 56;
  static constexpr uint64_t kMostPosition = UINT64_C(1) << 50;

  CellKey key;
  uint32_t bytes = 1;     // of the cell, 1..64 KiB
  uint64_t position = 0;  // of its first byte in the file, a multiple of kCellAlignment
  uint32_t crc = 0;       // CRC32C of the cell

  // `header` is that of the segment, encoded: a slot counts in its own segment alone.
  std::string Encode(std::string_view header) const;
  // EBADMSG; a slot that was never written is all zeros, and refused, too.
  static Result<CacheSlot> Decode(std::string_view bytes, std::string_view header);

  static uint64_t PositionOf(uint64_t slot) { return CacheSegmentHeader::kBytes + slot * kBytes; }
};

}  // namespace pinstripe
