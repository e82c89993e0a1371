#include "base/bytes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace pinstripe {
namespace {

TEST(Bytes, AreSeenAsTextAndBack) {
  EXPECT_EQ(AsText(AsBytes("pin")), "pin");
  EXPECT_EQ(AsText(Bytes()), "");
  EXPECT_TRUE(Equal(AsBytes("pin"), AsBytes(std::string("pin"))));
  EXPECT_FALSE(Equal(AsBytes("pin"), AsBytes("pins")));
  EXPECT_FALSE(Equal(AsBytes("pin"), AsBytes("pan")));
  EXPECT_TRUE(Equal(Bytes(), AsBytes("")));
}

TEST(Bytes, AreShownInHexadecimal) {
  EXPECT_EQ(Hex(AsBytes(std::string_view("\x00\x7f\xff", 3))), "007fff");
  EXPECT_EQ(Hex({}), "");
}

TEST(Buffer, IsAlignedForTheWidestVectors) {
  for (size_t size : {1, 63, 64, 65, 100000}) {
    const Buffer buffer(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u);
    EXPECT_EQ(buffer.size(), size);
  }
}

TEST(Buffer, OfNoBytesHoldsNothing) {
  const Buffer buffer(0);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer, Buffer());
  EXPECT_EQ(Buffer::CopyOf({}), Buffer());
}

TEST(Buffer, IsZeroWhereAsked) {
  const Buffer buffer = Buffer::Zeroed(100);
  for (std::byte byte : buffer.bytes()) EXPECT_EQ(byte, std::byte{0});
}

TEST(Buffer, HandsItsBytesOnAndIsEmptyThen) {
  Buffer first = Buffer::CopyOf(AsBytes("pinstripe"));
  const std::byte* const where = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), where) << "moved, not copied";
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): it is promised
  first = std::move(second);
  EXPECT_EQ(AsText(first), "pinstripe");
  EXPECT_TRUE(second.empty());  // NOLINT(bugprone-use-after-move)
}

TEST(Buffer, ShrinksAndGrowsBackInPlace) {
  Buffer buffer = Buffer::CopyOf(AsBytes("pinstripe"));
  const std::byte* const where = buffer.data();
  buffer.Resize(3);
  EXPECT_EQ(AsText(buffer), "pin");
  buffer.Resize(9);
  EXPECT_EQ(AsText(buffer), "pinstripe");
  EXPECT_EQ(buffer.data(), where);
  EXPECT_DEATH(buffer.Resize(10), "capacity");
}

TEST(SharedBytes, LiveAsLongAsAnyoneLooks) {
  SharedBytes part;
  {
    const SharedBytes whole(std::string("a string that is too long to be kept inside"));
    part = whole.Slice(2, 6);
  }
  EXPECT_EQ(part.text(), "string");
}

#ifndef __SANITIZE_ADDRESS__
TEST(Buffer, TakesTheMemoryOfOneThatIsGone) {
  for (const size_t size : {4096u, 4097u, 20'000u, (64u << 10) - 1, 64u << 10, (64u << 10) + 1,
                            1u << 20, (1u << 20) - 17, 2u << 20}) {
    Buffer first(size);
    const std::byte* memory = first.data();
    first = Buffer();
    Buffer second(size);
    EXPECT_EQ(second.data(), memory) << size;
    Buffer third(size);
    EXPECT_NE(third.data(), memory) << size;
    std::memset(second.data(), 1, size);
    std::memset(third.data(), 3, size);
    EXPECT_EQ(second.data()[size - 1], std::byte{1});
  }
}

TEST(Buffer, ManySmallOnesThatAreGoneLeaveRoomForLargeOnes) {
  std::vector<Buffer> small;
  for (size_t bytes = 0; bytes < 2 * kMaxFreeBufferBytes; bytes += 4096) small.emplace_back(4096);
  small.clear();
  Buffer large(8 << 20);
  const std::byte* memory = large.data();
  large = Buffer();
  EXPECT_EQ(Buffer(8 << 20).data(), memory);
}
#endif

TEST(SharedBytes, TakeABufferOverWithoutCopying) {
  Buffer buffer = Buffer::CopyOf(AsBytes("pin"));
  const std::byte* const where = buffer.data();
  const SharedBytes shared(std::move(buffer));
  EXPECT_EQ(shared.data(), where);
  EXPECT_EQ(shared.text(), "pin");
}

TEST(SharedBytes, AreNeverSlicedPastTheirEnd) {
  const SharedBytes shared(std::string("pin"));
  EXPECT_TRUE(shared.Slice(3, 0).empty());
  EXPECT_DEATH(shared.Slice(1, 3), "size");
  EXPECT_DEATH(shared.Slice(4, 0), "size");
}

}  // namespace
}  // namespace pinstripe
