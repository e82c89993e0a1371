#include "redis/scripts.h"

#include <fmt/format.h>

#include <charconv>

#include "drive/drive.h"
#include "redis/stored_record.h"

namespace pinstripe {
namespace {

constexpr uint64_t kSignBit = uint64_t{1} << 63;
constexpr size_t kFenceDigits = 20;

// KEYS[1] the drive's hash. ARGV[1] the store's id, ARGV[2] the fence. A cluster version that the
// store does not have yet is set.
constexpr std::string_view kBegin = R"lua(
local drive = redis.call('HMGET', KEYS[1], 'store', 'version')
if drive[1] ~= ARGV[1] then return {'gone'} end
if ARGV[2] ~= '' then
  local version = drive[2] or '09223372036854775808'
  if version > ARGV[2] then return {'later', version} end
  if version < ARGV[2] then
    redis.call('HDEL', KEYS[1], '')
    redis.call('HSET', KEYS[1], 'version', ARGV[2])
  end
end
)lua";

// Of a record: bytes of its value, version and tag. Null: there is none. -1: it is damaged.
constexpr std::string_view kRecords = R"lua(
local function sizes(key)
  local size = redis.call('STRLEN', key)
  if size == 0 then return nil end
  local e = redis.call('GETRANGE', key, -4, -1)
  if size < 8 or e:byte(4) ~= 1 then return -1 end
  local v, t = e:byte(1) * 256 + e:byte(2), e:byte(3)
  if size < 8 + v + t then return -1 end
  return size - 8 - v - t, v, t
end
local function version_of(key)
  local n, v = sizes(key)
  if n == nil then return '' end
  if n == -1 then return nil end
  if v == 0 then return '' end
  return redis.call('GETRANGE', key, n, n + v - 1)
end
)lua";

// KEYS: drive, starts, keys, a key for the probe. ARGV: an id for a store that has none, the
// server's run id. Answers with the store's id, how often it was started, and its last starts.
// Tries first all that the other scripts do, so that whoever may not do it is told now.
constexpr std::string_view kConnect = R"lua(
redis.call('HDEL', KEYS[1], '')
redis.call('SET', KEYS[4], 'x')
redis.call('STRLEN', KEYS[4])
redis.call('GETRANGE', KEYS[4], 0, 0)
redis.call('GET', KEYS[4])
redis.call('DEL', KEYS[4])
redis.call('ZADD', KEYS[3], 0, '')
redis.call('ZRANGEBYLEX', KEYS[3], '[', '[', 'LIMIT', 0, 1)
redis.call('ZREVRANGEBYLEX', KEYS[3], '[', '[', 'LIMIT', 0, 1)
redis.call('ZREM', KEYS[3], '')
local drive = redis.call('HMGET', KEYS[1], 'store', 'starts')
if not drive[1] then redis.call('HSET', KEYS[1], 'store', ARGV[1]) end
local last = redis.call('LINDEX', KEYS[2], 0) or ''
if last:match('^[^:]*') ~= ARGV[2] then
  local count = redis.call('HINCRBY', KEYS[1], 'starts', 1)
  redis.call('LPUSH', KEYS[2], ARGV[2] .. ':' .. count)
  redis.call('LTRIM', KEYS[2], 0, MOST - 1)
end
drive = redis.call('HMGET', KEYS[1], 'store', 'starts')
return {'ok', drive[1], drive[2], redis.call('LRANGE', KEYS[2], 0, -1)}
)lua";

// KEYS: drive. ARGV: store, fence.
constexpr std::string_view kLook = R"lua(
return {'ok'}
)lua";

// KEYS: drive, record. ARGV: store, fence, offset and bytes of the part of the value ('': all of
// the record), bytes of the version's head, offset and bytes of a further part of it. Answers with
// the whole string; or with the part of the value, the parts of the version, and the tag.
constexpr std::string_view kGet = R"lua(
local n, v, t = sizes(KEYS[2])
if n == nil then return {'none'} end
if n == -1 then return {'damaged'} end
if ARGV[3] == '' then return {'ok', redis.call('GET', KEYS[2])} end
local from = tonumber(ARGV[3])
local upto = math.min(from + tonumber(ARGV[4]), n) - 1
local value = ''
if from <= upto then value = redis.call('GETRANGE', KEYS[2], from, upto) end
local ends = redis.call('GETRANGE', KEYS[2], n, n + v + t - 1)
if v + t == 0 then ends = '' end
local version = ends:sub(1, v)
local head, at, more = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local part = version:sub(1, head)
if more > 0 then part = part .. version:sub(at + 1, at + more) end
return {'ok', value, part, ends:sub(v + 1)}
)lua";

// KEYS: drive, record, keys, and its guard if there is one. ARGV: store, fence, key, the new
// string, '*' or '=' and the expected version, and that of the guard.
constexpr std::string_view kPut = R"lua(
if ARGV[5] ~= '*' then
  local version = version_of(KEYS[2])
  if version == nil then return {'damaged'} end
  if version ~= ARGV[5]:sub(2) then return {'stale'} end
end
if KEYS[4] then
  local version = version_of(KEYS[4])
  if version == nil then return {'damaged'} end
  if version ~= ARGV[6] then return {'guard'} end
end
redis.call('ZADD', KEYS[3], 0, ARGV[3])
redis.call('SET', KEYS[2], ARGV[4])
return {'ok'}
)lua";

// KEYS: drive, record, keys. ARGV: store, fence, key, '*' or '=' and the expected version.
constexpr std::string_view kDelete = R"lua(
if ARGV[4] ~= '*' then
  if redis.call('STRLEN', KEYS[2]) == 0 then return {'none'} end
  local version = version_of(KEYS[2])
  if version == nil then return {'damaged'} end
  if version ~= ARGV[4]:sub(2) then return {'stale'} end
end
redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[3])
return {'ok'}
)lua";

// KEYS: drive, keys. ARGV: store, fence, first, last, how many, 'r' for the highest first. Answers
// with a list of keys.
constexpr std::string_view kRangeOfKeys = R"lua(
local function range()
  if ARGV[6] == 'r' then
    return redis.call('ZREVRANGEBYLEX', KEYS[2], '[' .. ARGV[4], '[' .. ARGV[3],
                      'LIMIT', 0, ARGV[5])
  end
  return redis.call('ZRANGEBYLEX', KEYS[2], '[' .. ARGV[3], '[' .. ARGV[4], 'LIMIT', 0, ARGV[5])
end
)lua";
constexpr std::string_view kRange = R"lua(
return {'ok', range()}
)lua";

// As a range of one more than is wanted, and ARGV: up to which size values come along, how many
// bytes at most (one record may go beyond), what all keys of records begin with. Answers with '1'
// where there may be more, and for each record its key, and: 'v' and the whole string, 'e' and its
// end, or 'd' where it is damaged.
constexpr std::string_view kList = R"lua(
local keys, limit, left = range(), tonumber(ARGV[7]), tonumber(ARGV[8])
local found, more = {}, '0'
if #keys == tonumber(ARGV[5]) then
  more = '1'
  keys[#keys] = nil
end
for i, key in ipairs(keys) do
  if left <= 0 then
    more = '1'
    break
  end
  local record = ARGV[9] .. key
  local n, v, t = sizes(record)
  local kind, bytes = 'd', ''
  if n == nil or n == -1 then
  elseif n <= limit then
    kind, bytes = 'v', redis.call('GET', record)
  else
    kind, bytes = 'e', redis.call('GETRANGE', record, n, -1)
  end
  left = left - #bytes - #key
  found[#found + 1] = key
  found[#found + 1] = kind
  found[#found + 1] = bytes
end
return {'ok', more, found}
)lua";

// KEYS: drive. ARGV: store, '', the new version.
constexpr std::string_view kSetVersion = R"lua(
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'version', ARGV[3])
return {'ok'}
)lua";

std::string Joined(std::initializer_list<std::string_view> parts) {
  return fmt::format("{}", fmt::join(parts, ""));
}

}  // namespace

const std::string& TextOf(RedisScript script) {
  static const std::string connect =
      Joined({fmt::format("local MOST = {}", kMaxDriveStarts), kConnect});
  static const std::string look = Joined({kBegin, kLook});
  static const std::string get = Joined({kBegin, kRecords, kGet});
  static const std::string put = Joined({kBegin, kRecords, kPut});
  static const std::string remove = Joined({kBegin, kRecords, kDelete});
  static const std::string range = Joined({kBegin, kRangeOfKeys, kRange});
  static const std::string list = Joined({kBegin, kRecords, kRangeOfKeys, kList});
  static const std::string set_version = Joined({kBegin, kSetVersion});
  switch (script) {
    case RedisScript::kConnect: return connect;
    case RedisScript::kLook: return look;
    case RedisScript::kGet: return get;
    case RedisScript::kPut: return put;
    case RedisScript::kDelete: return remove;
    case RedisScript::kRange: return range;
    case RedisScript::kList: return list;
    case RedisScript::kSetVersion: break;
  }
  return set_version;
}

std::string FenceText(std::optional<int64_t> version) {
  if (!version) return "";
  return fmt::format("{:020}", static_cast<uint64_t>(*version) ^ kSignBit);
}

std::optional<int64_t> ParseFence(std::string_view text) {
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (!whole || text.size() != kFenceDigits) return std::nullopt;
  return static_cast<int64_t>(number ^ kSignBit);
}

}  // namespace pinstripe
