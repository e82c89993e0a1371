// Times for people.

#pragma once

#include <cstdint>
#include <string>

namespace pinstripe {

// For nanoseconds since 1970, which may be any: "2026-11-24 19:30:12 UTC", and "19:30:12".
std::string TimeText(int64_t nanoseconds);
std::string TimeOfDayText(int64_t nanoseconds);

}  // namespace pinstripe
