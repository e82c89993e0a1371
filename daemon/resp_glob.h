// Patterns for keys, as Redis has them: "*" any bytes, "?" one byte, "[abc]", "[a-z]" and "[^a]"
// one of some, "\" before a byte that means itself. Bytes, not characters.

#pragma once

#include <string>
#include <string_view>

namespace pinstripe {

// Takes no longer than the product of both lengths, whatever they are.
bool GlobMatches(std::string_view pattern, std::string_view text);

// What everything that matches begins with.
std::string GlobPrefix(std::string_view pattern);

}  // namespace pinstripe
