#include "store/segment_files.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/try.h"
#include "store/directory.h"
#include "store/store.h"

namespace pinstripe {
namespace {

constexpr std::string_view kSuffix = ".log";
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLeastAhead = 1 << 20;
constexpr uint64_t kMostAhead = 32 << 20;
constexpr uint64_t kMostPunched = 8 << 20;  // at once, for the file's writers wait meanwhile

// Drops the first `count` bytes.
std::span<iovec> Advance(std::span<iovec> pieces, size_t count) {
  while (!pieces.empty() && count >= pieces[0].iov_len) {
    count -= pieces[0].iov_len;
    pieces = pieces.subspan(1);
  }
  if (!pieces.empty()) {
    pieces[0].iov_base = static_cast<char*>(pieces[0].iov_base) + count;
    pieces[0].iov_len -= count;
  }
  return pieces;
}

}  // namespace

std::string SegmentFiles::PathOf(uint32_t segment) const {
  return fmt::format("{}/{:08x}{}", directory_, segment, kSuffix);
}

Failed SegmentFiles::Fault(const char* what, uint32_t segment) const {
  const int error = errno;
  return Fail(error == EDQUOT ? ENOSPC : error, "cannot {} {}: {}", what, PathOf(segment),
              ErrnoText(error));
}

Result<std::vector<uint32_t>> SegmentFiles::List() const {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(directory_.c_str()), &closedir);
  if (directory == nullptr) return Fail(errno, "cannot read {}: {}", directory_, ErrnoText(errno));
  std::vector<uint32_t> segments;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name.size() != 8 + kSuffix.size() || !name.ends_with(kSuffix)) continue;
    uint32_t segment = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + 8, segment, 16);
    if (error == std::errc() && end == name.data() + 8) segments.push_back(segment);
  }
  std::sort(segments.begin(), segments.end());
  return segments;
}

Status SegmentFiles::Create(uint32_t segment) {
  const int fd = calls_.Create(PathOf(segment));
  if (fd < 0) return Fault("create", segment);
  auto file = std::make_shared<File>(fd);
  if (const Status synced = calls_.SyncDirectory(directory_); !synced.ok()) {
    (void)calls_.Unlink(PathOf(segment));  // or the next attempt would find it in its way
    return synced;
  }
  const MutexLock lock(mutex_);
  open_[segment] = std::move(file);
  return {};
}

Status SegmentFiles::Remove(uint32_t segment) {
  {
    const MutexLock lock(mutex_);
    open_.erase(segment);
  }
  if (calls_.Unlink(PathOf(segment)) != 0) return Fault("remove", segment);
  return {};
}

Result<SegmentFiles::OpenFile> SegmentFiles::Open(uint32_t segment) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = open_.find(segment); found != open_.end()) return found->second;
  }
  const int fd = calls_.Open(PathOf(segment));
  if (fd < 0) return Fault("open", segment);
  auto file = std::make_shared<File>(fd);
  const MutexLock lock(mutex_);
  // Any one may go; whoever uses it keeps it open. The oldest is the least likely to be wanted.
  if (open_.size() >= kMaxOpen) open_.erase(open_.begin());
  open_[segment] = file;
  return file;
}

Result<uint64_t> SegmentFiles::Size(uint32_t segment) {
  const OpenFile file = TRY(Open(segment));
  struct stat about;
  if (fstat(file->fd.get(), &about) != 0) return Fault("look at", segment);
  return static_cast<uint64_t>(about.st_size);
}

Result<uint64_t> SegmentFiles::AllocatedBytes(uint32_t segment) {
  const OpenFile file = TRY(Open(segment));
  struct stat about;
  if (fstat(file->fd.get(), &about) != 0) return Fault("look at", segment);
  return static_cast<uint64_t>(about.st_blocks) * 512;
}

Status SegmentFiles::Truncate(uint32_t segment, uint64_t size) {
  const OpenFile file = TRY(Open(segment));
  if (calls_.Truncate(file->fd.get(), size) != 0) return Fault("truncate", segment);
  return {};
}

Status SegmentFiles::Trim(uint32_t segment) {
  const OpenFile file = TRY(Open(segment));
  file->asked_to = 0;
  struct stat about;
  if (fstat(file->fd.get(), &about) != 0) return Fault("look at", segment);
  const auto size = static_cast<uint64_t>(about.st_size);
  if (calls_.Truncate(file->fd.get(), size) != 0) return Fault("truncate", segment);
  return {};
}

// As much again as there is, so that a small store stays small. If the file system does not give
// it, only speed is lost: writing finds out whether there is space.
void SegmentFiles::AskAhead(File& file, uint64_t begin, uint64_t end) {
  uint64_t asked = file.asked_to;
  if (end <= asked) return;
  const uint64_t to = end + std::clamp(end, kLeastAhead, kMostAhead);
  if (!file.asked_to.compare_exchange_strong(asked, to)) return;  // somebody else asks
  const uint64_t from = std::max(asked, begin);
  (void)calls_.Allocate(file.fd.get(), from, to);
}

Result<SegmentFiles::Held> SegmentFiles::Write(uint32_t segment, uint64_t offset,
                                               std::span<iovec> pieces) {
  const OpenFile file = TRY(Open(segment));
  uint64_t end = offset;
  for (const iovec& piece : pieces) end += piece.iov_len;
  const FileTurns::Write turn(file->turns);
  AskAhead(*file, offset, end);
  for (pieces = Advance(pieces, 0); !pieces.empty();) {
    const ssize_t wrote =
        calls_.Write(file->fd.get(), pieces.data(), static_cast<int>(pieces.size()), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Fault("write", segment);
    offset += static_cast<uint64_t>(wrote);
    pieces = Advance(pieces, static_cast<size_t>(wrote));
  }
  return Held(file);
}

Status SegmentFiles::Read(uint32_t segment, uint64_t offset, std::span<iovec> pieces) {
  const OpenFile file = TRY(Open(segment));
  for (pieces = Advance(pieces, 0); !pieces.empty();) {
    const ssize_t got = preadv(file->fd.get(), pieces.data(), static_cast<int>(pieces.size()),
                               static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fault("read", segment);
    if (got == 0) return Fail(EBADMSG, "{} ends at {}", PathOf(segment), offset);
    offset += static_cast<uint64_t>(got);
    pieces = Advance(pieces, static_cast<size_t>(got));
  }
  return {};
}

Status SegmentFiles::ReadFromDisk(uint32_t segment, uint64_t offset,
                                  std::span<const iovec> pieces) {
  if (disk_segment_ != segment) {
    disk_reader_ = TRY(DiskReader::Open(calls_, PathOf(segment)));
    disk_segment_ = segment;
  }
  for (const iovec& piece : pieces) {
    TRY(disk_reader_->Read(offset, {static_cast<std::byte*>(piece.iov_base), piece.iov_len}));
    offset += piece.iov_len;
  }
  return {};
}

void SegmentFiles::EndReadingFromDisk() {
  disk_reader_.reset();
  disk_segment_.reset();
}

Status SegmentFiles::ReadAtOnce(uint32_t segment, uint64_t offset, std::span<const iovec> pieces) {
  OpenFile file;
  {
    const MutexLock lock(mutex_);
    if (const auto found = open_.find(segment); found != open_.end()) file = found->second;
  }
  if (file == nullptr) return WouldWait();
  size_t wanted = 0;
  for (const iovec& piece : pieces) wanted += piece.iov_len;
  const ssize_t got = preadv2(file->fd.get(), pieces.data(), static_cast<int>(pieces.size()),
                              static_cast<off_t>(offset), RWF_NOWAIT);
  // What else may be wrong is found out, and told, by who may wait.
  return got == static_cast<ssize_t>(wanted) ? Status() : WouldWait();
}

Result<SegmentFiles::Held> SegmentFiles::Hold(uint32_t segment) { return Held(TRY(Open(segment))); }

Status SegmentFiles::Sync(uint32_t segment, const Held& held) {
  if (calls_.Sync(held->fd.get()) != 0) return Fault("sync", segment);
  return {};
}

Status SegmentFiles::Punch(uint32_t segment, uint64_t begin, uint64_t end) {
  begin = (begin + kPage - 1) / kPage * kPage;
  end = end / kPage * kPage;
  if (begin >= end) return {};
  const OpenFile file = TRY(Open(segment));
  for (uint64_t next = begin; begin < end; begin = next) {
    next = std::min(end, begin + kMostPunched);
    file->turns.AwaitWrites();
    if (calls_.Punch(file->fd.get(), begin, next) == 0) continue;
    if (errno == EOPNOTSUPP) return {};
    return Fault("give space back in", segment);
  }
  return {};
}

}  // namespace pinstripe
