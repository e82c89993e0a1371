// Times for people.

#pragma once

#include <cstdint>
#include <string>

namespace pinstripe {

// For nanoseconds since 1970, which may be any: "2026-11-24 19:30:12 UTC", and "19:30:12".
std::string TimeText(int64_t nanoseconds);
std::string TimeOfDayText(int64_t nanoseconds);

// The same in the time of this place: "Tuesday 24 November 2026 (CET)", and "20:30:12".
std::string LocalDayText(int64_t nanoseconds);
std::string LocalTimeOfDayText(int64_t nanoseconds);

// "45 s", "12 min", "3.5 h", "2.0 days".
std::string DurationText(double seconds);

}  // namespace pinstripe
