// Space: which part of a store's space is kept free for what. A pure function.

#pragma once

#include <cstdint>

#include "drive/drive.h"

namespace pinstripe {

// The bytes that a put of this kind leaves free, of `reserve` that are held back in all. Deletions,
// and what a store does by itself, may take the rest.
inline uint64_t KeptFree(Room room, uint64_t reserve) {
  switch (room) {
    case Room::kData: return reserve;
    case Room::kRepair: return reserve - reserve / 4;
    case Room::kNames: return reserve / 2;
    case Room::kFreeing: return reserve / 8;
  }
  return reserve;
}

// What is held back of a store that may take so many bytes: the reserve, or where it is small a
// part of what there is.
inline uint64_t ReserveOf(uint64_t capacity, uint64_t reserve) {
  return capacity / 16 < reserve ? capacity / 16 : reserve;
}

}  // namespace pinstripe
