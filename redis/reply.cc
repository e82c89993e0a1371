#include "redis/reply.h"

#include <hiredis/read.h>

#include <utility>

#include "base/try.h"

namespace pinstripe {
namespace {

// Puts a new reply where it belongs, and hands it to hiredis; null: there is no room for it, which
// hiredis takes for being out of memory.
RedisReply* Add(const redisReadTask* task, RedisReply::Kind kind, size_t bytes) {
  auto& used = *static_cast<RedisReader::Budget*>(task->privdata);
  used.bytes += bytes;
  used.entries += 1;
  if (used.bytes > kMaxRedisReplyBytes || used.entries > kMaxRedisReplyEntries) return nullptr;
  auto reply = std::make_unique<RedisReply>();
  reply->kind = kind;
  if (task->parent == nullptr) return reply.release();
  auto& list = static_cast<RedisReply*>(task->parent->obj)->list;
  list[static_cast<size_t>(task->idx)] = std::move(reply);
  return list[static_cast<size_t>(task->idx)].get();
}

void* NewText(const redisReadTask* task, char* text, size_t size) {
  const auto kind =
      task->type == REDIS_REPLY_ERROR ? RedisReply::Kind::kError : RedisReply::Kind::kText;
  RedisReply* reply = Add(task, kind, size);
  if (reply != nullptr) reply->bytes = Buffer::CopyOf(AsBytes({text, size}));
  return reply;
}

void* NewList(const redisReadTask* task, int entries) {
  if (entries < 0 || static_cast<size_t>(entries) > kMaxRedisReplyEntries) return nullptr;
  RedisReply* reply = Add(task, RedisReply::Kind::kList, 0);
  if (reply != nullptr) reply->list.resize(static_cast<size_t>(entries));
  return reply;
}

void* NewInteger(const redisReadTask* task, long long value) {
  RedisReply* reply = Add(task, RedisReply::Kind::kInteger, 0);
  if (reply != nullptr) reply->integer = value;
  return reply;
}

void* NewNull(const redisReadTask* task) { return Add(task, RedisReply::Kind::kNull, 0); }

void Free(void* reply) { delete static_cast<RedisReply*>(reply); }

redisReplyObjectFunctions functions = {NewText, NewList, NewInteger, NewNull, Free};

}  // namespace

const SharedBytes* RedisReply::TextAt(size_t i) const {
  if (!IsList() || i >= list.size() || !list[i]->IsText()) return nullptr;
  return &list[i]->bytes;
}

RedisReader::RedisReader() : reader_(redisReaderCreateWithFunctions(&functions)) {
  if (reader_ == nullptr) throw std::bad_alloc();
  reader_->privdata = &used_;
  reader_->maxbuf = 4 << 20;  // values come in pieces: its memory is not given back between them
}

RedisReader::~RedisReader() { redisReaderFree(reader_); }

Status RedisReader::Feed(Bytes bytes) {
  // What is of no complete entry yet: a reader that is told of an endless one would keep it all.
  if (reader_->len - reader_->pos + bytes.size() > kMaxRedisReplyBytes + (1 << 20)) {
    return Fail(EBADMSG, "it sends a reply of more than {} bytes", kMaxRedisReplyBytes);
  }
  const int fed =
      redisReaderFeed(reader_, reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return fed == REDIS_OK ? Status() : Fail(EBADMSG, "it does not speak the Redis protocol");
}

Result<std::optional<RedisReply>> RedisReader::Next() {
  void* found = nullptr;
  if (redisReaderGetReply(reader_, &found) != REDIS_OK) {
    return Fail(EBADMSG, "it does not speak the Redis protocol: {}", reader_->errstr);
  }
  if (found == nullptr) return std::nullopt;
  used_ = {};
  const std::unique_ptr<RedisReply> reply(static_cast<RedisReply*>(found));
  return std::optional(std::move(*reply));
}

}  // namespace pinstripe
