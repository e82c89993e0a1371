#include "tools/dev_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/try.h"
#include "tools/config_text.h"

namespace pinstripe {
namespace {

// A number from `least` to 4096, all of `text`.
std::optional<int> ParseCount(std::string_view text, int least) {
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  if (number < least || number > 4096) return std::nullopt;
  return number;
}

}  // namespace

std::string ClusterConfigText(const DevClusterText& cluster) {
  std::string text = fmt::format(
      "# Written by `pinstripe dev up`.\n\n"
      "[cluster]\nname = {}\ncredentials = {}\n\n"
      "[layout]\ndata_shards = {}\nparity_shards = {}\n\n"
      "[files]\nclose = {}\n",
      Quoted(cluster.name), Quoted(cluster.credentials_file), cluster.layout.data_shards,
      cluster.layout.parity_shards, Quoted(cluster.close));
  for (const DevDrive& drive : cluster.drives) {
    text += fmt::format("\n[[drive]]\nid = {}\naddress = \"127.0.0.1:{}\"\n", drive.id, drive.port);
  }
  return text;
}

std::string CredentialsText() {
  return "# Written by `pinstripe dev up`: the Kinetic factory default.\n\n"
         "[default]\nidentity = 1\nkey = \"asdfasdf\"\n";
}

std::string DaemonConfigText(const std::vector<DevDrive>& drives, uint64_t capacity_bytes) {
  std::string text = "# Written by `pinstripe dev up`.\n\n[daemon]\nlisten = \"127.0.0.1\"\n";
  for (const DevDrive& drive : drives) {
    text += fmt::format("\n[[drive]]\npath = {}\nport = {}\ncapacity = {}\n", Quoted(drive.path),
                        drive.port, capacity_bytes);
  }
  return text;
}

std::string GatewayConfigText(const GatewayText& gateway) {
  return fmt::format(
      "# Written by `pinstripe dev up`.\n"
      "xrd.port {0}\n"
      "xrd.network dnr norpipa\n"
      "all.export / nolock\n"
      "all.adminpath {1}/admin\n"
      "all.pidpath {1}/run\n"
      "ofs.osslib +cksio +xattr {2} {3}\n"
      "xrootd.chksum max 2 chkcgi adler32 crc32c md5\n",
      gateway.port, gateway.directory, gateway.plugin, gateway.cluster_file);
}

Result<std::vector<int>> ParseGroups(const std::string& text, int drives) {
  std::vector<int> groups;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto count = ParseCount(std::string_view(text).substr(begin, end - begin), 1);
    if (!count)
      return Fail(EINVAL, "\"{}\": write how many drives each process serves: 4,1,3", text);
    groups.push_back(*count);
    begin = end + 1;
  }
  const int sum = std::accumulate(groups.begin(), groups.end(), 0);
  if (sum != drives) {
    return Fail(EINVAL, "\"{}\" adds up to {} drives, but there are {}", text, sum, drives);
  }
  return groups;
}

}  // namespace pinstripe
