#include "fs/files/copy_range.h"

#include <algorithm>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint64_t kBytesAtOnce = 4 << 20;

// Copies some, and says how many: none where the source ends.
Result<uint64_t> CopySome(OpenFile& source, uint64_t offset, OpenFile& target,
                          uint64_t target_offset, uint64_t length, Buffer& buffer) {
  const auto data = source.Seek(offset, OpenFile::Contents::kData);
  if (!data.has_value() && data.error().code() != ENXIO) return data;
  const uint64_t size = TRY(source.Stat()).size;
  const uint64_t end = offset + std::min(length, size - std::min(size, offset));
  if (offset == end) return 0;
  const uint64_t data_at = std::min(data.value_or(end), end);
  if (data_at > offset) {
    TRY(target.Zero(target_offset, data_at - offset, OpenFile::Size::kGrows));
    return data_at - offset;
  }
  const uint64_t hole_at = TRY(source.Seek(offset, OpenFile::Contents::kHole));
  const uint64_t wanted = std::min({hole_at, end, offset + kBytesAtOnce}) - offset;
  if (buffer.size() < wanted) buffer = Buffer(wanted);
  const MutableBytes bytes = MutableBytes(buffer).first(wanted);
  const size_t read = TRY(source.Read(offset, bytes));
  TRY(target.Write(target_offset, bytes.first(read)));
  return read;
}

}  // namespace

Result<uint64_t> CopyRange(OpenFile& source, uint64_t offset, OpenFile& target,
                           uint64_t target_offset, uint64_t length, uint64_t most_copied) {
  if (source.inode() == target.inode()) {
    const uint64_t size = TRY(source.Stat()).size;
    length = std::min(length, size - std::min(size, offset));
    const bool overlap = offset < target_offset + length && target_offset < offset + length;
    if (length > 0 && overlap) {
      return Fail(EINVAL, "{} bytes from {} and from {} of one file overlap", length, offset,
                  target_offset);
    }
  }
  // As far as the target can go; where it cannot go at all, that is for writing to say.
  if (target_offset < kMaxFileBytes) length = std::min(length, kMaxFileBytes - target_offset);
  const uint64_t shared = TRY(source.ShareBlocks(offset, length, target, target_offset));
  if (shared > 0) return shared;
  length = std::min(length, most_copied);
  Buffer buffer;
  for (uint64_t done = 0; done < length;) {
    const auto copied =
        CopySome(source, offset + done, target, target_offset + done, length - done, buffer);
    if (!copied.has_value() && done == 0) return copied;
    if (copied.value_or(0) == 0) return done;
    done += *copied;
  }
  return length;
}

}  // namespace pinstripe
