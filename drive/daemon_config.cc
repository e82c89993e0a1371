#include "drive/daemon_config.h"

#include <arpa/inet.h>

#include <filesystem>
#include <set>

#include "base/config.h"
#include "base/private_file.h"
#include "base/try.h"

namespace pinstripe {
namespace {

bool IsAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// Paths are taken from where the configuration is.
std::string Beside(const std::string& config_file, const std::string& path) {
  return (std::filesystem::path(config_file).parent_path() / path).lexically_normal().string();
}

void ReadDrive(const std::string& config_file, ConfigTable& table, DaemonConfig& config) {
  ServedDrive drive;
  drive.path = Beside(config_file, table.Text("path"));
  drive.port = static_cast<uint16_t>(table.Integer("port", std::nullopt, 0, UINT16_MAX));
  drive.capacity_bytes = table.ByteCount("capacity", 0, uint64_t{16} << 20, uint64_t{1} << 60);
  drive.serial_number = table.Text("serial", "");
  for (const ServedDrive& other : config.drives) {
    if (other.path == drive.path) {
      table.Refuse("path", fmt::format("{} is served twice", drive.path));
    }
    if (other.port == drive.port && drive.port != 0) {
      table.Refuse("port", fmt::format("port {} is used twice", drive.port));
    }
  }
  config.drives.push_back(std::move(drive));
}

Status ReadKeys(const std::string& path, DaemonConfig& config) {
  TRY(CheckPrivateFile(path));
  const ConfigFile file = TRY(ConfigFile::Load(path));
  ConfigTable root = file.root();
  config.keys.clear();
  for (ConfigTable& table : root.Tables("identity")) {
    const int64_t id = table.Integer("id", std::nullopt, 1, INT64_MAX);
    const std::string key = table.Text("key");
    if (key.empty()) table.Refuse("key", "an empty key protects nothing");
    if (!config.keys.emplace(id, key).second) {
      table.Refuse("id", fmt::format("identity {} is listed twice", id));
    }
  }
  TRY(file.Finish());
  if (config.keys.empty()) return Fail(EINVAL, "{}: no [[identity]] may use the drives", path);
  return {};
}

}  // namespace

Result<DaemonConfig> DaemonConfig::Load(const std::string& path) {
  const ConfigFile file = TRY(ConfigFile::Load(path));
  ConfigTable root = file.root();
  DaemonConfig config;
  ConfigTable daemon = root.Table("daemon");
  config.listen = daemon.Text("listen", config.listen);
  if (!IsAddress(config.listen)) {
    daemon.Refuse("listen", fmt::format("'{}' is not an address, like 0.0.0.0 or ::", config.listen));
  }
  config.loops = static_cast<int>(daemon.Integer("loops", config.loops, 1, 64));
  config.workers = static_cast<int>(daemon.Integer("workers", config.workers, 1, 256));
  config.flushers = static_cast<int>(daemon.Integer("flushers", config.flushers, 1, 256));
  const std::string credentials = daemon.Text("credentials", "");
  for (ConfigTable& table : root.Tables("drive")) ReadDrive(path, table, config);
  TRY(file.Finish());
  if (config.drives.empty()) return Fail(EINVAL, "{}: no [[drive]] is to be served", path);
  if (!credentials.empty()) TRY(ReadKeys(Beside(path, credentials), config));
  return config;
}

}  // namespace pinstripe
