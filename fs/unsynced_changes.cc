#include "fs/unsynced_changes.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "cluster/placement.h"
#include "cluster/register_drives.h"

namespace pinstripe {
namespace {

constexpr int kMaxAttempts = 10;

}  // namespace

void UnsyncedChanges::Keep(const Changes::key_type& name, Change change) {
  Change& known = changes_[name];
  if (known.slot > change.slot) return;
  bytes_ += change.Bytes() - known.Bytes();
  known = std::move(change);
}

UnsyncedChanges::MomentPtr UnsyncedChanges::Begin() {
  {
    const std::lock_guard lock(mutex_);
    if (since_ != nullptr) return since_;
  }
  auto now = std::make_shared<Moment>();
  now->losses = cluster_.CountLosses();
  for (const auto& [id, losses] : now->losses) {
    const Drive* drive = cluster_.FindDrive(id);
    if (drive == nullptr || !drive->IsUp()) now->away.insert(id);
  }
  const std::lock_guard lock(mutex_);
  if (since_ == nullptr) since_ = std::move(now);
  return since_;
}

void UnsyncedChanges::Add(const MomentPtr& begun, const RegisterName& name,
                          const RegisterValue& now) {
  bool too_many = false;
  {
    const std::lock_guard lock(mutex_);
    // Somebody may have flushed since it was begun, and missed it. What was so at an earlier moment
    // counts for those that were added later, too.
    if (since_ == nullptr || begun->losses < since_->losses) since_ = begun;
    Keep({name.group, name.key}, {.slot = now.slot, .value = now.value});
    too_many = changes_.size() >= flush_at_ || bytes_ >= flush_at_bytes_;
    if (too_many) {
      flush_at_ = changes_.size() + kMost;
      flush_at_bytes_ = bytes_ + kMostBytes;
    }
  }
  if (!too_many) return;
  const Status synced = Sync();
  if (!synced.ok()) Log(LogLevel::kWarn, "changes of names are not safe yet", {{"why", synced}});
}

Status UnsyncedChanges::Sync() {
  const Turn::Holder turn(turn_);
  MomentPtr since;
  Changes changes;
  {
    const std::lock_guard lock(mutex_);
    since = std::exchange(since_, nullptr);
    changes = std::exchange(changes_, {});
    bytes_ = 0;
  }
  if (since == nullptr) since = std::make_shared<Moment>();
  Status safe = Flush(changes, *since);
  const std::lock_guard lock(mutex_);
  if (safe.ok()) {
    flush_at_ = kMost;
    flush_at_bytes_ = kMostBytes;
    return safe;
  }
  since_ = since;
  for (auto& [name, change] : changes) Keep(name, std::move(change));
  return safe;
}

// Entries, inodes and renames are registers in several groups: everything is flushed, so that a
// majority of each has what was acknowledged.
Status UnsyncedChanges::Flush(const Changes& changes, const Moment& since) {
  const std::shared_ptr<Placement> placement = cluster_.NewestPlacement();
  const std::set<DriveId> drives = DrivesOfRegisters(cluster_);
  std::set<DriveId> suspects = cluster_.stripes().Flush(drives, {});
  const size_t spared = (placement->map().replicas - 1u) / 2;
  if (suspects.size() > spared) {
    return Fail(EIO, "{} of {} drives could not be flushed, at most {} may fail", suspects.size(),
                drives.size(), spared);
  }
  // One that was away all the time has said nothing that counts.
  for (const auto& [id, losses] : cluster_.CountLosses()) {
    const auto before = since.losses.find(id);
    const bool was_lost = before == since.losses.end() || before->second != losses;
    if (was_lost) suspects.insert(id);
    if (!was_lost && since.away.contains(id)) suspects.erase(id);
  }
  if (suspects.empty()) return {};
  for (const auto& [name, change] : changes) {
    const auto& [group, key] = name;
    const std::vector<DriveId> homes = placement->RegisterHomes(group);
    if (std::ranges::none_of(homes, [&](DriveId id) { return suspects.contains(id); })) continue;
    TRY(MakeSafe({group, key}, change));
  }
  return {};
}

// Some of its drives may have forgotten it.
Status UnsyncedChanges::MakeSafe(const RegisterName& name, Change change) {
  RegisterStore& registers = cluster_.registers();
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    TRY(registers.MakeDurable(name));
    const RegisterValue now = TRY(registers.Read(name));
    if (now.slot >= change.slot) {
      // In a later epoch what was never written is in a later slot, too.
      const bool was_never = !now.value.has_value() && now.removed_at == 0;
      const bool is_other = now.slot == change.slot && now.value != change.value;
      if (!was_never && !is_other) return {};
      return Fail(EIO, "drives lost their power, and with it a change that others have replaced");
    }
    const ChangeOutcome outcome =
        TRY(registers.Change(name, now, change.value, Durability::kWriteThrough));
    if (outcome.applied) {
      Log(LogLevel::kInfo, "a change that drives had forgotten was made again",
          {{"group", name.group}, {"slot", outcome.now.slot}});
      return {};
    }
  }
  return Fail(EIO,
              "a change that drives have forgotten could not be made again: others keep "
              "changing the same");
}

}  // namespace pinstripe
