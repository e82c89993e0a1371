#include "fuse/mount_options.h"

#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;

MountOptions Parse(std::string_view options, std::string_view source = "/etc/c.toml") {
  auto parsed = ParseMountOptions(options, source);
  EXPECT_OK(parsed);
  return parsed.value_or(MountOptions());
}

TEST(MountOptions, TheKernelAlwaysChecksPermissions) {
  EXPECT_EQ(Parse("").kernel, "default_permissions,subtype=pinstripe,fsname=/etc/c.toml");
}

TEST(MountOptions, ASourceThatCannotBeToldIsNot) {
  EXPECT_EQ(Parse("", "/a,b").kernel, "default_permissions,subtype=pinstripe,fsname=pinstripe");
}

TEST(MountOptions, TheUsersComeAfterOurs) {
  EXPECT_EQ(Parse("ro,allow_other,fsname=data").kernel,
            Parse("").kernel + ",ro,allow_other,fsname=data");
}

TEST(MountOptions, WhatIsMeantForFstabStaysThere) {
  EXPECT_EQ(Parse("_netdev,nofail,x-systemd.requires=a.service,noauto,noatime").kernel,
            Parse("noatime").kernel);
}

TEST(MountOptions, EmptyOnesDoNotMatter) { EXPECT_EQ(Parse(",ro,,").kernel, Parse("ro").kernel); }

TEST(MountOptions, WhatIsForUsIsNotToldToTheKernel) {
  const MountOptions options = Parse(
      "subdir=a/b,cache_size=64MiB,ro,entry_timeout=0.5,attr_timeout=0,uid=5,gid=6,"
      "writethrough,cache_dir=/var/cache/x,cache_dir_size=1GiB");
  EXPECT_EQ(options.kernel, Parse("ro").kernel);
  EXPECT_EQ(options.subdirectory, "/a/b");
  EXPECT_EQ(options.cache_bytes, 64u << 20);
  EXPECT_EQ(options.cache_directory, "/var/cache/x");
  EXPECT_EQ(options.cache_directory_bytes, 1u << 30);
  EXPECT_EQ(options.name_age, milliseconds(500));
  EXPECT_EQ(options.attribute_age, milliseconds(0));
  EXPECT_EQ(options.user, 5u);
  EXPECT_EQ(options.group, 6u);
}

TEST(MountOptions, LocksAreTheKernelsOrThereAreNone) {
  EXPECT_TRUE(Parse("ro").locks);
  EXPECT_EQ(Parse("ro").metrics, "") << "off unless asked for";
  EXPECT_EQ(Parse("ro,metrics=127.0.0.1:9466").metrics, "127.0.0.1:9466");
  EXPECT_EQ(Parse("ro,metrics=9466").kernel, Parse("ro").kernel);
  EXPECT_TRUE(Parse("locks=local").locks);
  EXPECT_FALSE(Parse("locks=none").locks);
  EXPECT_EQ(Parse("ro,locks=none").kernel, Parse("ro").kernel);
  EXPECT_FALSE(Parse("ro").async_names) << "off unless asked for";
  EXPECT_FALSE(Parse("dirops=sync").async_names);
  EXPECT_TRUE(Parse("dirops=async").async_names);
  EXPECT_EQ(Parse("ro,dirops=async").kernel, Parse("ro").kernel);
}

TEST(MountOptions, FromWhenOnSomethingIsSlowCanBeSaid) {
  EXPECT_EQ(Parse("ro").slow_request, std::chrono::seconds(1));
  EXPECT_EQ(Parse("slow_request=0.25").slow_request, std::chrono::milliseconds(250));
  EXPECT_EQ(Parse("slow_request=0").slow_request, Duration()) << "nothing is";
  EXPECT_EQ(Parse("ro,slow_request=2").kernel, Parse("ro").kernel);
}

TEST(MountOptions, AclsAreTheKernelsBusinessUnlessTheyAreTurnedOff) {
  EXPECT_TRUE(Parse("ro").acls);
  EXPECT_TRUE(Parse("noacl,acl").acls);
  EXPECT_FALSE(Parse("noacl").acls);
  EXPECT_EQ(Parse("ro,acl,noacl").kernel, Parse("ro").kernel);
}

TEST(MountOptions, WhatCannotBeMeantIsRefused) {
  for (const char* options :
       {"cache_size=", "cache_size=many", "cache_size=1", "entry_timeout=soon", "attr_timeout=-1",
        "entry_timeout=nan", "cache_dir_size=1MiB", "metrics=", "metrics=host:1",
        "slow_request=", "slow_request=1s", "locks=", "locks=global", "entry_timeout=1s",
        "uid=root", "gid=-1", "uid=4294967295", "writeback"}) {
    const auto parsed = ParseMountOptions(options, "");
    EXPECT_FAILS(parsed, EINVAL) << options;
  }
}

TEST(MountOptions, AHelperOfMountIsKnownByItsName) {
  EXPECT_TRUE(IsMountHelper("/sbin/mount.fuse.pinstripe"));
  EXPECT_TRUE(IsMountHelper("mount.pinstripe"));
  EXPECT_FALSE(IsMountHelper("/usr/bin/pinstripe-fuse"));
  EXPECT_FALSE(IsMountHelper("/mount.d/pinstripe-fuse"));
}

}  // namespace
}  // namespace pinstripe
