// Puts asked of a Kinetic device (operation.h): one in a message, or several small ones together
// (docs/protocol.md, "Our extension: several puts in one message").

#pragma once

#include <cstddef>
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
// itself. They time out together, with the last of them, which `terms` say.
KineticOperationPtr NewPutsTogether(std::vector<KineticOperationPtr> puts, Terms terms);

}  // namespace pinstripe
