// What goes to a Kinetic device in one message: small puts, or small gets, that wait for their turn
// at the same time (put_operation.h, get_operation.h).

#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "drive/drive.h"
#include "kinetic/operation.h"

namespace pinstripe {

// The first of `waiting`, which has one, taken out of it; or, where it is small and the device can
// do that, it and those behind it that may share its message, `room` at the most.
KineticOperationPtr TakeNext(std::deque<KineticOperationPtr>& waiting,
                             DriveCapabilities capabilities, uint32_t room);

// How many places it takes of the limit of its kind.
inline uint32_t PlacesOf(const KineticOperation& operation) {
  return std::max<uint32_t>(1, static_cast<uint32_t>(operation.parts().size()));
}

// It itself, or the operations that it is made of.
template <typename Take>
void ForEachPart(const KineticOperation& operation, const Take& take) {
  if (operation.parts().empty()) return take(operation);
  for (const KineticOperationPtr& part : operation.parts()) take(*part);
}

}  // namespace pinstripe
