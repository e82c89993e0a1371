#include "kinetic/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "drive/drive.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

struct Piece {
  std::string message;
  std::string value;
  uint32_t value_bytes;
  bool dropped;
};

std::string FrameOf(std::string_view message, std::string_view value) {
  const auto header = EncodeFrameHeader(
      {static_cast<uint32_t>(message.size()), static_cast<uint32_t>(value.size())});
  return std::string(AsText(header)).append(message).append(value);
}

// Gives the reader `stream`, at most `step` bytes at a time, and appends what comes out.
Status Feed(FrameReader& reader, std::string_view stream, size_t step, std::vector<Piece>* pieces) {
  while (!stream.empty()) {
    iovec space[2];
    const int spaces = reader.Space(space);
    size_t left = std::min(step, stream.size());
    size_t filled = 0;
    for (int i = 0; i < spaces && left > 0; ++i) {
      const size_t here = std::min(left, space[i].iov_len);
      std::memcpy(space[i].iov_base, stream.data(), here);
      stream.remove_prefix(here);
      left -= here;
      filled += here;
    }
    EXPECT_GT(filled, 0u);
    reader.Filled(filled);
    for (;;) {
      Result<std::optional<Frame>> frame = reader.Next();
      if (!frame) return frame.error();
      if (!*frame) break;
      const Frame& got = **frame;
      pieces->push_back({std::string(AsText(got.message)), std::string(AsText(got.value)),
                         got.value_bytes, got.value_dropped});
    }
  }
  return {};
}

std::string Letters(size_t size) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

TEST(FrameReader, FindsTheSameFramesWhereverTheStreamIsSplit) {
  const std::string stream = FrameOf("first", "value") + FrameOf("", "") + FrameOf("alone", "") +
                             FrameOf("", "bare") + FrameOf("last", "end");
  for (size_t split = 0; split <= stream.size(); ++split) {
    FrameReader reader;
    std::vector<Piece> pieces;
    ASSERT_OK(Feed(reader, std::string_view(stream).substr(0, split), stream.size(), &pieces));
    ASSERT_OK(Feed(reader, std::string_view(stream).substr(split), stream.size(), &pieces));
    ASSERT_EQ(pieces.size(), 5u) << "split at " << split;
    EXPECT_EQ(pieces[0].message + "|" + pieces[0].value, "first|value");
    EXPECT_EQ(pieces[1].message + "|" + pieces[1].value, "|");
    EXPECT_EQ(pieces[2].message + "|" + pieces[2].value, "alone|");
    EXPECT_EQ(pieces[3].message + "|" + pieces[3].value, "|bare");
    EXPECT_EQ(pieces[4].message + "|" + pieces[4].value, "last|end");
    EXPECT_TRUE(reader.idle());
  }
}

TEST(FrameReader, ReassemblesLongMessagesAndValuesFromPiecesOfAnySize) {
  const std::string message = Letters(3 * kFrameStageBytes + 5);
  const std::string value = Letters(kMaxValueBytes);
  const std::string stream = FrameOf("a", value) + FrameOf(message, "b") + FrameOf("c", value) +
                             FrameOf("d", "") + FrameOf(message, value);
  for (size_t step : {997u, 4096u, 65536u, 1u << 20, 8u << 20}) {
    FrameReader reader;
    std::vector<Piece> pieces;
    ASSERT_OK(Feed(reader, stream, step, &pieces));
    ASSERT_EQ(pieces.size(), 5u);
    EXPECT_TRUE(pieces[0].message == "a" && pieces[0].value == value);
    EXPECT_TRUE(pieces[1].message == message && pieces[1].value == "b");
    EXPECT_TRUE(pieces[2].message == "c" && pieces[2].value == value);
    EXPECT_TRUE(pieces[3].message == "d" && pieces[3].value.empty());
    EXPECT_TRUE(pieces[4].message == message && pieces[4].value == value);
  }
}

TEST(FrameReader, TakesManySmallFramesAtOnceAndStillDoesNotCopyLargeValues) {
  FrameReader reader;
  std::vector<Piece> pieces;
  std::string small;
  for (int i = 0; i < 100; ++i) small += FrameOf("m", Letters(1000));
  ASSERT_OK(Feed(reader, small, small.size(), &pieces));
  ASSERT_EQ(pieces.size(), 100u);
  for (const Piece& piece : pieces) ASSERT_TRUE(piece.value == Letters(1000));
  iovec space[2];
  ASSERT_EQ(reader.Space(space), 1);
  EXPECT_EQ(space[0].iov_len, kLargeFrameStageBytes);
  reader.Filled(0);
  const std::string large = FrameOf("m", Letters(kMaxValueBytes));
  ASSERT_OK(Feed(reader, std::string_view(large).substr(0, 5000), 5000, &pieces));
  ASSERT_OK(Feed(reader, std::string_view(large).substr(5000), 1 << 20, &pieces));
  ASSERT_EQ(pieces.size(), 101u);
  EXPECT_TRUE(pieces[100].value == Letters(kMaxValueBytes));
  ASSERT_EQ(reader.Space(space), 1);
  EXPECT_EQ(space[0].iov_len, kFrameStageBytes);
  reader.Filled(0);
  reader.Rest();
  ASSERT_OK(Feed(reader, small, small.size(), &pieces));
  EXPECT_EQ(pieces.size(), 201u);
}

TEST(FrameReader, OffersTheValuesOwnPlaceOnceTheMessageIsThere) {
  FrameReader reader;
  std::vector<Piece> pieces;
  const std::string stream = FrameOf("m", Letters(kMaxValueBytes));
  ASSERT_OK(Feed(reader, std::string_view(stream).substr(0, 100), 100, &pieces));
  iovec space[2];
  ASSERT_EQ(reader.Space(space), 2);
  EXPECT_EQ(space[0].iov_len, stream.size() - 100);
  EXPECT_FALSE(reader.idle());
}

TEST(FrameReader, ReadsAValueThatIsTooLongToItsEndAndGoesOn) {
  FrameReader reader;
  std::vector<Piece> pieces;
  const std::string stream =
      FrameOf("long", Letters(kMaxValueBytes + 1)) + FrameOf("next", "value");
  ASSERT_OK(Feed(reader, stream, 100000, &pieces));
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_TRUE(pieces[0].dropped);
  EXPECT_EQ(pieces[0].message, "long");
  EXPECT_EQ(pieces[0].value, "");
  EXPECT_EQ(pieces[0].value_bytes, kMaxValueBytes + 1);
  EXPECT_FALSE(pieces[1].dropped);
  EXPECT_EQ(pieces[1].message + "|" + pieces[1].value, "next|value");
}

TEST(FrameReader, GivesUpOnWhatIsNotKinetic) {
  for (const std::string& stream : {
           std::string("GET / HTTP/1.1\r\n"),
           std::string("F\xff\xff\xff\xff\0\0\0\0", 9),  // a negative length, for some
           std::string("F\x7f\xff\xff\xff\0\0\0\0", 9), std::string("F\0\0\0\0\xff\xff\xff\xff", 9),
           std::string("F\0\0\0\0\0\x40\0\x01", 9),  // 4 MiB + 1 of value
       }) {
    FrameReader reader;
    std::vector<Piece> pieces;
    EXPECT_FAILS(Feed(reader, stream, stream.size(), &pieces), EBADMSG) << Hex(AsBytes(stream));
    EXPECT_TRUE(pieces.empty());
  }
}

TEST(FrameReader, IsNotFooledByGarbageBehindAGoodFrame) {
  FrameReader reader;
  std::vector<Piece> pieces;
  EXPECT_FAILS(Feed(reader, FrameOf("good", "") + "garbage..", 1000, &pieces), EBADMSG);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].message, "good");
}

TEST(FrameHeader, SaysWhatItWasMadeFrom) {
  const auto bytes = EncodeFrameHeader({0x01020304 & 0xfffff, 0x000a0b0c});
  EXPECT_EQ(Hex(bytes), "4600020304000a0b0c");
  const Result<FrameHeader> header = DecodeFrameHeader(bytes);
  ASSERT_OK(header);
  EXPECT_EQ(header->message_bytes, 0x20304u);
  EXPECT_EQ(header->value_bytes, 0xa0b0cu);
}

}  // namespace
}  // namespace pinstripe
