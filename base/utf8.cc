#include "base/utf8.h"

#include <algorithm>

namespace pinstripe {
namespace {

unsigned char ByteOf(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// Whether the character of so many bytes with which the text begins may be shown.
bool CanBeShown(std::string_view text, size_t bytes) {
  const unsigned char first = ByteOf(text, 0);
  if (bytes == 1) return first >= 0x20 && first != 0x7f;
  const unsigned char second = ByteOf(text, 1);
  const bool is_control = first == 0xc2 && second < 0xa0;  // of ISO 8859
  // U+2000 to U+207F: those that turn the direction of writing, or end lines, are among them.
  const bool is_mark = first == 0xe2 && (second == 0x80 || second == 0x81);
  return !is_control && !is_mark;
}

}  // namespace

size_t Utf8CharacterBytes(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned char first = ByteOf(text, 0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((ByteOf(text, i) & 0xc0) != 0x80) return 0;
  }
  if (length < 3) return length;
  // Longer than needed, one half of a pair of UTF-16, or beyond the last one.
  const unsigned char second = ByteOf(text, 1);
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return wrong ? 0 : length;
}

std::string Utf8Text(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t taken = Utf8CharacterBytes(bytes);
    text += taken == 0 ? "\xef\xbf\xbd" : bytes.substr(0, taken);
    bytes.remove_prefix(std::max<size_t>(taken, 1));
  }
  return text;
}

std::string Printable(std::string_view text, size_t most) {
  std::string printable;
  while (!text.empty()) {
    const size_t length = Utf8CharacterBytes(text);
    const bool is_shown = length > 0 && CanBeShown(text, length);
    const std::string_view next = is_shown ? text.substr(0, length) : "?";
    if (printable.size() + next.size() > most) break;
    printable += next;
    text.remove_prefix(is_shown ? length : 1);
  }
  return printable;
}

}  // namespace pinstripe
