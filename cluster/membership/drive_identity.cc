#include "cluster/membership/drive_identity.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/try.h"
#include "cluster/stripes/shard.h"

namespace pinstripe {

Result<Superblock> ReadSuperblock(const Result<Record>& record, std::string_view cluster_name,
                                  DriveId drive) {
  if (!record.has_value() && record.error().code() == ENOENT) {
    return Fail(ENOENT,
                "{} '{}': it is empty. A new one is brought in by `pinstripe format` or `pinstripe "
                "expand`, "
                "and one in the place of a lost one by `pinstripe rebuild`",
                kNoSuperblock, cluster_name);
  }
  if (!record.has_value()) return Failed(record.error());
  // Before anything in it is believed: a flipped bit must not look like another cluster's drive.
  if (record->tag != RecordTag(Crc32c(record->value))) {
    return Fail(EBADMSG, "its superblock is damaged: the checksum does not match");
  }
  const Superblock block = TRY(Superblock::Decode(record->value.text()));
  if (block.cluster_name != cluster_name) {
    return Fail(EINVAL, "it belongs to the cluster '{}', not to '{}'", block.cluster_name,
                cluster_name);
  }
  if (block.drive != drive) {
    return Fail(EINVAL,
                "it is drive {} of the cluster, not drive {}: its address in the configuration is "
                "wrong, or cables were swapped",
                block.drive, drive);
  }
  return block;
}

Status CheckInService(const Superblock& block, uint32_t incarnation) {
  if (block.incarnation < incarnation) {
    return Fail(ESTALE,
                "it is an old drive {}, in whose place another one came (incarnation {} instead of "
                "{}): what it holds is out of date. Erase it before it is used again",
                block.drive, block.incarnation, incarnation);
  }
  if (block.service == DriveService::kBeingRebuilt) {
    return Fail(
        EBUSY,
        "it is being rebuilt; if nobody does so at this moment, `pinstripe rebuild` goes on "
        "with it");
  }
  return {};
}

std::optional<std::string> ClusterOfKey(std::string_view key) {
  if (key.empty()) return std::nullopt;
  const size_t length = static_cast<uint8_t>(key.front());
  std::string name(key.substr(1, length));
  if (name.size() != length || !CheckClusterName(name).ok()) return std::nullopt;
  return name;
}

Status HoldsAnotherCluster(std::string_view other, std::string_view cluster_name) {
  return Fail(EINVAL,
              "it holds the cluster '{}', not '{}': is the name in the configuration right?", other,
              cluster_name);
}

Status DriveIdentities::Judge(DriveId drive, const Result<Record>& record) {
  Result<Superblock> verdict = ReadSuperblock(record, cluster_name_, drive);
  const int code = verdict.has_value() ? 0 : verdict.error().code();
  const bool is_away = code != 0 && code != ENOENT && code != EINVAL && code != EBADMSG;
  if (is_away) return verdict.error();

  const MutexLock lock(mutex_);
  if (verdict.has_value()) {
    if (!uuid_.empty() && verdict->cluster_uuid != uuid_) {
      verdict =
          Fail(EINVAL, "it belongs to another cluster of the name '{}' (uuid {} instead of {})",
               cluster_name_, Hex(AsBytes(verdict->cluster_uuid)), Hex(AsBytes(uuid_)));
    } else if (Status status = CheckInService(*verdict, incarnations_[drive]); !status.ok()) {
      verdict = tl::unexpected(std::move(status));
    } else {
      incarnations_[drive] = verdict->incarnation;
    }
  }
  verdicts_.insert_or_assign(drive, verdict);
  return verdict.has_value() ? Status() : verdict.error();
}

std::optional<Result<Superblock>> DriveIdentities::VerdictOn(DriveId drive) const {
  const MutexLock lock(mutex_);
  const auto found = verdicts_.find(drive);
  if (found == verdicts_.end()) return std::nullopt;
  return found->second;
}

std::vector<DriveId> DriveIdentities::ExpectUuid(std::string uuid) {
  const MutexLock lock(mutex_);
  uuid_ = std::move(uuid);
  std::vector<DriveId> others;
  for (const auto& [drive, verdict] : verdicts_) {
    if (verdict.has_value() && verdict->cluster_uuid != uuid_) others.push_back(drive);
  }
  for (const DriveId drive : others) verdicts_.erase(drive);
  return others;
}

bool DriveIdentities::ExpectIncarnation(DriveId drive, uint32_t incarnation) {
  const MutexLock lock(mutex_);
  incarnations_[drive] = std::max(incarnations_[drive], incarnation);
  const auto verdict = verdicts_.find(drive);
  if (verdict == verdicts_.end() || !verdict->second.has_value()) return true;
  if (verdict->second->incarnation >= incarnations_[drive]) return true;
  verdicts_.erase(verdict);
  return false;
}

}  // namespace pinstripe
