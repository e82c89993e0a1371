#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace pinstripe {

Progress::Progress(Runtime& runtime) : runtime_(runtime), shown_(isatty(STDERR_FILENO) == 1) {}

void Progress::Show(std::string_view what, double done) {
  if (!shown_) return;
  const auto now = runtime_.Now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(250);
  fmt::print(stderr, "\r\033[K{} {:.0f} %", what, 100 * done);
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
