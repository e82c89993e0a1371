#include "fuse/virtual_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fuse/request_counters.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;

constexpr InodeId kRoot = 77;

TEST(VirtualFiles, AreInTheRootAndNowhereElse) {
  const auto directory = FindVirtual(kRoot, kRoot, ".pinstripe");
  ASSERT_TRUE(directory);
  EXPECT_EQ(directory->kind, FileKind::kDirectory);
  EXPECT_FALSE(FindVirtual(kRoot, kRoot + 1, ".pinstripe"));
  EXPECT_FALSE(FindVirtual(kRoot, kRoot, "stats"));
  EXPECT_EQ(FindVirtual(kRoot, directory->inode, "stats")->inode, kStatsFile);
  EXPECT_FALSE(FindVirtual(kRoot, directory->inode, "none"));
}

TEST(VirtualFiles, AreListedInTheOrderOfTheirNames) {
  const auto all = ListVirtual("");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "config");
  ASSERT_EQ(ListVirtual("config").size(), 1u);
  EXPECT_EQ(ListVirtual("config")[0].name, "stats");
  EXPECT_TRUE(ListVirtual("stats").empty());
}

TEST(VirtualFiles, AreReadAndNotChanged) {
  const auto file = OpenVirtual(kConfigFile, "0123456789");
  Buffer buffer(4);
  EXPECT_EQ(*file->Read(3, buffer), 4u);
  EXPECT_TRUE(Equal(buffer, AsBytes("3456")));
  EXPECT_EQ(*file->Read(8, buffer), 2u);
  EXPECT_EQ(*file->Read(100, buffer), 0u);
  EXPECT_FAILS(file->Write(0, AsBytes("x")), EACCES);
}

TEST(RequestCounters, AreToldAsPrometheusReadsThem) {
  RequestCounters counters;
  counters.Count(RequestCounters::Kind::kLookup, std::chrono::milliseconds(1500));
  counters.Count(RequestCounters::Kind::kLookup, std::chrono::milliseconds(500));
  counters.Count(RequestCounters::Kind::kStatFileSystem, std::chrono::seconds(1));
  counters.CountRead(4096);
  const std::string text = counters.Text({.limit_bytes = 1000, .cache_hits = 7});
  EXPECT_THAT(text, HasSubstr("# TYPE pinstripe_mount_requests_total counter\n"
                              "pinstripe_mount_requests_total{request=\"lookup\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("pinstripe_mount_requests_total{request=\"statfs\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("pinstripe_mount_request_seconds_total{request=\"lookup\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("\npinstripe_mount_read_bytes_total 4096\n"));
  EXPECT_THAT(text, HasSubstr("\npinstripe_mount_memory_limit_bytes 1000\n"));
  EXPECT_THAT(text, HasSubstr("\npinstripe_mount_cache_hits_total 7\n"));
  EXPECT_THAT(text, Not(HasSubstr("disk_cache"))) << "where there is none";
  const std::string with_disk =
      counters.Text({.disk = {.limit_bytes = 5000, .ready = true, .cells_found = 11}});
  EXPECT_THAT(with_disk, HasSubstr("\npinstripe_mount_disk_cache_ready 1\n"));
  EXPECT_THAT(with_disk, HasSubstr("\npinstripe_mount_disk_cache_hits_total 11\n"));
}

}  // namespace
}  // namespace pinstripe
