#include "base/bytes.h"

#include <array>
#include <bit>
#include <new>
#include <vector>

#include "base/mutex.h"

namespace pinstripe {
namespace {

// Memory of buffers that are gone, kept for the next ones. Fresh memory costs a page fault for
// every 4 KiB, which is a third of the cost of copying something into them. malloc gives blocks of
// a megabyte back to the kernel as soon as they are free. It makes aligned blocks of a few pages by
// cutting up larger ones, and puts these together again when other threads free them.
//
// Sizes are rounded up to a quarter of a power of two, so at most a fifth is never used. Small ones
// have a part of the room of their own, so that many of them leave the rest to the large ones.
class FreeMemory {
 public:
  static constexpr size_t kLeastBytes = 4 << 10;
  static constexpr size_t kLeastLargeBytes = 64 << 10;
  static constexpr size_t kMostBytes = 8 << 20;  // blocks with their parity, mostly

  static bool Keeps(size_t size) { return size >= kLeastBytes && size <= kMostBytes; }

  static size_t Rounded(size_t size) {
    const size_t step = std::bit_floor(size - 1) / 4;
    return (size + step - 1) / step * step;
  }

  // Null: there is none of this (rounded) size.
  std::byte* Take(size_t size) {
    const MutexLock lock(mutex_);
    std::vector<std::byte*>& blocks = blocks_[ClassOf(size)];
    if (blocks.empty()) return nullptr;
    std::byte* const block = blocks.back();
    blocks.pop_back();
    BytesOf(size) -= size;
    return block;
  }

  // False: there is enough already.
  bool Keep(std::byte* block, size_t size) {
    const MutexLock lock(mutex_);
    constexpr size_t kMostOfSmall = kMaxFreeBufferBytes / 8;
    const size_t most = size < kLeastLargeBytes ? kMostOfSmall : kMaxFreeBufferBytes - kMostOfSmall;
    if (BytesOf(size) + size > most) return false;
    blocks_[ClassOf(size)].push_back(block);
    BytesOf(size) += size;
    return true;
  }

 private:
  static size_t ClassOf(size_t rounded) {
    const auto log = static_cast<size_t>(std::bit_width(rounded - 1) - 1);
    return (log - 11) * 4 + (rounded - 1 - (size_t{1} << log)) / (size_t{1} << log >> 2);
  }

  // Of all that are as small or as large.
  size_t& BytesOf(size_t size) REQUIRES(mutex_) {
    return size < kLeastLargeBytes ? small_bytes_ : large_bytes_;
  }

  Mutex mutex_;
  std::array<std::vector<std::byte*>, 48> blocks_ GUARDED_BY(mutex_);  // by class
  size_t small_bytes_ GUARDED_BY(mutex_) = 0;
  size_t large_bytes_ GUARDED_BY(mutex_) = 0;
};

// Never destroyed: buffers that outlive main() come back to it.
FreeMemory& TheFreeMemory() {
  static FreeMemory& memory = *new FreeMemory;
  return memory;
}

// AddressSanitizer finds a use of a buffer that is gone only where malloc is told of it.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeepFreeMemory = false;
#else
constexpr bool kKeepFreeMemory = true;
#endif

bool IsKept(size_t size) { return kKeepFreeMemory && FreeMemory::Keeps(size); }

std::byte* Allocate(size_t size) {
  if (IsKept(size)) {
    size = FreeMemory::Rounded(size);
    if (std::byte* block = TheFreeMemory().Take(size)) return block;
  }
  return static_cast<std::byte*>(::operator new (size, std::align_val_t{Buffer::kAlignment}));
}

}  // namespace

std::string Hex(Bytes bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (std::byte byte : bytes) {
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

Buffer::Buffer(size_t size) : size_(size), capacity_(size) {
  if (size > 0) data_ = {Allocate(size), Free{size}};
}

void Buffer::Free::operator()(std::byte* data) const {
  if (IsKept(size) && TheFreeMemory().Keep(data, FreeMemory::Rounded(size))) return;
  ::operator delete (data, std::align_val_t{kAlignment});
}

Buffer Buffer::Zeroed(size_t size) {
  Buffer buffer(size);
  ZeroBytes(buffer);
  return buffer;
}

Buffer Buffer::CopyOf(Bytes bytes) {
  Buffer buffer(bytes.size());
  CopyBytes(buffer, bytes);
  return buffer;
}

SharedBytes::SharedBytes(Buffer buffer) {
  auto owner = std::make_shared<Buffer>(std::move(buffer));
  bytes_ = owner->bytes();
  owner_ = std::move(owner);
}

SharedBytes::SharedBytes(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  bytes_ = AsBytes(*owner);
  owner_ = std::move(owner);
}

}  // namespace pinstripe
