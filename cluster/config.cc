#include "cluster/config.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>

#include "base/config.h"
#include "base/log_format.h"
#include "base/machine_memory.h"
#include "base/private_file.h"
#include "base/read_file.h"
#include "base/try.h"
#include "cluster/map/names_place.h"
#include "cluster/map/placement.h"
#include "kinetic/tls.h"
#include "redis/address.h"

namespace pinstripe {
namespace {

constexpr int64_t kMaxDrives = 4096;
constexpr int64_t kMaxDriveId = kEngineDrive - 1;
constexpr uint32_t kMaxWeight = 1 << 20;
constexpr size_t kMaxDomainBytes = 255;

// One thing that is wrong, and the option to blame, so that Load() can name its line.
struct Mistake {
  std::string section;  // "drive": the one numbered `drive`
  std::string key;
  std::string reason;
  size_t drive = 0;
};

// "host:port" or "[address]:port", or that of a Redis store.
Status CheckAddress(std::string_view address) {
  if (IsRedisAddress(address)) {
    TRY(ParseRedisAddress(address));
    return {};
  }
  const size_t colon = address.rfind(':');
  const std::string_view host = address.substr(0, colon);
  const std::string_view port =
      colon == std::string_view::npos ? std::string_view() : address.substr(colon + 1);
  uint32_t number = 0;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool host_is_good =
      !host.empty() && (bracketed || host.find_first_of(":[]/ ") == std::string_view::npos);
  if (!host_is_good || parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() ||
      number == 0 || number > 65535) {
    return Fail(EINVAL,
                "'{}' is not an address: write host:port, or [address]:port for IPv6, or "
                "redis://host:port/database",
                address);
  }
  return {};
}

// What is reached at an address, which is good, however it is written.
std::string PlaceOf(const std::string& address) {
  if (!IsRedisAddress(address)) return address;
  const RedisAddress place = ParseRedisAddress(address).value_or(RedisAddress());
  return fmt::format("redis {} {} {}", place.host.host, place.host.port, place.database);
}

// What all addresses of a drive must have in common.
std::string KindOf(const std::string& address) {
  if (!IsRedisAddress(address)) return "a Kinetic device";
  const RedisAddress place = ParseRedisAddress(address).value_or(RedisAddress());
  return fmt::format("database {} of a Redis store {} TLS", place.database,
                     place.tls ? "with" : "without");
}

// An existing cluster may be used while some of its drives are lost, and not listed any more. A
// cluster that is to be formatted needs all of them.
std::optional<Mistake> FindMistakeInLayout(const ClusterConfig& config, bool for_format) {
  const StripeLayout& layout = config.layout;
  const int n = layout.geometry().shards();
  if (const Status status = layout.Check(); !status.ok()) {
    const bool size = layout.shard_bytes == 0 || layout.shard_bytes % kCellBytes != 0 ||
                      layout.shard_bytes > kMaxShardBytes;
    return Mistake{"layout", size ? "shard_size" : "data_shards", std::string(status.message())};
  }
  const bool can_work = config.drives.size() >= layout.data_shards;
  if (!can_work || (for_format && config.drives.size() < static_cast<size_t>(n))) {
    return Mistake{
        "layout", "data_shards",
        fmt::format("{} data and {} parity shards need {} drives, but only {} are listed",
                    layout.data_shards, layout.parity_shards, n, config.drives.size())};
  }
  if (config.min_redundancy < 0 || config.min_redundancy > layout.parity_shards) {
    return Mistake{"layout", "min_redundancy",
                   fmt::format("min_redundancy is {}, but with {} parity shards it must be 0 to {}",
                               config.min_redundancy, layout.parity_shards, layout.parity_shards)};
  }
  if (config.inline_limit > kMaxInlineBytes) {
    return Mistake{"layout", "inline_limit",
                   fmt::format("inline_limit is {} bytes, but an inode has room for {}",
                               config.inline_limit, kMaxInlineBytes)};
  }
  if (config.replicate_limit > kMaxShardBytes) {
    return Mistake{"layout", "replicate_limit",
                   fmt::format("replicate_limit is {} bytes, but a record holds at most {}",
                               config.replicate_limit, kMaxShardBytes)};
  }
  return std::nullopt;
}

std::optional<Mistake> FindMistakeInRegisters(const ClusterConfig& config, bool for_format) {
  if (config.replicas < 1 || config.replicas % 2 == 0) {
    return Mistake{
        "registers", "replicas",
        fmt::format("replicas is {}, but a majority needs an odd number", config.replicas)};
  }
  const auto replicas = static_cast<size_t>(config.replicas);
  if (config.drives.size() <= replicas / 2 || (for_format && config.drives.size() < replicas)) {
    return Mistake{"registers", "replicas",
                   fmt::format("{} replicas need as many drives, but only {} are listed",
                               config.replicas, config.drives.size())};
  }
  if (!std::has_single_bit(config.groups) || config.groups > kMaxGroups) {
    return Mistake{"registers", "groups",
                   fmt::format("groups is {}, but must be a power of two from 1 to {}",
                               config.groups, kMaxGroups)};
  }
  return std::nullopt;
}

std::optional<Mistake> FindMistakeInDrives(const ClusterConfig& config) {
  std::map<DriveId, bool> ids;
  std::map<std::string, DriveId> addresses;
  for (size_t i = 0; i < config.drives.size(); ++i) {
    const DriveConfig& drive = config.drives[i];
    const auto mistake = [i](std::string key, std::string reason) {
      return Mistake{"drive", std::move(key), std::move(reason), i};
    };
    if (drive.id == 0) return mistake("id", "0 cannot be the id of a drive");
    if (!ids.emplace(drive.id, true).second) {
      return mistake("id", fmt::format("two drives have the id {}", drive.id));
    }
    if (drive.addresses.empty()) {
      return mistake("id", fmt::format("drive {} has no address", drive.id));
    }
    const std::string key = drive.addresses.size() == 1 ? "address" : "addresses";
    for (const std::string& address : drive.addresses) {
      if (const Status status = CheckAddress(address); !status.ok()) {
        return mistake(key, fmt::format("drive {}: {}", drive.id, status.message()));
      }
      const auto [other, is_new] = addresses.emplace(PlaceOf(address), drive.id);
      if (!is_new) {
        return mistake(key, fmt::format("drive {} has the address {} of drive {}", drive.id,
                                        address, other->second));
      }
    }
    for (const std::string& address : drive.addresses) {
      if (KindOf(address) == KindOf(drive.addresses.front())) continue;
      return mistake(key, fmt::format("drive {} is said to be {} and {}: all its addresses must be "
                                      "of one kind",
                                      drive.id, KindOf(drive.addresses.front()), KindOf(address)));
    }
    if (drive.weight == 0 || drive.weight > kMaxWeight) {
      return mistake("weight",
                     fmt::format("drive {}: the weight must be 1 to {}", drive.id, kMaxWeight));
    }
    if (drive.domain.size() > kMaxDomainBytes) {
      return mistake("domain", fmt::format("drive {}: the domain is longer than {} bytes", drive.id,
                                           kMaxDomainBytes));
    }
  }
  return std::nullopt;
}

std::optional<Mistake> FindMistake(const ClusterConfig& config, bool for_format = false) {
  if (const Status status = CheckClusterName(config.name); !status.ok()) {
    return Mistake{"cluster", "name", std::string(status.message())};
  }
  if (config.drives.empty()) return Mistake{"", "drive", "no [[drive]] is listed"};
  if (auto mistake = FindMistakeInDrives(config)) return mistake;
  if (auto mistake = FindMistakeInLayout(config, for_format)) return mistake;
  return FindMistakeInRegisters(config, for_format);
}

int DefaultReplicas(int parity_shards, size_t drives) {
  const int largest = static_cast<int>(drives) - (drives % 2 == 0 ? 1 : 0);
  return std::max(1, std::min(2 * parity_shards + 1, largest));
}

// A machine often runs several gateways besides its mounts, and none knows of the others.
uint64_t UsualMemory() { return std::max(MachineMemory() / 8, kLeastMemoryBytes); }

// Reads what is given; identity and key have the Kinetic factory default.
DriveCredentials ReadCredentials(ConfigTable& table, const DriveCredentials& fallback) {
  DriveCredentials credentials;
  credentials.user = table.Text("user", fallback.user);
  credentials.password = table.Text("password", fallback.password);
  if (credentials.password.empty() && table.Has("user")) {
    table.Refuse("user", "a user needs a password");
  }
  credentials.identity = table.Integer("identity", fallback.identity, 0, INT64_MAX);
  credentials.key = table.Text("key", fallback.key);
  if (credentials.key.empty()) table.Refuse("key", "the key is empty");
  return credentials;
}

Status LoadCredentials(const std::string& path, ClusterConfig& config) {
  TRY(CheckPrivateFile(path));
  const ConfigFile file = TRY(ConfigFile::Load(path));
  ConfigTable root = file.root();
  ConfigTable common = root.Table("default");
  const DriveCredentials fallback = ReadCredentials(common, {});
  for (DriveConfig& drive : config.drives) drive.credentials = fallback;

  std::map<DriveId, bool> seen;
  for (ConfigTable& table : root.Tables("drive")) {
    const auto id = static_cast<DriveId>(table.Integer("id", std::nullopt, 1, kMaxDriveId));
    const auto drive = std::find_if(config.drives.begin(), config.drives.end(),
                                    [id](const DriveConfig& d) { return d.id == id; });
    if (drive == config.drives.end()) {
      table.Refuse("id", fmt::format("there is no drive {} in {}", id, config.file));
      break;
    }
    if (!seen.emplace(id, true).second) {
      table.Refuse("id", fmt::format("drive {} is listed twice", id));
    }
    for (const char* key : {"user", "password"}) {
      if (!drive->IsRedis() && table.Has(key)) {
        table.Refuse(key, fmt::format("drive {} is a Kinetic device, which has an identity and a "
                                      "key; a Redis store has user and password",
                                      id));
      }
    }
    drive->credentials = ReadCredentials(table, fallback);
  }
  ConfigTable metadata = root.Table("metadata");
  EngineConfig unused;
  EngineConfig& engine = config.engine ? *config.engine : unused;
  engine.user = metadata.Text("user", "");
  engine.password = metadata.Text("password", "");
  if (!engine.user.empty() && engine.password.empty()) {
    metadata.Refuse("user", "a user needs a password");
  }
  for (DriveConfig& drive : config.drives) {
    // What the other kind has is no part of the way to this one.
    const DriveCredentials usual;
    if (drive.IsRedis()) {
      drive.credentials.identity = usual.identity;
      drive.credentials.key = usual.key;
    } else {
      drive.credentials.user = usual.user;
      drive.credentials.password = usual.password;
    }
  }
  return file.Finish();
}

StripeLayout ReadLayout(ConfigTable& table) {
  StripeLayout layout;
  layout.data_shards =
      static_cast<uint8_t>(table.Integer("data_shards", std::nullopt, 1, kMaxShards));
  layout.parity_shards =
      static_cast<uint8_t>(table.Integer("parity_shards", std::nullopt, 0, kMaxShards - 1));
  // A mistake in data_shards leaves 0 there; it is reported at the end, like all others.
  const uint32_t usual = DefaultShardBytes(std::max<int>(layout.data_shards, 1));
  layout.shard_bytes =
      static_cast<uint32_t>(table.ByteCount("shard_size", usual, kCellBytes, kMaxShardBytes));
  return layout;
}

// An empty file would have all certificates accepted.
Status CheckAuthorities(const std::string& text) {
  if (text.empty()) return Fail(EINVAL, "it is empty");
  TRY(TlsClient::Create(text));
  return {};
}

// `fallback` is what the whole cluster has, `said` what the address of a Redis store says. Paths
// are taken from where the configuration is.
std::optional<DriveTls> ReadTls(ConfigTable& table, const std::optional<DriveTls>& fallback,
                                const std::string& config_file,
                                std::optional<bool> said = std::nullopt) {
  const bool on = said.value_or(table.Flag("tls", fallback.has_value()));
  if (said && table.Has("tls") && table.Flag("tls", *said) != *said) {
    table.Refuse("tls",
                 "the address of a Redis store says it: redis:// is without TLS, rediss:// "
                 "with it");
  }
  if (!on && table.Has("ca")) {
    table.Refuse("ca", said ? "ca is for rediss://" : "ca is for tls = true");
  }
  DriveTls tls = fallback.value_or(DriveTls());
  if (table.Has("ca")) {
    tls.ca_file = (std::filesystem::path(config_file).parent_path() / table.Text("ca")).string();
    Result<std::string> authorities = ReadFile(tls.ca_file);
    const Status usable = authorities.has_value() ? CheckAuthorities(*authorities) : Status();
    if (!authorities.has_value()) {
      table.Refuse("ca", authorities.error().message());
    } else if (!usable.ok()) {
      table.Refuse("ca", fmt::format("{}: {}", tls.ca_file, usable.message()));
    } else {
      tls.authorities = *std::move(authorities);
    }
  }
  return on ? std::optional(std::move(tls)) : std::nullopt;
}

DriveConfig ReadDrive(ConfigTable& table, const std::optional<DriveTls>& cluster_tls,
                      const std::string& config_file) {
  DriveConfig drive;
  drive.id = static_cast<DriveId>(table.Integer("id", std::nullopt, 1, kMaxDriveId));
  if (table.Has("addresses")) {
    drive.addresses = table.Texts("addresses");
    if (table.Has("address")) table.Refuse("address", "give either address or addresses");
  } else {
    drive.addresses = {table.Text("address")};
  }
  drive.domain = table.Text("domain", "");
  drive.weight = static_cast<uint32_t>(table.Integer("weight", drive.weight, 1, kMaxWeight));
  std::optional<bool> said;
  if (!drive.addresses.empty() && drive.IsRedis()) {
    const auto address = ParseRedisAddress(drive.addresses.front());
    said = address.has_value() && address->tls;
  }
  drive.tls = ReadTls(table, cluster_tls, config_file, said);
  return drive;
}

// "http://host:port" or "https://host:port".
Status CheckEndpoint(std::string_view endpoint) {
  const bool tls = endpoint.starts_with("https://");
  if (!tls && !endpoint.starts_with("http://")) {
    return Fail(EINVAL, "'{}' is not an endpoint of etcd: write http://host:2379 or https://...",
                endpoint);
  }
  return CheckAddress(endpoint.substr(tls ? 8 : 7));
}

void ReadEtcd(ConfigTable& table, EngineConfig& engine, const std::string& config_file) {
  engine.endpoints = table.Texts("endpoints");
  if (engine.endpoints.empty()) table.Refuse("endpoints", "etcd needs endpoints");
  for (const std::string& endpoint : engine.endpoints) {
    const Status status = CheckEndpoint(endpoint);
    if (!status.ok()) table.Refuse("endpoints", status.message());
    if (endpoint.starts_with("https://") != engine.endpoints.front().starts_with("https://")) {
      table.Refuse("endpoints", "either all endpoints are https://, or none");
    }
  }
  const bool tls = !engine.endpoints.empty() && engine.endpoints.front().starts_with("https://");
  const auto file = [&](const char* key, const std::string& path) -> std::string {
    if (path.empty()) return path;
    if (!tls) table.Refuse(key, fmt::format("{} is for endpoints with https://", key));
    return (std::filesystem::path(config_file).parent_path() / path).string();
  };
  engine.ca_file = file("ca", table.Text("ca", ""));
  engine.certificate_file = file("certificate", table.Text("certificate", ""));
  engine.key_file = file("key", table.Text("key", ""));
  if (engine.certificate_file.empty() != engine.key_file.empty()) {
    table.Refuse(engine.key_file.empty() ? "certificate" : "key",
                 "certificate and key belong together");
  }
}

// "password = ...", "sslpassword=...", or "postgresql://user:password@host".
bool HoldsPassword(const std::string& connection) {
  static const std::regex kKey("password\\s*=");
  static const std::regex kUri("^postgres(ql)?://[^/@]*:[^/@]*@");
  return std::regex_search(connection, kKey) || std::regex_search(connection, kUri);
}

std::optional<EngineConfig> ReadEngine(ConfigTable& table, const std::string& config_file) {
  EngineConfig engine;
  engine.kind = table.Text("engine", "drives");
  if (engine.kind == "drives") return std::nullopt;
  if (engine.kind == "etcd") {
    ReadEtcd(table, engine, config_file);
  } else if (engine.kind == "postgresql") {
    engine.connection = table.Text("connection");
    if (HoldsPassword(engine.connection)) {
      table.Refuse("connection",
                   "the password belongs into credentials.toml, which others cannot "
                   "read");
    }
  } else {
    table.Refuse("engine", fmt::format("engine is '{}', but must be \"drives\", \"etcd\" or "
                                       "\"postgresql\"",
                                       engine.kind));
  }
  return engine;
}

void ReadLimits(ConfigTable& table, ClusterConfig& config) {
  using std::chrono::milliseconds;
  using std::chrono::minutes;
  config.memory_bytes = table.ByteCount("memory", 0, 0, UINT64_C(1) << 50);
  config.memory_is_said = config.memory_bytes != 0;
  if (!config.memory_is_said) {
    config.memory_bytes = UsualMemory();
  } else if (config.memory_bytes < kLeastMemoryBytes) {
    table.Refuse("memory", "less than 16 MiB is not enough to work with");
  }
  config.cache_directory = table.Text("cache_dir", "");
  if (!config.cache_directory.empty() && !config.cache_directory.starts_with('/')) {
    table.Refuse("cache_dir", "an absolute path is needed");
  }
  config.cache_directory_bytes = table.ByteCount("cache_dir_size", config.cache_directory_bytes,
                                                 kLeastDiskCacheBytes, UINT64_C(1) << 50);
  config.drive_timeout =
      table.Time("drive_timeout", config.drive_timeout, milliseconds(10), minutes(10));
  config.open_timeout =
      table.Time("open_timeout", config.open_timeout, milliseconds(10), minutes(10));
  config.idle_timeout =
      table.Time("idle_timeout", config.idle_timeout, milliseconds(0), std::chrono::hours(24));
  config.share_connections = table.Flag("share_connections", config.share_connections);
}

// The table of the option to blame, where its line can be looked up.
void Refuse(ConfigTable root, const Mistake& mistake) {
  if (mistake.section.empty()) {
    root.Refuse(mistake.key, mistake.reason);
  } else if (mistake.section == "drive") {
    root.Tables("drive")[mistake.drive].Refuse(mistake.key, mistake.reason);
  } else {
    root.Table(mistake.section).Refuse(mistake.key, mistake.reason);
  }
}

}  // namespace

Result<ClusterConfig> ClusterConfig::Load(const std::string& path) {
  const ConfigFile file = TRY(ConfigFile::Load(path));
  ConfigTable root = file.root();
  ClusterConfig config;
  config.file = path;

  ConfigTable cluster = root.Table("cluster");
  config.name = cluster.Text("name");
  const std::string credentials = cluster.Text("credentials", "credentials.toml");
  const std::optional<DriveTls> tls = ReadTls(cluster, std::nullopt, path);
  // For LogFormatOf().
  const Result<LogFormat> log_format = ParseLogFormat(cluster.Text("log_format", "text"));
  if (!log_format.has_value()) cluster.Refuse("log_format", log_format.error().message());

  ConfigTable layout = root.Table("layout");
  config.layout = ReadLayout(layout);
  config.inline_limit = static_cast<uint32_t>(
      layout.ByteCount("inline_limit", config.inline_limit, 0, kMaxInlineBytes));
  config.replicate_limit = static_cast<uint32_t>(
      layout.ByteCount("replicate_limit", config.replicate_limit, 0, kMaxShardBytes));
  config.min_redundancy = static_cast<int>(layout.Integer(
      "min_redundancy", std::min<int>(1, config.layout.parity_shards), 0, kMaxShards));

  ConfigTable registers = root.Table("registers");
  config.replicas = static_cast<int>(registers.Integer("replicas", 0, 0, 63));
  config.groups = static_cast<uint32_t>(registers.Integer("groups", 0, 0, kMaxGroups));

  ConfigTable metadata = root.Table("metadata");
  config.engine = ReadEngine(metadata, path);
  if (config.engine) config.engine->cluster = config.name;

  ConfigTable limits = root.Table("limits");
  ReadLimits(limits, config);

  ConfigTable files = root.Table("files");
  const std::string close = files.Text("close", "commit");
  config.durable_close = close == "durable";
  if (close != "commit" && close != "durable") {
    files.Refuse("close",
                 fmt::format("close is '{}', but must be \"commit\" or \"durable\"", close));
  }

  for (ConfigTable& table : root.Tables("drive")) {
    config.drives.push_back(ReadDrive(table, tls, path));
  }
  if (config.drives.size() > kMaxDrives) {
    root.Refuse("drive", fmt::format("more than {} drives are listed", kMaxDrives));
  }
  TRY(file.Finish());

  if (config.replicas == 0) {
    config.replicas = DefaultReplicas(config.layout.parity_shards, config.drives.size());
  }
  if (config.groups == 0) {
    const int shards = config.layout.data_shards + config.layout.parity_shards;
    config.groups = EnoughGroups(config.drives.size(), static_cast<size_t>(std::max(1, shards)));
  }
  if (const auto mistake = FindMistake(config)) {
    Refuse(root, *mistake);
    TRY(file.Finish());
  }
  std::sort(config.drives.begin(), config.drives.end(),
            [](const DriveConfig& a, const DriveConfig& b) { return a.id < b.id; });

  const auto beside = std::filesystem::path(path).parent_path() / credentials;
  TRY(LoadCredentials(beside.string(), config));
  return config;
}

namespace {

Status CheckConfig(const ClusterConfig& config, bool for_format) {
  if (const auto mistake = FindMistake(config, for_format)) {
    return Fail(EINVAL, "{}{}", config.file.empty() ? "" : config.file + ": ", mistake->reason);
  }
  for (size_t i = 1; i < config.drives.size(); ++i) {
    if (config.drives[i - 1].id > config.drives[i].id) {
      return Fail(EINVAL, "drives are not ascending by id");
    }
  }
  return {};
}

}  // namespace

Status ClusterConfig::Check() const { return CheckConfig(*this, /*for_format=*/false); }

Status ClusterConfig::CheckForFormat() const { return CheckConfig(*this, /*for_format=*/true); }

bool DriveConfig::IsRedis() const {
  return !addresses.empty() && IsRedisAddress(addresses.front());
}

bool DriveConfig::SameWay(const DriveConfig& other) const {
  return addresses == other.addresses && tls == other.tls && credentials == other.credentials;
}

DriveConfig EngineAsDrive(const EngineConfig& engine) {
  DriveConfig drive;
  drive.id = kEngineDrive;
  drive.addresses = {engine.kind};
  drive.engine = engine;
  return drive;
}

std::vector<std::string> ClusterConfig::FixedSettingsThatDiffer(const ClusterConfig& other) const {
  std::vector<std::string> names;
  const auto compare = [&](bool equal, const char* name) {
    if (!equal) names.emplace_back(name);
  };
  compare(layout == other.layout, "layout.data_shards, parity_shards or shard_size");
  compare(inline_limit == other.inline_limit, "layout.inline_limit");
  compare(replicate_limit == other.replicate_limit, "layout.replicate_limit");
  compare(min_redundancy == other.min_redundancy, "layout.min_redundancy");
  compare(drive_timeout == other.drive_timeout, "limits.drive_timeout");
  compare(open_timeout == other.open_timeout, "limits.open_timeout");
  compare(idle_timeout == other.idle_timeout, "limits.idle_timeout");
  compare(share_connections == other.share_connections, "limits.share_connections");
  compare(cache_directory == other.cache_directory, "limits.cache_dir");
  compare(cache_directory_bytes == other.cache_directory_bytes, "limits.cache_dir_size");
  compare(durable_close == other.durable_close, "files.close");
  // A table that came later is read when names move.
  compare(!engine || !other.engine || engine == other.engine, "metadata");
  return names;
}

Result<Geometry> ParseGeometry(std::string_view text) {
  Geometry geometry;
  const char* end = text.data() + text.size();
  const auto data = std::from_chars(text.data(), end, geometry.data_shards);
  if (data.ec == std::errc() && data.ptr != end && *data.ptr == '+') {
    const auto parity = std::from_chars(data.ptr + 1, end, geometry.parity_shards);
    const bool whole = parity.ec == std::errc() && parity.ptr == end;
    if (whole && geometry.data_shards >= 1 && geometry.parity_shards >= 0 &&
        geometry.data_shards <= kMaxShards && geometry.parity_shards <= kMaxShards &&
        geometry.shards() <= kMaxShards) {
      return geometry;
    }
  }
  return Fail(EINVAL,
              "\"{}\" is not a layout: write data shards + parity shards, such as 4+2, together at "
              "most {}",
              text, kMaxShards);
}

uint32_t DefaultShardBytes(int data_shards) {
  const uint32_t cells =
      ((4u << 20) / static_cast<uint32_t>(data_shards) + kCellBytes / 2) / kCellBytes;
  return std::clamp(cells, 1u, kMaxShardBytes / kCellBytes) * kCellBytes;
}

}  // namespace pinstripe
