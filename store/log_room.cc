#include "store/log_room.h"

#include <sys/statvfs.h>

#include <algorithm>

#include "store/space.h"

namespace pinstripe {

StoreUsage LogRoom::Usage() const {
  StoreUsage usage;
  usage.used_bytes = ledger_.used_bytes();
  usage.capacity_bytes =
      options_.capacity_bytes - ReserveOf(options_.capacity_bytes, options_.reserve_bytes);
  if (usage.capacity_bytes != 0) return usage;
  struct statvfs about;
  uint64_t free_bytes = 0;
  if (statvfs(options_.path.c_str(), &about) == 0) {
    free_bytes = uint64_t{about.f_bavail} * about.f_frsize;
  }
  usage.capacity_bytes =
      usage.used_bytes + free_bytes - std::min(free_bytes, options_.reserve_bytes);
  return usage;
}

// To look costs as much as a twentieth of a small put. While there is plenty, one look tells for a
// few changes, which together take far less than is kept in reserve.
Status LogRoom::Check(uint64_t more, Room room) {
  constexpr uint64_t kPlenty = uint64_t{64} << 20;
  constexpr uint64_t kRoom = uint64_t{1} << 20;
  constexpr int kChanges = 16;
  if (options_.capacity_bytes == 0) {
    const MutexLock lock(mutex_);
    if (known_changes_ > 0 && more <= known_bytes_) {
      --known_changes_;
      known_bytes_ -= more;
      return {};
    }
  }
  struct statvfs about;
  if (statvfs(options_.path.c_str(), &about) != 0) {
    return Fail(EIO, "cannot look at {}: {}", options_.path, ErrnoText(errno));
  }
  const uint64_t free_bytes = uint64_t{about.f_bavail} * about.f_frsize;
  const uint64_t kept_free = KeptFree(room, options_.reserve_bytes);
  const bool has_room = free_bytes >= kept_free + more;
  if (has_room && options_.capacity_bytes == 0) {
    const bool plenty = free_bytes >= options_.reserve_bytes + more + kPlenty;
    const MutexLock lock(mutex_);
    known_bytes_ = plenty ? kRoom : 0;
    known_changes_ = plenty ? kChanges : 0;
    return {};
  }
  const StoreUsage usage = Usage();
  // Of a capacity that was given, not all is for data.
  const uint64_t reserve = ReserveOf(options_.capacity_bytes, options_.reserve_bytes);
  const uint64_t most = usage.capacity_bytes + reserve - KeptFree(room, reserve);
  if (has_room && usage.used_bytes + more <= most) return {};
  return Fail(ENOSPC, "full: {} of {} bytes are used", usage.used_bytes, usage.capacity_bytes);
}

}  // namespace pinstripe
