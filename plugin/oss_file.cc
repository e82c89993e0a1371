#include "plugin/oss_file.h"

#include <fcntl.h>
#include <sys/time.h>

#include <XrdOuc/XrdOucEnv.hh>
#include <XrdSec/XrdSecEntity.hh>
#include <XrdSfs/XrdSfsAio.hh>
#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/answer.h"
#include "base/try.h"
#include "fs/posix_stat.h"
#include "plugin/page_checksums.h"
#include "plugin/summable.h"

namespace pinstripe {
namespace {

// The UploadClaim of the last client that has begun to replace the file by an upload that it may
// come back to go on with. Whoever opens the file to update it and claims the same has lost what he
// sent.
constexpr std::string_view kUploadAttribute = "trusted.pinstripe.upload";

// The end of an HTTP session in the middle of an upload is the end of that upload.
bool IsHttp(const XrdSecEntity* client) {
  return client != nullptr && std::string_view(client->prot).starts_with("http");
}

// The name under which the server's manager of checksums opens a file.
constexpr std::string_view kSummer = "ckscalc";

Uploader UploaderOf(XrdOucEnv& env) {
  Uploader uploader;
  const char* copy_key = env.Get("tpc.key");
  if (copy_key != nullptr && env.Get("tpc.src") != nullptr) uploader.copy_key = copy_key;
  if (IsHttp(env.secEnv())) uploader.session = env.secEnv();
  return uploader;
}

}  // namespace

int OssFile::AnswerFor(const Status& status, const char* operation) const {
  return oss_.AnswerFor(status, operation, path_);
}

Result<std::unique_ptr<OpenFile>> OssFile::OpenPath(const char* path, int flags, mode_t mode) {
  const std::string inside = TRY(oss_.Inside(path));
  FileSystem::OpenRequest request{
      .path = inside,
      .access =
          (flags & O_ACCMODE) == O_RDONLY ? FileSystem::Access::kRead : FileSystem::Access::kWrite,
      .truncate = (flags & O_TRUNC) != 0,
      .create = (flags & O_CREAT) != 0,
      .exclusive = (flags & O_EXCL) != 0,
      .mode = mode & 07777,  // the server leaves flags of its own above these bits
      .owner = oss_.owner(),
      .publish_at_commit = true};
  if (!claim_.client.empty()) request.note_on_replaced.emplace(kUploadAttribute, claim_.Text());
  if (writer_ && writer_->parents == Uploads::Parents::kAreMade) request.parents = oss_.parents();
  auto file = TRY(oss_.file_system().OpenPath(request));
  const bool sums_up = tident != nullptr && tident == kSummer;
  if (sums_up && !request.create) TRY(CheckSummable(TRY(file->Stat())));
  return file;
}

OssFile::~OssFile() {
  file_.reset();
  StopWriting();
}

int OssFile::Open(const char* path, int flags, mode_t mode, XrdOucEnv& env) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kOpen, path);
  path_ = path;
  const bool uploads = (flags & (O_CREAT | O_TRUNC)) != 0;
  const std::optional<uint64_t> announced = AnnouncedSize(env.Get("oss.asize"));
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (writes && announced && tident != nullptr && *tident != '\0' && !IsHttp(env.secEnv())) {
    claim_ = {ClientProcess(tident), *announced};
  }
  if (writes) writer_ = oss_.uploads().Begin(path_, UploaderOf(env));
  Result<std::unique_ptr<OpenFile>> file = OpenPath(path, flags, mode);
  Status opened = file.has_value() ? Status() : file.error();
  if (opened.ok()) file_ = *std::move(file);
  if (opened.ok() && !uploads && !claim_.client.empty()) opened = CheckNotDropped();
  if (!opened.ok()) {
    file_.reset();
    StopWriting();
    return AnswerFor(opened, "open");
  }
  if (writes && (flags & O_CREAT) != 0) {
    oss_.uploads().Creates(*writer_, file_->inode(), claim_.client);
  }
  replaces_ = uploads;
  if (announced && uploads) upload_.emplace(*announced);
  ++oss_.counters().files_opened;
  return 0;
}

// A client whose server or line went away in the middle of an upload opens the file again as if to
// update it, and goes on where it was. But what it sent before is gone, and what is here is another
// file.
Status OssFile::CheckNotDropped() {
  const auto noted = oss_.file_system().GetExtended(file_->inode(), kUploadAttribute);
  if (!noted.has_value() && noted.error().code() != ENODATA) return noted.error();
  const bool is_noted = noted.has_value() && *noted == claim_.Text();
  if (!is_noted && !oss_.uploads().IsDropped(path_, claim_, oss_.Now())) return {};
  return Fail(ECANCELED,
              "an upload that was cut off cannot be continued, nothing of it is kept; upload the "
              "file again");
}

int OssFile::Close(long long* size) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kClose, path_.c_str());
  if (file_ == nullptr) return -EBADF;
  if (size != nullptr) {
    const Result<Attributes> attributes = file_->Stat();
    *size = attributes.has_value() ? static_cast<long long>(attributes->size) : 0;
  }
  Status closed = CheckComplete();
  if (closed.ok()) {
    closed = file_->Close();
  } else {
    const bool may_come_back = !claim_.client.empty();
    oss_.uploads().Drop(path_, oss_.Now(), may_come_back ? std::optional(claim_) : std::nullopt);
  }
  file_.reset();
  StopWriting();
  return AnswerFor(closed, "close");
}

Status OssFile::CheckComplete() const {
  if (!writer_ || oss_.uploads().WasRemoved(*writer_)) return {};  // that one can be closed
  if (oss_.uploads().IsCutOff(*writer_)) {
    return Fail(
        ECANCELED,
        "the client went away before its upload had ended; it is dropped, and what was there "
        "before stays");
  }
  // The server closes a copy that failed as it does one that came, and then no size was announced.
  const bool is_http_copy = tident == nullptr || *tident == '\0';  // it has no client
  if (replaces_ && is_http_copy && !upload_ && !wrote_) {
    return Fail(ECANCELED,
                "nothing came of what was to be copied here; what was there before stays");
  }
  if (!upload_ || upload_->Complete()) return {};
  return Fail(ECANCELED,
              "the upload ended before all of the {} bytes that were announced had come; it is "
              "dropped, and what was there before stays",
              upload_->expected());
}

void OssFile::StopWriting() {
  if (const auto writer = std::exchange(writer_, std::nullopt)) oss_.uploads().End(*writer);
}

ssize_t OssFile::Get(uint64_t offset, MutableBytes out, std::span<PageSum> sums) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kRead, path_.c_str());
  OpenFile::Part part{.offset = offset, .out = out, .sums = sums};
  const Status read = file_->ReadParts({&part, 1});
  if (!read.ok()) return AnswerFor(read, "read");
  oss_.counters().bytes_read += part.length;
  return static_cast<ssize_t>(part.length);
}

ssize_t OssFile::Read(void* out, off_t offset, size_t length) {
  if (file_ == nullptr) return -EBADF;
  if (offset < 0) return -EINVAL;
  return Get(static_cast<uint64_t>(offset), {static_cast<std::byte*>(out), length}, {});
}

ssize_t OssFile::ReadRaw(void* out, off_t offset, size_t length) {
  return Read(out, offset, length);
}

ssize_t OssFile::ReadV(XrdOucIOVec* parts, int count) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kReadParts, path_.c_str());
  if (file_ == nullptr) return -EBADF;
  std::vector<OpenFile::Part> wanted;
  for (const XrdOucIOVec& part : std::span(parts, static_cast<size_t>(std::max(count, 0)))) {
    if (part.size < 0 || part.offset < 0) return -EINVAL;
    wanted.push_back({static_cast<uint64_t>(part.offset),
                      {reinterpret_cast<std::byte*>(part.data), static_cast<size_t>(part.size)}});
  }
  const Status read = file_->ReadParts(wanted);
  if (!read.ok()) return AnswerFor(read, "read");
  ssize_t total = 0;
  for (const OpenFile::Part& part : wanted) {
    if (part.length < part.out.size()) return -ESPIPE;  // beyond the end; what clients are used to
    total += static_cast<ssize_t>(part.length);
  }
  oss_.counters().bytes_read += static_cast<uint64_t>(total);
  return total;
}

ssize_t OssFile::Put(uint64_t offset, Bytes data, std::span<const uint32_t> page_sums) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kWrite, path_.c_str());
  if (file_ == nullptr) return -EBADF;
  const Status written = file_->Write(offset, data, page_sums);
  if (!written.ok()) return AnswerFor(written, "write");
  wrote_ = true;
  oss_.counters().bytes_written += data.size();
  if (upload_) upload_->Add(offset, data.size());
  return static_cast<ssize_t>(data.size());
}

ssize_t OssFile::Write(const void* data, off_t offset, size_t length) {
  if (file_ == nullptr) return -EBADF;
  if (offset < 0) return -EINVAL;
  return Put(static_cast<uint64_t>(offset), Bytes(static_cast<const std::byte*>(data), length), {});
}

ssize_t OssFile::pgRead(void* out, off_t offset, size_t length, uint32_t* sums, uint64_t) {
  if (file_ == nullptr) return -EBADF;
  if (offset < 0) return -EINVAL;
  const auto at = static_cast<uint64_t>(offset);
  const MutableBytes bytes(static_cast<std::byte*>(out), length);
  if (sums == nullptr) return Get(at, bytes, {});
  std::vector<PageSum> known(CountFilePages(at, length));
  const ssize_t read = Get(at, bytes, known);
  if (read > 0) PageChecksums(at, bytes.first(static_cast<size_t>(read)), known, sums);
  return read;
}

// The server has verified the sums already. Pages that did not arrive as they were sent are written
// all the same, and the client is asked to send them again. So nothing is verified here unless it
// is asked for: the sums go with the bytes, and are compared when these are stored.
ssize_t OssFile::pgWrite(void* data, off_t offset, size_t length, uint32_t* sums,
                         uint64_t options) {
  if (file_ == nullptr) return -EBADF;
  if (offset < 0) return -EINVAL;
  const auto at = static_cast<uint64_t>(offset);
  const Bytes bytes(static_cast<const std::byte*>(data), length);
  if (sums == nullptr) return Put(at, bytes, {});
  if ((options & Verify) != 0 && !PageChecksumsMatch(at, bytes, sums)) return -EDOM;
  if ((options & doCalc) != 0) PageChecksums(at, bytes, sums);
  return Put(at, bytes, {sums, CountFilePages(at, length)});
}

int OssFile::Read(XrdSfsAio* request) {
  const aiocb& io = request->sfsAio;
  request->Result = Read(const_cast<void*>(io.aio_buf), io.aio_offset, io.aio_nbytes);
  request->doneRead();
  return 0;
}

int OssFile::Write(XrdSfsAio* request) {
  const aiocb& io = request->sfsAio;
  request->Result = Write(const_cast<void*>(io.aio_buf), io.aio_offset, io.aio_nbytes);
  request->doneWrite();
  return 0;
}

int OssFile::pgRead(XrdSfsAio* request, uint64_t options) {
  const aiocb& io = request->sfsAio;
  request->Result =
      pgRead(const_cast<void*>(io.aio_buf), io.aio_offset, io.aio_nbytes, request->cksVec, options);
  request->doneRead();
  return 0;
}

int OssFile::pgWrite(XrdSfsAio* request, uint64_t options) {
  const aiocb& io = request->sfsAio;
  request->Result = pgWrite(const_cast<void*>(io.aio_buf), io.aio_offset, io.aio_nbytes,
                            request->cksVec, options);
  request->doneWrite();
  return 0;
}

int OssFile::Fsync(XrdSfsAio* request) {
  request->Result = Fsync();
  request->doneWrite();
  return 0;
}

int OssFile::Fsync() {
  const auto counted = oss_.Counted(GatewayCounters::Request::kSync, path_.c_str());
  if (file_ == nullptr) return -EBADF;
  return AnswerFor(file_->Sync(), "fsync");
}

int OssFile::Ftruncate(unsigned long long size) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kChange, path_.c_str());
  if (file_ == nullptr) return -EBADF;
  if (IsNegative(size)) return -EINVAL;
  return AnswerFor(file_->Truncate(size), "ftruncate");
}

int OssFile::Fstat(struct stat* out) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kStat, path_.c_str());
  if (file_ == nullptr) return -EBADF;
  const Result<Attributes> attributes = file_->Stat();
  if (!attributes.has_value()) return AnswerFor(attributes.error(), "fstat");
  *out = oss_.StatOf(*attributes);
  return 0;
}

int OssFile::Fchmod(mode_t mode) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kChange, path_.c_str());
  if (file_ == nullptr) return -EBADF;
  return AnswerFor(file_->SetAttributes({.mode = mode & 07777}), "fchmod");
}

Status OssFile::SetTimes(int length, const char* arguments) {
  timeval times[2];  // accessed, modified
  if (length != static_cast<int>(sizeof(times))) {
    return Fail(EINVAL, "{} bytes of times instead of {}", length, sizeof(times));
  }
  std::memcpy(times, arguments, sizeof(times));
  timespec exact[2];
  for (int i = 0; i < 2; ++i) {
    if (times[i].tv_usec < 0 || times[i].tv_usec >= 1'000'000) {
      return Fail(EINVAL, "{} microseconds are not a part of a second", times[i].tv_usec);
    }
    exact[i] = {.tv_sec = times[i].tv_sec, .tv_nsec = times[i].tv_usec * 1'000};
  }
  return file_->SetAttributes(
      {.accessed = ToNanoseconds(exact[0]), .modified = ToNanoseconds(exact[1])});
}

int OssFile::Fctl(int command, int length, const char* arguments, char** response) {
  if (file_ == nullptr) return -EBADF;
  if (command != Fctl_utimes) return XrdOssDF::Fctl(command, length, arguments, response);
  return AnswerFor(SetTimes(length, arguments), "utimes");
}

}  // namespace pinstripe
