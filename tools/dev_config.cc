#include "tools/dev_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/toml_text.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::string_view kWrittenBy = "Written by `pinstripe dev up`.";

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
  TomlText text;
  text.Comment(kWrittenBy);
  text.Table("cluster");
  text.Set("name", cluster.name);
  text.Set("credentials", cluster.credentials_file);
  text.Table("layout");
  text.Set("data_shards", cluster.layout.data_shards);
  text.Set("parity_shards", cluster.layout.parity_shards);
  if (cluster.share_connections) {
    text.Table("limits");
    text.Set("share_connections", true);
  }
  text.Table("files");
  text.Set("close", cluster.close);
  for (const DevDrive& drive : cluster.drives) {
    text.NewTable("drive");
    text.Set("id", drive.id);
    const std::string_view scheme = drive.is_redis ? "redis://" : "";
    text.Set("address", fmt::format("{}127.0.0.1:{}", scheme, drive.port));
  }
  return text.Take();
}

std::string CredentialsText() {
  TomlText text;
  text.Comment(fmt::format("{} The Kinetic factory default.", kWrittenBy));
  text.Table("default");
  text.Set("identity", 1);
  text.Set("key", "asdfasdf");
  return text.Take();
}

std::string DaemonConfigText(const std::vector<DevDrive>& drives, uint64_t capacity_bytes) {
  TomlText text;
  text.Comment(kWrittenBy);
  text.Table("daemon");
  text.Set("listen", "127.0.0.1");
  for (const DevDrive& drive : drives) {
    text.NewTable("drive");
    text.Set("path", drive.path);
    text.Set("port", drive.port);
    text.Set("capacity", capacity_bytes);
  }
  return text.Take();
}

// With its command line as it was started: by that it is known (tools/process.h).
std::string RedisConfigText(const DevDrive& drive, uint64_t capacity_bytes) {
  return fmt::format(
      "# {}\n"
      "bind 127.0.0.1\n"
      "port {}\n"
      "dir {}\n"
      "appendonly yes\n"
      "appendfsync always\n"
      "save \"\"\n"
      "maxmemory {}\n"
      "maxmemory-policy noeviction\n"
      "set-proc-title no\n",
      kWrittenBy, drive.port, drive.path, capacity_bytes);
}

std::string GatewayConfigText(const GatewayText& gateway) {
  return fmt::format(
      "# {4}\n"
      "xrd.port {0}\n"
      "xrd.network dnr norpipa\n"
      "all.export / nolock\n"
      "all.adminpath {1}/admin\n"
      "all.pidpath {1}/run\n"
      "ofs.osslib +cksio +xattr {2} {3}\n"
      "xrootd.chksum max 2 chkcgi adler32 crc32c md5\n",
      gateway.port, gateway.directory, gateway.plugin, gateway.cluster_file, kWrittenBy);
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
