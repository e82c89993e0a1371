// Amounts of bytes, and UUIDs, as people read them.

#include "base/byte_text.h"

#include <gtest/gtest.h>

namespace pinstripe {
namespace {

TEST(BytesText, UsesTheUnitsOnTheLabel) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(1000), "1.0 kB");
  EXPECT_EQ(BytesText(999'960), "1.0 MB");
  EXPECT_EQ(BytesText(4'000'000'000'000), "4.0 TB");
  EXPECT_EQ(BytesText(UINT64_MAX), "18.4 EB");
}

TEST(UuidText, HasDashesWhereOthersHaveThem) {
  EXPECT_EQ(UuidText("0123456789abcdef"), "30313233-3435-3637-3839-616263646566");
  EXPECT_EQ(UuidText(""), "");
}

}  // namespace
}  // namespace pinstripe
