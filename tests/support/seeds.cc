#include "tests/support/seeds.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pinstripe {
namespace {

uint64_t NumberFromEnvironment(const char* name) {
  const char* text = std::getenv(name);
  const char* end = text + std::strlen(text);
  uint64_t number = 0;
  if (std::from_chars(text, end, number).ptr != end || text == end) {
    std::fprintf(stderr, "%s=%s is not a number\n", name, text);
    std::exit(2);
  }
  return number;
}

}  // namespace

Seeds SeedsFromEnvironment(uint64_t count) {
  if (std::getenv("SEED")) {
    const uint64_t seed = NumberFromEnvironment("SEED");
    return {seed, seed + 1};
  }
  if (std::getenv("SEEDS")) count = NumberFromEnvironment("SEEDS");
  return {1, 1 + count};
}

}  // namespace pinstripe
