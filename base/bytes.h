// Bytes: who looks at them, who owns them, who shares them.
//
//   Bytes, MutableBytes   a look at somebody's bytes (std::span)
//   Buffer                owns bytes; aligned for SIMD; not initialised unless asked; moves, never
//   copies
//                         by accident
//   SharedBytes           a look that keeps the owner alive: what is handed to a drive, whose
//   answer
//                         may come long after the asker stopped waiting

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pinstripe {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline bool Equal(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}
inline void CopyBytes(MutableBytes target, Bytes source) {
  assert(target.size() >= source.size());
  if (!source.empty()) std::memcpy(target.data(), source.data(), source.size());
}
inline void ZeroBytes(MutableBytes target) {
  if (!target.empty()) std::memset(target.data(), 0, target.size());
}

// Lower-case hexadecimal, for messages and tests.
std::string Hex(Bytes bytes);

// The most that a process keeps of buffers (4 KiB to 8 MiB) that are gone, for the next ones.
inline constexpr size_t kMaxFreeBufferBytes = 32 << 20;

class Buffer {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line, and the widest vector register

  Buffer() = default;
  explicit Buffer(size_t size);  // contents undefined
  static Buffer Zeroed(size_t size);
  static Buffer CopyOf(Bytes bytes);

  Buffer(Buffer&& other) noexcept
      : data_(std::move(other.data_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }

  // Makes the buffer shorter or, up to the size it was made with, longer again. Never moves bytes.
  void Resize(size_t size) {
    assert(size <= capacity_);
    size_ = size;
  }

  operator Bytes() const { return {data_.get(), size_}; }
  operator MutableBytes() { return {data_.get(), size_}; }
  Bytes bytes() const { return {data_.get(), size_}; }
  MutableBytes mutable_bytes() { return {data_.get(), size_}; }

  friend bool operator==(const Buffer& a, const Buffer& b) { return Equal(a, b); }

 private:
  struct Free {
    size_t size;  // that was asked for
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

class SharedBytes {
 public:
  SharedBytes() = default;
  SharedBytes(Buffer buffer);     // takes the buffer over
  SharedBytes(std::string text);  // takes the string over
  SharedBytes(std::shared_ptr<const void> owner, Bytes bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}

  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::byte* data() const { return bytes_.data(); }
  Bytes bytes() const { return bytes_; }
  operator Bytes() const { return bytes_; }
  std::string_view text() const { return AsText(bytes_); }

  // A part of it, with the same owner.
  SharedBytes Slice(size_t offset, size_t length) const {
    assert(offset <= size() && length <= size() - offset);
    return {owner_, bytes_.subspan(offset, length)};
  }

 private:
  std::shared_ptr<const void> owner_;
  Bytes bytes_;
};

}  // namespace pinstripe
