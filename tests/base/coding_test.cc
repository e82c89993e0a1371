#include "base/coding.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace pinstripe {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

TEST(Coding, IsBigEndianSoThatKeysSortLikeNumbers) {
  EXPECT_EQ(Writer().U8(1).U16(0x0203).U32(0x04050607).U64(0x08090a0b0c0d0e0f).bytes(),
            std::string_view("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"));
  EXPECT_LT(Writer().U64(255).bytes(), Writer().U64(256).bytes());
  EXPECT_LT(Writer().U64(kMost - 1).bytes(), Writer().U64(kMost).bytes());
}

TEST(Coding, WritesVarintsSevenBitsAByte) {
  EXPECT_EQ(Writer().Varint(0).bytes(), std::string_view("\0", 1));
  EXPECT_EQ(Writer().Varint(127).bytes(), "\x7f");
  EXPECT_EQ(Writer().Varint(128).bytes(), "\x80\x01");
  EXPECT_EQ(Writer().Varint(300).bytes(), "\xac\x02");
  EXPECT_EQ(Writer().Varint(kMost).bytes(), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

TEST(Coding, KeepsSmallNegativeNumbersShort) {
  EXPECT_EQ(Writer().SignedVarint(0).bytes(), std::string_view("\0", 1));
  EXPECT_EQ(Writer().SignedVarint(-1).bytes(), "\x01");
  EXPECT_EQ(Writer().SignedVarint(1).bytes(), "\x02");
  EXPECT_EQ(Writer().SignedVarint(-64).bytes().size(), 1u);
}

TEST(Coding, ReadsBackWhatItWrote) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> numbers = {0, kMost, uint64_t{1} << 63};
  for (int bits = 1; bits <= 64; ++bits) {
    numbers.push_back(kMost >> (64 - bits));
    numbers.push_back((kMost >> (64 - bits)) - 1);
    numbers.push_back(random() >> (64 - bits));
  }
  for (uint64_t number : numbers) {
    const auto negative = static_cast<int64_t>(number);
    Writer writer;
    writer.U8(static_cast<uint8_t>(number)).U16(static_cast<uint16_t>(number));
    writer.U32(static_cast<uint32_t>(number)).U64(number).Varint(number).SignedVarint(negative);
    Reader reader(writer.bytes());
    EXPECT_EQ(reader.U8(), static_cast<uint8_t>(number));
    EXPECT_EQ(reader.U16(), static_cast<uint16_t>(number));
    EXPECT_EQ(reader.U32(), static_cast<uint32_t>(number));
    EXPECT_EQ(reader.U64(), number);
    EXPECT_EQ(reader.Varint(), number);
    EXPECT_EQ(reader.SignedVarint(), negative);
    EXPECT_TRUE(reader.Finish("numbers").ok()) << number;
  }
}

TEST(Coding, ReadsBackTextsOfAnyBytes) {
  const std::string any("\0\xff\n", 3);
  const std::string encoded = Writer().Text("").Text(any).Raw(any).Raw(AsBytes("!")).Take();
  Reader reader(AsBytes(encoded));
  EXPECT_EQ(reader.Text(), "");
  EXPECT_EQ(reader.Text(), any);
  EXPECT_EQ(reader.left(), 4u);
  EXPECT_EQ(reader.Raw(2), any.substr(0, 2));
  EXPECT_EQ(reader.Rest(), "\n!");
  EXPECT_TRUE(reader.Finish("texts").ok());
}

// A record like any other, and a decoder as everywhere: straight-line code, checked once.
std::string Record() {
  return Writer().U8(1).U16(2).U32(3).U64(4).Varint(1 << 20).SignedVarint(-300).Text("name").Take();
}
Status Decode(std::string_view bytes) {
  Reader reader(bytes);
  reader.U8();
  reader.U16();
  reader.U32();
  reader.U64();
  reader.Varint();
  reader.SignedVarint();
  reader.Text();
  return reader.Finish("record");
}

TEST(Coding, RefusesARecordCutShortAnywhere) {
  const std::string whole = Record();
  ASSERT_TRUE(Decode(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    const Status status = Decode(std::string_view(whole).substr(0, size));
    EXPECT_EQ(status.code(), EBADMSG) << size;
    EXPECT_EQ(status.message(), "record: the record is cut short or malformed");
  }
}

TEST(Coding, RefusesARecordWithSomethingBehindIt) {
  const Status status = Decode(Record() + "xy");
  EXPECT_EQ(status.code(), EBADMSG);
  EXPECT_EQ(status.message(), "record: 2 bytes too many");
}

TEST(Coding, RefusesVarintsThatAreLongerThanTheyNeedToBe) {
  const auto accepted = [](std::string_view bytes) {
    Reader reader(bytes);
    reader.Varint();
    return reader.Finish("number").ok();
  };
  EXPECT_TRUE(accepted({"\x00", 1}));
  EXPECT_FALSE(accepted({"\x80\x00", 2}));
  EXPECT_FALSE(accepted({"\xff\x00", 2}));
  EXPECT_FALSE(accepted({"\x80\x80\x00", 3}));
  EXPECT_TRUE(accepted("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
  EXPECT_FALSE(accepted("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")) << "2^64 and more";
  EXPECT_FALSE(accepted("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x01")) << "eleven bytes";
  EXPECT_FALSE(accepted("\xff\xff\xff\xff\xff\xff\xff\xff\xff")) << "no end";
}

TEST(Coding, NeverTrustsALength) {
  for (uint64_t length : {uint64_t{5}, uint64_t{1} << 32, kMost}) {
    const std::string bytes = Writer().Varint(length).Raw("four").Take();
    Reader reader(bytes);
    EXPECT_EQ(reader.Text(), "");
    EXPECT_FALSE(reader.ok());
  }
}

TEST(Coding, OnceBadStaysBadAndReadsZeros) {
  const std::string bytes = Writer().U64(kMost).Take();
  Reader reader(bytes);
  EXPECT_EQ(reader.Raw(9), "");
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.left(), 0u);
  EXPECT_EQ(reader.U8(), 0);
  EXPECT_EQ(reader.U64(), 0u);
  EXPECT_EQ(reader.Varint(), 0u);
  EXPECT_EQ(reader.SignedVarint(), 0);
  EXPECT_EQ(reader.Rest(), "");
  EXPECT_EQ(reader.Finish("record").code(), EBADMSG);
}

TEST(Coding, ADecoderCanRefuseByItself) {
  Reader reader(AsBytes("x"));
  if (reader.U8() != 'y') reader.MarkBad();
  EXPECT_EQ(reader.Finish("record").code(), EBADMSG);
}

}  // namespace
}  // namespace pinstripe
