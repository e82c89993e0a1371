// The machine that the process runs on: which of its runs this is, and how long it has lasted.
//
// Thread-safe.

#pragma once

#include <string>

#include "base/runtime.h"

namespace pinstripe {

inline constexpr size_t kMaxBootIdBytes = 64;

// The same as long as the machine is not restarted, also for containers on it, and another one
// after. Empty: the kernel does not say, so nobody can tell. For tests PINSTRIPE_BOOT_ID in the
// environment replaces it.
std::string BootId();

// How long ago the machine was started, the time in which it slept included. For tests
// PINSTRIPE_UPTIME_SECONDS in the environment says how long it was when this was called first.
Duration Uptime();

}  // namespace pinstripe
