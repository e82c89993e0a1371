// A slow operation on the wire (docs/protocol.md, "Our extension: what took long"), for client and
// device.

#pragma once

#include "drive/slow_operation.h"

namespace pinstripe {

namespace kinetic {
class GetLog_SlowOperation;
}  // namespace kinetic

void FillSlowOperation(const SlowOperation& operation, kinetic::GetLog_SlowOperation* filled);

// Of one that a stranger has filled: bounded, and its text Printable().
SlowOperation SlowOperationOf(const kinetic::GetLog_SlowOperation& said);

}  // namespace pinstripe
