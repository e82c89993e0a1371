#include "cluster/membership/newcomer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/mutex.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/map/names_place.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/group_work.h"
#include "cluster/stripes/shard.h"

namespace pinstripe {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(100);  // before a drive is asked again

template <typename T>
int CodeOf(const Result<T>& result) {
  return result.has_value() ? 0 : result.error().code();
}
int CodeOf(const Status& status) { return status.code(); }

}  // namespace

// Decides which devices the connection to the drive accepts: any that answers, until it is known
// which one is brought in; from then on that one.
class Newcomer::Admission {
 public:
  Status Judge(const std::string& cluster_name, DriveId drive, const Result<Record>& record) {
    const MutexLock lock(mutex_);
    if (!expected_.has_value()) {
      const bool answered = record.has_value() || record.error().code() == ENOENT;
      return answered ? Status() : record.error();
    }
    const Superblock block = TRY(ReadSuperblock(record, cluster_name, drive));
    if (block.cluster_uuid == expected_->cluster_uuid &&
        block.incarnation == expected_->incarnation) {
      return {};
    }
    return Fail(ESTALE, "it is not the one any more that was being rebuilt");
  }

  void Expect(const Superblock& block) {
    const MutexLock lock(mutex_);
    expected_ = block;
  }

 private:
  Mutex mutex_;
  std::optional<Superblock> expected_ GUARDED_BY(mutex_);
};

Newcomer::Newcomer(Cluster& cluster, DriveId id, std::string command)
    : cluster_(cluster),
      runtime_(cluster.runtime()),
      config_(cluster.config()),
      id_(id),
      command_(std::move(command)),
      admission_(std::make_shared<Admission>()) {}

Newcomer::~Newcomer() = default;

void Newcomer::Expect(const Superblock& block) { admission_->Expect(block); }

Status Newcomer::Connect(const DriveFactory& factory) {
  std::optional<DriveConfig> config;
  if (id_ == kEngineDrive && config_.engine) config = EngineAsDrive(*config_.engine);
  const auto listed = std::ranges::find(config_.drives, id_, &DriveConfig::id);
  if (listed != config_.drives.end()) config = *listed;
  if (!config) return Fail(EINVAL, "{} is not in {}: add it first", TextOfDrive(id_), config_.file);
  drive_ = TRY_CONTEXT(factory(*config, SuperblockKey(config_.name),
                               [admission = admission_, name = config_.name, id = id_](
                                   const Result<Record>& record, const Result<DriveInfo>&) {
                                 return admission->Judge(name, id, record);
                               }),
                       "{}", TextOfDrive(id_));
  return {};
}

// One request to the drive; one that is away is asked again until drive_timeout has passed.
template <typename R>
R Newcomer::Ask(const std::function<void(Drive&, Time, std::function<void(R)>)>& operation) {
  const Time deadline = runtime_.Now() + config_.drive_timeout;
  for (;;) {
    Gather<R> gather(runtime_);
    operation(*drive_, deadline, gather.Ask(0));
    R answer = std::move(gather.Next(Time::max())->value);
    if (CodeOf(answer) != EHOSTUNREACH || runtime_.Now() + kPause >= deadline) return answer;
    Sleep(runtime_, runtime_.Now() + kPause);
  }
}

Result<Record> Newcomer::ReadItsSuperblock() {
  return Ask<Result<Record>>([&](Drive& drive, Time deadline, Callback<Record> done) {
    drive.Get(SuperblockKey(config_.name), {}, deadline, std::move(done));
  });
}

Status Newcomer::DoesNotAnswer(const Status& why) const {
  return Fail(EIO, "{} must answer: {}", TextOfDrive(id_), why.WithoutDriveName());
}

Status Newcomer::RefuseWhatIsNotEmpty(bool force) {
  const auto first_from = [&](const std::string& first, const std::string& last) {
    using Keys = std::vector<std::string>;
    return Ask<Result<Keys>>([&](Drive& drive, Time deadline, Callback<Keys> done) {
      drive.Range(first, last, 1, false, deadline, std::move(done));
    });
  };
  const std::string prefix = ClusterPrefix(config_.name);
  const auto ours = first_from(prefix, prefix + std::string(kMaxKeyBytes - prefix.size(), '\xff'));
  if (!ours.has_value()) return DoesNotAnswer(ours.error());
  if (!ours->empty()) {
    return Fail(EEXIST,
                "{} has no superblock, but holds records of the cluster '{}': nobody knows from "
                "when. Erase it first",
                TextOfDrive(id_), config_.name);
  }
  if (force) return {};
  const auto any = first_from(std::string(kLowestKey), std::string(kMaxKeyBytes, '\xff'));
  if (!any.has_value()) return DoesNotAnswer(any.error());
  if (any->empty()) return {};
  const auto owner = ClusterOfKey(any->front());
  return Fail(EEXIST,
              "{} holds records of {}; nothing was changed. To have both on it: `pinstripe {} "
              "--force`",
              TextOfDrive(id_), owner ? fmt::format("the cluster '{}'", *owner) : "something else",
              command_);
}

Status Newcomer::WriteSuperblock(const Superblock& block, const Expected& expected) {
  const auto put = [&]() -> Status {
    const std::string value = block.Encode();
    return Ask<Status>([&](Drive& drive, Time deadline, StatusCallback done) {
      drive.Put({.key = SuperblockKey(config_.name),
                 .value = SharedBytes(value),
                 .version = block.Version(),
                 .tag = RecordTag(Crc32c(AsBytes(value))),
                 .expected = expected,
                 .durability = Durability::kWriteThrough},
                deadline, std::move(done));
    });
  };
  const Status written = put();
  if (written.ok()) return {};
  // It may have been written all the same; then it was the other answer that was lost.
  const Result<Superblock> there = ReadSuperblock(ReadItsSuperblock(), config_.name, id_);
  if (there.has_value() && there->Encode() == block.Encode()) return {};
  if (written.code() != ESTALE) return DoesNotAnswer(written);
  return Fail(EEXIST, "somebody else begins to use {} at this moment", TextOfDrive(id_));
}

Status Newcomer::RefuseLaterVersion() {
  Gather<Result<RecordHead>> gather(runtime_);
  drive_->Head(SuperblockKey(config_.name),
               {runtime_.Now() + config_.drive_timeout, ClusterVersionOf(cluster_.map().epoch)},
               gather.Ask(0));
  const auto answer = std::move(gather.Next(Time::max())->value);
  if (answer.has_value() || answer.error().code() != EREMCHG) return {};
  return Fail(EEXIST,
              "{} was used before, by a cluster whose drive map had changed more often ({}): erase "
              "it first",
              TextOfDrive(id_), answer.error().WithoutDriveName());
}

// Its own connection to the drive was refused until now.
void Newcomer::WaitUntilMet() {
  Drive* drive = cluster_.FindDrive(id_);
  const Time deadline = runtime_.Now() + config_.drive_timeout;
  while (runtime_.Now() < deadline) {
    Gather<Result<DriveInfo>> gather(runtime_);
    drive->Info(deadline, gather.Ask(0));
    if (gather.Next(Time::max())->value.has_value()) return;
    Sleep(runtime_, std::min(deadline, runtime_.Now() + kPause));
  }
}

}  // namespace pinstripe
