#include "plugin/summable.h"

#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

TEST(Summable, IsWhatIsStoredHoweverMuchAndSomeZeros) {
  EXPECT_OK(CheckSummable({.size = 0, .stored_bytes = 0}));
  EXPECT_OK(CheckSummable({.size = kMaxFileBytes, .stored_bytes = kMaxFileBytes}));
  EXPECT_OK(CheckSummable({.size = 1, .stored_bytes = 4096}));
  EXPECT_OK(CheckSummable({.size = kMostZerosSummed, .stored_bytes = 0}));
  EXPECT_OK(CheckSummable({.size = 5 + kMostZerosSummed, .stored_bytes = 5}));
}

TEST(Summable, IsNotWhatNobodyEverWrote) {
  EXPECT_FAILS(CheckSummable({.size = kMostZerosSummed + 1, .stored_bytes = 0}), EFBIG);
  EXPECT_FAILS(CheckSummable({.size = kMaxFileBytes, .stored_bytes = 1 << 30}), EFBIG);
  EXPECT_FAILS(CheckSummable({.size = kMaxKeptFileBytes, .stored_bytes = 0}), EFBIG);
}

}  // namespace
}  // namespace pinstripe
