// How the process's allocator (glibc's) is to treat what we do with memory.

#pragma once

namespace pinstripe {

// Memory that one thread takes and another one gives back, as the cache does, spreads over the
// allocator's arenas and is kept by them: what the configuration allows was exceeded by four times
// in a mount, and by three in a gateway. So: two arenas, and large buffers are for the kernel to
// take back; those that are needed all the time Buffer keeps itself. For the whole process; called
// once, before there are many threads.
void KeepMemoryTogether();

}  // namespace pinstripe
