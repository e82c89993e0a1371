#include "tools/state_option.h"

#include "base/time_text.h"
#include "base/try.h"

namespace pinstripe {

std::string HowToGoOn(std::string_view usual, const std::string& directory) {
  if (directory.empty()) return std::string(usual);
  return fmt::format("Run it again with --state {} to go on.", directory);
}

Result<std::unique_ptr<CheckState>> OpenState(Cluster& cluster, const std::string& directory,
                                              const SayLine& say) {
  if (directory.empty()) return nullptr;
  auto state = TRY_CONTEXT(CheckState::Open(cluster, directory), "--state");
  if (const auto since = state->goes_on_since()) {
    say(fmt::format("goes on with the look at everything that began at {}", TimeText(*since)));
  }
  return state;
}

}  // namespace pinstripe
