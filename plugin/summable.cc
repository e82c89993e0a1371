#include "plugin/summable.h"

#include <algorithm>
#include <cerrno>

namespace pinstripe {

Status CheckSummable(const Attributes& attributes) {
  const uint64_t zeros = attributes.size - std::min(attributes.size, attributes.stored_bytes);
  if (zeros <= kMostZerosSummed) return {};
  return Fail(EFBIG,
              "inode {:016x}: {} of its {} bytes are holes, and this checksum would take each of "
              "them; ask for adler32 or crc32c of it when nobody writes it",
              attributes.inode, zeros, attributes.size);
}

}  // namespace pinstripe
