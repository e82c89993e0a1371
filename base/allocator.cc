#include "base/allocator.h"

#include <malloc.h>

#include <cstddef>

// jemalloc's, where it is there.
extern "C" [[gnu::weak]] int mallctl(const char*, void*, size_t*, void*, size_t);

namespace pinstripe {

bool RunsWithJemalloc() { return mallctl != nullptr; }

void TuneGlibcAllocator() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 512 << 10);
}

}  // namespace pinstripe
