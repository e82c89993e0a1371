// Readings of a machine that a test makes up, and of the one that it runs on.

#include "daemon/host_readings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

class HostReadingsTest : public testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const fs::path path = root_ / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // Seconds since the start, of which the disk and, on one CPU, the CPU worked some.
  void Say(double uptime, int disk_busy_ms, int cpu_busy, int cpu_idle) {
    Write("proc/uptime", fmt::format("{:.2f} 1.0\n", uptime));
    Write("proc/stat", fmt::format("cpu  {} 0 0 {} 7 0 0 0 5 0\ncpu0 1 2 3\n", cpu_busy, cpu_idle));
    Write("proc/diskstats", fmt::format("   9       9 other 1 2 3 4 5 6 7 8 9 999999 11\n"
                                        "   8       1 sda1 1 2 3 4 5 6 7 8 9 {} 11 0 0 0 0 0 0\n",
                                        disk_busy_ms));
  }
  HostReadings Make() { return HostReadings("8:1", {root_ / "proc", root_ / "sys"}); }

  TemporaryDirectory root_directory_;
  const fs::path root_ = root_directory_.path();
};

TEST_F(HostReadingsTest, ALoadIsWhatWasBusySinceTheLastQuestion) {
  Say(100, 5'000, 700, 300);
  HostReadings host = Make();
  EXPECT_FALSE(host.ReadLoad().disk) << "nothing was measured yet";
  Say(110, 7'500, 1'000, 400);
  HostReadings::Load load = host.ReadLoad();
  EXPECT_NEAR(load.disk.value(), 0.25, 1e-6);
  EXPECT_NEAR(load.cpu.value(), 0.75, 1e-6);
  Say(110.05, 7'600, 1'100, 400);
  EXPECT_NEAR(host.ReadLoad().disk.value(), 0.25, 1e-6) << "too soon for another measurement";
  Say(112, 99'000, 1'000, 600);
  load = host.ReadLoad();
  EXPECT_EQ(load.disk.value(), 1.0) << "never more than all of the time";
  EXPECT_EQ(load.cpu.value(), 0.0);
}

TEST_F(HostReadingsTest, AnInterfaceIsAsBusyAsItsBusierDirection) {
  const auto write = [&](const std::string& name, int type, const std::string& speed, int received,
                         int sent) {
    const std::string path = "sys/class/net/" + name;
    Write(path + "/operstate", name == "eth0" ? "down\n" : "up\n");
    Write(path + "/type", fmt::format("{}\n", type));
    Write(path + "/speed", speed + "\n");
    Write(path + "/statistics/rx_bytes", fmt::format("{}\n", received));
    Write(path + "/statistics/tx_bytes", fmt::format("{}\n", sent));
  };
  const auto say = [&](double uptime, int received, int sent) {
    Say(uptime, 0, 0, 0);
    write("eth0", 1, "1000", 9 * received, 9 * sent);  // is down
    write("eth1", 1, "8", received, sent);             // a million bytes a second
    write("lo", 772, "8", received, sent);
    write("veth", 1, "-1", received, sent);
    write("wlan", 1, "8", 9 * received, 9 * sent);  // the third
  };
  say(100, 5'000'000, 7'000'000);
  HostReadings host = Make();
  EXPECT_FALSE(host.ReadLoad().network[0]) << "nothing was measured yet";
  say(110, 5'100'000, 9'500'000);
  const HostReadings::Load load = host.ReadLoad();
  EXPECT_NEAR(load.network[0].value(), 0.25, 1e-6);
  EXPECT_FALSE(load.network[1]) << "one without a speed is never busy";
}

TEST_F(HostReadingsTest, WhatTheKernelDoesNotSayIsLeftOut) {
  HostReadings host = Make();
  EXPECT_FALSE(host.ReadLoad().disk);
  EXPECT_FALSE(host.ReadLoad().cpu);
  EXPECT_FALSE(host.ReadLoad().network[0]);
  EXPECT_FALSE(host.DiskTemperature());
  EXPECT_FALSE(host.CpuTemperature());
  HostReadings nowhere("");
  EXPECT_FALSE(nowhere.DiskTemperature());
}

TEST_F(HostReadingsTest, ThePartitionsDiskHasTheSensor) {
  Write("sys/block/sda/device/hwmon/hwmon3/temp1_input", "41000\n");
  Write("sys/block/sda/device/hwmon/hwmon3/temp1_max", "60500\n");
  Write("sys/block/sda/sda1/partition", "1\n");
  fs::create_directories(root_ / "sys/dev/block");
  fs::create_symlink(root_ / "sys/block/sda/sda1", root_ / "sys/dev/block/8:1");
  Write("sys/class/hwmon/hwmon0/name", "acpitz\n");
  Write("sys/class/hwmon/hwmon0/temp1_input", "99000\n");
  Write("sys/class/hwmon/hwmon1/name", "coretemp\n");
  Write("sys/class/hwmon/hwmon1/temp1_input", "52000\n");
  const HostReadings host = Make();
  const auto disk = host.DiskTemperature();
  ASSERT_TRUE(disk);
  EXPECT_EQ(disk->current, 41);
  EXPECT_EQ(disk->maximum, 60.5);
  EXPECT_FALSE(disk->minimum);
  EXPECT_EQ(host.CpuTemperature().value().current, 52);
}

TEST(NetworkInterfaces, TheLoopbackIsThere) {
  const auto interfaces = NetworkInterfaces();
  const auto lo = std::find_if(interfaces.begin(), interfaces.end(),
                               [](const auto& each) { return each.ipv4 == "127.0.0.1"; });
  ASSERT_NE(lo, interfaces.end());
  EXPECT_FALSE(lo->name.empty());
  EXPECT_TRUE(lo->mac.empty());
}

}  // namespace
}  // namespace pinstripe
