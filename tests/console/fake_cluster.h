// A cluster for the console that is whatever a test says.

#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cluster/map/placement.h"
#include "console/cluster_view.h"

namespace pinstripe {

// So many drives on hosts of eight, all up: 4+2, names on five.
inline Survey SurveyOfDrives(size_t drives) {
  Survey survey;
  survey.config.file = "/etc/pinstripe/cluster.toml";
  survey.config.name = "example";
  survey.config.layout = {.data_shards = 4, .parity_shards = 2, .shard_bytes = 1 << 20};
  survey.config.replicas = 5;
  survey.config.drives.resize(drives);
  survey.uuid = std::string(16, '\x5a');
  survey.epoch = 1;
  survey.active = drives;
  survey.space = SpaceInfo{.raw_bytes = drives * 1'000'000'000,
                           .raw_used_bytes = drives * 10'000'000,
                           .usable_bytes = drives * 600'000'000,
                           .usable_free_bytes = drives * 590'000'000};
  for (size_t i = 0; i < drives; ++i) {
    survey.drives.push_back(
        {.id = static_cast<DriveId>(i + 1),
         .address = fmt::format("box{}.example:{}", i / 8, 8123 + i % 8),
         .domain = fmt::format("box{}", i / 8),
         .info = DriveInfo{
             .capacity_bytes = 1'000'000'000, .portion_full = 0.01, .temperature_celsius = 31}});
  }
  return survey;
}

inline void LoseDrive(Survey& survey, size_t index, const std::string& why = "connection refused") {
  survey.drives[index].info = tl::unexpected(Status(EHOSTUNREACH, why));
}

// With what may still fail, as SurveyOf() finds it out.
inline Survey WithMargin(Survey survey) {
  DriveMap map;
  map.epoch = 1;
  map.groups = 64;
  map.replicas = static_cast<uint8_t>(survey.config.replicas);
  MarginQuestion question;
  for (const DriveReport& drive : survey.drives) {
    map.drives.push_back({drive.id, 100, drive.domain, DriveState::kActive});
    if (!drive.info) question.away.insert(drive.id);
    if (drive.info && !drive.IsUp()) question.read_only.insert(drive.id);
  }
  question.placements = {std::make_shared<Placement>(map)};
  question.stripes = {survey.config.layout.geometry()};
  question.map_drives = question.placements.back()->RegisterHomes(0);
  survey.margin = ComputeMargin(question);
  return survey;
}

// Each drive of the survey has answered so many reads of 1000 bytes and so many writes of 500, each
// in 1.5 ms, for a mount and for somebody who does not say who it is.
inline ClusterUse UseOfDrives(const Survey& survey, Time when, uint64_t reads, uint64_t writes) {
  ClusterUse use{.when = when};
  for (const DriveReport& drive : survey.drives) {
    DriveUse done;
    done.work = {{.is_read = true, .requests = reads, .bytes = 1000 * reads},
                 {.is_write = true, .requests = writes, .bytes = 500 * writes}};
    done.work[0].took.of[6] = reads;
    done.work[1].took.of[6] = writes;
    DriveUser mount{.program = {.name = "pinstripe-fuse", .version = "1", .detail = "/data"},
                    .host = "desk.example",
                    .process = 7,
                    .address = "10.0.0.7:5000",
                    .requests = reads + writes,
                    .bytes_read = 1000 * reads,
                    .bytes_written = 500 * writes,
                    .connection = 1};
    done.clients = {mount, {.address = "10.0.0.8:5000", .connection = 2}};
    use.drives.push_back({.id = drive.id, .address = drive.address, .use = std::move(done)});
  }
  return use;
}

class FakeCluster final : public ClusterView {
 public:
  explicit FakeCluster(const Survey& survey) : survey_(WithMargin(survey)) {}

  void Set(const Survey& survey) {
    const MutexLock lock(mutex_);
    survey_ = WithMargin(survey);
  }
  void Break(const Status& why) {
    const MutexLock lock(mutex_);
    survey_ = tl::unexpected(why);
  }
  int looks() const { return looks_; }

  Result<Survey> Look() override {
    ++looks_;
    const MutexLock lock(mutex_);
    return survey_;
  }

  uint64_t Questions() const override { return static_cast<uint64_t>(looks_ + uses_); }
  int uses() const { return uses_; }
  // What drives tell from now on when they are asked: made anew each time.
  void SetUse(std::function<Result<ClusterUse>()> use) {
    const MutexLock lock(mutex_);
    use_ = std::move(use);
  }
  Result<ClusterUse> Use(const Survey&) override {
    ++uses_;
    const MutexLock lock(mutex_);
    return use_();
  }

  // "/" has what `entries` says, "/big" is a file, and nothing else is there.
  Result<std::vector<DirectoryEntry>> List(std::string_view path, std::string_view after,
                                           size_t max) override {
    if (path == "/denied") return Fail(EACCES, "a drive does not know us");
    if (path == "/big") return Fail(ENOTDIR, "it is not a directory");
    if (path != "/") return Fail(ENOENT, "{}: there is no such name", path);
    std::vector<DirectoryEntry> found;
    for (const DirectoryEntry& entry : entries) {
      if (entry.name > after && found.size() < max) found.push_back(entry);
    }
    return found;
  }
  Result<Whereabouts> Find(std::string_view path, const WhereaboutsOptions& options) override {
    if (path != "/big") return Fail(ENOENT, "{}: there is no such name", path);
    most_blocks = options.most_blocks;
    Whereabouts found;
    found.size = 8 << 20;
    found.parts.push_back({.what = "blocks",
                           .form = "4+2",
                           .shards = 6,
                           .needed = 4,
                           .bytes = 8 << 20,
                           .count = 2,
                           .lacking = {{0, 2}},
                           .on_drive = {{1, 2}, {2, 2}, {3, 2}, {4, 2}, {5, 2}, {6, 2}}});
    found.stripe_count = 2;
    for (uint64_t block = options.skipped_stripes;
         block < 2 && found.stripes.size() < options.listed_stripes; ++block) {
      Whereabouts::Stripe stripe{
          .what = "blocks", .block = block, .data_shards = 4, .bytes = 4 << 20};
      for (DriveId drive = 1; drive <= 6; ++drive) stripe.shards.push_back({drive, true, false});
      found.stripes.push_back(std::move(stripe));
    }
    return found;
  }

  Result<std::vector<Event>> NewEvents() override {
    const MutexLock lock(mutex_);
    return std::exchange(events_, {});
  }
  Result<std::vector<WorkSeen>> Work() override {
    const MutexLock lock(mutex_);
    return work_;
  }
  Status AskOfWork(int number, const WorkChange& change, const std::string& by) override {
    const MutexLock lock(mutex_);
    if (work_.empty() || work_[0].Number() != number) return Fail(ENOENT, "there is no such work");
    asked_ += fmt::format("{} {};", by, static_cast<int>(*change.ask));
    return {};
  }

  void Tell(Event event) {
    const MutexLock lock(mutex_);
    events_.push_back(std::move(event));
  }
  void SetWork(std::vector<WorkSeen> work) {
    const MutexLock lock(mutex_);
    work_ = std::move(work);
  }
  std::string asked() {
    const MutexLock lock(mutex_);
    return asked_;
  }

  std::vector<DirectoryEntry> entries;    // in order of their names
  std::atomic<uint64_t> most_blocks = 0;  // that were to be looked at the last time

 private:
  std::atomic<int> looks_ = 0;
  std::atomic<int> uses_ = 0;
  Mutex mutex_;
  Result<Survey> survey_ GUARDED_BY(mutex_);
  std::function<Result<ClusterUse>()> use_ GUARDED_BY(mutex_) = []() -> Result<ClusterUse> {
    return Fail(EIO, "the cluster is not open");
  };
  std::vector<Event> events_ GUARDED_BY(mutex_);
  std::vector<WorkSeen> work_ GUARDED_BY(mutex_);
  std::string asked_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
