// Commands that list keys. A device keeps them in order, so beside SCAN and KEYS there is a sorted
// set that nobody has made, kRespIndex, which has every key with the score 0.

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/try.h"
#include "daemon/resp_commands.h"
#include "daemon/resp_glob.h"
#include "store/gate.h"

namespace pinstripe {
namespace {

using Keys = RespDevice::Keys;

constexpr std::string_view kRespIndex = "pinstripe:keys";

// What one answer lists at most.
constexpr size_t kMostListed = 100'000;
constexpr size_t kMostListedBytes = 16 << 20;
// By one SCAN, whatever COUNT says.
constexpr int64_t kMostScanned = 10'000;
constexpr size_t kMostScannedBytes = 1 << 20;

// Of a command that has not visited the device.
Result<std::optional<RespDevice::Entry>> HeadOf(const RespCall& call, std::string_view key) {
  const Gate::Visit visit(call.device.service().inside().executing);
  return call.device.Head(call.caller(), key);
}

struct Listed {
  std::vector<std::string> keys;
  size_t bytes = 0;

  Status Add(std::string_view key) {
    bytes += key.size();
    if (keys.size() >= kMostListed || bytes > kMostListedBytes) {
      return Fail(EINVAL, "there are more than {} keys, or {} bytes of them: use SCAN, or LIMIT",
                  kMostListed, kMostListedBytes);
    }
    keys.emplace_back(key);
    return {};
  }

  void Answer(RespWriter& reply) const {
    reply.List(keys.size());
    for (const std::string& key : keys) reply.Text(key);
  }
};

// Those that can match.
Keys KeysFor(std::string_view pattern) {
  Keys keys{.first = GlobPrefix(pattern)};
  keys.last = EndOfPrefix(keys.first);
  keys.last_included = false;
  return keys;
}

enum class TypeWanted { kAny, kText, kHash, kOther };

// Leaves those that are of a type, and that the client may read.
Status KeepOfType(const RespCall& call, TypeWanted wanted, std::vector<std::string>* keys) {
  if (wanted == TypeWanted::kAny) return {};
  std::vector<std::string> kept;
  for (std::string& key : *keys) {
    const auto there = HeadOf(call, key);
    if (!there.has_value() && there.error().code() == EACCES) continue;
    if (!there.has_value()) return there.error();
    if (!*there) continue;
    const bool is_hash = (*there)->type == RespDevice::Type::kHash;
    if (wanted == (is_hash ? TypeWanted::kHash : TypeWanted::kText)) kept.push_back(std::move(key));
  }
  *keys = std::move(kept);
  return {};
}

Status Scan(RespCall& call) {
  uint64_t cursor = 0;
  const std::string_view asked = call.text(1);
  const auto [end, error] = std::from_chars(asked.data(), asked.data() + asked.size(), cursor);
  if (error != std::errc() || end != asked.data() + asked.size()) {
    return Fail(EINVAL, "invalid cursor");
  }
  std::string_view pattern = "*";
  int64_t count = 10;
  TypeWanted wanted = TypeWanted::kAny;
  for (size_t i = 2; i < call.words(); i += 2) {
    if (i + 1 == call.words()) return SyntaxError();
    if (call.Is(i, "MATCH")) {
      pattern = call.text(i + 1);
    } else if (call.Is(i, "COUNT")) {
      count = std::min(TRY(call.Number(i + 1)), kMostScanned);
      if (count < 1) return SyntaxError();
    } else if (call.Is(i, "TYPE")) {
      wanted = call.Is(i + 1, "STRING") ? TypeWanted::kText
               : call.Is(i + 1, "HASH") ? TypeWanted::kHash
                                        : TypeWanted::kOther;
    } else {
      return SyntaxError();
    }
  }
  TRY(CheckPattern(pattern));
  Keys keys = KeysFor(pattern);
  if (cursor != 0) {
    const std::optional<std::string> last = call.device.cursors().Find(cursor);
    if (!last) return Fail(EINVAL, "invalid cursor: it is too old, or none that was given");
    keys.first = std::max(keys.first, *last);
    keys.first_included = keys.first != *last;
  }
  Listed listed;
  Status failure;
  int64_t seen = 0;
  bool is_last = true;
  std::string last;
  TRY(call.device.EachKey(call.caller(), keys, /*reverse=*/false, [&](std::string_view key) {
    last = key;
    if (GlobMatches(pattern, key)) failure = listed.Add(key);
    is_last = failure.ok() && ++seen < count && listed.bytes < kMostScannedBytes;
    return is_last;
  }));
  TRY(failure);
  TRY(KeepOfType(call, wanted, &listed.keys));
  call.reply.List(2);
  call.reply.Text(is_last ? "0"
                          : std::to_string(call.device.cursors().Add(
                                std::move(last), call.device.runtime().Random())));
  listed.Answer(call.reply);
  return {};
}

Status AllKeys(RespCall& call) {
  TRY(CheckPattern(call.text(1)));
  Listed listed;
  Status failure;
  TRY(call.device.EachKey(call.caller(), KeysFor(call.text(1)), /*reverse=*/false,
                          [&](std::string_view key) {
                            if (GlobMatches(call.text(1), key)) failure = listed.Add(key);
                            return failure.ok();
                          }));
  TRY(failure);
  listed.Answer(call.reply);
  return {};
}

Result<int64_t> Count(const RespCall& call, const Keys& keys) {
  int64_t count = 0;
  TRY(call.device.EachKey(call.caller(), keys, /*reverse=*/false, [&](std::string_view) {
    ++count;
    return true;
  }));
  return count;
}

Status Size(RespCall& call) {
  call.reply.Integer(TRY(Count(call, {})));
  return {};
}

// One end of a range of keys: "[key", "(key", "-" or "+".
struct Bound {
  enum class Kind { kKey, kLowest, kHighest };
  Kind kind = Kind::kKey;
  std::string_view key;
  bool included = true;
};

Result<Bound> BoundOf(std::string_view word) {
  if (word == "-") return Bound{.kind = Bound::Kind::kLowest, .key = {}};
  if (word == "+") return Bound{.kind = Bound::Kind::kHighest, .key = {}};
  if (word.starts_with('[')) return Bound{.key = word.substr(1)};
  if (word.starts_with('(')) return Bound{.key = word.substr(1), .included = false};
  return Fail(EINVAL, "min or max not valid string range item");
}

// None: no key can be in it.
Result<std::optional<Keys>> KeysBetween(std::string_view low, std::string_view high) {
  const Bound first = TRY(BoundOf(low));
  const Bound last = TRY(BoundOf(high));
  if (first.kind == Bound::Kind::kHighest || last.kind == Bound::Kind::kLowest) {
    return std::nullopt;
  }
  Keys keys{.first = std::string(first.key), .first_included = first.included};
  if (last.kind == Bound::Kind::kKey) {
    keys.last = std::string(last.key);
    keys.last_included = last.included;
  }
  return keys;
}

// There is no other sorted set.
Result<bool> IsIndex(const RespCall& call) {
  if (call.text(1) == kRespIndex) return true;
  if (TRY(HeadOf(call, call.text(1)))) return WrongType();
  return false;
}

struct Limit {
  int64_t offset = 0;
  int64_t count = -1;  // below 0: all
};

// At word `i`, if it is there.
Result<Limit> LimitAt(const RespCall& call, size_t i) {
  if (!call.Is(i, "LIMIT") || i + 3 > call.words()) return SyntaxError();
  const int64_t offset = TRY(call.Number(i + 1));
  const int64_t count = TRY(call.Number(i + 2));
  return Limit{offset, count};
}

Status List(RespCall& call, const std::optional<Keys>& keys, bool reverse, Limit limit) {
  Listed listed;
  Status failure;
  const bool any = TRY(IsIndex(call)) && keys && limit.offset >= 0 && limit.count != 0;
  if (any) {
    int64_t skipped = 0;
    TRY(call.device.EachKey(call.caller(), *keys, reverse, [&](std::string_view key) {
      if (skipped++ < limit.offset) return true;
      failure = listed.Add(key);
      return failure.ok() && static_cast<int64_t>(listed.keys.size()) != limit.count;
    }));
  }
  TRY(failure);
  listed.Answer(call.reply);
  return {};
}

// ZRANGE key min max BYLEX [REV] [LIMIT offset count]. With REV the higher end comes first.
Status Range(RespCall& call) {
  bool by_key = false;
  bool reverse = false;
  Limit limit;
  for (size_t i = 4; i < call.words(); ++i) {
    if (call.Is(i, "BYLEX")) {
      by_key = true;
    } else if (call.Is(i, "REV")) {
      reverse = true;
    } else {
      limit = TRY(LimitAt(call, i));
      i += 2;
    }
  }
  if (!by_key) return Fail(EINVAL, "this device has ranges of keys only: ZRANGE with BYLEX");
  const std::optional<Keys> keys =
      TRY(KeysBetween(call.text(reverse ? 3 : 2), call.text(reverse ? 2 : 3)));
  return List(call, keys, reverse, limit);
}

// ZRANGEBYLEX key min max [LIMIT offset count], and its reverse.
Status RangeByKey(RespCall& call, bool reverse) {
  Limit limit;
  if (call.words() > 4) {
    if (call.words() != 7) return SyntaxError();
    limit = TRY(LimitAt(call, 4));
  }
  const std::optional<Keys> keys =
      TRY(KeysBetween(call.text(reverse ? 3 : 2), call.text(reverse ? 2 : 3)));
  return List(call, keys, reverse, limit);
}
Status Ascending(RespCall& call) { return RangeByKey(call, /*reverse=*/false); }
Status Descending(RespCall& call) { return RangeByKey(call, /*reverse=*/true); }

Status CountBetween(RespCall& call) {
  const std::optional<Keys> keys = TRY(KeysBetween(call.text(2), call.text(3)));
  const bool any = TRY(IsIndex(call)) && keys;
  call.reply.Integer(any ? TRY(Count(call, *keys)) : 0);
  return {};
}

Status CountAll(RespCall& call) {
  call.reply.Integer(TRY(IsIndex(call)) ? TRY(Count(call, {})) : 0);
  return {};
}

// They see what others change meanwhile.
constexpr uint8_t kListing = RespCommand::kOutside | RespCommand::kLong;

constexpr RespCommand kListingCommands[] = {
    {"dbsize", 1, kListing, 0, 0, 0, Size},
    {"keys", 2, kListing, 0, 0, 0, AllKeys},
    {"scan", -2, kListing, 0, 0, 0, Scan},
    {"zcard", 2, kListing, 1, 1, 1, CountAll},
    {"zlexcount", 4, kListing, 1, 1, 1, CountBetween},
    {"zrange", -5, kListing, 1, 1, 1, Range},
    {"zrangebylex", -4, kListing, 1, 1, 1, Ascending},
    {"zrevrangebylex", -4, kListing, 1, 1, 1, Descending},
};

}  // namespace

std::span<const RespCommand> RespListingCommands() { return kListingCommands; }

}  // namespace pinstripe
