#include "store/disk_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace pinstripe {

DiskReader::DiskReader(FileCalls& calls, std::string path, FileDescriptor file)
    : calls_(&calls),
      path_(std::move(path)),
      file_(std::move(file)),
      window_(std::make_unique<Block[]>(kWindow / sizeof(Block))) {}

Result<DiskReader> DiskReader::Open(FileCalls& calls, std::string path) {
  FileDescriptor file(calls.OpenDirect(path));
  if (file.get() < 0) return Fail(errno, "cannot open {}: {}", path, ErrnoText(errno));
  return DiskReader(calls, std::move(path), std::move(file));
}

Status DiskReader::Fill(uint64_t offset) {
  begin_ = offset / sizeof(Block) * sizeof(Block);
  size_ = 0;
  ssize_t got = 0;
  do got = calls_->ReadDirect(file_.get(), window_.get(), kWindow, begin_);
  while (got < 0 && errno == EINTR);
  if (got < 0) return Fail(errno, "cannot read {} from the disk: {}", path_, ErrnoText(errno));
  size_ = static_cast<size_t>(got);
  return {};
}

Status DiskReader::Read(uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    if (offset < begin_ || offset >= begin_ + size_) TRY(Fill(offset));
    if (offset >= begin_ + size_) return Fail(EBADMSG, "{} ends at {}", path_, begin_ + size_);
    const size_t skip = offset - begin_;
    const size_t count = std::min(into.size(), size_ - skip);
    std::memcpy(into.data(), window_[0].bytes + skip, count);
    into = into.subspan(count);
    offset += count;
  }
  return {};
}

}  // namespace pinstripe
