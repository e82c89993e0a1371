// OssFile: one open file as XRootD sees it (XrdOssDF).
//
// The server keeps one object per path and direction for all its clients and calls it from many
// threads at once; after Open() the object itself does not change until Close(), so nothing is
// locked. An object may be destroyed without Close(): what was not committed is dropped.
//
// The server closes the file of a client that has vanished as it does for one that has finished. A
// client that uploads says how large the file will be, so an upload of which bytes are missing is
// dropped at Close(), and the old contents stay; so is one over HTTP whose connection has ended,
// and a third-party copy over HTTP of which nothing ever came.

#pragma once

#include <XrdOss/XrdOss.hh>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fs/file_system.h"
#include "plugin/oss.h"

namespace pinstripe {

class OssFile final : public XrdOssDF {
 public:
  OssFile(Oss& oss, const char* tident) : XrdOssDF(tident, DF_isFile), oss_(oss) {}

  // Overloads that we do not override (later versions of XRootD have more of them) stay visible.
  using XrdOssDF::Read;

  ~OssFile() override;

  int Open(const char* path, int flags, mode_t mode, XrdOucEnv& env) override;
  int Close(long long* size) override;

  // All of it unless the file ends; all or nothing.
  ssize_t Read(void* out, off_t offset, size_t length) override;
  ssize_t ReadRaw(void* out, off_t offset, size_t length) override;
  ssize_t ReadV(XrdOucIOVec* parts, int count) override;
  ssize_t Write(const void* data, off_t offset, size_t length) override;

  // With one CRC32C per page; see page_checksums.h. Where it can be told, what is read has the sums
  // with which it was stored. What was written has to be what its sums say
  // when it is stored: or Fsync() and Close() fail with EDOM, and nothing is committed.
  ssize_t pgRead(void* out, off_t offset, size_t length, uint32_t* sums, uint64_t options) override;
  ssize_t pgWrite(void* data, off_t offset, size_t length, uint32_t* sums,
                  uint64_t options) override;

  // Done at once; Features() says that there is no asynchronous I/O, and nobody should ask.
  int Read(XrdSfsAio* request) override;
  int Write(XrdSfsAio* request) override;
  int pgRead(XrdSfsAio* request, uint64_t options) override;
  int pgWrite(XrdSfsAio* request, uint64_t options) override;
  int Fsync(XrdSfsAio* request) override;

  int Fsync() override;
  int Ftruncate(unsigned long long size) override;
  int Fstat(struct stat* out) override;
  int Fchmod(mode_t mode) override;
  int Fctl(int command, int length, const char* arguments, char** response) override;
  int getFD() override { return -1; }

 private:
  Result<std::unique_ptr<OpenFile>> OpenPath(const char* path, int flags, mode_t mode);
  Status CheckNotDropped();
  Status CheckComplete() const;
  void StopWriting();
  ssize_t Get(uint64_t offset, MutableBytes out, std::span<PageSum> sums);
  ssize_t Put(uint64_t offset, Bytes data, std::span<const uint32_t> page_sums);
  Status SetTimes(int length, const char* arguments);
  // 0 or -errno, logged.
  int AnswerFor(const Status& status, const char* operation) const;

  Oss& oss_;
  std::string path_;  // for messages
  std::unique_ptr<OpenFile> file_;
  std::optional<Uploads::Writer> writer_;
  bool replaces_ = false;  // all contents that there were
  std::atomic<bool> wrote_ = false;
  std::optional<UploadParts> upload_;  // of an announced size
  UploadClaim claim_;                  // and of whom; no client: nobody comes back to go on
};

}  // namespace pinstripe
