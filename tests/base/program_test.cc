#include "base/program.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace pinstripe {
namespace {

TEST(ProgramTest, MayHaveAsManyDescriptorsAsItsHardLimitAllows) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseDescriptorLimit(), before.rlim_max);
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, before.rlim_max);
}

TEST(ProgramTest, IsCalledWhatItSaid) {
  SetProgram({.name = "pinstripe-test", .version = "1", .detail = "this"});
  EXPECT_EQ(ThisProgram().name, "pinstripe-test");
  EXPECT_EQ(ThisProgram().detail, "this");
  SetProgram({});
  EXPECT_FALSE(HostName().empty());
}

}  // namespace
}  // namespace pinstripe
