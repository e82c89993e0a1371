// SideBySide: the same work for many things, several at a time, for a caller that waits for all of
// it.

#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/runtime.h"

namespace pinstripe {

// Calls work(i) once for each i below `count`, at most `width` at a time, in the order of i as far
// as they begin. The caller's thread is one of those that call; returns when all have ended.
void SideBySide(Runtime& runtime, const std::string& thread_name, size_t count, size_t width,
                const std::function<void(size_t)>& work);

}  // namespace pinstripe
