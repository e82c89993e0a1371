// Puts asked of a Kinetic device (operation.h): one in a message, or several small ones together
// (docs/protocol.md, "Our extension: several puts in one message").

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "drive/drive.h"
#include "kinetic/operation.h"

namespace pinstripe {

namespace kinetic {
class KeyValue;
class Puts;
}  // namespace kinetic

// Of values, in one message of our client.
inline constexpr size_t kMostBytesTogether = 64 << 10;

// The version an entry must have for a change of it, and when the change must be safe.
void DescribeChange(const Expected& expected, Durability durability, kinetic::KeyValue* entry);

// Devices confirm a change without its key, so nothing but the number of the request says of which
// change they speak. One that names a key speaks of that; what became of ours nobody knows then.
// EHOSTUNREACH.
Status CheckChangedKey(const std::string& changed, const kinetic::KeyValue& entry);

// What the answer to `asked` puts tells of one of them. EHOSTUNREACH: it tells of more or fewer.
Status StatusOfPut(const kinetic::Puts& told, size_t number, size_t asked);

// A put, and a read of another record after it. A device that cannot do both at once is asked for
// the record by `submit`, and so is one that had no room for it in its answer.
KineticOperationPtr NewPutThenGet(Drive::PutRequest request, std::string key, Terms terms,
                                  std::function<void(KineticOperationPtr)> submit,
                                  StatusCallback done, Callback<Record> read);

// Several operations that are puts and have one cluster version, as one. Each is answered for
// itself. They time out together, with the last of them.
KineticOperationPtr NewPutsTogether(std::vector<KineticOperationPtr> puts);

// The first of `waiting`, which has one, taken out of it; or, where it is a small put and the
// device can do that, it and those behind it that may share its message, `room` at the most.
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
