// Files: what is written is what is read, in whatever form it is kept.

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using FileTest = FsTest;

TEST_F(FileTest, WhatWasWrittenIsRead) {
  auto file = fs_->Create(kRootInode, "hello", {.mode = 0640, .owner = {1, 2}});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes("hello, world")));
  EXPECT_EQ(ReadAll(**file), "hello, world");
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(Contents("/hello"), "hello, world");
}

TEST_F(FileTest, EverySizeSurvivesARoundTrip) {
  for (const size_t size : {0ul, 1ul, 4095ul, 4096ul, 4097ul, 65535ul, 65536ul, 65537ul,
                            kTestBlock - 1, kTestBlock, kTestBlock + 1, 3 * kTestBlock + 777}) {
    SCOPED_TRACE(size);
    const std::string bytes = Pattern(size, size);
    Make("file", bytes);
    EXPECT_EQ(Contents("/file"), bytes);
    EXPECT_EQ(fs_->Resolve("/file")->size, size);
    Host other = NewHost();
    EXPECT_EQ(Contents("/file", other.fs.get()), bytes);
  }
}

TEST_F(FileTest, ANewFileHasItsModeOwnerAndTimes) {
  auto file = fs_->Create(kRootInode, "hello", {.mode = 0640, .owner = {1, 2}});
  ASSERT_OK(file);
  const auto attributes = (*file)->Stat();
  ASSERT_OK(attributes);
  EXPECT_EQ(attributes->mode, 0640u);
  EXPECT_EQ(attributes->owner.user, 1u);
  EXPECT_EQ(attributes->owner.group, 2u);
  EXPECT_EQ(attributes->links, 1u);
  EXPECT_GT(attributes->modified, 0);
}

}  // namespace
}  // namespace pinstripe
