#include "tools/config_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pinstripe {
namespace {

std::string TimeText(Duration time) {
  return fmt::format("\"{} ms\"",
                     std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

std::string DriveText(const DriveConfig& drive) {
  std::vector<std::string> addresses;
  for (const std::string& address : drive.addresses) addresses.push_back(Quoted(address));
  std::string tls = drive.tls ? "tls = true\n" : "";
  if (drive.tls && !drive.tls->ca_file.empty()) tls += "ca = " + Quoted(drive.tls->ca_file) + "\n";
  return fmt::format(
      "\n[[drive]]\nid = {}\naddresses = [{}]\ndomain = {}\nweight = {}\n{}"
      "# identity {}{}\n",
      drive.id, fmt::join(addresses, ", "), Quoted(drive.domain), drive.weight, tls,
      drive.credentials.identity, HasFactoryKey(drive) ? ", with the factory's key" : "");
}

}  // namespace

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool HasFactoryKey(const DriveConfig& drive) {
  return drive.credentials.key == DriveCredentials().key;
}

std::string ConfigText(const ClusterConfig& config) {
  std::string text = fmt::format(
      "# {}\n\n"
      "[cluster]\n"
      "name = {}\n\n"
      "[layout]\n"
      "data_shards = {}\n"
      "parity_shards = {}\n"
      "shard_size = {}\n"
      "inline_limit = {}\n"
      "replicate_limit = {}\n"
      "min_redundancy = {}\n\n"
      "[registers]\n"
      "replicas = {}\n"
      "groups = {}\n\n"
      "[limits]\n"
      "memory = {}\n"
      "cache_dir = {}\n"
      "cache_dir_size = {}\n"
      "drive_timeout = {}\n"
      "open_timeout = {}\n\n"
      "[files]\n"
      "close = \"{}\"\n",
      config.file, Quoted(config.name), config.layout.data_shards, config.layout.parity_shards,
      config.layout.shard_bytes, config.inline_limit, config.replicate_limit, config.min_redundancy,
      config.replicas, config.groups, config.memory_bytes, Quoted(config.cache_directory),
      config.cache_directory_bytes, TimeText(config.drive_timeout), TimeText(config.open_timeout),
      config.durable_close ? "durable" : "commit");
  for (const DriveConfig& drive : config.drives) text += DriveText(drive);
  return text;
}

}  // namespace pinstripe
