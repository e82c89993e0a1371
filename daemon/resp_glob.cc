#include "daemon/resp_glob.h"

#include <cstddef>
#include <utility>

namespace pinstripe {
namespace {

// Takes one byte of a class, which may be behind a backslash.
char TakeByte(std::string_view* pattern) {
  if (pattern->front() == '\\' && pattern->size() > 1) pattern->remove_prefix(1);
  const char byte = pattern->front();
  pattern->remove_prefix(1);
  return byte;
}

// Takes a class, whose "[" was taken, up to its "]" or the end. Whether it has `c`.
bool TakeClass(std::string_view* pattern, char c) {
  const bool is_negated = pattern->starts_with('^');
  if (is_negated) pattern->remove_prefix(1);
  bool has = false;
  while (!pattern->empty() && pattern->front() != ']') {
    auto low = static_cast<unsigned char>(TakeByte(pattern));
    unsigned char high = low;
    if (pattern->size() > 1 && (*pattern)[0] == '-' && (*pattern)[1] != ']') {
      pattern->remove_prefix(1);
      high = static_cast<unsigned char>(TakeByte(pattern));
    }
    if (low > high) std::swap(low, high);
    const auto byte = static_cast<unsigned char>(c);
    has = has || (low <= byte && byte <= high);
  }
  if (!pattern->empty()) pattern->remove_prefix(1);
  return has != is_negated;
}

// Takes what stands for one byte. Whether `c` is one.
bool TakeOne(std::string_view* pattern, char c) {
  switch (pattern->front()) {
    case '?': pattern->remove_prefix(1); return true;
    case '[': pattern->remove_prefix(1); return TakeClass(pattern, c);
    default: return TakeByte(pattern) == c;
  }
}

}  // namespace

// Only the last star can be wrong about where its bytes end, so there is one place to go back to.
bool GlobMatches(std::string_view pattern, std::string_view text) {
  std::string_view after_star;
  size_t star_end = std::string_view::npos;  // in `text`; none: there was no star
  size_t at = 0;
  while (true) {
    if (pattern.starts_with('*')) {
      pattern.remove_prefix(1);
      after_star = pattern;
      star_end = at;
      continue;
    }
    if (at == text.size() && pattern.empty()) return true;
    if (at < text.size() && !pattern.empty() && TakeOne(&pattern, text[at])) {
      ++at;
      continue;
    }
    if (star_end == std::string_view::npos || star_end >= text.size()) return false;
    at = ++star_end;
    pattern = after_star;
  }
}

std::string GlobPrefix(std::string_view pattern) {
  std::string prefix;
  while (!pattern.empty()) {
    const char c = pattern.front();
    if (c == '*' || c == '?' || c == '[') break;
    prefix += TakeByte(&pattern);
  }
  return prefix;
}

}  // namespace pinstripe
