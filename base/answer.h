// The answer to a host (XRootD, the kernel) when something failed: an errno, and one line in the
// log.

#pragma once

#include <string_view>

#include "base/status.h"

namespace pinstripe {

// HostErrno(status), 0 for success. Logs operation, subject (a path, or what is known of it) and
// the sentence: as an error when somebody must act, for debugging when it is an everyday answer
// ("no such file").
int Answer(const Status& status, std::string_view operation, std::string_view subject);

}  // namespace pinstripe
