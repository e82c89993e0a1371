#include "daemon/host_readings.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

constexpr double kShortestInterval = 0.1;  // seconds

std::string FirstLine(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

template <typename Number>
std::optional<Number> NumberIn(const fs::path& file) {
  std::istringstream line(FirstLine(file));
  Number number = 0;
  if (!(line >> number)) return std::nullopt;
  return number;
}

// The kernel's sensors count thousandths of a degree.
std::optional<double> Degrees(const fs::path& file) {
  const auto thousandths = NumberIn<double>(file);
  if (!thousandths) return std::nullopt;
  return *thousandths / 1000;
}

double PartOf(double busy, double all) { return std::clamp(busy / all, 0.0, 1.0); }

std::optional<HostReadings::Temperature> ReadSensor(const fs::path& directory) {
  const std::optional<double> current = Degrees(directory / "temp1_input");
  if (!current) return std::nullopt;
  HostReadings::Temperature temperature{.current = *current};
  temperature.minimum = Degrees(directory / "temp1_min");
  temperature.maximum = Degrees(directory / "temp1_max");
  return temperature;
}

// The sensors that are in a directory, or in those of its directories that are called "hwmon...".
std::optional<HostReadings::Temperature> FindSensor(const fs::path& directory) {
  std::error_code ignored;  // what cannot be read has no sensor
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (!entry.path().filename().string().starts_with("hwmon")) continue;
    if (auto found = ReadSensor(entry.path())) return found;
    if (auto found = FindSensor(entry.path())) return found;
  }
  return std::nullopt;
}

std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof text);
  }
  return text;
}

std::string MacOf(const sockaddr* address) {
  const auto* link = reinterpret_cast<const sockaddr_ll*>(address);
  const unsigned char* const begin = link->sll_addr;
  if (link->sll_halen != 6 || std::all_of(begin, begin + 6, [](auto b) { return b == 0; }))
    return "";
  return fmt::format("{:02x}", fmt::join(begin, begin + 6, ":"));
}

}  // namespace

std::vector<NetworkInterface> NetworkInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &freeifaddrs);
  std::map<std::string, NetworkInterface> found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_UP) == 0 || each->ifa_addr == nullptr) continue;
    if (found.size() >= kMaxInterfaces && !found.contains(each->ifa_name)) continue;
    NetworkInterface& interface = found[each->ifa_name];
    interface.name = each->ifa_name;
    switch (each->ifa_addr->sa_family) {
      case AF_PACKET: interface.mac = MacOf(each->ifa_addr); break;
      case AF_INET:
        if (interface.ipv4.empty()) interface.ipv4 = TextOf(each->ifa_addr);
        break;
      case AF_INET6:
        if (interface.ipv6.empty()) interface.ipv6 = TextOf(each->ifa_addr);
        break;
      default: break;
    }
  }
  std::vector<NetworkInterface> interfaces;
  for (auto& [name, interface] : found) interfaces.push_back(std::move(interface));
  return interfaces;
}

HostReadings::HostReadings(std::string disk, Roots roots)
    : roots_(std::move(roots)), disk_(std::move(disk)), last_(TakeSample()) {}

std::string HostReadings::DiskUnder(const std::string& path) {
  struct stat about;
  // Number 0 is what the kernel gives to file systems without a disk of their own.
  const bool found = !path.empty() && stat(path.c_str(), &about) == 0 && major(about.st_dev) != 0;
  return found ? fmt::format("{}:{}", major(about.st_dev), minor(about.st_dev)) : "";
}

std::optional<double> HostReadings::DiskBusySeconds() const {
  if (disk_.empty()) return std::nullopt;
  std::ifstream stream(roots_.proc + "/diskstats");
  for (std::string line; std::getline(stream, line);) {
    std::istringstream fields(line);
    unsigned major_number = 0;
    unsigned minor_number = 0;
    std::string name;
    fields >> major_number >> minor_number >> name;
    if (fmt::format("{}:{}", major_number, minor_number) != disk_) continue;
    uint64_t field = 0;
    constexpr int kBusyMilliseconds = 10;  // of the numbers after the name
    for (int i = 0; i < kBusyMilliseconds; ++i) fields >> field;
    if (!fields) return std::nullopt;
    return static_cast<double>(field) / 1000;
  }
  return std::nullopt;
}

std::vector<HostReadings::Traffic> HostReadings::ReadTraffic() const {
  constexpr int kLoopback = 772;  // ARPHRD_LOOPBACK
  std::vector<fs::path> interfaces;
  std::error_code ignored;  // what cannot be read is not counted
  for (const auto& entry : fs::directory_iterator(roots_.sys + "/class/net", ignored)) {
    if (FirstLine(entry.path() / "operstate") != "up") continue;
    if (NumberIn<int>(entry.path() / "type") != kLoopback) interfaces.push_back(entry.path());
  }
  std::sort(interfaces.begin(), interfaces.end());
  interfaces.resize(std::min(interfaces.size(), Load().network.size()));
  std::vector<Traffic> found;
  for (const fs::path& interface : interfaces) {
    Traffic traffic{.interface = interface.filename()};
    traffic.received = NumberIn<uint64_t>(interface / "statistics/rx_bytes").value_or(0);
    traffic.sent = NumberIn<uint64_t>(interface / "statistics/tx_bytes").value_or(0);
    // In millions of bits per second; -1 where there is no such thing.
    const auto speed = NumberIn<double>(interface / "speed");
    if (speed && *speed > 0) traffic.bytes_per_second = *speed * 1e6 / 8;
    found.push_back(std::move(traffic));
  }
  return found;
}

HostReadings::Sample HostReadings::TakeSample() const {
  Sample sample;
  std::istringstream(FirstLine(roots_.proc + "/uptime")) >> sample.uptime;
  sample.disk_busy = DiskBusySeconds();
  std::istringstream cpu(FirstLine(roots_.proc + "/stat"));
  std::string name;
  cpu >> name;
  // user nice system idle iowait irq softirq steal; what guests use is in user already.
  uint64_t ticks = 0;
  for (int field = 0; field < 8 && cpu >> ticks; ++field) {
    sample.cpu_all += ticks;
    const bool waiting = field == 3 || field == 4;
    if (!waiting) sample.cpu_busy += ticks;
  }
  sample.network = ReadTraffic();
  return sample;
}

HostReadings::Load HostReadings::ReadLoad() {
  const Sample now = TakeSample();
  const MutexLock lock(mutex_);
  const double elapsed = now.uptime - last_.uptime;
  if (elapsed < kShortestInterval) return load_;
  load_ = {};
  if (now.disk_busy && last_.disk_busy)
    load_.disk = PartOf(*now.disk_busy - *last_.disk_busy, elapsed);
  if (now.cpu_all > last_.cpu_all) {
    load_.cpu = PartOf(static_cast<double>(now.cpu_busy) - static_cast<double>(last_.cpu_busy),
                       static_cast<double>(now.cpu_all - last_.cpu_all));
  }
  for (size_t i = 0; i < std::min(now.network.size(), last_.network.size()); ++i) {
    const Traffic& traffic = now.network[i];
    const Traffic& before = last_.network[i];
    if (traffic.interface != before.interface || !traffic.bytes_per_second) continue;
    const double moved = std::max(static_cast<double>(traffic.received - before.received),
                                  static_cast<double>(traffic.sent - before.sent));
    load_.network[i] = PartOf(moved, elapsed * *traffic.bytes_per_second);
  }
  last_ = now;
  return load_;
}

std::optional<HostReadings::Temperature> HostReadings::DiskTemperature() const {
  if (disk_.empty()) return std::nullopt;
  std::error_code failed;
  fs::path device = fs::canonical(roots_.sys + "/dev/block/" + disk_, failed);
  if (failed) return std::nullopt;
  if (fs::exists(device / "partition", failed)) device = device.parent_path();
  return FindSensor(device / "device");
}

std::optional<HostReadings::Temperature> HostReadings::CpuTemperature() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(roots_.sys + "/class/hwmon", ignored)) {
    const std::string name = FirstLine(entry.path() / "name");
    if (name != "coretemp" && name != "k10temp" && name != "cpu_thermal") continue;
    if (auto found = ReadSensor(entry.path())) return found;
  }
  return std::nullopt;
}

}  // namespace pinstripe
