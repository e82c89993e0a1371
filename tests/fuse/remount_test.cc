// What a remount does to the flags of a mount, and which options it refuses. That the kernel takes
// them is tried with a mount: tests/integration/18-mount-life.sh.

#include "fuse/remount.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using Names = std::vector<std::string>;

constexpr std::string_view kMountinfo =
    "22 1 0:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "30 22 0:40 / /mnt rw,nosuid,nodev,relatime shared:5 - fuse.pinstripe /etc/c.toml "
    "rw,user_id=0,group_id=0,default_permissions,allow_other\n"
    "31 22 0:41 / /with\\040blank ro,noatime - fuse.pinstripe /etc/c.toml rw,user_id=0\n"
    "32 22 0:42 / /strict rw,noexec,nodiratime master:2 shared:3 - fuse.pinstripe /c.toml ro,sync\n"
    "33 22 0:43 / /twice rw,relatime - fuse.pinstripe /c.toml rw,user_id=0\n"
    "34 33 0:44 / /twice rw,relatime - tmpfs none rw\n"
    "35 22 0:45 / /cut rw\n";

unsigned long FlagsAfter(std::string_view directory, std::string_view options,
                         Asks asks = Asks::kPerson) {
  const auto mounted = FindMounted(kMountinfo, directory);
  EXPECT_OK(mounted);
  const Remounted after = AfterRemount(*mounted, options, asks);
  EXPECT_EQ(after.others, Names());
  return after.flags;
}

TEST(Remount, IsAskedForByItsName) {
  EXPECT_TRUE(IsRemount("remount,ro"));
  EXPECT_TRUE(IsRemount("rw,remount"));
  EXPECT_FALSE(IsRemount("ro"));
  EXPECT_FALSE(IsRemount("x-remount"));
  EXPECT_FALSE(IsRemount(""));
}

TEST(Remount, FlagsThatNobodyNamesStay) {
  constexpr unsigned long kBefore = MS_NOSUID | MS_NODEV | MS_RELATIME;
  EXPECT_EQ(FindMounted(kMountinfo, "/mnt")->flags, kBefore);
  EXPECT_EQ(FlagsAfter("/mnt", "remount"), kBefore);
  EXPECT_EQ(FlagsAfter("/mnt", "remount,ro"), kBefore | MS_RDONLY);
  EXPECT_EQ(FlagsAfter("/mnt", "remount,noexec,suid"), MS_NODEV | MS_RELATIME | MS_NOEXEC);
  EXPECT_EQ(FlagsAfter("/mnt", "remount,noatime"), MS_NOSUID | MS_NODEV | MS_NOATIME);
  EXPECT_EQ(FlagsAfter("/mnt", "remount,strictatime"), MS_NOSUID | MS_NODEV | MS_STRICTATIME);
}

TEST(Remount, TheFileSystemsFlagsCountAsTheMounts) {
  EXPECT_EQ(FlagsAfter("/with blank", "remount"), MS_RDONLY | MS_NOATIME);
  EXPECT_EQ(FlagsAfter("/with blank", "remount,rw"), MS_NOATIME);
  constexpr unsigned long kStrict = MS_NOEXEC | MS_NODIRATIME | MS_SYNCHRONOUS | MS_STRICTATIME;
  EXPECT_EQ(FlagsAfter("/strict", "remount"), kStrict | MS_RDONLY);
  EXPECT_EQ(FlagsAfter("/strict", "rw,remount,async"), kStrict & ~MS_SYNCHRONOUS);
}

TEST(Remount, TheLastOptionCounts) {
  EXPECT_EQ(FlagsAfter("/mnt", "ro,remount,rw") & MS_RDONLY, 0u);
  EXPECT_EQ(FlagsAfter("/mnt", "rw,remount,ro") & MS_RDONLY, unsigned{MS_RDONLY});
}

// As mount(8) hands them over.
TEST(Remount, WhatTheMountHasAndWhatIsForFstabAsksForNothing) {
  EXPECT_EQ(FlagsAfter("/mnt",
                       "rw,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,"
                       "allow_other,_netdev,nofail,x-systemd.automount,remount,ro",
                       Asks::kMountHelper),
            MS_NOSUID | MS_NODEV | MS_RELATIME | MS_RDONLY);
}

TEST(Remount, WhatMountLeavesOutIsTakenBack) {
  EXPECT_EQ(FlagsAfter("/strict", "rw,remount", Asks::kMountHelper), MS_STRICTATIME);
  EXPECT_EQ(FlagsAfter("/strict", "ro,noexec,nodiratime,sync,remount", Asks::kMountHelper),
            FlagsAfter("/strict", "remount"));
  EXPECT_EQ(FlagsAfter("/with blank", "rw,remount", Asks::kMountHelper), MS_RELATIME);
  EXPECT_EQ(FlagsAfter("/mnt", "ro,remount", Asks::kMountHelper),
            MS_NOSUID | MS_NODEV | MS_RELATIME | MS_RDONLY)
      << "fstab does not name what libfuse adds";
}

TEST(Remount, WhatTakesANewMountIsNamed) {
  const auto mounted = FindMounted(kMountinfo, "/mnt");
  ASSERT_OK(mounted);
  EXPECT_EQ(AfterRemount(*mounted, "remount,ro,cache_size=1GiB,user_id=0,noacl,user_id=5",
                         Asks::kMountHelper)
                .others,
            (Names{"cache_size=1GiB", "noacl", "user_id=5"}));
}

TEST(Remount, WhatIsNoMountOfOursIsLeftAlone) {
  EXPECT_FAILS(FindMounted(kMountinfo, "/none"), ENOENT);
  EXPECT_FAILS(FindMounted(kMountinfo, "/"), EINVAL);
  EXPECT_FAILS(FindMounted(kMountinfo, "/twice"), EINVAL);
  EXPECT_FAILS(FindMounted(kMountinfo, "/cut"), EINVAL);
  EXPECT_FAILS(Remount("/", "remount,ro", Asks::kPerson), EINVAL);
}

}  // namespace
}  // namespace pinstripe
