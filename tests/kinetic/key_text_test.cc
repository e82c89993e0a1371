#include "kinetic/key_text.h"

#include <gtest/gtest.h>

#include "base/coding.h"

namespace pinstripe {
namespace {

std::string Key(std::string_view kind, std::string_view rest) {
  return Writer().U8(4).Raw("prod").Raw(kind).Raw(rest).Take();
}

TEST(KeyText, SaysWhatARecordIs) {
  EXPECT_EQ(KeyText(Key("S", "")), "superblock");
  EXPECT_EQ(
      KeyText(
          Key("D", Writer().U64(0x9d13f83a2abd1d4d).U64(7).Raw(std::string(16, 'w')).U8(3).Take())),
      "shard 3 of block 7 of object 9d13f83a2abd1d4d");
  EXPECT_EQ(KeyText(Key("R", Writer().U32(38).Raw("I").U64(0xbb449dae062d20cd).Take())),
            "register 38/I:bb449dae062d20cd");
}

TEST(KeyText, RegistersHaveALetterANumberAndText) {
  EXPECT_EQ(RegisterText(9, Writer().Raw("E").U64(1).Raw("a name").Take()),
            "register 9/E:0000000000000001/a\\x20name");
  EXPECT_EQ(RegisterText(0, "X"), "register 0/X");
  EXPECT_EQ(RegisterText(7, "name"), "register 7/name");
  EXPECT_EQ(RegisterText(7, Writer().Raw("E").U64(2).Raw("\n\xff").Take()),
            "register 7/E:0000000000000002/\\x0a\\xff");
}

// Other clients' records, and what somebody sends to see what happens.
TEST(KeyText, OtherKeysAreShownInHexadecimal) {
  EXPECT_EQ(KeyText(""), "");
  EXPECT_EQ(KeyText("a key"), "61206b6579");
  EXPECT_EQ(KeyText(std::string(100, '\xff')), std::string(96, 'f') + "...");
  EXPECT_EQ(KeyText(Key("D", "short")), "0470726f644473686f7274");
  EXPECT_EQ(KeyText(Key("R", "")), "0470726f6452");
  EXPECT_EQ(KeyText(Key("S", "more")), "0470726f64536d6f7265");
}

}  // namespace
}  // namespace pinstripe
