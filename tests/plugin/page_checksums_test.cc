#include "plugin/page_checksums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/checksum.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;

std::string Letters(size_t length) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

std::vector<uint32_t> SumsOf(uint64_t offset, Bytes data) {
  std::vector<uint32_t> sums(CountFilePages(offset, data.size()));
  PageChecksums(offset, data, sums.data());
  return sums;
}

TEST(PageChecksums, ThereIsOneForEveryPageThatIsTouched) {
  EXPECT_EQ(CountFilePages(0, 0), 0u);
  EXPECT_EQ(CountFilePages(5, 0), 0u);
  EXPECT_EQ(CountFilePages(0, 1), 1u);
  EXPECT_EQ(CountFilePages(0, 4096), 1u);
  EXPECT_EQ(CountFilePages(0, 4097), 2u);
  EXPECT_EQ(CountFilePages(4095, 1), 1u);
  EXPECT_EQ(CountFilePages(4095, 2), 2u);
  EXPECT_EQ(CountFilePages(4096, 4096), 1u);
  EXPECT_EQ(CountFilePages(1, 2 << 20), 513u);
}

TEST(PageChecksums, PagesAreThoseOfTheFileAndNotOfTheBuffer) {
  const std::string text = Letters(96 + 4096 + 10);
  const Bytes data = AsBytes(text);

  EXPECT_THAT(SumsOf(8192 + 4000, data),
              ElementsAre(Crc32c(data.first(96)), Crc32c(data.subspan(96, 4096)),
                          Crc32c(data.subspan(96 + 4096))));
}

TEST(PageChecksums, TheyAreCrc32cAsTheProtocolSays) {
  EXPECT_THAT(SumsOf(0, AsBytes("123456789")), ElementsAre(0xe3069283u));
}

TEST(PageChecksums, ThoseThatAreKnownAreNotComputed) {
  const std::string text = Letters(96 + 4096 + 10);
  const Bytes data = AsBytes(text);
  const std::vector<PageSum> known = {{}, {7, true}, {}};
  std::vector<uint32_t> sums(3);
  PageChecksums(8192 + 4000, data, known, sums.data());
  EXPECT_THAT(sums, ElementsAre(Crc32c(data.first(96)), 7u, Crc32c(data.subspan(96 + 4096))));
}

TEST(PageChecksums, OneChangedByteIsFoundWhereverItIs) {
  std::string text = Letters(10'000);
  constexpr uint64_t kOffset = 1234;
  const std::vector<uint32_t> sums = SumsOf(kOffset, AsBytes(text));
  ASSERT_TRUE(PageChecksumsMatch(kOffset, AsBytes(text), sums.data()));

  for (size_t i = 0; i < text.size(); i += 37) {
    text[i] ^= 1;
    EXPECT_FALSE(PageChecksumsMatch(kOffset, AsBytes(text), sums.data())) << i;
    text[i] ^= 1;
  }
}

}  // namespace
}  // namespace pinstripe
