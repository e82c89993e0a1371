#include "redis/server_check.h"

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "base/try.h"

namespace pinstripe {
namespace {

std::string_view Find(const RedisFacts& facts, std::string_view name) {
  const auto found = facts.find(name);
  return found == facts.end() ? std::string_view() : std::string_view(found->second);
}

uint64_t Number(const RedisFacts& facts, std::string_view name) {
  const std::string_view text = Find(facts, name);
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool IsValkey(const RedisFacts& info) { return Find(info, "server_name") == "valkey"; }

// Valkey 8 calls it otherwise.
std::string_view ModeOf(const RedisFacts& info) {
  const std::string_view mode = Find(info, "redis_mode");
  return mode.empty() ? Find(info, "server_mode") : mode;
}

// What a server said, for a sentence.
std::string Said(std::string_view text) {
  constexpr size_t kMost = 160;
  std::string said(text.substr(0, kMost));
  std::ranges::replace_if(
      said, [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return said;
}

Status Needs(const RedisFacts& settings, std::string_view name, std::string_view value,
             std::string_view why) {
  const std::string_view is = Find(settings, name);
  if (is == value) return {};
  if (is.empty()) {
    return Fail(EHOSTUNREACH,
                "it does not tell its setting '{}', which must be '{}' ({}): let us use CONFIG GET",
                name, value, why);
  }
  return Fail(EHOSTUNREACH, "its setting '{}' is '{}': set '{} {}', or {}", name, Said(is), name,
              value, why);
}

Status NeedsAtLeast(const RedisFacts& settings, std::string_view name, uint64_t least) {
  if (Number(settings, name) >= least) return {};
  return Fail(EHOSTUNREACH, "its setting '{}' is '{}': set '{} {}', or it hangs up on large values",
              name, Said(Find(settings, name)), name, least);
}

constexpr uint64_t kLeastMajor = 7;
constexpr uint64_t kLeastString = 2 << 20;  // a value, its version and tag
constexpr uint64_t kLeastQuery = 8 << 20;

// "RUN:COUNT": the same run may be counted twice, when another server was in its place meanwhile.
uint64_t StartId(std::string_view start) {
  const size_t colon = std::min(start.find(':'), start.size());
  uint64_t run = 0;
  uint64_t count = 0;
  const std::string_view digits = start.substr(0, std::min<size_t>(colon, 16));
  std::from_chars(digits.data(), digits.data() + digits.size(), run, 16);
  std::from_chars(start.data() + std::min(colon + 1, start.size()), start.data() + start.size(),
                  count);
  return std::max<uint64_t>(run + count, 1);
}

}  // namespace

RedisFacts ParseRedisInfo(std::string_view text) {
  RedisFacts facts;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t colon = line.find(':');
    if (line.starts_with('#') || colon == line.npos) continue;
    facts.emplace(line.substr(0, colon), line.substr(colon + 1));
  }
  return facts;
}

std::vector<std::string> SyncSettings() {
  return {"appendonly", "appendfsync", "no-appendfsync-on-rewrite"};
}

Status CheckRedisSyncs(const RedisFacts& settings) {
  TRY(Needs(settings, "appendonly", "yes", "it loses all that it confirmed when it ends"));
  TRY(Needs(settings, "appendfsync", "always", "it loses what it confirmed with its power"));
  return Needs(settings, "no-appendfsync-on-rewrite", "no",
               "it loses what it confirmed while it rewrites its file");
}

std::vector<std::string> SettingsToCheck() {
  std::vector<std::string> settings = SyncSettings();
  settings.insert(settings.end(), {"maxmemory-policy", "proto-max-bulk-len",
                                   "client-query-buffer-limit", "timeout"});
  return settings;
}

Status CheckRedisServer(const RedisFacts& info, const RedisFacts& settings, int64_t sentinels) {
  if (!info.contains("redis_version")) {
    return Fail(EHOSTUNREACH, "it does not say what it is: let us use INFO");
  }
  if (Number(info, "redis_version") < kLeastMajor) {
    return Fail(EHOSTUNREACH, "it is Redis {}: {} is the oldest that stops when it cannot sync",
                Said(Find(info, "redis_version")), kLeastMajor);
  }
  if (ModeOf(info) == "sentinel") {
    return Fail(EHOSTUNREACH, "it is a Sentinel: give the address of a store of its own");
  }
  if (ModeOf(info) == "cluster" || Find(info, "cluster_enabled") == "1") {
    return Fail(EHOSTUNREACH,
                "it is a part of a Redis cluster, which may lose what it confirmed: give a store "
                "with 'cluster-enabled no'");
  }
  if (const std::string_view role = Find(info, "role"); role != "master") {
    return Fail(EHOSTUNREACH, "it is a replica ({}): give a store with 'replicaof no one'",
                role.empty() ? "it does not tell its role" : Said(role));
  }
  if (const std::string_view second = Find(info, "second_repl_offset");
      !second.empty() && second != "-1") {
    return Fail(EHOSTUNREACH,
                "it was a replica, and may lack what was confirmed: empty it with FLUSHALL, start "
                "it again, and run `pinstripe rebuild`");
  }
  if (sentinels > 0) {
    return Fail(EHOSTUNREACH,
                "Sentinels watch it ({}), and may put a replica that knows less in its place: take "
                "it out with 'SENTINEL REMOVE'",
                sentinels);
  }
  TRY(CheckRedisSyncs(settings));
  if (const std::string_view policy = Find(settings, "maxmemory-policy");
      policy.starts_with("allkeys")) {
    return Fail(EHOSTUNREACH,
                "it drops records when its memory is short ('maxmemory-policy {}'): set "
                "'maxmemory-policy noeviction'",
                Said(policy));
  }
  TRY(NeedsAtLeast(settings, "proto-max-bulk-len", kLeastString));
  TRY(NeedsAtLeast(settings, "client-query-buffer-limit", kLeastQuery));
  return Needs(settings, "timeout", "0", "it hangs up on whoever has nothing to ask for a while");
}

// A server that was told to keep a file while it runs first writes what it has. Until that is done
// nothing that it confirms is found by its next start.
Status CheckRedisFile(const RedisFacts& info) {
  const bool has_base = Number(info, "aof_base_size") > 0;
  const bool is_writing =
      Find(info, "aof_rewrite_in_progress") == "1" || Find(info, "aof_rewrite_scheduled") == "1";
  const std::string_view last = Find(info, "aof_last_bgrewrite_status");
  const bool has_failed = !last.empty() && last != "ok";
  if (has_base || (!is_writing && !has_failed)) return {};
  return Fail(EHOSTUNREACH,
              "its append-only file does not have everything yet: wait until it is written, or set "
              "'appendonly yes' in its configuration file and start it again");
}

DriveInfo InfoOfRedis(const RedisFacts& facts, std::string_view store,
                      const std::vector<std::string>& starts, uint64_t start_count) {
  DriveInfo info;
  const uint64_t limit = Number(facts, "maxmemory");
  info.capacity_bytes = limit > 0 ? limit : Number(facts, "total_system_memory");
  if (info.capacity_bytes > 0) {
    info.portion_full = std::min(1.0, static_cast<double>(Number(facts, "used_memory")) /
                                          static_cast<double>(info.capacity_bytes));
  }
  // What Valkey gives as Redis' version is that of the Redis which it came from.
  info.vendor = IsValkey(facts) ? "Valkey" : "Redis";
  info.model = info.vendor;
  info.software_version = Said(Find(facts, IsValkey(facts) ? "valkey_version" : "redis_version"));
  info.protocol_version = "RESP2";
  info.serial_number = Hex(AsBytes(store));
  for (const std::string& each : starts) {
    const DriveStart start{.id = StartId(each), .clean = false};
    const bool is_new = std::ranges::find(info.starts, start) == info.starts.end();
    if (is_new && info.starts.size() < kMaxDriveStarts) info.starts.push_back(start);
  }
  info.start_count = std::max<uint64_t>(start_count, info.starts.size());
  // Not `up`: it says how long the process runs, and by a clock that may be set.
  return info;
}

Status StatusOfRedisError(std::string_view sentence) {
  const std::string_view word = sentence.substr(0, sentence.find(' '));
  const auto is = [word](std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word) != words.end();
  };
  const auto has = [sentence](std::string_view part) {
    return sentence.find(part) != sentence.npos;
  };
  int code = EIO;
  if (word == "OOM" || has("No space left")) code = ENOSPC;
  if (is({"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"}) || has("invalid password") ||
      has("executing the script can't")) {
    code = EACCES;
  }
  if (is({"LOADING", "READONLY", "MASTERDOWN", "BUSY", "MOVED", "CLUSTERDOWN"})) {
    code = EHOSTUNREACH;
  }
  if (word == "WRONGTYPE") code = EBADMSG;
  return Fail(code, "it answered '{}'", Said(sentence));
}

}  // namespace pinstripe
