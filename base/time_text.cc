#include "base/time_text.h"

#include <fmt/chrono.h>

#include <ctime>

namespace pinstripe {
namespace {

// By `format`, which is one of fmt's for times.
std::string Text(int64_t nanoseconds, const char* format, std::tm (*calendar)(std::time_t)) {
  constexpr int64_t kEndOf9999 = 253402300799;
  const int64_t seconds = nanoseconds / 1'000'000'000;
  if (seconds < 0 || seconds > kEndOf9999) return "an unknown time";
  return fmt::format(fmt::runtime(format), calendar(static_cast<std::time_t>(seconds)));
}

std::tm Universal(std::time_t seconds) { return fmt::gmtime(seconds); }

std::tm Local(std::time_t seconds) {
  std::tm calendar{};
  localtime_r(&seconds, &calendar);
  return calendar;
}

}  // namespace

std::string TimeText(int64_t nanoseconds) {
  return Text(nanoseconds, "{:%Y-%m-%d %H:%M:%S} UTC", &Universal);
}

std::string TimeOfDayText(int64_t nanoseconds) {
  return Text(nanoseconds, "{:%H:%M:%S}", &Universal);
}

std::string LocalDayText(int64_t nanoseconds) {
  return Text(nanoseconds, "{:%A %d %B %Y (%Z)}", &Local);
}

std::string LocalTimeOfDayText(int64_t nanoseconds) {
  return Text(nanoseconds, "{:%H:%M:%S}", &Local);
}

std::string DurationText(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 129600) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86400);
}

}  // namespace pinstripe
