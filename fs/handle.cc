#include "fs/handle.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/try.h"

namespace pinstripe {

Result<size_t> Handle::Read(uint64_t offset, MutableBytes out) {
  Part part{offset, out};
  TRY(ReadParts({&part, 1}));
  return part.length;
}

Status Handle::ReadParts(std::span<Part> parts) {
  bool asked = false;
  return state_->Read(parts, IsScattered(parts), [&] {
    if (!std::exchange(asked, true)) ReadAhead(parts);
  });
}

// (What a vector read leaves out is often what the next one wants.)
bool Handle::IsScattered(std::span<const Part> parts) {
  if (parts.size() != 1) return false;
  const MutexLock lock(pattern_mutex_);
  return pattern_.IsScattered(parts[0].offset, parts[0].out.size());
}

Status Handle::Write(uint64_t offset, Bytes data, std::span<const uint32_t> page_sums) {
  TRY(CheckWritable());
  wrote_ = true;
  return state_->Write(offset, data, page_sums);
}

Result<uint64_t> Handle::Append(Bytes data) {
  TRY(CheckWritable());
  wrote_ = true;
  return state_->Append(data);
}

Status Handle::Truncate(uint64_t size) {
  TRY(CheckWritable());
  wrote_ = true;
  return state_->Truncate(size);
}

Status Handle::Zero(uint64_t offset, uint64_t length, Size size) {
  TRY(CheckWritable());
  wrote_ = true;
  return state_->Zero(offset, length, size);
}

Status Handle::Allocate(uint64_t offset, uint64_t length, Size size) {
  TRY(CheckWritable());
  wrote_ = true;
  return state_->Allocate(offset, length, size);
}

Result<uint64_t> Handle::ShareBlocks(uint64_t offset, uint64_t length, OpenFile& target,
                                     uint64_t target_offset) {
  auto* const other = dynamic_cast<Handle*>(&target);
  if (other == nullptr || &other->files_ != &files_) return 0;
  TRY(other->CheckWritable());
  const StripeLayout layout = state_->BlockLayout();
  const uint64_t block_bytes = layout.block_bytes();
  const uint64_t size = state_->Size();
  if (other->state_->BlockLayout() != layout || offset % block_bytes != 0 ||
      target_offset % block_bytes != 0 || offset >= size || target_offset > kMaxFileBytes) {
    return 0;
  }
  length = std::min({length, size - offset, kMaxFileBytes - target_offset});
  const bool to_the_end = length == size - offset;
  const uint64_t shareable = to_the_end ? length : length / block_bytes * block_bytes;
  const uint64_t least = files_.context().least_shared_bytes;
  if (shareable == 0 || shareable < least) return 0;
  // What Adopt() would refuse is not made ready for it.
  const bool ends_within =
      to_the_end && size % block_bytes != 0 && other->state_->Size() > target_offset + length;
  if (ends_within || !other->state_->Known().inline_data.empty()) return 0;
  const auto shared = TRY(state_->Share(offset, length));
  if (!shared) return 0;
  other->wrote_ = true;
  const bool adopted = TRY(other->state_->Adopt(target_offset / block_bytes, *shared));
  return adopted ? shared->bytes : 0;
}

Status Handle::SetAttributes(const AttributeChange& change) {
  if (change.size) {
    TRY(CheckWritable());
    wrote_ = true;
  }
  return state_->SetAttributes(change);
}

Status Handle::Close() {
  const Status status = wrote_ ? state_->Commit(durable_close_) : Status();
  Release();
  return status;
}

void Handle::ExpectReading() {
  const uint64_t size = state_->Size();
  if (size > 0 && size <= kCellBytes) state_->ReadAhead(0, size, *ahead_);
}

Status Handle::CheckWritable() const {
  if (writes_) return {};
  return Fail(EBADF, "inode {:016x} was opened for reading only", state_->id());
}

void Handle::Release() {
  if (released_.exchange(true)) return;
  ahead_.reset();
  files_.Release(state_->id());
}

void Handle::ReadAhead(std::span<const Part> parts) {
  // A vector read counts where it leaves out next to nothing; what another one will be followed
  // by nobody knows.
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
  uint64_t bytes = 0;
  for (const Part& part : parts) {
    begin = std::min(begin, part.offset);
    end = std::max(end, part.offset + part.out.size());
    bytes += part.out.size();
  }
  if (bytes == 0 || bytes < (end - begin) / 8 * 7) return;
  std::vector<ReadPattern::Range> ranges;
  {
    const MutexLock lock(pattern_mutex_);
    ranges = pattern_.Read(begin, end - begin);
  }
  for (const auto& [offset, size] : ranges) {
    const uint64_t there = state_->ReadAhead(offset, size, *ahead_);
    if (there == size) continue;
    const MutexLock lock(pattern_mutex_);
    return pattern_.Refused(offset + there);
  }
}

}  // namespace pinstripe
