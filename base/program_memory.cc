// The settings of jemalloc, which looks for this symbol at its start (jemalloc(3), "TUNING").

#include "base/allocator.h"

extern "C" {
[[gnu::visibility("default")]] extern const char* malloc_conf;
const char* malloc_conf = pinstripe::kJemallocOptions;
}
