// HostReadings: what can truly be measured about the machine and about the disk that holds one
// drive: how busy they and its first network interfaces are, how warm, which interfaces there are.
// From /proc and /sys; what they do not say is left out, never made up.
//
// Thread-safe. Reads small files of the kernel, which does not wait for a disk.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace pinstripe {

struct NetworkInterface {
  std::string name;
  std::string mac;  // text, as the addresses are; empty: has none
  std::string ipv4;
  std::string ipv6;
};

// Those that are up, at most kMaxInterfaces.
inline constexpr size_t kMaxInterfaces = 64;
std::vector<NetworkInterface> NetworkInterfaces();

class HostReadings {
 public:
  struct Roots {
    std::string proc = "/proc";
    std::string sys = "/sys";
  };

  // About the disk with this number, as "8:1"; an empty one: about none.
  explicit HostReadings(std::string disk) : HostReadings(std::move(disk), Roots()) {}
  HostReadings(std::string disk, Roots roots);

  // The disk on which `path` is; empty with an empty path, or where no single disk is behind the
  // file system.
  static std::string DiskUnder(const std::string& path);

  // Parts of the time that they were busy, 0 to 1, since the last time somebody asked, or since the
  // start; when that is shorter than a tenth of a second, what was answered then.
  struct Load {
    std::optional<double> disk;
    std::optional<double> cpu;
    // What the first interfaces by name that are up have moved (but for the loopback), in the
    // direction in which more did, as a part of what the interface's speed allows. None where the
    // interface does not tell its speed, as virtual ones do not.
    std::array<std::optional<double>, 2> network;
  };
  Load ReadLoad();

  struct Temperature {
    double current = 0;  // Celsius
    std::optional<double> minimum;
    std::optional<double> maximum;
  };
  std::optional<Temperature> DiskTemperature() const;
  std::optional<Temperature> CpuTemperature() const;

 private:
  // Counters of the kernel, since it started.
  struct Traffic {
    std::string interface;
    uint64_t received = 0;                   // bytes
    uint64_t sent = 0;                       // bytes
    std::optional<double> bytes_per_second;  // its speed
  };
  struct Sample {
    double uptime = 0;                // seconds
    std::optional<double> disk_busy;  // seconds
    uint64_t cpu_busy = 0;            // ticks
    uint64_t cpu_all = 0;
    std::vector<Traffic> network;  // as in Load
  };
  Sample TakeSample() const;
  std::optional<double> DiskBusySeconds() const;
  std::vector<Traffic> ReadTraffic() const;

  const Roots roots_;
  const std::string disk_;

  Mutex mutex_;
  Sample last_ GUARDED_BY(mutex_);
  Load load_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
