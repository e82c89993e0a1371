#include "daemon/housekeeper.h"

#include <utility>

#include "base/try.h"

namespace pinstripe {

Housekeeper::Housekeeper(Runtime& runtime, Work work)
    : runtime_(runtime), work_(std::move(work)), thread_(runtime, "pin-keep", [this] { Run(); }) {
  thread_.Wake();
}

// Nobody wakes it, so it ends when the wait does.
void Housekeeper::Run() {
  for (int round = 1; !thread_.WaitUntil(runtime_.Now() + kInterval); ++round) {
    const Status kept = Keep(/*flush=*/round % kRoundsToFlush == 0);
    if (!kept.ok()) work_.complain(kept);
  }
}

Status Housekeeper::Keep(bool flush) {
  if (flush) TRY(work_.flush());
  TRY(work_.tidy());  // the next piece another time: others want the disk, too
  return {};
}

}  // namespace pinstripe
