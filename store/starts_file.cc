#include "store/starts_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "store/descriptor_reserve.h"
#include "store/directory.h"
#include "store/machine.h"

namespace pinstripe {
namespace {

constexpr mode_t kMode = 0640;
constexpr size_t kMaxBytes = 2048;

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

std::string PathIn(const std::string& directory) {
  return fmt::format("{}/{}", directory, StartsFile::kFileName);
}

FileIdentity IdentityOf(int fd) {
  struct statx about {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &about) != 0) return {};
  FileIdentity identity{.inode = about.stx_ino};
  if ((about.stx_mask & STATX_BTIME) != 0) {
    identity.born =
        static_cast<uint64_t>(about.stx_btime.tv_sec) * 1'000'000'000 + about.stx_btime.tv_nsec;
  }
  return identity;
}

uint64_t NewId(const std::optional<Starts>& before) {
  while (true) {
    uint64_t id = 0;
    const ssize_t got = getrandom(&id, sizeof id, 0);
    assert(got == sizeof id);
    const bool used = before && std::any_of(before->list.begin(), before->list.end(),
                                            [&](const DriveStart& each) { return each.id == id; });
    if (id != 0 && !used) return id;
  }
}

}  // namespace

// --- The page

StartsFile::Page::Page(FileDescriptor file) : file_(std::move(file)) {
  void* const address = mmap(nullptr, PageBytes(), PROT_READ, MAP_SHARED, file_.get(), 0);
  if (address != MAP_FAILED) address_ = address;
}

StartsFile::Page::~Page() {
  if (address_ != nullptr) munmap(address_, PageBytes());
}

Result<std::string> StartsFile::Page::Read() const {
  std::string bytes(kMaxBytes + 1, '\0');
  const ssize_t got = pread(file_.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return Fail(errno, "cannot be read: {}", ErrnoText(errno));
  bytes.resize(static_cast<size_t>(got));
  if (bytes.size() > kMaxBytes) return Fail(EBADMSG, "it is longer than {} bytes", kMaxBytes);
  return bytes;
}

bool StartsFile::Page::IsInMemory() const {
  unsigned char in_memory = 0;
  return address_ != nullptr && mincore(address_, PageBytes(), &in_memory) == 0 &&
         (in_memory & 1) != 0;
}

// Where it may not, it may leave when memory is short: then a kill is taken for more than it was.
void StartsFile::Page::StayInMemory() const {
  if (address_ != nullptr) (void)mlock(address_, PageBytes());
}

Status StartsFile::Page::Overwrite(std::string_view bytes) const {
  const ssize_t wrote = pwrite(file_.get(), bytes.data(), bytes.size(), 0);
  if (wrote < 0) return Fail(errno, "cannot be written: {}", ErrnoText(errno));
  if (static_cast<size_t>(wrote) < bytes.size()) return Fail(ENOSPC, "cannot be written wholly");
  return {};
}

FileIdentity StartsFile::Page::identity() const { return IdentityOf(file_.get()); }

Status StartsFile::Page::Sync() const {
  if (fdatasync(file_.get()) == 0) return {};
  return Fail(errno, "cannot be synced: {}", ErrnoText(errno));
}

void StartsFile::Page::LeaveMemory() const {
  if (address_ != nullptr) munlock(address_, PageBytes());
  (void)posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

// --- The file

StartsFile::StartsFile(const std::string& directory)
    : path_(PathIn(directory)), boot_id_(BootId()) {}

Status StartsFile::Create(const std::string& directory) {
  return ReplaceFileDurably(PathIn(directory), EncodeStarts({.run = Starts::Run::kEnded}), kMode);
}

Result<std::unique_ptr<StartsFile>> StartsFile::Open(const std::string& directory) {
  std::unique_ptr<StartsFile> file(new StartsFile(directory));
  const Status loaded = file->Load();
  if (loaded.code() == EBADMSG) {
    Log(LogLevel::kWarn, "list of a drive's starts is damaged; a new one is begun",
        {{"file", file->path_}, {"why", loaded}});
  } else if (!loaded.ok()) {
    return Failed(loaded.Context(file->path_));
  }
  return file;
}

// Null: there is no file.
Result<std::shared_ptr<const StartsFile::Page>> StartsFile::OpenPage() const {
  FileDescriptor file(OpenFile(path_, O_RDWR));
  if (file.get() < 0 && errno == ENOENT) return std::shared_ptr<const Page>();
  if (file.get() < 0) return Fail(errno, "cannot be opened: {}", ErrnoText(errno));
  return std::make_shared<const Page>(std::move(file));
}

Status StartsFile::Write(Starts starts) const {
  const auto bytes = [&](int fd) -> Result<std::string> {
    starts.file = IdentityOf(fd);
    return EncodeStarts(starts);
  };
  return ReplaceFileDurably(path_, bytes, kMode);
}

Status StartsFile::Load() {
  const MutexLock lock(mutex_);
  page_ = TRY(OpenPage());
  if (page_ == nullptr) return {};
  kernel_kept_pages_ = page_->IsInMemory();  // before it is read
  found_in_ = page_->identity();
  said_ = TRY(DecodeStarts(TRY(page_->Read())));
  return {};
}

bool StartsFile::kernel_may_show_more() const {
  const MutexLock lock(mutex_);
  return KernelMayShowMore(said_, boot_id_);
}

Status StartsFile::Begin(std::string lost) {
  std::optional<Starts> before;
  {
    const MutexLock lock(mutex_);
    before = said_;
  }
  const StartSituation situation{.boot_id = boot_id_,
                                 .file = found_in_,
                                 .uptime = Uptime(),
                                 .kernel_kept_pages = kernel_kept_pages_,
                                 .lost = std::move(lost),
                                 .new_id = NewId(before)};
  Starts next = NextStart(before, situation);
  TRY(Write(next));
  const std::shared_ptr<const Page> page = TRY_CONTEXT(OpenPage(), "{}", path_);
  if (page == nullptr) return Fail(EIO, "{} was removed by somebody else", path_);
  next.file = page->identity();
  page->StayInMemory();
  if (const std::string why = WhyUnclean(before, situation); !why.empty()) {
    Log(LogLevel::kWarn,
        "drive may have forgotten changes that it had answered and not flushed; it says so to its "
        "cluster",
        {{"file", path_}, {"why", why}});
  }
  const MutexLock lock(mutex_);
  said_ = std::move(next);
  page_ = page;
  begun_ = true;
  return {};
}

void StartsFile::NoteFailedSync() {
  std::shared_ptr<const Page> page;
  std::string bytes;
  {
    const MutexLock lock(mutex_);
    if (ended_ || !said_ || said_->run == Starts::Run::kSyncFailed) return;
    said_->run = Starts::Run::kSyncFailed;
    bytes = EncodeStarts(*said_);
    page = page_;
  }
  Status noted = page->Overwrite(bytes);
  if (!noted.ok()) page->LeaveMemory();  // for what it says there is not true any more
  if (noted.ok()) noted = page->Sync();
  if (noted.ok()) return;
  Log(LogLevel::kWarn, "that a sync has failed could not be written down",
      {{"file", path_}, {"why", noted}});
}

Status StartsFile::End() {
  Starts last;
  {
    const MutexLock lock(mutex_);
    assert(begun_);
    if (said_->run == Starts::Run::kSyncFailed) {
      return Fail(EIO, "a sync had failed: the next start will not be a clean one");
    }
    ended_ = true;
    const bool untold = said_->run == Starts::Run::kUntold;
    said_->run = untold ? Starts::Run::kEndedUntold : Starts::Run::kEnded;
    last = *said_;
  }
  return Write(std::move(last));
}

// By whoever tells first; others wait for that.
void StartsFile::NoteTold() {
  const MutexLock telling(telling_);
  std::shared_ptr<const Page> page;
  std::string bytes;
  {
    const MutexLock lock(mutex_);
    if (!begun_ || ended_ || said_->run != Starts::Run::kUntold) return;
    said_->run = Starts::Run::kUnderWay;
    bytes = EncodeStarts(*said_);
    page = page_;
  }
  Status noted = page->Overwrite(bytes);
  if (noted.ok()) noted = page->Sync();
  if (noted.ok()) return;
  Log(LogLevel::kWarn, "that a drive has told of its start could not be written down",
      {{"file", path_}, {"why", noted}});
  NoteFailedSync();
}

StoreStarts StartsFile::starts() {
  NoteTold();
  const MutexLock lock(mutex_);
  if (!begun_) return {};
  return {.starts = said_->list, .count = said_->count, .up = UpOf(*said_, Uptime())};
}

}  // namespace pinstripe
