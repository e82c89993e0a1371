#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/checksum.h"

uint32_t crc32c(uint32_t crc, const void* buffer, size_t length);  // plugin/crc32c_preload.cc

namespace pinstripe {
namespace {

TEST(Crc32cForXRootD, IsTheSumOfTheStandard) {
  EXPECT_EQ(crc32c(0, "123456789", 9), 0xe3069283u);  // RFC 3720, B.4, and Rocksoft's check value
  EXPECT_EQ(crc32c(0, std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(crc32c(0, "", 0), 0u);
}

TEST(Crc32cForXRootD, GoesOnFromWhatCameBefore) {
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes.push_back(static_cast<char>(i * i >> 3));
  const uint32_t whole = crc32c(0, bytes.data(), bytes.size());
  EXPECT_EQ(whole, Crc32c(AsBytes(bytes)));
  for (size_t split = 0; split <= bytes.size(); split += 617) {
    const uint32_t first = crc32c(0, bytes.data(), split);
    EXPECT_EQ(crc32c(first, bytes.data() + split, bytes.size() - split), whole) << split;
  }
}

}  // namespace
}  // namespace pinstripe
