#include "fuse/mount_memory.h"

#include <algorithm>

namespace pinstripe {

uint64_t MountMemory::By(const ClusterConfig& config) {
  {
    const MutexLock lock(mutex_);
    alone_ = given_.value_or(config.memory_bytes);
    if (given_ || config.memory_is_said) {
      seat_ = nullptr;
    } else if (seat_ == nullptr) {
      seat_ = std::make_shared<const Seat>(options_.kind);
    }
  }
  return Part();
}

uint64_t MountMemory::Part() const {
  std::shared_ptr<const Seat> seat;
  uint64_t alone = 0;
  {
    const MutexLock lock(mutex_);
    seat = seat_;
    alone = alone_;
  }
  return seat == nullptr ? alone : std::max(alone / seat->CountTaken(), kLeastMemoryBytes);
}

MountMemoryFollower::MountMemoryFollower(Runtime& runtime, const MountMemory& memory,
                                         FileSystem& file_system)
    : runtime_(runtime),
      memory_(memory),
      file_system_(file_system),
      thread_(runtime, "mount-memory", [this] { Follow(); }) {
  thread_.Wake();
}

// Goes by what the file system has, because Reload() sets that as well.
void MountMemoryFollower::Follow() {
  while (!thread_.IsEnding()) {
    const uint64_t part = memory_.Part();
    if (file_system_.Memory().limit_bytes != part) file_system_.SetMemory(part);
    thread_.WaitUntil(runtime_.Now() + kEvery);
  }
}

}  // namespace pinstripe
