// Text of others, in UTF-8 (RFC 3629): which bytes are characters, and what may be shown.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pinstripe {

// How many bytes the character has with which the text begins, 1 to 4; 0: it begins with none, or
// is empty.
size_t Utf8CharacterBytes(std::string_view text);

// What is not UTF-8 becomes U+FFFD, a byte at a time.
std::string Utf8Text(std::string_view bytes);

// For a terminal or a log: at most `most` bytes. Control characters, marks that turn the direction
// of writing or end lines, and what is not UTF-8 become '?'.
std::string Printable(std::string_view text, size_t most);

}  // namespace pinstripe
