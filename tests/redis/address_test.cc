#include "redis/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

std::string Read(std::string_view text) {
  const Result<RedisAddress> address = ParseRedisAddress(text);
  if (!address) return "error";
  return fmt::format("{} {} {} {}", address->host.host, address->host.port, address->database,
                     address->tls ? "tls" : "plain");
}

TEST(RedisAddress, IsReadInAllItsForms) {
  EXPECT_EQ(Read("redis://host:1234/5"), "host 1234 5 plain");
  EXPECT_EQ(Read("redis://host"), "host 6379 0 plain");
  EXPECT_EQ(Read("redis://host/"), "host 6379 0 plain");
  EXPECT_EQ(Read("redis://host/7"), "host 6379 7 plain");
  EXPECT_EQ(Read("rediss://10.1.2.3:6380"), "10.1.2.3 6380 0 tls");
  EXPECT_EQ(Read("redis://[::1]:1234/0"), "::1 1234 0 plain");
  EXPECT_EQ(Read("redis://[::1]"), "::1 6379 0 plain");
}

TEST(RedisAddress, ThatIsNoneIsRefused) {
  for (const char* text :
       {"host:1234", "redis:host", "redis://", "redis:///0", "redis://:1", "redis://host:0",
        "redis://host:x", "redis://host:65536", "redis://host/x", "redis://host/-1",
        "redis://host/0/1", "redis://host/65536", "redis://a:b:c", "http://host"}) {
    EXPECT_EQ(Read(text), "error") << text;
  }
}

TEST(RedisAddress, HasNoPassword) {
  EXPECT_THAT(std::string(ParseRedisAddress("redis://user:secret@host").error().message()),
              testing::AllOf(testing::HasSubstr("credentials.toml"),
                             testing::Not(testing::HasSubstr("secret"))));
}

}  // namespace
}  // namespace pinstripe
