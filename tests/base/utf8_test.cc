#include "base/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinstripe {
namespace {

using testing::SizeIs;

// Each character that there is, as RFC 3629 writes it, and nothing else of up to four bytes that
// begins so.
TEST(Utf8, KnowsEachCharacter) {
  const auto encode = [](uint32_t code) -> std::string {
    const auto byte = [](uint32_t value) { return static_cast<char>(value); };
    if (code < 0x80) return {byte(code)};
    if (code < 0x800) return {byte(0xc0 | code >> 6), byte(0x80 | (code & 63))};
    if (code < 0x10000) {
      return {byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63))};
    }
    return {byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)),
            byte(0x80 | (code & 63))};
  };
  size_t characters = 0;
  for (uint32_t code = 0; code < 0x120000; ++code) {
    const std::string text = encode(code);
    const bool is_one = code < 0x110000 && (code < 0xd800 || code > 0xdfff);
    ASSERT_EQ(Utf8CharacterBytes(text), is_one ? text.size() : 0) << code;
    ASSERT_EQ(Utf8CharacterBytes(text + "\x80"), is_one ? text.size() : 0) << code;
    characters += is_one;
    if (text.size() == 1) continue;
    ASSERT_EQ(Utf8CharacterBytes(text.substr(0, text.size() - 1)), 0u) << code;
  }
  EXPECT_EQ(characters, 0x110000u - 0x800u);
  // Longer than they need be.
  for (const char* text : {"\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf"}) {
    EXPECT_EQ(Utf8CharacterBytes(text), 0u) << text;
  }
  EXPECT_EQ(Utf8CharacterBytes(""), 0u);
}

TEST(Utf8, WhatIsNoneIsReplaced) {
  EXPECT_EQ(Utf8Text("a\xffZ\xc3\xbc\xc3"), "a\xef\xbf\xbdZ\xc3\xbc\xef\xbf\xbd");
}

TEST(Printable, KeepsWhatCanBePrinted) {
  EXPECT_EQ(Printable("pinstripe-fuse 0.2", 64), "pinstripe-fuse 0.2");
  EXPECT_EQ(Printable("Zürich \xe2\x82\xac \xf0\x9f\x98\x80", 64),
            "Zürich \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(Printable, ReplacesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("a\x1b[2Jb\n\r\tc\x7f", 64), "a?[2Jb???c?");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3), 64), "a?b");
  EXPECT_EQ(Printable("\xc2\x9b", 64), "??") << "a control character of ISO 8859";
  EXPECT_EQ(Printable("\xe2\x80\xae", 64), "???") << "what is written from right to left";
}

TEST(Printable, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(Printable("\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80", 64), "??????????");
  EXPECT_EQ(Printable("a\xe2\x82", 64), "a??");
}

TEST(Printable, IsCutBetweenCharacters) {
  EXPECT_EQ(Printable("abcdef", 3), "abc");
  EXPECT_EQ(Printable("ab\xc3\xbc", 3), "ab");
  EXPECT_THAT(Printable(std::string(1000, 'x'), 64), SizeIs(64));
}

}  // namespace
}  // namespace pinstripe
