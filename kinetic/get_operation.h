// Small records that are read from a Kinetic device together (operation.h; docs/protocol.md, "Our
// extension: several gets in one message").

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "drive/drive.h"
#include "kinetic/operation.h"

namespace pinstripe {

namespace kinetic {
class Gets;
}  // namespace kinetic

// A Get() of a record that likely has no more than these bytes. When it has gone with others, and
// the device had no room for it in its answer, or another cluster version than they wanted, the
// record is asked for alone, by `submit`.
KineticOperationPtr NewSmallGet(std::string key, uint32_t likely_bytes, Terms terms,
                                std::function<void(KineticOperationPtr)> submit,
                                Callback<Record> done);

// Several of these as one operation. Those that want a cluster version want that of `terms`. Each
// is answered for itself. They time out together, with the last of them, which `terms` say.
KineticOperationPtr NewGetsTogether(std::vector<KineticOperationPtr> gets, Terms terms);

// What the answer to so many gets tells of one of them. EHOSTUNREACH: it does not add up.
Status StatusOfGet(const kinetic::Gets& told, size_t number, size_t asked);

}  // namespace pinstripe
