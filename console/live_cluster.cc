#include "console/live_cluster.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "fs/file_system.h"
#include "upkeep/host_events.h"

namespace pinstripe {
namespace {

// The console reads names, and no data.
constexpr uint64_t kMemoryBytes = 64 << 20;

// A drive that does not tell what it does keeps nobody waiting who wants to know how the cluster
// is.
constexpr Duration kUsePatience = std::chrono::seconds(2);

}  // namespace

struct LiveCluster::Opened {
  std::unique_ptr<ConnectedCluster> connected;
  std::unique_ptr<FileSystem> fs;  // goes before the cluster
  std::unique_ptr<EventFollower> events;
  // The console is open all the time. So after a loss of power it may be the one that compares the
  // drives, and has to tell so.
  std::unique_ptr<HostEvents> told;
  Mutex work_mutex;
  std::unique_ptr<WorkWatch> work GUARDED_BY(work_mutex);

  Result<std::vector<WorkSeen>> Work() {
    auto all = TRY(ReadWork(connected->cluster()));
    const MutexLock lock(work_mutex);
    work->Judge(all);
    return all;
  }
};

LiveCluster::LiveCluster(Runtime& runtime, std::string config_file)
    : runtime_(runtime),
      config_file_(std::move(config_file)),
      why_not_(EIO, "the cluster was not looked at yet") {}

LiveCluster::~LiveCluster() = default;

std::shared_ptr<LiveCluster::Opened> LiveCluster::Known() const {
  const MutexLock lock(mutex_);
  return opened_;
}

Result<std::shared_ptr<LiveCluster::Opened>> LiveCluster::NeedOpen() const {
  const MutexLock lock(mutex_);
  if (opened_ != nullptr) return opened_;
  // Whatever the reason, it says nothing about the name that somebody asks for.
  return Fail(EHOSTUNREACH, "the cluster is not open: {}", why_not_.message());
}

Status LiveCluster::Open() {
  auto opened = std::make_shared<Opened>();
  opened->connected = TRY(Connect(runtime_, config_file_));
  opened->fs = TRY(FileSystem::Open(opened->connected->cluster(),
                                    {.memory_bytes = kMemoryBytes, .memory_by = nullptr}));
  opened->events = std::make_unique<EventFollower>(opened->connected->cluster());
  opened->told = std::make_unique<HostEvents>(opened->connected->cluster());
  {
    const MutexLock lock(opened->work_mutex);
    opened->work = std::make_unique<WorkWatch>(runtime_);
  }
  const MutexLock lock(mutex_);
  opened_ = std::move(opened);
  return {};
}

Result<Survey> LiveCluster::Look() {
  if (const auto opened = Known()) return SurveyOf(opened->connected->cluster());
  Result<Survey> survey = TakeSurvey(runtime_, config_file_);
  Status why = survey.has_value() ? survey->opened : survey.error();
  if (why.ok()) why = Open();
  const MutexLock lock(mutex_);
  if (why.ok()) {
    Log(LogLevel::kInfo, "cluster is open", {{"config", config_file_}});
  } else if (why.message() != why_not_.message()) {
    Log(LogLevel::kWarn, "cluster cannot be opened yet", {{"why", why}});
  }
  why_not_ = std::move(why);
  return survey;
}

uint64_t LiveCluster::Questions() const {
  uint64_t answered = 0;
  const auto opened = Known();
  if (opened == nullptr) return answered;
  Cluster& cluster = opened->connected->cluster();
  for (const MappedDrive& one : cluster.map().drives) {
    Drive* drive = cluster.FindDrive(one.id);
    if (drive == nullptr || drive->times() == nullptr) continue;
    answered += drive->times()->reads.Load().count() + drive->times()->writes.Load().count();
  }
  return answered;
}

Result<ClusterUse> LiveCluster::Use(const Survey& survey) {
  const auto opened = TRY(NeedOpen());
  return UseOf(*opened->connected, survey, kUsePatience);
}

Result<std::vector<DirectoryEntry>> LiveCluster::List(std::string_view path, std::string_view after,
                                                      size_t max) {
  const auto opened = TRY(NeedOpen());
  const Attributes directory = TRY(opened->fs->Resolve(path));
  if (directory.kind != FileKind::kDirectory) return Fail(ENOTDIR, "it is not a directory");
  return opened->fs->ReadDirectory(directory.inode, after, max, true);
}

Result<Whereabouts> LiveCluster::Find(std::string_view path, const WhereaboutsOptions& options) {
  const auto opened = TRY(NeedOpen());
  const Attributes attributes = TRY(opened->fs->Resolve(path));
  const auto place = opened->fs->ResolveTarget(path);  // the root has none
  WhereaboutsOptions with_place = options;
  with_place.directory = place.has_value() ? place->directory : 0;
  return FindWhereabouts(opened->connected->cluster(), attributes.inode, with_place);
}

Result<std::vector<Event>> LiveCluster::NewEvents() {
  const auto opened = TRY(NeedOpen());
  return opened->events->Poll();
}

Result<std::vector<WorkSeen>> LiveCluster::Work() {
  const auto opened = TRY(NeedOpen());
  return opened->Work();
}

Status LiveCluster::AskOfWork(int number, const WorkChange& change, const std::string& by) {
  const auto opened = TRY(NeedOpen());
  Cluster& cluster = opened->connected->cluster();
  const std::vector<WorkSeen> all = TRY(opened->Work());
  const auto seen = std::ranges::find(all, number, &WorkSeen::Number);
  if (seen == all.end()) return Fail(ENOENT, "there is no work {}", number);
  Actor actor = ThisProcess();
  actor.user = by;
  return SteerWork(cluster, *seen, change, actor);
}

Status LiveCluster::Reload() {
  const auto opened = Known();
  return opened == nullptr ? Status() : opened->fs->Reload();
}

}  // namespace pinstripe
