#include "metrics/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinstripe {
namespace {

TEST(MetricsAddress, IsAnAddressAndAPort) {
  EXPECT_EQ(ParseMetricsAddress("127.0.0.1:9464")->Text(), "127.0.0.1:9464");
  EXPECT_EQ(ParseMetricsAddress("0.0.0.0:1")->Text(), "0.0.0.0:1");
  EXPECT_EQ(ParseMetricsAddress("127.1.2.3:0")->host, "127.1.2.3");
}

TEST(MetricsAddress, APortAloneIsForThisMachine) {
  EXPECT_EQ(ParseMetricsAddress("9464")->Text(), "127.0.0.1:9464");
}

TEST(MetricsAddress, NothingElseIsOne) {
  for (const char* text :
       {"", ":", "host:9464", "127.0.0.1", "127.0.0.1:", ":9464", "::1:9464", "[::1]", "[]:1",
        "[127.0.0.1]:1", "[::1]:9464", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:9464 ",
        "127.0.0.1:9464s", "127.0.0.1:80,0.0.0.0:81", "127.0.0.1:1:2", "1.2.3:4"}) {
    const auto parsed = ParseMetricsAddress(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), EINVAL);
    EXPECT_THAT(std::string(parsed.error().message()), testing::HasSubstr("127.0.0.1:9464"))
        << text;
  }
}

}  // namespace
}  // namespace pinstripe
