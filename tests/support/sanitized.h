// Whether this program runs under AddressSanitizer or ThreadSanitizer, which make it many times
// slower: most of all to start, so that a test that starts programs again and again does it less
// often there. They take memory of their own, too.

#pragma once

namespace pinstripe {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace pinstripe
