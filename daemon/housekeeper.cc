#include "daemon/housekeeper.h"

#include <utility>

#include "base/try.h"

namespace pinstripe {

Housekeeper::Housekeeper(Runtime& runtime, Work work)
    : work_(std::move(work)), stop_(runtime.NewSignal()), done_(runtime.NewSignal()) {
  runtime.Spawn("pin-keep", [this, &runtime] {
    for (int round = 1; !stop_->WaitUntil(runtime.Now() + kInterval); ++round) {
      const Status kept = Keep(/*flush=*/round % kRoundsToFlush == 0);
      if (!kept.ok()) work_.complain(kept);
    }
    const std::shared_ptr<Signal> done = done_;  // *this is gone as soon as it is set
    done->Set();
  });
}

Housekeeper::~Housekeeper() {
  stop_->Set();
  done_->WaitUntil(Time::max());
}

Status Housekeeper::Keep(bool flush) {
  if (flush) TRY(work_.flush());
  TRY(work_.tidy());  // the next piece another time: others want the disk, too
  return {};
}

}  // namespace pinstripe
