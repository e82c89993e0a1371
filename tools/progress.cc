#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "tools/survey.h"

namespace pinstripe {
namespace {

std::string SpanText(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 129600) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86400);
}

}  // namespace

Progress::Progress(Runtime& runtime) : runtime_(runtime), shown_(isatty(STDERR_FILENO) == 1) {}

void Progress::Show(std::string_view what, double done, uint64_t bytes) {
  if (!shown_) return;
  const auto now = runtime_.Now();
  if (what_ != what) {
    what_ = what;
    started_ = now;
    bytes_before_ = bytes;
  }
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(250);
  fmt::print(stderr, "\r\033[K{} {:.0f} %", what, 100 * done);
  const double seconds = std::chrono::duration<double>(now - started_).count();
  if (bytes > bytes_before_ && seconds > 1) {
    const double rate = static_cast<double>(bytes - bytes_before_) / seconds;
    fmt::print(stderr, ", {}/s", BytesText(static_cast<uint64_t>(rate)));
    if (done > 0) fmt::print(stderr, ", {} left", SpanText(seconds / done - seconds));
  }
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace pinstripe
