#include "fuse/mount_options.h"

#include <gtest/gtest.h>

namespace pinstripe {
namespace {

TEST(MountOptions, TheKernelAlwaysChecksPermissions) {
  EXPECT_EQ(MountOptions(""), "default_permissions,fsname=pinstripe,subtype=pinstripe");
}

TEST(MountOptions, TheUsersComeAfterOurs) {
  EXPECT_EQ(MountOptions("ro,allow_other,fsname=data"),
            MountOptions("") + ",ro,allow_other,fsname=data");
}

TEST(MountOptions, WhatIsMeantForFstabStaysThere) {
  EXPECT_EQ(MountOptions("_netdev,nofail,x-systemd.requires=a.service,noauto,noatime"),
            MountOptions("noatime"));
}

TEST(MountOptions, EmptyOnesDoNotMatter) { EXPECT_EQ(MountOptions(",ro,,"), MountOptions("ro")); }

}  // namespace
}  // namespace pinstripe
