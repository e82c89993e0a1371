#include "fs/names/unsynced_changes.h"

#include <algorithm>
#include <vector>

#include "base/attempts.h"
#include "base/log.h"
#include "base/try.h"
#include "cluster/map/placement.h"
#include "cluster/registers/drives.h"

namespace pinstripe {
namespace {

constexpr int kMostAttempts = 10;

}  // namespace

void UnsyncedChanges::Keep(const Changes::key_type& name, Change change) {
  const auto known = changes_.find(name);
  if (known != changes_.end()) {
    if (known->second.slot > change.slot) return;
    bytes_ -= known->second.Bytes();
    changes_.erase(known);
  }
  if (changes_.size() >= kMostAtAll || bytes_ + change.Bytes() > kMostBytesAtAll) {
    others_ = true;
    return;
  }
  bytes_ += change.Bytes();
  changes_.emplace(name, std::move(change));
}

UnsyncedChanges::MomentPtr UnsyncedChanges::Begin() {
  {
    const MutexLock lock(mutex_);
    if (since_ != nullptr) return since_;
  }
  auto now = std::make_shared<Moment>();
  now->losses = cluster_.CountLosses();
  for (const auto& [id, losses] : now->losses) {
    const Drive* drive = cluster_.FindDrive(id);
    if (drive == nullptr || !drive->IsUp()) now->away.insert(id);
  }
  const MutexLock lock(mutex_);
  if (since_ == nullptr) since_ = std::move(now);
  return since_;
}

void UnsyncedChanges::Add(const MomentPtr& begun, const RegisterName& name,
                          const RegisterValue& now) {
  bool too_many = false;
  {
    const MutexLock lock(mutex_);
    // Somebody may have flushed since it was begun, and missed it. An earlier moment also counts
    // for those that were added later.
    if (since_ == nullptr || begun->losses < since_->losses) since_ = begun;
    Keep({name.group, name.key}, {.slot = now.slot, .value = now.value});
    too_many = changes_.size() >= flush_at_ || bytes_ >= flush_at_bytes_;
    if (too_many) {
      flush_at_ = changes_.size() + kMost;
      flush_at_bytes_ = bytes_ + kMostBytes;
    }
  }
  if (!too_many) return;
  bool told = false;
  const Status synced = SyncAll(told);
  if (synced.ok()) return;
  Log(LogLevel::kWarn, "changes of names are not safe yet", {{"why", synced}});
  const MutexLock lock(mutex_);
  if (told) untold_ = synced;  // for who asks
}

Status UnsyncedChanges::Sync() {
  bool told = false;
  Status synced = SyncAll(told);
  const MutexLock lock(mutex_);
  const Status before = std::exchange(untold_, Status());
  return synced.ok() ? before : synced;
}

Status UnsyncedChanges::SyncAll(bool& told) {
  const Turn::Holder turn(turn_);
  MomentPtr since;
  Changes changes;
  bool others = false;
  {
    const MutexLock lock(mutex_);
    since = std::exchange(since_, nullptr);
    changes = std::exchange(changes_, {});
    others = std::exchange(others_, false);
    bytes_ = 0;
  }
  if (since == nullptr) since = std::make_shared<Moment>();
  const bool there_were_others = others;
  const size_t count = changes.size();
  Status safe = Flush(changes, others, *since);
  told = !safe.ok() && (changes.size() < count || others != there_were_others);
  const MutexLock lock(mutex_);
  if (safe.ok()) {
    flush_at_ = kMost;
    flush_at_bytes_ = kMostBytes;
    return safe;
  }
  if (changes.empty() && !others) return safe;  // it was told, and nothing is left to be done
  if (since_ == nullptr || since->losses < since_->losses) since_ = since;
  others_ |= others;
  for (auto& [name, change] : changes) Keep(name, std::move(change));
  return safe;
}

// Entries, inodes and renames are registers in several groups: everything is flushed, and of each
// group that may have some enough drives have to be, so that a majority has what was acknowledged.
Status UnsyncedChanges::CheckFlushed(const std::set<DriveId>& failed) const {
  const std::shared_ptr<Placement> placement = cluster_.NewestPlacement();
  const size_t spared = (placement->map().replicas - 1u) / 2;
  if (failed.size() <= spared) return {};
  // While replicas move, some of them have no say, and so none can be spared for each group alone.
  const bool is_settled = cluster_.IsSettled();
  const uint32_t groups = is_settled ? placement->map().groups : 1;
  for (uint32_t group = 0; group < groups; ++group) {
    const auto is_failed = [&](DriveId id) { return failed.contains(id); };
    const auto unsafe = static_cast<size_t>(
        is_settled ? std::ranges::count_if(placement->RegisterHomes(group), is_failed)
                   : static_cast<ptrdiff_t>(failed.size()));
    if (unsafe > spared) {
      return Fail(EIO,
                  "{} drives could not be flushed, {} of them with the same names and inodes; at "
                  "most {} may fail",
                  failed.size(), unsafe, spared);
    }
  }
  return {};
}

Status UnsyncedChanges::Flush(Changes& changes, bool& others, const Moment& since) {
  const std::shared_ptr<Placement> placement = cluster_.NewestPlacement();
  std::set<DriveId> suspects = cluster_.stripes().Flush(DrivesOfRegisters(cluster_), {});
  TRY(CheckFlushed(suspects));
  // One that was away all the time has said nothing that counts.
  for (const auto& [id, losses] : cluster_.CountLosses()) {
    const auto before = since.losses.find(id);
    const bool was_lost = before == since.losses.end() || before->second != losses;
    if (was_lost) suspects.insert(id);
    const Drive* drive = cluster_.FindDrive(id);
    const bool is_away = drive == nullptr || !drive->IsUp();
    if (!was_lost && is_away && since.away.contains(id)) suspects.erase(id);
  }
  Status result;
  const auto note = [&](Status status) {
    if (result.ok()) result = std::move(status);
  };
  for (auto it = changes.begin(); it != changes.end();) {
    const auto& [group, key] = it->first;
    const std::vector<DriveId> homes = placement->RegisterHomes(group);
    const bool is_suspect =
        std::ranges::any_of(homes, [&](DriveId id) { return suspects.contains(id); });
    const Result<bool> safe = is_suspect ? MakeSafe({group, key}, it->second) : true;
    if (!safe.has_value()) note(safe.error());
    if (safe.has_value() && !*safe) {
      note(Fail(EIO, "drives lost their power, and with it a change that others have replaced"));
    }
    it = safe.has_value() ? changes.erase(it) : std::next(it);
  }
  if (std::exchange(others, false) && !suspects.empty()) {
    note(Fail(EIO,
              "drives were lost before they could be flushed, after more changes than are "
              "remembered ({})",
              kMostAtAll));
  }
  return result;
}

// Some of its drives may have forgotten it.
Result<bool> UnsyncedChanges::MakeSafe(const RegisterName& name, const Change& change) {
  RegisterStore& registers = cluster_.registers();
  for (Attempts attempts(kMostAttempts); attempts.Next();) {
    TRY(registers.MakeDurable(name));
    const RegisterValue now = TRY(registers.Read(name));
    if (now.slot >= change.slot) {
      // In a later epoch what was never written is in a later slot, too. A removal that was
      // forgotten together with what it removed does no harm.
      const bool was_never = !now.value.has_value() && now.removed_at == 0;
      if (was_never) return !change.value.has_value();
      return now.slot > change.slot || now.value == change.value;
    }
    const ChangeOutcome outcome =
        registers.Change(name, now, change.value, Durability::kWriteThrough);
    TRY(outcome.why);
    if (outcome.applied()) {
      Log(LogLevel::kInfo, "a change that drives had forgotten was made again",
          {{"group", name.group}, {"slot", outcome.now.slot}});
      return true;
    }
  }
  return Fail(EIO,
              "a change that drives have forgotten could not be made again: others keep "
              "changing the same");
}

}  // namespace pinstripe
