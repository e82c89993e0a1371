#include "tests/support/gen.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pinstripe {
namespace {

TEST(Gen, TakesEveryWayOnce) {
  std::set<std::string> ways;
  int runs = 0;
  Gen gen;
  while (gen.Next()) {
    ++runs;
    std::string way;
    const int64_t length = gen.Int(0, 2);  // later choices may depend on earlier ones
    for (int64_t i = 0; i < length; ++i) way += gen.Bool() ? 'a' : 'b';
    ways.insert(way);
  }
  EXPECT_EQ(runs, 1 + 2 + 4);
  EXPECT_EQ(ways, (std::set<std::string>{"", "a", "b", "aa", "ab", "ba", "bb"}));
}

TEST(Gen, WithoutChoicesThereIsOneWay) {
  int runs = 0;
  Gen gen;
  while (gen.Next()) ++runs;
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace pinstripe
