// Reading configuration files (TOML): every mistake is an error that names file, line and reason.
//
//   ConfigFile file = TRY(ConfigFile::Load("/etc/pinstripe/cluster.toml"));
//   ConfigTable cluster = file.root().Table("cluster");
//   config.name = cluster.Text("name");
//   config.replicas = cluster.Integer("replicas", 0, 0, 63);
//   TRY(file.Finish());   // the first mistake of all, unknown keys included
//
// A getter that meets a mistake remembers it and returns the default, so that reading is
// straight-line code and is checked once, by Finish(). Without a default a key is required. Not
// thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

class ConfigTable {
 public:
  bool Has(std::string_view key) const;

  int64_t Integer(std::string_view key, std::optional<int64_t> fallback, int64_t least,
                  int64_t most);
  std::string Text(std::string_view key, std::optional<std::string> fallback = std::nullopt);
  bool Flag(std::string_view key, std::optional<bool> fallback = std::nullopt);
  // A number of bytes: an integer, or text like "64 KiB", "1.5 GB".
  uint64_t ByteCount(std::string_view key, std::optional<uint64_t> fallback, uint64_t least,
                     uint64_t most);
  // Text like "250 ms", "5 s", "2 min": a bare number does not say of what, and is a mistake.
  Duration Time(std::string_view key, std::optional<Duration> fallback, Duration least,
                Duration most);
  std::vector<std::string> Texts(
      std::string_view key);  // empty when absent; one text is a list of one

  ConfigTable Table(std::string_view key);                // empty when absent
  std::vector<ConfigTable> Tables(std::string_view key);  // [[key]]; empty when absent

  // Records a mistake at the line of `key` (of the table, if it is not there): "file:line: reason".
  void Refuse(std::string_view key, std::string_view reason);

 private:
  friend class ConfigFile;
  struct Node;
  explicit ConfigTable(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  std::shared_ptr<Node> node_;
};

// "64 KiB", "1.5 GB" or "65536"; null: no such quantity, or more than 2^63 bytes.
std::optional<uint64_t> ParseByteCount(std::string_view text);

class ConfigFile {
 public:
  // ENOENT, EACCES ...: cannot be read. EINVAL: not TOML.
  static Result<ConfigFile> Load(const std::string& path);
  static Result<ConfigFile> Parse(std::string_view text, const std::string& name);  // for tests

  ConfigTable root() const { return root_; }

  // EINVAL with the first mistake that a getter or Refuse() met, or with the first key nobody read.
  Status Finish() const;

  // All of them, in the order of their lines: "file:line: reason". For files that somebody writes
  // at once, and wants to mend at once.
  std::vector<std::string> Mistakes() const;

 private:
  explicit ConfigFile(ConfigTable root) : root_(std::move(root)) {}
  ConfigTable root_;
};

}  // namespace pinstripe
