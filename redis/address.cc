#include "redis/address.h"

#include <charconv>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::string_view kPlain = "redis://";
constexpr std::string_view kTls = "rediss://";

}  // namespace

bool IsRedisAddress(std::string_view text) {
  return text.starts_with(kPlain) || text.starts_with(kTls);
}

Result<HostAndPort> ParseAnyDriveAddress(std::string_view text) {
  if (!IsRedisAddress(text)) return ParseDriveAddress(text);
  return TRY(ParseRedisAddress(text)).host;
}

Result<RedisAddress> ParseRedisAddress(std::string_view text) {
  if (!IsRedisAddress(text)) {
    return Fail(EINVAL,
                "'{}' is not the address of a Redis store: write redis://host:port/database", text);
  }
  RedisAddress address;
  address.tls = text.starts_with(kTls);
  std::string_view rest = text.substr((address.tls ? kTls : kPlain).size());
  if (rest.find('@') != rest.npos) {
    return Fail(EINVAL,
                "user and password do not belong into an address: credentials.toml has them");
  }
  if (const size_t slash = rest.find('/'); slash != rest.npos) {
    const std::string_view number = rest.substr(slash + 1);
    const char* end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, address.database);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
    if (!number.empty() &&
        (!is_number || address.database < 0 || address.database > kMaxRedisDatabase)) {
      return Fail(EINVAL, "'{}': the database is a number from 0 to {}", text, kMaxRedisDatabase);
    }
    rest = rest.substr(0, slash);
  }
  const bool has_port = rest.rfind(':') != rest.npos && !rest.ends_with(']');
  address.host = TRY_CONTEXT(ParseDriveAddress(rest), "'{}'", text);
  if (!has_port) address.host.port = kRedisPort;
  return address;
}

}  // namespace pinstripe
