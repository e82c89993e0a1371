// How what takes memory from the operating system for us is to do so.
//
// Memory that one thread takes and another one gives back, as the cache does, spreads over an
// allocator's arenas, and they keep it. A mount exceeded what the configuration allows four times
// over, and a gateway three times. So there are few arenas, and large blocks are for the kernel to
// take back; those that are needed all the time Buffer keeps itself.

#pragma once

namespace pinstripe {

// Our programs have jemalloc (base/program_memory.cc), and so has a gateway that loads kJemalloc
// before all else, with these options in MALLOC_CONF. One arena. Small blocks seldom reach it, as
// each thread keeps some. A large block goes back at once. Memory that was free for 0.2 s goes back
// with the next calls, so a process that falls idle keeps it.
inline constexpr const char kJemallocOptions[] =
    "narenas:1,tcache_max:8192,dirty_decay_ms:200,muzzy_decay_ms:0,oversize_threshold:524288";
inline constexpr const char kJemalloc[] = "libjemalloc.so.2";

// Whether this process has it.
bool RunsWithJemalloc();

// For who is loaded into a process with glibc's allocator; does nothing where there is another one.
// For the whole process; called once, before there are many threads.
void TuneGlibcAllocator();

}  // namespace pinstripe
