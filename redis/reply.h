// RedisReply: what a server of the Redis protocol (RESP2) answered to a command, and RedisReader,
// which finds replies in the bytes that come from it. hiredis parses; the limits are ours, because
// the server may be anybody.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

struct redisReader;

namespace pinstripe {

// Of one reply, what its strings have together, and entries of all its lists.
inline constexpr size_t kMaxRedisReplyBytes = 16 << 20;
inline constexpr size_t kMaxRedisReplyEntries = 64 << 10;

struct RedisReply {
  enum class Kind { kNull, kInteger, kText, kError, kList };

  Kind kind = Kind::kNull;
  int64_t integer = 0;
  SharedBytes bytes;                              // of a text, or the sentence of an error
  std::vector<std::unique_ptr<RedisReply>> list;  // none of them null

  std::string_view text() const { return bytes.text(); }
  bool IsText() const { return kind == Kind::kText; }
  bool IsList() const { return kind == Kind::kList; }
  // Entry `i` of a list, if that has it as a text.
  const SharedBytes* TextAt(size_t i) const;
};

class RedisReader {
 public:
  RedisReader();
  ~RedisReader();
  RedisReader(const RedisReader&) = delete;
  RedisReader& operator=(const RedisReader&) = delete;

  // EBADMSG: what came is not the protocol, or over a limit. The stream is worthless after that.
  Status Feed(Bytes bytes);
  // The next reply that is complete, if there is one. EBADMSG as above.
  Result<std::optional<RedisReply>> Next();

  struct Budget {
    size_t bytes = 0;
    size_t entries = 0;
  };

 private:
  Budget used_;  // by the reply that is being read
  redisReader* const reader_;
};

}  // namespace pinstripe
