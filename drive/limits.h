// What a Drive refuses before it asks anybody (EINVAL): sizes over the limits of drive.h, and
// guards that cannot be one.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "base/try.h"
#include "drive/drive.h"

namespace pinstripe {

inline Status CheckSize(std::string_view what, size_t size, size_t least, size_t most) {
  if (size >= least && size <= most) return {};
  return Fail(EINVAL, "{} of {} bytes; allowed are {} to {}", what, size, least, most);
}

inline Status CheckKey(std::string_view key) {
  return CheckSize("a key", key.size(), 1, kMaxKeyBytes);
}

inline Status CheckExpected(const Expected& expected) {
  return CheckSize("an expected version", expected.version() ? expected.version()->size() : 0, 0,
                   kMaxVersionBytes);
}

inline Status CheckPut(const Drive::PutRequest& request) {
  TRY(CheckKey(request.key));
  TRY(CheckSize("a value", request.value.size(), 0, kMaxValueBytes));
  TRY(CheckSize("a version", request.version.size(), 0, kMaxVersionBytes));
  TRY(CheckExpected(request.expected));
  TRY(CheckSize("a tag", request.tag.size(), 0, kMaxTagBytes));
  if (!request.guard) return {};
  const Guard& guard = *request.guard;
  TRY(CheckSize("a guard's key", guard.key.size(), 1, kMaxKeyBytes));
  if (guard.key == request.key) {
    return Fail(EINVAL, "a record cannot be its own guard: say which version of it is expected");
  }
  if (!guard.expected.version()) return Fail(EINVAL, "a guard that may have any version");
  return CheckSize("a guard's version", guard.expected.version()->size(), 0, kMaxVersionBytes);
}

// Both ends of a range, and how many entries of it are wanted: 1 to `most` of what `what` says.
inline Status CheckRange(std::string_view first, std::string_view last, std::string_view what,
                         uint32_t max, uint32_t most) {
  TRY(CheckSize("a first key", first.size(), 0, kMaxKeyBytes));
  TRY(CheckSize("a last key", last.size(), 0, kMaxKeyBytes));
  if (max >= 1 && max <= most) return {};
  return Fail(EINVAL, "{} of {}; allowed are 1 to {}", what, max, most);
}

}  // namespace pinstripe
