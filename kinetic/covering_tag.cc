#include "kinetic/covering_tag.h"

#include "base/checksum.h"
#include "base/coding.h"

namespace pinstripe {

std::string CoveringTag(Bytes value) { return Writer().U32(Crc32c(value)).Take(); }

}  // namespace pinstripe
