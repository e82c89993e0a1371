#include "base/coding.h"

namespace pinstripe {
namespace {

template <typename T>
void AppendBigEndian(std::string& out, T value) {
  for (int shift = static_cast<int>(sizeof(T)) * 8 - 8; shift >= 0; shift -= 8) {
    out += static_cast<char>(value >> shift);
  }
}

template <typename T>
T FromBigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return static_cast<T>(value);
}

}  // namespace

Writer& Writer::U8(uint8_t value) {
  out_ += static_cast<char>(value);
  return *this;
}
Writer& Writer::U16(uint16_t value) {
  AppendBigEndian(out_, value);
  return *this;
}
Writer& Writer::U32(uint32_t value) {
  AppendBigEndian(out_, value);
  return *this;
}
Writer& Writer::U64(uint64_t value) {
  AppendBigEndian(out_, value);
  return *this;
}
Writer& Writer::Varint(uint64_t value) {
  while (value >= 0x80) {
    out_ += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out_ += static_cast<char>(value);
  return *this;
}
Writer& Writer::SignedVarint(int64_t value) {
  return Varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
}
Writer& Writer::Raw(std::string_view bytes) {
  out_ += bytes;
  return *this;
}
Writer& Writer::Text(std::string_view bytes) { return Varint(bytes.size()).Raw(bytes); }

std::string_view Reader::Raw(size_t size) {
  if (size > in_.size()) {
    MarkBad();
    return {};
  }
  const std::string_view bytes = in_.substr(0, size);
  in_.remove_prefix(size);
  return bytes;
}

uint8_t Reader::U8() { return FromBigEndian<uint8_t>(Raw(1)); }
uint16_t Reader::U16() { return FromBigEndian<uint16_t>(Raw(2)); }
uint32_t Reader::U32() { return FromBigEndian<uint32_t>(Raw(4)); }
uint64_t Reader::U64() { return FromBigEndian<uint64_t>(Raw(8)); }

uint64_t Reader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = U8();
    if (!ok_) return 0;
    // The tenth byte has room for one bit only, and no number is written longer than it needs.
    if ((shift == 63 && byte > 1) || (shift > 0 && byte == 0)) break;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  MarkBad();
  return 0;
}

int64_t Reader::SignedVarint() {
  const uint64_t value = Varint();
  return static_cast<int64_t>(value >> 1 ^ (0 - (value & 1)));
}

std::string_view Reader::Text() {
  const uint64_t size = Varint();
  return Raw(size);
}

std::string_view Reader::Rest() { return Raw(in_.size()); }

Status Reader::Finish(std::string_view what) const {
  if (!ok_) return Fail(EBADMSG, "{}: the record is cut short or malformed", what);
  if (!in_.empty()) return Fail(EBADMSG, "{}: {} bytes too many", what, in_.size());
  return {};
}

}  // namespace pinstripe
