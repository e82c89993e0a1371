// The Lua scripts that a Redis store runs for us, one for each operation of a drive. A script is
// one step: nobody sees it half-done, and it is on the store's disk wholly or not at all. So
// conditions, guards and the cluster version's fence are decided there.
//
// Keys in the store, of its database:
//
//   pinstripe:drive      a hash: `store` (16 bytes by chance, made by whoever connects first),
//                        `version` (the cluster version, kRedisVersionDigits), `starts` (how many)
//   pinstripe:starts     a list of its last starts, the newest first, at most kMaxDriveStarts: of
//                        each the server's run id, ':' and how many there were with it
//   pinstripe:keys       a sorted set of all keys of records, all with the score 0: in their order
//   pinstripe:r:KEY      a record (redis/stored_record.h)
//
// Every script but kConnect gets the store's id first. Where the store has another, or none, it was
// emptied or replaced since we connected, and the script does nothing. Each answers with a list
// that begins with a word:
//
//   ok       done; what follows says the script
//   gone     the store is not the one that we had connected to
//   later    it has a later cluster version, which follows
//   stale    the record's version is not the expected one
//   none     there is no such record
//   guard    the guard's version is not the expected one
//   damaged  the record, or its guard, cannot be read
//
// Where its memory is full, a server refuses scripts whose first change is one that takes some.
// Those that have to work then begin with a change that takes none: HDEL of nothing.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pinstripe {

enum class RedisScript { kConnect, kLook, kGet, kPut, kDelete, kRange, kList, kSetVersion };
inline constexpr std::array kRedisScripts = {
    RedisScript::kConnect, RedisScript::kLook,  RedisScript::kGet,  RedisScript::kPut,
    RedisScript::kDelete,  RedisScript::kRange, RedisScript::kList, RedisScript::kSetVersion};

inline constexpr std::string_view kRedisDriveKey = "pinstripe:drive";
inline constexpr std::string_view kRedisStartsKey = "pinstripe:starts";
inline constexpr std::string_view kRedisKeysKey = "pinstripe:keys";
inline constexpr std::string_view kRedisProbeKey = "pinstripe:probe";
inline constexpr std::string_view kRedisRecordPrefix = "pinstripe:r:";

// The text of a script. Arguments and answers stand before each in scripts.cc.
const std::string& TextOf(RedisScript script);

// A cluster version as the scripts compare it: 20 decimal digits of version + 2^63. Empty: none is
// asked for.
std::string FenceText(std::optional<int64_t> version);
std::optional<int64_t> ParseFence(std::string_view text);

}  // namespace pinstripe
