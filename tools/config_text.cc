#include "tools/config_text.h"

#include <fmt/format.h>

#include "base/toml_text.h"

namespace pinstripe {
namespace {

std::string Milliseconds(Duration time) {
  return fmt::format("{} ms", std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

void AddDrive(const DriveConfig& drive, TomlText& text) {
  text.NewTable("drive");
  text.Set("id", drive.id);
  text.Set("addresses", drive.addresses);
  text.Set("domain", drive.domain);
  text.Set("weight", drive.weight);
  if (drive.tls) text.Set("tls", true);
  if (drive.tls && !drive.tls->ca_file.empty()) text.Set("ca", drive.tls->ca_file);
  if (!drive.IsRedis()) {
    text.Comment(fmt::format("identity {}{}", drive.credentials.identity,
                             HasFactoryKey(drive) ? ", with the factory's key" : ""));
  } else if (!drive.credentials.user.empty()) {
    text.Comment(fmt::format("user {}", drive.credentials.user));
  }
}

void AddEngine(const EngineConfig& engine, TomlText& text) {
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) text.Set(key, value);
  };
  if (!engine.endpoints.empty()) text.Set("endpoints", engine.endpoints);
  set("connection", engine.connection);
  set("ca", engine.ca_file);
  set("certificate", engine.certificate_file);
  set("key", engine.key_file);
  if (!engine.user.empty()) text.Comment(fmt::format("user {}", engine.user));
}

}  // namespace

bool HasFactoryKey(const DriveConfig& drive) {
  return !drive.IsRedis() && drive.credentials.key == DriveCredentials().key;
}

std::string ConfigText(const ClusterConfig& config) {
  TomlText text;
  text.Comment(config.file);
  text.Table("cluster");
  text.Set("name", config.name);
  text.Table("layout");
  text.Set("data_shards", config.layout.data_shards);
  text.Set("parity_shards", config.layout.parity_shards);
  text.Set("shard_size", config.layout.shard_bytes);
  text.Set("inline_limit", config.inline_limit);
  text.Set("replicate_limit", config.replicate_limit);
  text.Set("min_redundancy", config.min_redundancy);
  text.Table("registers");
  text.Set("replicas", config.replicas);
  text.Set("groups", config.groups);
  text.Table("metadata");
  text.Set("engine", config.engine ? config.engine->kind : "drives");
  if (config.engine) AddEngine(*config.engine, text);
  text.Table("limits");
  text.Set("memory", config.memory_bytes);
  text.Set("cache_dir", config.cache_directory);
  text.Set("cache_dir_size", config.cache_directory_bytes);
  text.Set("drive_timeout", Milliseconds(config.drive_timeout));
  text.Set("open_timeout", Milliseconds(config.open_timeout));
  text.Set("idle_timeout", Milliseconds(config.idle_timeout));
  text.Set("share_connections", config.share_connections);
  text.Table("files");
  text.Set("close", config.durable_close ? "durable" : "commit");
  for (const DriveConfig& drive : config.drives) AddDrive(drive, text);
  return text.Take();
}

}  // namespace pinstripe
