// TagCheck: whether a record's tag fits its value, for the algorithms that the protocol specifies
// and this device can compute.

#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "store/store.h"

namespace pinstripe {

enum class TagVerdict {
  kRight,
  kWrong,
  kUnknown,  // no tag, no algorithm, or one that nobody specified
};

// SHA1 (1), SHA2 as SHA-256 (2), SHA3 as SHA3-256 (3): the digest. CRC32C (4), CRC32 (6): four
// bytes, big-endian.
TagVerdict CheckTag(const StoredHead& head, Bytes value);

// For a put whose sender has said that its tag is the CRC32C of its value: EBADMSG where it is not,
// which is to say that this is not the value that was signed for. Without value and tag there is
// nothing to compare. The record remembers the sum.
Status CheckCoveringTag(StoredRecord* record);

}  // namespace pinstripe
