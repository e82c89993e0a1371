#include "base/bytes.h"

#include <new>

namespace pinstripe {

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
  if (size > 0) {
    data_.reset(static_cast<std::byte*>(::operator new (size, std::align_val_t{kAlignment})));
  }
}

void Buffer::Free::operator()(std::byte* data) const {
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
