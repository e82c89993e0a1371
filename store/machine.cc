#include "store/machine.h"

#include <time.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace pinstripe {
namespace {

Duration SinceBoot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// What tests pretend, less what is true.
Duration Pretended() {
  const char* const given = getenv("PINSTRIPE_UPTIME_SECONDS");
  if (given == nullptr) return {};
  const std::string_view text = given;
  int32_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return std::chrono::seconds(seconds) - SinceBoot();
}

}  // namespace

std::string BootId() {
  std::string id;
  if (const char* const given = getenv("PINSTRIPE_BOOT_ID"); given != nullptr) {
    id = given;
  } else {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, id);
  }
  return id.size() <= kMaxBootIdBytes ? id : "";
}

Duration Uptime() {
  static const Duration pretended = Pretended();
  return SinceBoot() + pretended;
}

}  // namespace pinstripe
