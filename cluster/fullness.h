// Fullness: how full a drive is, in words. One that is full refuses data soon, and keeps what it
// has left for names, removals and repair (store/space.h); one that is nearly full leaves time to
// add drives or to remove files.

#pragma once

#include <chrono>

#include "base/runtime.h"

namespace pinstripe {

// How long a write waits for drives that are away or late, when others have no room: who writes is
// to hear that soon.
inline constexpr Duration kPatienceWhenFull = std::chrono::seconds(1);

enum class Fullness { kPlenty, kNearlyFull, kFull };

inline constexpr double kNearlyFullPortion = 0.85;
inline constexpr double kFullPortion = 0.95;

// Of a drive of which data takes so much: DriveInfo::portion_full.
constexpr Fullness FullnessOf(double portion_full) {
  if (portion_full >= kFullPortion) return Fullness::kFull;
  return portion_full >= kNearlyFullPortion ? Fullness::kNearlyFull : Fullness::kPlenty;
}

}  // namespace pinstripe
