#include "store/store_health.h"

#include "base/log.h"
#include "store/log_entry.h"

namespace pinstripe {

Status StoreHealth::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

// What is damaged stays so; what the disk did not do this time it may do the next time.
Status StoreHealth::BreakOn(const Status& why) {
  const std::string_view way_out =
      IsDamage(why) ? "it is damaged: count this drive as lost and replace it"
                    : "start pinstriped again; if it fails once more, replace the disk";
  Log(LogLevel::kError, "store failed; it serves reads only",
      {{"path", directory_.path()}, {"why", why}, {"do", way_out}});
  {
    const MutexLock lock(mutex_);
    if (failure_.ok()) {
      failure_ =
          Fail(EIO, "changes are refused since the store failed: {} ({})", why.message(), way_out);
    }
  }
  directory_.starts().NoteFailedSync();
  return Fail(EIO, "{}", why.message());
}

void StoreHealth::End() {
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = Fail(EIO, "changes are refused since the store was ended");
}

}  // namespace pinstripe
