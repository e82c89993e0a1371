#include "base/allocator.h"

#include <malloc.h>

namespace pinstripe {

void KeepMemoryTogether() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 512 << 10);
}

}  // namespace pinstripe
