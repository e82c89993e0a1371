// The signature of Kinetic messages: HMAC-SHA1 over the command's length, as four bytes big-endian,
// and the command's bytes. For an empty command nothing at all is signed, not even its length. The
// value is not covered: it has its tag.
//
// A key is prepared once; a signature then costs two copies of a digest's state. Thread-safe.

#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "base/bytes.h"

namespace pinstripe {

inline constexpr size_t kHmacBytes = 20;
using Hmac = std::array<std::byte, kHmacBytes>;

class HmacKey {
 public:
  explicit HmacKey(std::string_view key);  // raw bytes, of any length
  ~HmacKey();
  HmacKey(const HmacKey&);
  HmacKey& operator=(const HmacKey&);
  HmacKey(HmacKey&&) noexcept;
  HmacKey& operator=(HmacKey&&) noexcept;

  Hmac Sign(Bytes command) const;

  // Takes as long for a wrong signature as for a right one.
  bool Verify(Bytes command, Bytes hmac) const;

 private:
  struct States;
  std::shared_ptr<const States> states_;
};

}  // namespace pinstripe
