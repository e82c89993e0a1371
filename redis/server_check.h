// What a Redis-protocol server says of itself: whether what it confirms is as safe as a drive's,
// and what a drive's information is of it. Pure functions of its answers.

#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "drive/drive.h"

namespace pinstripe {

// Of the answer to INFO, or the settings that CONFIG GET told: names and values.
using RedisFacts = std::map<std::string, std::string, std::less<>>;
RedisFacts ParseRedisInfo(std::string_view text);

// The settings that CheckRedisServer() has to know: what CONFIG GET is asked for.
std::vector<std::string> SettingsToCheck();

// EHOSTUNREACH: it could lose what it has confirmed, and the sentence says what to set. So it is
// with one that does not write each change to its append-only file, and syncs that, before it
// answers; that drops records when memory is short; that is a replica, or was one; that is a part
// of a Redis cluster; and that Sentinels watch, which may put an older replica in its place. It has
// to be Redis 7 or Valkey: older ones go on when a sync fails. Then there are settings without
// which it cannot serve us: the largest values, and idle connections.
Status CheckRedisServer(const RedisFacts& info, const RedisFacts& settings, int64_t sentinels);

// The part of it that may change while the server runs, and what it has to know: whether changes
// are still synced before they are answered.
std::vector<std::string> SyncSettings();
Status CheckRedisSyncs(const RedisFacts& settings);

// EHOSTUNREACH: its append-only file was begun only now, and does not have everything yet.
Status CheckRedisFile(const RedisFacts& info);

// `starts` as the store has them (redis/scripts.h).
DriveInfo InfoOfRedis(const RedisFacts& info, std::string_view store,
                      const std::vector<std::string>& starts, uint64_t start_count);

// What an error of the server means: the first word of its sentence says it. The sentence is cut,
// and has no bytes that a terminal would act on.
Status StatusOfRedisError(std::string_view sentence);

}  // namespace pinstripe
