// Spans of time and points in time, as people write them on a command line.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

// A number and s, m or min, h, d or w, such as "7d" or "12 h", at most 100 years. EINVAL, naming
// `option`.
Result<Duration> ParseSpan(std::string_view option, std::string_view text);

// So long ago; or a time of this place, "2026-11-24 20:30", with or without the seconds and the
// time of day. The answer: nanoseconds since 1970. EINVAL, naming `option`.
Result<int64_t> ParseSince(std::string_view option, std::string_view text, int64_t now);

}  // namespace pinstripe
