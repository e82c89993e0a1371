// DeviceSecurity: who may use one device now, and what of that outlives the process. Identities,
// PINs and the cluster version are kept in one small file of the store's directory, which is
// replaced as a whole: after a kill or power loss at any moment it is the one from before a change
// or the one after.
//
// A device that has a lock PIN starts locked.
//
// Thread-safe. Changes may wait for the disk, questions do not. A change that failed has changed
// nothing, except that after EIO, or another failure of the disk, the next start may find it made.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/status.h"
#include "daemon/security_state.h"
#include "kinetic/hmac.h"

namespace pinstripe {

class DeviceSecurity {
 public:
  struct Identity {
    int64_t id = 0;
    HmacKey key;
    Rights rights;
    uint64_t erasures = 0;  // of the device when this identity was made
  };
  using IdentityPtr = std::shared_ptr<const Identity>;

  // The name of the file in a store's directory.
  static constexpr std::string_view kFileName = "security";

  // Nothing is kept without a file: for a device in memory. Only Open() reads it.
  explicit DeviceSecurity(RightsById configured, std::string file = "");

  // Reads `file`, if there is one. EBADMSG and others name it and the way out. EACCES: others than
  // its owner can reach it.
  static Result<std::unique_ptr<DeviceSecurity>> Open(RightsById configured, std::string file);

  // Null: no such identity. What is handed out stays as it is whatever changes.
  IdentityPtr Find(int64_t identity) const;

  // All of them.
  RightsById identities() const;

  int64_t cluster_version() const;
  bool locked() const;
  // Whether identities were changed, so that those of the configuration are not asked.
  bool has_own_identities() const;

  // How often the device was erased since the start.
  uint64_t erasures() const;
  // Whether the identity belongs to the device as it is since then.
  bool IsCurrent(const Identity& identity) const { return identity.erasures == erasures(); }

  // The configuration gives these identities from now on. They count unless the device has its own.
  // A request that is signed as another one is refused from the next on.
  void Configure(RightsById identities);

  // As of security_state.h.
  Status MergeIdentities(const RightsById& changed);
  Status ChangeErasePin(std::string_view old_pin, std::string_view new_pin);
  Status ChangeLockPin(std::string_view old_pin, std::string_view new_pin);
  // EREMCHG: it is not, or not any more, what was required.
  Status SetClusterVersion(int64_t version, std::optional<int64_t> required = std::nullopt);

  // Lock and unlock until the process ends. EINVAL: no PIN was given. EACCES: the wrong one, or
  // none is set.
  Status Lock(std::string_view pin) { return SetLocked(pin, true); }
  Status Unlock(std::string_view pin) { return SetLocked(pin, false); }

  bool has_erase_pin() const;
  // EACCES: an erase PIN is set, and this is not it.
  Status CheckErasePin(std::string_view pin) const;

  // The device was erased, and the file with it: as new.
  void Reset();

 private:
  using Identities = std::map<int64_t, IdentityPtr>;

  Status Load();
  Status Change(const std::function<Status(SecurityState*)>& change);
  Status SetLocked(std::string_view pin, bool locked);
  void Publish(SecurityState state);
  void PublishLocked(SecurityState state) REQUIRES(mutex_);

  const std::string file_;  // empty: nothing is kept

  mutable Mutex mutex_;
  RightsById configured_ GUARDED_BY(mutex_);
  Condition changed_;
  bool changing_ GUARDED_BY(mutex_) = false;  // somebody makes a change, one at a time
  SecurityState state_ GUARDED_BY(mutex_);
  Identities identities_ GUARDED_BY(mutex_);
  bool locked_ GUARDED_BY(mutex_) = false;
  uint64_t erasures_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinstripe
