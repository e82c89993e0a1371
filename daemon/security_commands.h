// What SECURITY and SETUP requests ask of a device, checked and carried out. Another file decides
// who may ask (kinetic_service.h). Neither changes anything when it fails.

#pragma once

#include "base/status.h"
#include "daemon/device_security.h"

namespace pinstripe {

namespace kinetic {
class Security;
class Setup;
}  // namespace kinetic

// Identities are merged: those that are named get new rules, the others stay. One request changes
// identities, or the erase PIN, or the lock PIN. EPROTONOSUPPORT: an HMAC algorithm that is not
// HMAC-SHA1.
Status ExecuteSecurity(const kinetic::Security& asked, DeviceSecurity& security);

// Sets the cluster version. Firmware is refused (EINVAL).
// `required`: the cluster version that the request was made for.
Status ExecuteSetup(const kinetic::Setup& asked, int64_t required, DeviceSecurity& security);

}  // namespace pinstripe
