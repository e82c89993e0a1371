#include "daemon/device_security.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/private_file.h"
#include "base/try.h"
#include "store/directory.h"

namespace pinstripe {
namespace {

constexpr mode_t kPrivate = 0600;

Result<std::string> ReadAll(int fd) {
  std::string bytes(kMaxSecurityBytes + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = read(fd, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(errno, "cannot be read: {}", ErrnoText(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMaxSecurityBytes)
    return Fail(EBADMSG, "it is longer than {} bytes", kMaxSecurityBytes);
  bytes.resize(size);
  return bytes;
}

}  // namespace

DeviceSecurity::DeviceSecurity(RightsById configured, std::string file)
    : file_(std::move(file)), configured_(std::move(configured)) {
  Publish(SecurityState());
}

Result<std::unique_ptr<DeviceSecurity>> DeviceSecurity::Open(RightsById configured,
                                                             std::string file) {
  auto security = std::make_unique<DeviceSecurity>(std::move(configured), std::move(file));
  const Status loaded = security->Load();
  if (loaded.code() == EBADMSG) {
    return Fail(
        EBADMSG,
        "{}: {}. It says who may use the drive; put back a copy of it, or remove it to go back "
        "to the identities of the configuration, no PINs and cluster version 0",
        security->file_, loaded.message());
  }
  if (!loaded.ok()) return Failed(loaded.Context(security->file_));
  return security;
}

Status DeviceSecurity::Load() {
  const FileDescriptor file(open(file_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) return {};
  if (file.get() < 0) return Fail(errno, "cannot be opened: {}", ErrnoText(errno));
  TRY(CheckPrivateFile(file_));
  const std::string bytes = TRY(ReadAll(file.get()));
  Publish(TRY(DecodeSecurityState(bytes)));
  const MutexLock lock(mutex_);
  locked_ = !state_.lock_pin.empty();
  return {};
}

void DeviceSecurity::Publish(SecurityState state) {
  const MutexLock lock(mutex_);
  PublishLocked(std::move(state));
}

// Identities that stay the same keep their prepared keys.
void DeviceSecurity::PublishLocked(SecurityState state) {
  Identities identities;
  for (const auto& [id, rights] : state.identities ? *state.identities : configured_) {
    const auto before = identities_.find(id);
    const bool same = before != identities_.end() && before->second->rights == rights &&
                      before->second->erasures == erasures_;
    identities.emplace(id, same ? before->second
                                : std::make_shared<const Identity>(
                                      Identity{id, HmacKey(rights.key), rights, erasures_}));
  }
  identities_ = std::move(identities);
  state_ = std::move(state);
}

Status DeviceSecurity::Change(const std::function<Status(SecurityState*)>& change) {
  SecurityState next;
  {
    const MutexLock lock(mutex_);
    while (changing_) changed_.Wait(lock);
    changing_ = true;
    next = state_;
  }
  const Status made = [&]() -> Status {
    TRY(change(&next));
    const std::string bytes = EncodeSecurityState(next);
    if (bytes.size() > kMaxSecurityBytes) {
      return Fail(EINVAL, "identities and scopes of {} bytes in all; the limit is {}", bytes.size(),
                  kMaxSecurityBytes);
    }
    return file_.empty() ? Status() : ReplaceFileDurably(file_, bytes, kPrivate);
  }();
  if (made.ok()) Publish(std::move(next));
  {
    const MutexLock lock(mutex_);
    changing_ = false;
  }
  changed_.WakeOne();
  return made;
}

void DeviceSecurity::Configure(RightsById identities) {
  const MutexLock lock(mutex_);
  configured_ = std::move(identities);
  PublishLocked(state_);
}

DeviceSecurity::IdentityPtr DeviceSecurity::Find(int64_t identity) const {
  const MutexLock lock(mutex_);
  const auto found = identities_.find(identity);
  return found == identities_.end() ? nullptr : found->second;
}

RightsById DeviceSecurity::identities() const {
  const MutexLock lock(mutex_);
  return state_.identities ? *state_.identities : configured_;
}

int64_t DeviceSecurity::cluster_version() const {
  const MutexLock lock(mutex_);
  return state_.cluster_version;
}

bool DeviceSecurity::locked() const {
  const MutexLock lock(mutex_);
  return locked_;
}

bool DeviceSecurity::has_own_identities() const {
  const MutexLock lock(mutex_);
  return state_.identities.has_value();
}

uint64_t DeviceSecurity::erasures() const {
  const MutexLock lock(mutex_);
  return erasures_;
}

Status DeviceSecurity::MergeIdentities(const RightsById& changed) {
  return Change([&](SecurityState* state) {
    const RightsById configured = [this] {
      const MutexLock lock(mutex_);
      return configured_;
    }();
    return pinstripe::MergeIdentities(configured, changed, state);
  });
}

Status DeviceSecurity::ChangeErasePin(std::string_view old_pin, std::string_view new_pin) {
  return Change(
      [&](SecurityState* state) { return ChangePin(old_pin, new_pin, &state->erase_pin); });
}

Status DeviceSecurity::ChangeLockPin(std::string_view old_pin, std::string_view new_pin) {
  return Change(
      [&](SecurityState* state) { return ChangePin(old_pin, new_pin, &state->lock_pin); });
}

Status DeviceSecurity::SetClusterVersion(int64_t version, std::optional<int64_t> required) {
  return Change([&](SecurityState* state) -> Status {
    if (required.has_value() && *required != state->cluster_version) {
      return Fail(EREMCHG, "this device has cluster version {}, the request {}",
                  state->cluster_version, *required);
    }
    state->cluster_version = version;
    return Status();
  });
}

Status DeviceSecurity::SetLocked(std::string_view pin, bool locked) {
  if (pin.empty()) return Fail(EINVAL, "a PIN is needed to lock and unlock");
  const MutexLock lock(mutex_);
  if (!SamePin(pin, state_.lock_pin)) return Fail(EACCES, "permission denied: wrong PIN");
  locked_ = locked;
  return {};
}

bool DeviceSecurity::has_erase_pin() const {
  const MutexLock lock(mutex_);
  return !state_.erase_pin.empty();
}

Status DeviceSecurity::CheckErasePin(std::string_view pin) const {
  const MutexLock lock(mutex_);
  if (state_.erase_pin.empty() || SamePin(pin, state_.erase_pin)) return {};
  return Fail(EACCES, "permission denied: wrong PIN");
}

void DeviceSecurity::Reset() {
  {
    const MutexLock lock(mutex_);
    locked_ = false;
    ++erasures_;
  }
  Publish(SecurityState());
}

}  // namespace pinstripe
