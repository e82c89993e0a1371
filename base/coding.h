// Encoding of everything that is kept on drives: big-endian fixed-width integers, LEB128 varints
// and length-prefixed strings. Big-endian because keys must sort in the order of their numbers.
//
// A Reader never reads past its end and never trusts a length. The first thing that does not fit
// makes it bad, and every later read returns zeros. So the caller checks once, with ok() or
// Finish(), and a decoder is straight-line code whatever bytes it is given.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

class Writer {
 public:
  Writer& U8(uint8_t value);
  Writer& U16(uint16_t value);
  Writer& U32(uint32_t value);
  Writer& U64(uint64_t value);
  Writer& Varint(uint64_t value);       // LEB128: 7 bits a byte, low bits first
  Writer& SignedVarint(int64_t value);  // zigzag, then LEB128
  Writer& Raw(std::string_view bytes);  // as they are
  Writer& Raw(Bytes bytes) { return Raw(AsText(bytes)); }
  Writer& Text(std::string_view bytes);  // Varint(size), then the bytes

  const std::string& bytes() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  explicit Reader(Bytes in) : in_(AsText(in)) {}

  uint8_t U8();
  uint16_t U16();
  uint32_t U32();
  uint64_t U64();
  uint64_t Varint();
  int64_t SignedVarint();
  std::string_view Raw(size_t size);
  std::string_view Text();
  std::string_view Rest();  // everything that is left

  bool ok() const { return ok_; }
  size_t left() const { return in_.size(); }
  void MarkBad() {
    ok_ = false;
    in_ = {};
  }

  // EBADMSG "<what>: ..." unless everything was read, and nothing more was asked for than there
  // was.
  Status Finish(std::string_view what) const;

 private:
  std::string_view in_;
  bool ok_ = true;
};

}  // namespace pinstripe
