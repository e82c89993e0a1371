#include "upkeep/state_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/checksum.h"
#include "base/try.h"
#include "base/write_file.h"

namespace pinstripe {
namespace {

constexpr size_t kFrameBytes = 1 << 20;       // about as many are written together
constexpr uint32_t kMaxFrameBytes = 1 << 30;  // one item may be large
constexpr size_t kFrameHeadBytes = 8;

// As many as there are, which is less than asked for only at the end.
Result<size_t> ReadUpTo(int file, const std::string& path, char* bytes, size_t size, uint64_t at) {
  size_t all = 0;
  while (all < size) {
    const ssize_t got = pread(file, bytes + all, size - all, static_cast<off_t>(at + all));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return BecauseOfErrno("read", path);
    if (got == 0) break;
    all += static_cast<size_t>(got);
  }
  return all;
}

}  // namespace

Status StateFile::Damaged(std::string_view what) const {
  return Fail(EBADMSG, "{} is damaged: {}; remove it to begin anew", path_, what);
}

Result<StateFile> StateFile::Read(const std::string& path) {
  StateFile file(true, path);
  file.file_ = FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.file_.get() < 0) return BecauseOfErrno("open", path);
  do {
    file.ReadFrame();
    TRY(file.failure_);
  } while (!file.frame_->empty());
  file.at_ = 0;
  file.ReadFrame();
  TRY(file.failure_);
  return file;
}

Result<StateFile> StateFile::Write(const std::string& path) {
  StateFile file(false, path);
  std::string beside = path + std::string(kBeside);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  file.file_ = FileDescriptor(open(beside.c_str(), flags, 0600));
  if (file.file_.get() < 0) return BecauseOfErrno("make a file beside", path);
  file.beside_ = std::move(beside);
  return file;
}

StateFile::~StateFile() {
  if (!beside_.empty() && file_.get() >= 0) unlink(beside_.c_str());
}

void StateFile::Text(std::string& text) {
  if (!reads_) {
    out_.Text(text);
    return;
  }
  text = in_.Text();
}

void StateFile::Cut() {
  if (!reads_ && out_.bytes().size() >= kFrameBytes) WriteFrame();
  if (reads_ && ok() && in_.left() == 0) ReadFrame();
}

void StateFile::WriteFrame() {
  const std::string bytes = std::exchange(out_, Writer()).Take();
  if (!failure_.ok()) return;
  if (bytes.size() > kMaxFrameBytes) {
    failure_ = Fail(EFBIG, "{}: an item has {} bytes", path_, bytes.size());
    return;
  }
  const std::string head =
      Writer().U32(static_cast<uint32_t>(bytes.size())).U32(Crc32c(AsBytes(bytes))).Take();
  failure_ = WriteAll(file_.get(), beside_, head);
  if (failure_.ok()) failure_ = WriteAll(file_.get(), beside_, bytes);
}

void StateFile::ReadFrame() {
  frame_->clear();
  in_ = Reader(std::string_view());
  const auto read = [&](std::string& bytes, size_t size) -> Status {
    bytes.resize(size);
    const size_t got = TRY(ReadUpTo(file_.get(), path_, bytes.data(), size, at_));
    if (got < size) return Damaged("it ends too early");
    at_ += size;
    return {};
  };
  std::string head;
  failure_ = read(head, kFrameHeadBytes);
  if (!failure_.ok()) return;
  Reader in(head);
  const uint32_t size = in.U32();
  const uint32_t sum = in.U32();
  std::error_code error;
  const uint64_t there = std::filesystem::file_size(path_, error);
  if (size > kMaxFrameBytes || error || size > there - std::min(there, at_)) {
    failure_ = Damaged("it ends too early");
    return;
  }
  failure_ = read(*frame_, size);
  if (failure_.ok() && Crc32c(AsBytes(*frame_)) != sum) failure_ = Damaged("a checksum is wrong");
  if (failure_.ok()) in_ = Reader(std::string_view(*frame_));
}

Status StateFile::Finish() {
  if (reads_) {
    TRY(failure_);
    if (ok() && in_.left() == 0 && !frame_->empty()) ReadFrame();
    TRY(failure_);
    if (!in_.ok() || !frame_->empty()) return Damaged("its contents do not fit");
    return {};
  }
  if (!out_.bytes().empty()) WriteFrame();
  WriteFrame();
  TRY(failure_);
  if (fsync(file_.get()) != 0) return BecauseOfErrno("sync", beside_);
  if (std::rename(beside_.c_str(), path_.c_str()) != 0)
    return BecauseOfErrno("put into its place", path_);
  beside_.clear();
  return MakeNamesDurable(std::filesystem::path(path_).parent_path().string());
}

}  // namespace pinstripe
