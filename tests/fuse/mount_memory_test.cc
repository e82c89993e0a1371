#include "fuse/mount_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

constexpr uint64_t kAlone = 240 << 20;

class MountMemoryTest : public FsTest {
 protected:
  MountMemory NewMemory(std::optional<uint64_t> given = std::nullopt) {
    return MountMemory(given, options_);
  }
  // True: within ten of its looks.
  bool GetsTo(uint64_t bytes) {
    for (int i = 0; i < 10 && fs_->Memory().limit_bytes != bytes; i++)
      sim_.Sleep(MountMemoryFollower::kEvery);
    return fs_->Memory().limit_bytes == bytes;
  }

  const MountMemory::Options options_{.kind = fmt::format("pinstripe-test-mounts-{}", getpid())};
  ClusterConfig unsaid_ = [] {
    ClusterConfig config;
    config.memory_bytes = kAlone;
    return config;
  }();
};

TEST_F(MountMemoryTest, MountsThatWereGivenNothingShare) {
  MountMemory first = NewMemory();
  fs_->SetMemory(first.By(unsaid_));
  EXPECT_EQ(fs_->Memory().limit_bytes, kAlone);
  const MountMemoryFollower follower(sim_, first, *fs_);
  {
    MountMemory second = NewMemory();
    EXPECT_EQ(second.By(unsaid_), kAlone / 2);
    EXPECT_TRUE(GetsTo(kAlone / 2)) << fs_->Memory().limit_bytes;
    MountMemory third = NewMemory();
    EXPECT_EQ(third.By(unsaid_), kAlone / 3);
    EXPECT_TRUE(GetsTo(kAlone / 3)) << fs_->Memory().limit_bytes;
  }
  EXPECT_TRUE(GetsTo(kAlone)) << "the others have gone, not " << fs_->Memory().limit_bytes;
}

TEST_F(MountMemoryTest, WhatIsSaidIsNotShared) {
  MountMemory sharing = NewMemory();
  EXPECT_EQ(sharing.By(unsaid_), kAlone);
  ClusterConfig said = unsaid_;
  said.memory_is_said = true;
  EXPECT_EQ(NewMemory(100 << 20).By(unsaid_), 100u << 20) << "by the option";
  MountMemory other = NewMemory();
  EXPECT_EQ(other.By(said), kAlone) << "by the configuration";
  EXPECT_EQ(sharing.By(unsaid_), kAlone);
}

TEST_F(MountMemoryTest, AConfigurationThatIsReadAgainCounts) {
  MountMemory memory = NewMemory();
  MountMemory other = NewMemory();
  EXPECT_EQ(other.By(unsaid_), kAlone);
  EXPECT_EQ(memory.By(unsaid_), kAlone / 2);
  const MountMemoryFollower follower(sim_, memory, *fs_);
  ClusterConfig said = unsaid_;
  said.memory_is_said = true;
  said.memory_bytes = 50 << 20;
  EXPECT_EQ(memory.By(said), 50u << 20);
  EXPECT_TRUE(GetsTo(50 << 20));
  EXPECT_EQ(other.By(unsaid_), kAlone);
  EXPECT_EQ(memory.By(unsaid_), kAlone / 2);
  EXPECT_TRUE(GetsTo(kAlone / 2));
}

TEST_F(MountMemoryTest, HoweverManyThereAreEachHasEnoughToWork) {
  std::deque<MountMemory> many;
  for (int i = 0; i < 30; i++) many.emplace_back(std::nullopt, options_).By(unsaid_);
  EXPECT_EQ(many.back().By(unsaid_), kLeastMemoryBytes);
}

}  // namespace
}  // namespace pinstripe
