#include "tools/state_option.h"

#include "base/time_text.h"
#include "base/try.h"

namespace pinstripe {

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
