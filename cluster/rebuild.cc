#include "cluster/rebuild.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/log.h"
#include "base/try.h"
#include "cluster/drive_identity.h"
#include "cluster/gather.h"
#include "cluster/shard.h"

namespace pinstripe {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(100);  // before a drive is asked again

void Sleep(Runtime& runtime, Time until) { runtime.NewSignal()->WaitUntil(until); }

Status Cancelled() { return Fail(EINTR, "stopped before it was finished; it can be done again"); }

bool IsCancelled(const SweepOptions& options) {
  return options.is_cancelled != nullptr && options.is_cancelled();
}

void Report(const SweepOptions& options, std::string_view phase, double done) {
  if (options.progress != nullptr) options.progress(phase, done);
}

// Work on many groups, a few at a time, each on a thread of its own. Stops at the first failure.
class GroupWork {
 public:
  using Work = std::function<Result<SweepReport>(uint32_t group,
                                                 const RegisterStore::SweepProgress& progress)>;

  GroupWork(Runtime& runtime, std::vector<uint32_t> groups, Work work, const SweepOptions& options)
      : runtime_(runtime),
        groups_(std::move(groups)),
        work_(std::move(work)),
        options_(options),
        done_(runtime.NewSignal()),
        next_page_(runtime.Now()) {}

  Result<SweepReport> Run(std::string_view phase) {
    const auto workers = std::min<size_t>(std::max(options_.groups_at_once, 1), groups_.size());
    running_ = workers;
    for (size_t i = 0; i < workers; ++i) {
      runtime_.Spawn("sweep", [this, done = done_] {
        Loop();
        done->Set();
      });
    }
    for (;;) {
      double part = 1;
      {
        const std::lock_guard lock(mutex_);
        if (running_ == 0) break;
        part = static_cast<double>(finished_) / static_cast<double>(groups_.size());
        if (IsCancelled(options_) && failure_.ok()) failure_ = Cancelled();
      }
      Report(options_, phase, part);
      done_->WaitUntil(runtime_.Now() + std::chrono::seconds(1));
    }
    if (!failure_.ok()) return Failed(failure_);
    Report(options_, phase, 1);
    return report_;
  }

 private:
  void Loop() {
    while (const auto group = Next()) {
      Finish(work_(*group, [this](size_t registers) { Pace(registers); }));
    }
  }

  std::optional<uint32_t> Next() {
    const std::lock_guard lock(mutex_);
    if (next_ == groups_.size() || !failure_.ok()) {
      --running_;
      return std::nullopt;
    }
    return groups_[next_++];
  }

  void Finish(const Result<SweepReport>& result) {
    {
      const std::lock_guard lock(mutex_);
      ++finished_;
      if (result.has_value()) {
        report_ += *result;
      } else if (failure_.ok()) {
        failure_ = result.error();
      }
    }
    done_->Set();
  }

  void Pace(size_t registers) {
    if (options_.registers_per_second <= 0) return;
    const auto takes = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
        static_cast<double>(registers) / options_.registers_per_second));
    Time until;
    {
      const std::lock_guard lock(mutex_);
      next_page_ = std::max(next_page_, runtime_.Now()) + takes;
      until = next_page_;
    }
    Sleep(runtime_, until);
  }

  Runtime& runtime_;
  const std::vector<uint32_t> groups_;
  const Work work_;
  const SweepOptions& options_;
  const std::shared_ptr<Signal> done_;
  std::mutex mutex_;
  size_t next_ = 0;      // guarded by mutex_
  size_t running_ = 0;   // workers; guarded by mutex_
  size_t finished_ = 0;  // groups; guarded by mutex_
  Time next_page_;       // when the next one may be begun; guarded by mutex_
  SweepReport report_;   // guarded by mutex_
  Status failure_;       // the first; guarded by mutex_
};

// Which devices the connection to the drive accepts: any that answers, until it is known which one
// is rebuilt; from then on that one.
class Admission {
 public:
  Status Judge(const std::string& cluster_name, DriveId drive, const Result<Record>& record) {
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    expected_ = block;
  }

 private:
  std::mutex mutex_;
  std::optional<Superblock> expected_;  // guarded by mutex_
};

class Rebuilding {
 public:
  Rebuilding(Cluster& cluster, DriveId id, const RebuildOptions& options)
      : cluster_(cluster),
        runtime_(cluster.runtime()),
        config_(cluster.config()),
        id_(id),
        options_(options),
        registers_(options.registers != nullptr ? *options.registers : cluster.registers()) {}

  Result<RebuildReport> Run(const DriveFactory& factory) {
    TRY(RefuseWhatCannotBe());
    TRY(Connect(factory));
    TRY(FindOutWhatItIs());
    TRY(RefuseIfTheLostOneAnswers());
    const Time gone_since = runtime_.Now();
    if (!block_.has_value()) TRY(Enrol());
    admission_->Expect(*block_);
    cluster_.ExpectIncarnation(id_, block_->incarnation);
    Log(LogLevel::kInfo, "rebuilding a drive",
        {{"cluster", config_.name}, {"drive", id_}, {"incarnation", block_->incarnation}});
    TRY(WaitUntilForgotten(gone_since));
    RebuildReport report{.incarnation = block_->incarnation};
    if (options_.sweep) report.registers = TRY(RestoreRegisters());
    TRY(PutInService());
    Log(LogLevel::kInfo, "drive rebuilt",
        {{"cluster", config_.name},
         {"drive", id_},
         {"incarnation", block_->incarnation},
         {"registers", report.registers.registers}});
    WaitUntilMet();
    return report;
  }

 private:
  Status RefuseWhatCannotBe() const {
    const auto& drives = cluster_.map().drives;
    if (std::none_of(drives.begin(), drives.end(),
                     [&](const MappedDrive& drive) { return drive.id == id_; })) {
      return Fail(EINVAL, "the cluster '{}' has no drive {}", config_.name, id_);
    }
    if (cluster_.map().replicas == 1) {
      return Fail(ENOTSUP,
                  "registers have one replica in the cluster '{}': what drive {} held of them is "
                  "nowhere else, so that it cannot be rebuilt",
                  config_.name, id_);
    }
    return {};
  }

  Status Connect(const DriveFactory& factory) {
    const auto config = std::find_if(config_.drives.begin(), config_.drives.end(),
                                     [&](const DriveConfig& drive) { return drive.id == id_; });
    drive_ = TRY_CONTEXT(
        factory(*config, SuperblockKey(config_.name),
                [admission = admission_, name = config_.name, id = id_](
                    const Result<Record>& record) { return admission->Judge(name, id, record); }),
        "drive {}", id_);
    return {};
  }

  // One request to the drive; one that is away is asked again until drive_timeout has passed.
  template <typename R>
  R Ask(const std::function<void(Drive&, Time, std::function<void(R)>)>& operation) {
    const Time deadline = runtime_.Now() + config_.drive_timeout;
    for (;;) {
      Gather<R> gather(runtime_);
      operation(*drive_, deadline, gather.Ask(0));
      R answer = std::move(gather.Next(Time::max())->value);
      if (CodeOf(answer) != EHOSTUNREACH || runtime_.Now() + kPause >= deadline) return answer;
      Sleep(runtime_, runtime_.Now() + kPause);
    }
  }
  template <typename T>
  static int CodeOf(const Result<T>& result) {
    return result.has_value() ? 0 : result.error().code();
  }
  static int CodeOf(const Status& status) { return status.code(); }

  Result<Record> ReadItsSuperblock() {
    return Ask<Result<Record>>([&](Drive& drive, Time deadline, Callback<Record> done) {
      drive.Get(SuperblockKey(config_.name), {}, deadline, std::move(done));
    });
  }

  Status DoesNotAnswer(const Status& why) const {
    return Fail(EIO, "drive {} must answer to be rebuilt: {}", id_,
                WithoutDriveName(why.message(), id_));
  }

  // Sets block_ if somebody has begun to rebuild it.
  Status FindOutWhatItIs() {
    const Result<Record> record = ReadItsSuperblock();
    const Result<Superblock> block = ReadSuperblock(record, config_.name, id_);
    const uint32_t incarnation = TRY(ReadIncarnation()).first;
    if (block.has_value()) {
      TRY(CheckOurs(*block, incarnation));
      block_ = *block;
      return {};
    }
    switch (block.error().code()) {
      case ENOENT: return RefuseWhatIsNotEmpty();
      case EINVAL: return Fail(EINVAL, "drive {}: {}", id_, block.error().message());
      case EBADMSG:
        return Fail(EBADMSG, "drive {}: {}. Erase it before it is rebuilt", id_,
                    WithoutDriveName(block.error().message(), id_));
      default: return Failed(DoesNotAnswer(block.error()));
    }
  }

  // It may have moved to another address, or the new one may have been put at another one.
  Status RefuseIfTheLostOneAnswers() {
    Gather<Result<Record>> gather(runtime_);
    cluster_.FindDrive(id_)->Get(SuperblockKey(config_.name), {},
                                 runtime_.Now() + config_.drive_timeout, gather.Ask(0));
    if (!gather.Next(Time::max())->value.has_value()) return {};
    return Fail(
        EEXIST,
        "drive {} still answers, besides the one that is to take its place: stop one of them", id_);
  }

  Status CheckOurs(const Superblock& block, uint32_t incarnation) const {
    if (block.cluster_uuid != cluster_.uuid()) {
      return Fail(EINVAL, "drive {}: it belongs to another cluster of the name '{}'", id_,
                  config_.name);
    }
    const Status in_service = CheckInService(block, incarnation);
    if (in_service.code() == ESTALE) {
      return Fail(EINVAL, "drive {}: {}", id_, in_service.message());
    }
    if (in_service.ok()) {
      return Fail(EEXIST,
                  "drive {} is in service: there is nothing to rebuild. What it lacks is brought "
                  "back by a repair",
                  id_);
    }
    return {};
  }

  Status RefuseWhatIsNotEmpty() {
    const auto first_from = [&](const std::string& first, const std::string& last) {
      using Keys = std::vector<std::string>;
      return Ask<Result<Keys>>([&](Drive& drive, Time deadline, Callback<Keys> done) {
        drive.Range(first, last, 1, false, deadline, std::move(done));
      });
    };
    const std::string prefix = ClusterPrefix(config_.name);
    const auto ours =
        first_from(prefix, prefix + std::string(kMaxKeyBytes - prefix.size(), '\xff'));
    if (!ours.has_value()) return DoesNotAnswer(ours.error());
    if (!ours->empty()) {
      return Fail(EEXIST,
                  "drive {} has no superblock, but holds records of the cluster '{}': nobody knows "
                  "from when. Erase it before it is rebuilt",
                  id_, config_.name);
    }
    if (options_.force) return {};
    const auto any = first_from(std::string(kLowestKey), std::string(kMaxKeyBytes, '\xff'));
    if (!any.has_value()) return DoesNotAnswer(any.error());
    if (any->empty()) return {};
    const auto owner = ClusterOfKey(any->front());
    return Fail(EEXIST,
                "drive {} holds records of {}; nothing was changed. To have both on it: `pinstripe "
                "rebuild --force`",
                id_, owner ? fmt::format("the cluster '{}'", *owner) : "something else");
  }

  // As it is known, and the register.
  Result<std::pair<uint32_t, RegisterValue>> ReadIncarnation() {
    const RegisterValue value =
        TRY_CONTEXT(registers_.Read({kMapGroup, IncarnationKey(id_)}), "rebuild drive {}", id_);
    if (!value.value.has_value()) return std::pair(uint32_t{0}, value);
    const uint32_t known = TRY_CONTEXT(DecodeIncarnation(*value.value), "drive {}", id_);
    return std::pair(known, value);
  }

  // From here on the lost drive is refused, and this one is known as its successor.
  Status Enrol() {
    const auto [known, seen] = TRY(ReadIncarnation());
    const auto outcome =
        TRY_CONTEXT(registers_.Change({kMapGroup, IncarnationKey(id_)}, seen,
                                      EncodeIncarnation(known + 1), Durability::kWriteThrough),
                    "rebuild drive {}", id_);
    if (!outcome.applied) {
      return Fail(EEXIST, "somebody else begins to rebuild drive {} at this moment", id_);
    }
    block_ = Superblock{.cluster_name = config_.name,
                        .cluster_uuid = cluster_.uuid(),
                        .drive = id_,
                        .map_drives = cluster_.map_drives(),
                        .formatted_at = runtime_.WallClock(),
                        .incarnation = known + 1,
                        .service = DriveService::kBeingRebuilt};
    return WriteSuperblock(Expected::Absent());
  }

  Status WriteSuperblock(const Expected& expected) {
    const Status written = Put(*block_, expected);
    if (written.ok()) return {};
    // It may have been written all the same; then it was the other answer that was lost.
    const Result<Superblock> there = ReadSuperblock(ReadItsSuperblock(), config_.name, id_);
    if (there.has_value() && there->Encode() == block_->Encode()) return {};
    if (written.code() != ESTALE) return DoesNotAnswer(written);
    return Fail(EEXIST, "somebody else begins to use drive {} at this moment", id_);
  }

  Status Put(const Superblock& block, const Expected& expected) {
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
  }

  // What was learnt from the lost drive must not be counted by anybody when it is found out what
  // the others hold.
  Status WaitUntilForgotten(Time gone_since) {
    const Time until = gone_since + options_.forgetting;
    for (Time now = runtime_.Now(); now < until; now = runtime_.Now()) {
      if (IsCancelled(options_)) return Cancelled();
      Report(options_, "waiting until the lost drive is forgotten",
             1 - std::chrono::duration<double>(until - now) / options_.forgetting);
      Sleep(runtime_, std::min(until, now + std::chrono::seconds(1)));
    }
    return {};
  }

  Result<SweepReport> RestoreRegisters() {
    const Drive* self = cluster_.FindDrive(id_);
    const auto replica_of = [&](uint32_t group) -> std::optional<size_t> {
      const std::vector<Drive*> replicas = cluster_.Replicas(group);
      const auto found = std::find(replicas.begin(), replicas.end(), self);
      if (found == replicas.end()) return std::nullopt;
      return static_cast<size_t>(found - replicas.begin());
    };
    std::vector<uint32_t> groups;
    if (replica_of(kMapGroup)) groups.push_back(kMapGroup);
    for (uint32_t group = 0; group < cluster_.map().groups; ++group) {
      if (replica_of(group)) groups.push_back(group);
    }
    const auto restore = [&](uint32_t group, const RegisterStore::SweepProgress& progress) {
      return registers_.Restore(group, *replica_of(group), *drive_, progress);
    };
    const Result<SweepReport> report =
        GroupWork(runtime_, groups, restore, options_).Run("restoring registers");
    if (report.has_value()) return report;
    return Failed(report.error().Context(fmt::format("rebuild drive {}", id_)));
  }

  Status PutInService() {
    const std::string version = block_->Version();
    block_->service = DriveService::kInService;
    return WriteSuperblock(Expected::Version(version));
  }

  // Its own connection to the drive was refused until now.
  void WaitUntilMet() {
    Drive* drive = cluster_.FindDrive(id_);
    const Time deadline = runtime_.Now() + config_.drive_timeout;
    while (runtime_.Now() < deadline) {
      Gather<Result<DriveInfo>> gather(runtime_);
      drive->Info(deadline, gather.Ask(0));
      if (gather.Next(Time::max())->value.has_value()) return;
      Sleep(runtime_, std::min(deadline, runtime_.Now() + kPause));
    }
  }

  Cluster& cluster_;
  Runtime& runtime_;
  const ClusterConfig& config_;
  const DriveId id_;
  const RebuildOptions& options_;
  RegisterStore& registers_;
  const std::shared_ptr<Admission> admission_ = std::make_shared<Admission>();
  std::unique_ptr<Drive> drive_;
  std::optional<Superblock> block_;  // that the drive has now
};

}  // namespace

Result<RebuildReport> RebuildDrive(Cluster& cluster, const DriveFactory& factory, DriveId drive,
                                   const RebuildOptions& options) {
  return Rebuilding(cluster, drive, options).Run(factory);
}

Result<SweepReport> SweepRegisters(Cluster& cluster, const SweepOptions& options) {
  std::vector<uint32_t> groups{kMapGroup};
  for (uint32_t group = 0; group < cluster.map().groups; ++group) groups.push_back(group);
  const auto sweep = [&](uint32_t group, const RegisterStore::SweepProgress& progress) {
    return cluster.registers().Sweep(group, progress);
  };
  return GroupWork(cluster.runtime(), std::move(groups), sweep, options).Run("sweeping registers");
}

}  // namespace pinstripe
