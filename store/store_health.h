// StoreHealth: whether a store may still be changed. After a failed sync, or with damage where
// nothing may be damaged, nothing can be believed any more: every change fails (EIO) from then on,
// and reads go on.
//
// Thread-safe.

#pragma once

#include "base/mutex.h"
#include "base/status.h"
#include "store/directory.h"

namespace pinstripe {

class StoreHealth {
 public:
  // `directory` outlives it.
  explicit StoreHealth(StoreDirectory& directory) : directory_(directory) {}

  // What changes are answered; success: they are made.
  Status failure() const;

  // Changes are refused from now on, for this reason. The starts note it. Returns it as EIO: what
  // was being changed may be there or not, and any other code (no room, say) would deny that.
  Status BreakOn(const Status& why);

  // Likewise, since the store has been ended. Nothing is wrong with it.
  void End();

 private:
  StoreDirectory& directory_;
  mutable Mutex mutex_;
  Status failure_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
