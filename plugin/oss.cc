#include "plugin/oss.h"

#include <fcntl.h>
#include <unistd.h>

#include <XrdOuc/XrdOucEnv.hh>
#include <algorithm>
#include <climits>
#include <csignal>
#include <utility>

#include "base/answer.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/real_runtime.h"
#include "base/signal_watch.h"
#include "base/try.h"
#include "cluster/log_setting.h"
#include "fs/posix_stat.h"
#include "metrics/page.h"
#include "metrics/process_metrics.h"
#include "plugin/oss_dir.h"
#include "plugin/oss_file.h"
#include "upkeep/host_care.h"
#include "upkeep/host_metrics.h"

namespace pinstripe {
namespace {

// A manager only asks for names and space.
constexpr uint64_t kLightMemoryBytes = 16 << 20;

// Hands `text` to a caller who gave a buffer of `length`, in the manner of snprintf. XRootD writes
// more behind it and sends a byte beyond that, so what follows is zeros and nobody's memory.
int HandOver(const std::string& text, char* out, int& length) {
  const auto room = static_cast<size_t>(std::max(length, 0));
  if (room <= text.size()) return -ENOBUFS;
  text.copy(out, text.size());
  std::fill(out + text.size(), out + room, '\0');
  length = static_cast<int>(text.size());
  return 0;
}

int64_t UsedPercent(const SpaceInfo& space) {
  if (space.usable_bytes == 0) return 0;
  const uint64_t used = space.usable_bytes - std::min(space.usable_bytes, space.usable_free_bytes);
  return static_cast<int64_t>(used * 100.0 / space.usable_bytes);
}

}  // namespace

// A device is never 0, which would say that a file is offline.
Oss::Oss(Runtime& runtime, Cluster& cluster, std::unique_ptr<FileSystem> file_system)
    : runtime_(runtime),
      cluster_(cluster),
      file_system_(std::move(file_system)),
      owner_{geteuid(), getegid()},
      device_(Crc32c(AsBytes(cluster.uuid())) | 1) {}

Result<std::unique_ptr<Oss>> Oss::Start(const std::string& config_file, const std::string& root,
                                        bool light) {
  auto runtime = std::make_unique<RealRuntime>();
  SetLogFormat(TRY(LogFormatOf(config_file)));
  auto connected = TRY(pinstripe::Connect(*runtime, config_file));
  Cluster& cluster = connected->cluster();
  FileSystem::Options options;
  options.caretaker = &MakeHostCare;
  options.exported = root;
  if (light) options.memory_by = nullptr;
  options.memory_bytes = light ? kLightMemoryBytes : cluster.config().memory_bytes;
  if (!light) {
    options.disk_cache_directory = cluster.config().cache_directory;
    options.disk_cache_bytes = cluster.config().cache_directory_bytes;
  }
  auto file_system = TRY(FileSystem::Open(cluster, options));
  auto oss = std::make_unique<Oss>(*runtime, cluster, std::move(file_system));
  oss->own_runtime_ = std::move(runtime);
  oss->connected_ = std::move(connected);
  auto reload = SignalWatch::Start(SIGUSR1, [fs = oss->file_system_.get()] {
    (void)fs->Reload();  // it has told the log
  });
  if (reload.has_value()) {
    oss->reload_ = *std::move(reload);
  } else {
    Log(LogLevel::kWarn, "cluster.toml will not be read again", {{"why", reload.error()}});
  }
  return oss;
}

int Oss::AnswerFor(const Status& status, std::string_view operation, std::string_view subject) {
  const int code = Answer(status, operation, subject);
  if (code == EIO) ++counters_.errors;
  return -code;
}

struct stat Oss::StatOf(const Attributes& attributes) const {
  struct stat out = ToStat(attributes);
  out.st_dev = device_;
  out.st_uid = owner_.user;
  out.st_gid = owner_.group;
  return out;
}

XrdOssDF* Oss::newDir(const char* tident) { return new OssDir(*this, tident); }
XrdOssDF* Oss::newFile(const char* tident) { return new OssFile(*this, tident); }

// Only wrappers call this; Start() has done the work.
int Oss::Init(XrdSysLogger*, const char*) { return 0; }

void Oss::Disc(XrdOucEnv& env) { uploads_.SessionEnds(env.secEnv()); }

// Own page checksums; checksums at rest; neither file descriptors for sendfile nor asynchronous
// I/O, which would cut requests into 64 KiB.
uint64_t Oss::Features() {
  return XRDOSS_HASPGRW | XRDOSS_HASFSCS | XRDOSS_HASNOSF | XRDOSS_HASNAIO;
}

// Changes the mode of an upload and of what it is to replace, whichever will be there in the end.
Status Oss::ChangeMode(const char* path, uint32_t mode) {
  const auto upload = uploads_.Find(path);
  if (upload) TRY(file_system_->SetAttributes(*upload, {.mode = mode}));
  const auto there = file_system_->Resolve(TRY(Inside(path)));
  if (upload && !there.has_value() && there.error().code() == ENOENT) return {};
  TRY(file_system_->SetAttributes(TRY(there).inode, {.mode = mode}));
  return {};
}

int Oss::Chmod(const char* path, mode_t mode, XrdOucEnv*) {
  const auto counted = Counted(GatewayCounters::Request::kChange, path);
  return AnswerFor(ChangeMode(path, mode & 07777), "chmod", path);
}

int Oss::Truncate(const char* path, unsigned long long size, XrdOucEnv*) {
  if (IsNegative(size)) return -EINVAL;
  const auto counted = Counted(GatewayCounters::Request::kChange, path);
  const auto truncate = [&]() -> Status {
    const InodeId inode = TRY(ResolveForChange(path));
    TRY(file_system_->SetAttributes(inode, {.size = size}));
    return {};
  };
  return AnswerFor(truncate(), "truncate", path);
}

// Nothing is made here. It is left to Open(), which then is told that it creates (-ENOTSUP asks for
// that): so the name appears, or the old contents go, at Close and not now. Missing parents are
// made by Open(), too, which has to look them up anyway.
int Oss::Create(const char* client, const char* path, mode_t, XrdOucEnv& env, int options) {
  const char* copy_key = env.Get("pinstripe.tpc");
  const auto parents =
      (options & XRDOSS_mkpath) != 0 ? Uploads::Parents::kAreMade : Uploads::Parents::kMustExist;
  const Status reserved = uploads_.Reserve(path, client == nullptr ? "" : client, runtime_.Now(),
                                           copy_key == nullptr ? "" : copy_key, parents);
  if (!reserved.ok()) {
    // From Create() this is an answer (kXR_inProgress); from Open() the server would take it for a
    // reason to have the client wait.
    Log(LogLevel::kInfo, "upload refused", {{"path", path}, {"why", reserved}});
    return -reserved.code();
  }
  return -ENOTSUP;
}

int Oss::Mkdir(const char* path, mode_t mode, int make_path, XrdOucEnv*) {
  const auto counted = Counted(GatewayCounters::Request::kChange, path);
  const uint32_t bits = mode & 07777;
  const auto make = [&]() -> Status {
    const std::string inside = TRY(Inside(path));
    if (make_path) return file_system_->MakePath(inside, bits, owner_);
    const FileSystem::Place place = TRY(file_system_->ResolveParent(inside));
    TRY(file_system_->MakeDirectory(place.directory, place.name, bits, owner_));
    return {};
  };
  return AnswerFor(make(), "mkdir", path);
}

int Oss::Remdir(const char* path, int, XrdOucEnv*) {
  const auto counted = Counted(GatewayCounters::Request::kChange, path);
  const auto remove = [&]() -> Status {
    const FileSystem::Place place = TRY(file_system_->ResolveParent(TRY(Inside(path))));
    return file_system_->RemoveDirectory(place.directory, place.name);
  };
  return AnswerFor(remove(), "rmdir", path);
}

// With an upload to that name goes what it would replace. Nothing is left of an upload that was
// dropped: a client that removes what it takes for its beginning has what it wants.
Status Oss::UnlinkPath(const char* path) {
  const std::string inside = TRY(Inside(path));
  bool was_upload = false;
  if (const auto upload = uploads_.Find(path)) {
    was_upload = TRY(file_system_->Discard(*upload));
    if (was_upload) uploads_.Remove(path, *upload);
  }
  const auto unlink = [&]() -> Status {
    const FileSystem::Place place = TRY(file_system_->ResolveParent(inside));
    return file_system_->Unlink(place.directory, place.name);
  };
  const Status unlinked = unlink();
  if (!unlinked.ok() && unlinked.code() != ENOENT) return unlinked;
  const bool was_dropped = uploads_.RemoveDropped(path, Now());
  return was_upload || was_dropped ? Status() : unlinked;
}

int Oss::Unlink(const char* path, int, XrdOucEnv*) {
  const auto counted = Counted(GatewayCounters::Request::kChange, path);
  return AnswerFor(UnlinkPath(path), "unlink", path);
}

// Clients expect what XRootD's own storage does: missing parents of the target are made.
Status Oss::RenamePath(const char* source, const char* target) {
  const FileSystem::Place from = TRY(file_system_->ResolveParent(TRY(Inside(source))));
  TRY(file_system_->Lookup(from.directory, from.name));
  const FileSystem::Place to = TRY(file_system_->ResolveParent(TRY(Inside(target)), parents()));
  return file_system_->Rename(from.directory, from.name, to.directory, to.name);
}

int Oss::Rename(const char* source, const char* target, XrdOucEnv*, XrdOucEnv*) {
  const auto counted = Counted(GatewayCounters::Request::kChange, source);
  return AnswerFor(RenamePath(source, target), "rename", fmt::format("{} to {}", source, target));
}

Result<Attributes> Oss::Resolve(const char* path) {
  const auto upload = uploads_.Find(path);  // first: it may be closed before the other look
  Result<Attributes> there = file_system_->Resolve(TRY(Inside(path)));
  if (there.has_value() || there.error().code() != ENOENT || !upload) return there;
  return file_system_->GetAttributes(*upload);
}

Result<InodeId> Oss::ResolveForChange(const char* path) {
  if (const auto upload = uploads_.Find(path)) return *upload;
  return TRY(file_system_->Resolve(TRY(Inside(path)))).inode;
}

int Oss::Stat(const char* path, struct stat* out, int, XrdOucEnv*) {
  const auto counted = Counted(GatewayCounters::Request::kStat, path);
  const Result<Attributes> attributes = Resolve(path);
  if (!attributes.has_value()) return AnswerFor(attributes.error(), "stat", path);
  *out = StatOf(*attributes);
  return 0;
}

int Oss::Stats(char* out, int length) {
  // Asked with a null pointer for the most that it may be, whenever a client goes.
  constexpr int kMost = 2048;
  if (out == nullptr) return kMost;
  const std::string text = Statistics();
  if (text.size() >= static_cast<size_t>(std::max(length, 0))) return 0;
  text.copy(out, text.size());
  out[text.size()] = '\0';
  return static_cast<int>(text.size());
}

// docs/reference/metrics.md, "A gateway", says what each number is.
std::string Oss::Statistics() {
  size_t up = 0;
  size_t active = 0;
  for (const MappedDrive& one : cluster_.map().drives) {
    if (one.state != DriveState::kActive) continue;  // drained, and perhaps taken away
    ++active;
    const Drive* drive = cluster_.FindDrive(one.id);
    if (drive != nullptr && drive->IsUp()) ++up;
  }
  const MemoryCounters memory = file_system_->Memory();
  const StripeCounters stripes = cluster_.stripes().counters();
  return fmt::format(
      "<stats id=\"oss\" v=\"pinstripe\"><opens>{}</opens><in>{}</in><out>{}</out>"
      "<drives>{}</drives><up>{}</up>"
      "<mem><limit>{}</limit><used>{}</used><cached>{}</cached></mem>"
      "<cache><hits>{}</hits><misses>{}</misses><ahead>{}</ahead></cache>"
      "<disk><limit>{}</limit><used>{}</used><hits>{}</hits><misses>{}</misses>"
      "<evicted>{}</evicted><damaged>{}</damaged></disk>"
      "<stripes><fetched>{}</fetched><degraded>{}</degraded><damaged>{}</damaged>"
      "<missing>{}</missing><rewritten>{}</rewritten><spare>{}</spare><short>{}</short></stripes>"
      "</stats>",
      counters_.files_opened.load(), counters_.bytes_written.load(), counters_.bytes_read.load(),
      active, up, memory.limit_bytes, memory.used_bytes, memory.cached_bytes, memory.cache_hits,
      memory.cache_misses, memory.read_ahead_cells, memory.disk.limit_bytes, memory.disk.used_bytes,
      memory.disk.cells_found, memory.disk.cells_missed, memory.disk.cells_evicted,
      memory.disk.cells_damaged, stripes.bytes_fetched, stripes.degraded_reads,
      stripes.damaged_shards, stripes.missing_shards, stripes.rewritten_shards,
      stripes.spare_writes, stripes.short_writes);
}

std::string Oss::MetricsText() {
  MetricsPage page;
  AddProcessMetrics(page);
  counters_.AddTo(page);
  AddHostMetrics(cluster_, *file_system_, page);
  return page.Text();
}

void Oss::TellSlow(Duration after) { slow_ = std::make_unique<SlowOperations>(cluster_, after); }

void Oss::ServeMetrics(const std::string& address) {
  metrics_ = MetricsServer::StartOrWarn(address, [this] { return MetricsText(); });
}

int Oss::StatFS(const char* path, char* out, int& length, XrdOucEnv*) {
  const Result<SpaceInfo> space = file_system_->Space();
  if (!space.has_value()) return AnswerFor(space.error(), "statfs", path);
  // In MB, and clients read a number of 32 bits.
  const uint64_t free_mb = std::min<uint64_t>(space->usable_free_bytes >> 20, INT_MAX);
  return HandOver(fmt::format("1 {} {} 0 0 0", free_mb, UsedPercent(*space)), out, length);
}

int Oss::StatLS(XrdOucEnv&, const char* path, char* out, int& length) {
  const Result<SpaceInfo> space = file_system_->Space();
  if (!space.has_value()) return AnswerFor(space.error(), "spaceinfo", path);
  return HandOver(
      fmt::format("oss.cgroup=public&oss.space={}&oss.free={}&oss.maxf={}&oss.used={}&oss.quota=-1",
                  space->usable_bytes, space->usable_free_bytes, space->usable_free_bytes,
                  space->usable_bytes - std::min(space->usable_bytes, space->usable_free_bytes)),
      out, length);
}

int Oss::StatVS(XrdOssVSInfo* out, const char* name, int) {
  const Result<SpaceInfo> space = file_system_->Space();
  if (!space.has_value()) return AnswerFor(space.error(), "statvs", name == nullptr ? "" : name);
  out->Total = static_cast<long long>(space->usable_bytes);
  out->Free = static_cast<long long>(space->usable_free_bytes);
  out->Large = out->Total;
  out->LFree = out->Free;
  out->Usage = out->Total - std::min(out->Total, out->Free);
  out->Quota = -1;
  out->Extents = 1;
  return 0;
}

int Oss::StatXA(const char* path, char* out, int& length, XrdOucEnv*) {
  const Result<Attributes> attributes = Resolve(path);
  if (!attributes.has_value()) return AnswerFor(attributes.error(), "query xattr", path);
  const struct stat stat = StatOf(*attributes);
  return HandOver(
      fmt::format("oss.cgroup=public&oss.type={}&oss.used={}&oss.mt={}&oss.ct={}&oss.at={}"
                  "&oss.u=*&oss.g=*&oss.fs=w",
                  S_ISDIR(stat.st_mode)   ? 'd'
                  : S_ISREG(stat.st_mode) ? 'f'
                                          : 'o',
                  attributes->stored_bytes, stat.st_mtime, stat.st_ctime, stat.st_atime),
      out, length);
}

}  // namespace pinstripe
