#include "redis/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

std::string TextOf(const RedisReply& reply) {
  switch (reply.kind) {
    case RedisReply::Kind::kNull: return "null";
    case RedisReply::Kind::kInteger: return std::to_string(reply.integer);
    case RedisReply::Kind::kText: return fmt::format("'{}'", reply.text());
    case RedisReply::Kind::kError: return fmt::format("!{}", reply.text());
    case RedisReply::Kind::kList: break;
  }
  std::string text = "[";
  for (const auto& each : reply.list) text += TextOf(*each) + " ";
  return text + "]";
}

// All replies in these bytes, which come in pieces of that size.
std::string Read(std::string_view bytes, size_t piece) {
  RedisReader reader;
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    if (!reader.Feed(AsBytes(bytes.substr(at, piece))).ok()) return text + "refused";
    while (true) {
      const Result<std::optional<RedisReply>> reply = reader.Next();
      if (!reply) return text + "refused";
      if (!*reply) break;
      text += TextOf(**reply) + ";";
    }
  }
  return text;
}

constexpr std::string_view kReplies =
    "+OK\r\n-ERR no\r\n:42\r\n$5\r\nhello\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n"
    "*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n:-7\r\n";

TEST(RedisReply, IsReadHoweverItComes) {
  for (size_t piece = 1; piece <= kReplies.size(); ++piece) {
    EXPECT_EQ(Read(kReplies, piece),
              "'OK';!ERR no;42;'hello';'';null;null;[];['a' [1 null ] -7 ];");
  }
}

TEST(RedisReply, ThatIsNoneIsRefused) {
  for (const char* bytes : {"hello\r\n", "$-2\r\n", "$x\r\n", ":x\r\n", "*x\r\n", "*-5\r\n"}) {
    EXPECT_EQ(Read(bytes, 100), "refused") << bytes;
  }
}

TEST(RedisReply, OverALimitIsRefused) {
  EXPECT_EQ(Read("*65537\r\n", 100), "refused");
  EXPECT_EQ(Read("*2147483647\r\n", 100), "refused");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "*1\r\n";
  EXPECT_EQ(Read(deep, 100), "refused");
  std::string lists = "*65536\r\n";
  for (int i = 0; i < 3; ++i) lists += "*65536\r\n";
  EXPECT_EQ(Read(lists, lists.size()), "");  // nothing of it is complete
  std::string many = "*4\r\n";
  const std::string text(6 << 20, 'x');
  for (int i = 0; i < 4; ++i) many += fmt::format("${}\r\n{}\r\n", text.size(), text);
  EXPECT_EQ(Read(many, 1 << 16), "refused");
}

// A server that announces a value and sends for ever does not fill our memory.
TEST(RedisReply, ThatDoesNotEndIsRefused) {
  RedisReader reader;
  ASSERT_OK(reader.Feed(AsBytes("$9223372036854775800\r\n")));
  const std::string piece(1 << 16, 'x');
  size_t taken = 0;
  while (reader.Feed(AsBytes(piece)).ok() && reader.Next().has_value()) {
    taken += piece.size();
    ASSERT_LT(taken, size_t{64} << 20);
  }
  SUCCEED();
}

// Whatever comes, it means the same in one piece and in many, and nothing crashes.
TEST(RedisReply, OfSpoiledBytesDoesNoHarm) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(kReplies);
    const size_t changes = 1 + random() % 4;
    for (size_t i = 0; i < changes; ++i) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, 1 + random() % 3); break;
        default: bytes.insert(at, 1, "*$:+-0123456789\r\n"[random() % 17]);
      }
    }
    const size_t piece = 1 + random() % bytes.size();
    ASSERT_EQ(Read(bytes, piece), Read(bytes, bytes.size())) << Hex(AsBytes(bytes));
  }
}

}  // namespace
}  // namespace pinstripe
