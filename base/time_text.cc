#include "base/time_text.h"

#include <fmt/chrono.h>

#include <ctime>

namespace pinstripe {
namespace {

// By `format`, which is one of fmt's for times.
std::string Text(int64_t nanoseconds, const char* format) {
  constexpr int64_t kEndOf9999 = 253402300799;
  const int64_t seconds = nanoseconds / 1'000'000'000;
  if (seconds < 0 || seconds > kEndOf9999) return "an unknown time";
  return fmt::format(fmt::runtime(format), fmt::gmtime(static_cast<time_t>(seconds)));
}

}  // namespace

std::string TimeText(int64_t nanoseconds) { return Text(nanoseconds, "{:%Y-%m-%d %H:%M:%S} UTC"); }
std::string TimeOfDayText(int64_t nanoseconds) { return Text(nanoseconds, "{:%H:%M:%S}"); }

}  // namespace pinstripe
