#include "daemon/config.h"

#include <arpa/inet.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "base/config.h"
#include "base/private_file.h"
#include "base/try.h"
#include "metrics/address.h"

namespace pinstripe {
namespace {

bool IsAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

bool IsLoopback(const std::string& text) {
  in6_addr six;
  if (inet_pton(AF_INET6, text.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  in_addr four;
  return inet_pton(AF_INET, text.c_str(), &four) == 1 && ntohl(four.s_addr) >> 24 == 127;
}

// Paths are taken from where the configuration is.
std::string Beside(const std::string& config_file, const std::string& path) {
  return (std::filesystem::path(config_file).parent_path() / path).lexically_normal().string();
}

std::optional<uint16_t> ReadPort(ConfigTable& table, const std::string& key) {
  if (!table.Has(key)) return std::nullopt;
  return static_cast<uint16_t>(table.Integer(key, std::nullopt, 0, UINT16_MAX));
}

// Those with a number of their own, by the names of their options.
std::vector<std::pair<std::string, uint16_t>> Ports(const ServedDrive& drive) {
  std::vector<std::pair<std::string, uint16_t>> ports;
  if (drive.port.value_or(0) != 0) ports.emplace_back("port", *drive.port);
  if (drive.tls_port.value_or(0) != 0) ports.emplace_back("tls_port", *drive.tls_port);
  if (drive.resp_port.value_or(0) != 0) ports.emplace_back("resp_port", *drive.resp_port);
  if (drive.resp_tls_port.value_or(0) != 0) {
    ports.emplace_back("resp_tls_port", *drive.resp_tls_port);
  }
  return ports;
}

std::optional<TlsFiles> ReadTls(const std::string& config_file, ConfigTable& table) {
  const bool certificate = table.Has("tls_certificate");
  if (certificate != table.Has("tls_key")) {
    table.Refuse(certificate ? "tls_certificate" : "tls_key",
                 "tls_certificate and tls_key are given together");
  }
  if (!certificate) return std::nullopt;
  return TlsFiles{.certificate = Beside(config_file, table.Text("tls_certificate")),
                  .key = Beside(config_file, table.Text("tls_key"))};
}

// Each port is of one socket.
void CheckPorts(const ServedDrive& drive, const DaemonConfig& config, ConfigTable& table) {
  std::map<uint16_t, std::string> used;
  for (const ServedDrive& other : config.drives) {
    for (const auto& [key, port] : Ports(other)) used.emplace(port, key);
  }
  for (const auto& [key, port] : Ports(drive)) {
    if (!used.emplace(port, key).second) {
      table.Refuse(key, fmt::format("port {} is used twice", port));
    }
  }
}

// The ports for clients of the Redis protocol, and what they may expect.
void ReadResp(ConfigTable& table, const DaemonConfig& config, ServedDrive* drive) {
  drive->resp_port = ReadPort(table, "resp_port");
  drive->resp_tls_port = ReadPort(table, "resp_tls_port");
  const std::string sync = table.Text("resp_sync", "write-back");
  if (sync != "write-back" && sync != "write-through") {
    table.Refuse("resp_sync", fmt::format("'{}' is neither write-back nor write-through", sync));
  }
  drive->resp_write_through = sync == "write-through";
  if (drive->resp_port && !config.clear_keys_allowed && !IsLoopback(config.listen)) {
    table.Refuse("resp_port",
                 fmt::format("clients of the Redis protocol send their keys as they are, and the "
                             "drive would listen at {}: give a resp_tls_port instead, listen at "
                             "127.0.0.1, or say clear_keys = \"allow\" in [daemon]",
                             config.listen));
  }
}

void ReadDrive(const std::string& config_file, ConfigTable& table, DaemonConfig& config) {
  ServedDrive drive;
  drive.path = Beside(config_file, table.Text("path"));
  drive.port = ReadPort(table, "port");
  drive.tls_port = ReadPort(table, "tls_port");
  ReadResp(table, config, &drive);
  if (!drive.port && !drive.tls_port && !drive.resp_port && !drive.resp_tls_port) {
    table.Refuse("path", "the drive needs a port, a tls_port, or both");
  }
  if ((drive.tls_port || drive.resp_tls_port) && !config.tls) {
    table.Refuse(
        drive.tls_port ? "tls_port" : "resp_tls_port",
        "TLS needs a certificate and its key: give tls_certificate and tls_key in [daemon]. "
        "`openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=$(hostname) "
        "-addext subjectAltName=DNS:$(hostname) -keyout tls.key -out tls.crt` makes both");
  }
  drive.capacity_bytes = table.ByteCount("capacity", 0, uint64_t{16} << 20, uint64_t{1} << 60);
  drive.serial_number = table.Text("serial", "");
  const std::string store = table.Text("store", "log");
  if (const std::optional<StoreKind> kind = StoreKindNamed(store)) {
    drive.store = *kind;
  } else {
    table.Refuse("store", fmt::format("no store '{}'; there is log", store));
  }
  for (const ServedDrive& other : config.drives) {
    if (other.path == drive.path) {
      table.Refuse("path", fmt::format("{} is served twice", drive.path));
    }
  }
  CheckPorts(drive, config, table);
  config.drives.push_back(std::move(drive));
}

std::optional<std::string> FromHex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (; !digits.empty(); digits.remove_prefix(2)) {
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + 2, byte, 16);
    if (error != std::errc() || end != digits.data() + 2) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// Bytes as text, or those that text cannot say as hexadecimal digits.
std::string ReadValue(ConfigTable& table) {
  if (!table.Has("value_hex")) return table.Text("value", "");
  if (table.Has("value")) table.Refuse("value", "give value or value_hex, not both");
  const std::string digits = table.Text("value_hex");
  std::optional<std::string> bytes = FromHex(digits);
  if (!bytes)
    table.Refuse("value_hex", fmt::format("'{}' is not pairs of hexadecimal digits", digits));
  return bytes.value_or("");
}

Scope ReadScope(ConfigTable& table) {
  Scope scope;
  for (const std::string& name : table.Texts("permissions")) {
    if (name == "all") {
      scope.permissions = Permissions::All();
    } else if (const std::optional<Permission> permission = PermissionNamed(name)) {
      scope.permissions.Add(*permission);
    } else {
      std::vector<std::string_view> known;
      for (const Permission each : kAllPermissions) known.push_back(NameOf(each));
      table.Refuse("permissions", fmt::format("no permission '{}'; there are all, {}", name,
                                              fmt::join(known, ", ")));
    }
  }
  scope.offset = static_cast<uint64_t>(table.Integer("offset", 0, 0, kMaxKeyBytes));
  scope.value = ReadValue(table);
  scope.tls_required = table.Flag("tls_required", false);
  return scope;
}

void ReadIdentity(ConfigTable& table, RightsById& identities) {
  const int64_t id = table.Integer("id", std::nullopt, 1, INT64_MAX);
  Rights rights = FullAccess(table.Text("key"));
  rights.max_priority =
      static_cast<int>(table.Integer("max_priority", kHighestPriority, 1, kHighestPriority));
  std::vector<ConfigTable> scopes = table.Tables("scope");
  if (!scopes.empty()) rights.scopes.clear();
  for (ConfigTable& scope : scopes) rights.scopes.push_back(ReadScope(scope));
  const Status valid = CheckRights(id, rights);
  if (!valid.ok()) table.Refuse("key", valid.message());
  if (!identities.emplace(id, std::move(rights)).second) {
    table.Refuse("id", fmt::format("identity {} is listed twice", id));
  }
}

Status ReadIdentities(const std::string& path, DaemonConfig& config) {
  TRY(CheckPrivateFile(path));
  const ConfigFile file = TRY(ConfigFile::Load(path));
  ConfigTable root = file.root();
  config.identities.clear();
  for (ConfigTable& table : root.Tables("identity")) ReadIdentity(table, config.identities);
  TRY(file.Finish());
  if (config.identities.empty())
    return Fail(EINVAL, "{}: no [[identity]] may use the drives", path);
  if (config.identities.size() > kMaxIdentities) {
    return Fail(EINVAL, "{}: {} identities; the limit is {}", path, config.identities.size(),
                kMaxIdentities);
  }
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
    daemon.Refuse("listen",
                  fmt::format("'{}' is not an address, like 0.0.0.0 or ::", config.listen));
  }
  const auto is_allowed = [&daemon](const char* key, const std::string& said) {
    if (said != "allow" && said != "refuse") {
      daemon.Refuse(key, fmt::format("'{}' is neither allow nor refuse", said));
    }
    return said == "allow";
  };
  config.factory_key_allowed = is_allowed("factory_key", daemon.Text("factory_key", "refuse"));
  config.erase_without_pin =
      is_allowed("erase_without_pin", daemon.Text("erase_without_pin", "refuse"));
  config.clear_keys_allowed = is_allowed("clear_keys", daemon.Text("clear_keys", "refuse"));
  const Result<LogFormat> log_format = ParseLogFormat(daemon.Text("log_format", "text"));
  if (!log_format.has_value()) daemon.Refuse("log_format", log_format.error().message());
  config.log_format = log_format.value_or(LogFormat::kText);
  config.loops = static_cast<int>(daemon.Integer("loops", config.loops, 1, 64));
  config.workers = static_cast<int>(daemon.Integer("workers", config.workers, 1, 256));
  config.flushers = static_cast<int>(daemon.Integer("flushers", config.flushers, 1, 256));
  const auto read_limit = [&daemon](const char* key) {
    return static_cast<size_t>(daemon.Integer(key, 0, 1, 1 << 24));
  };
  config.connections_per_drive = static_cast<size_t>(daemon.Integer(
      "connections_per_drive", static_cast<int64_t>(config.connections_per_drive), 1, 1 << 24));
  config.connections = read_limit("connections");
  config.connections_per_address = read_limit("connections_per_address");
  config.strangers = read_limit("strangers");
  config.strangers_per_address = read_limit("strangers_per_address");
  config.value_bytes =
      daemon.ByteCount("values_under_way", 0, uint64_t{16} << 20, uint64_t{1} << 40);
  config.index_cache_bytes = daemon.ByteCount("index_cache", config.index_cache_bytes,
                                              uint64_t{1} << 20, uint64_t{1} << 40);
  config.slow_request =
      daemon.Time("slow_request", config.slow_request, Duration(), std::chrono::hours(1));
  config.metrics = daemon.Text("metrics", "");
  if (const auto metrics = ParseMetricsAddress(config.metrics);
      !config.metrics.empty() && !metrics.has_value()) {
    daemon.Refuse("metrics", metrics.error().message());
  }
  const std::string credentials = daemon.Text("credentials", "");
  config.tls = ReadTls(path, daemon);
  for (ConfigTable& table : root.Tables("drive")) ReadDrive(path, table, config);
  TRY(file.Finish());
  if (config.drives.empty()) return Fail(EINVAL, "{}: no [[drive]] is to be served", path);
  if (!credentials.empty()) TRY(ReadIdentities(Beside(path, credentials), config));
  return config;
}

Status DaemonConfig::CheckFactoryKey(const RightsById& of_drive) const {
  if (factory_key_allowed || IsLoopback(listen)) return {};
  for (const auto& [id, rights] : of_drive) {
    if (rights.key != kFactoryKey) continue;
    return Fail(EACCES,
                "identity {} has the factory's key, which everybody knows, and the drive would "
                "listen at {}: name a file of identities with keys of your own (credentials), "
                "listen at 127.0.0.1, or say factory_key = \"allow\"",
                id, listen);
  }
  return {};
}

}  // namespace pinstripe
