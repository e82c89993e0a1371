// Commands on values that are hashes. A hash is one record, which is read and written as a whole.

#include <utility>

#include "base/try.h"
#include "daemon/resp_commands.h"
#include "daemon/resp_hash.h"

namespace pinstripe {
namespace {

using Entry = RespDevice::Entry;
using Value = RespDevice::Value;
using There = std::optional<Entry>;

// Empty where there is none.
Result<RespHash> HashOf(const There& there) {
  if (!there) return RespHash();
  if (there->type != RespDevice::Type::kHash) return WrongType();
  return DecodeHash(there->value);
}

Result<RespHash> ReadHash(const RespCall& call) {
  return HashOf(TRY(call.device.Get(call.caller(), call.text(1))));
}

// Lets `change` change the hash. Where nothing is left of it the key goes.
Status ChangeHash(RespCall& call, const std::function<bool(RespHash&)>& change) {
  bool changed = false;
  TRY(call.device.Change(call.caller(), call.text(1),
                         [&](const There& there) -> Result<std::optional<RespDevice::Decision>> {
                           RespHash hash = TRY(HashOf(there));
                           changed = change(hash);
                           if (!changed) return std::nullopt;
                           if (hash.empty()) return RespDevice::Decision{};
                           return RespDevice::Decision{
                               Value{.type = RespDevice::Type::kHash,
                                     .bytes = SharedBytes(EncodeHash(hash))}};
                         }));
  call.client.changed |= changed;
  return {};
}

// How many fields are new.
Result<int64_t> SetFields(RespCall& call) {
  if (call.words() % 2 != 0) {
    return Fail(EINVAL, "wrong number of arguments for '{}' command", call.text(0).substr(0, 8));
  }
  int64_t added = 0;
  TRY(ChangeHash(call, [&](RespHash& hash) {
    added = 0;
    for (size_t i = 2; i + 1 < call.words(); i += 2) {
      if (hash.insert_or_assign(std::string(call.text(i)), std::string(call.text(i + 1))).second) {
        ++added;
      }
    }
    return true;
  }));
  return added;
}

Status HashSet(RespCall& call) {
  call.reply.Integer(TRY(SetFields(call)));
  return {};
}

Status HashSetMany(RespCall& call) {
  TRY(SetFields(call));
  call.reply.Simple("OK");
  return {};
}

void AnswerField(RespCall& call, const RespHash& hash, std::string_view name) {
  const auto found = hash.find(name);
  found == hash.end() ? call.reply.Null() : call.reply.Text(found->second);
}

Status HashGet(RespCall& call) {
  AnswerField(call, TRY(ReadHash(call)), call.text(2));
  return {};
}

Status HashGetMany(RespCall& call) {
  const RespHash hash = TRY(ReadHash(call));
  call.reply.List(call.words() - 2);
  for (size_t i = 2; i < call.words(); ++i) AnswerField(call, hash, call.text(i));
  return {};
}

Status HashGetAll(RespCall& call) {
  const RespHash hash = TRY(ReadHash(call));
  call.reply.Map(hash.size());
  for (const auto& [name, value] : hash) {
    call.reply.Text(name);
    call.reply.Text(value);
  }
  return {};
}

Status FieldNames(RespCall& call) {
  const RespHash hash = TRY(ReadHash(call));
  call.reply.List(hash.size());
  for (const auto& [name, value] : hash) call.reply.Text(name);
  return {};
}

Status FieldValues(RespCall& call) {
  const RespHash hash = TRY(ReadHash(call));
  call.reply.List(hash.size());
  for (const auto& [name, value] : hash) call.reply.Text(value);
  return {};
}

Status HashDelete(RespCall& call) {
  int64_t deleted = 0;
  TRY(ChangeHash(call, [&](RespHash& hash) {
    deleted = 0;
    for (size_t i = 2; i < call.words(); ++i) {
      deleted += static_cast<int64_t>(hash.erase(std::string(call.text(i))));
    }
    return deleted > 0;
  }));
  call.reply.Integer(deleted);
  return {};
}

Status HashExists(RespCall& call) {
  call.reply.Integer(TRY(ReadHash(call)).contains(call.text(2)) ? 1 : 0);
  return {};
}

Status HashLength(RespCall& call) {
  call.reply.Integer(static_cast<int64_t>(TRY(ReadHash(call)).size()));
  return {};
}

constexpr RespCommand kHashCommands[] = {
    {"hdel", -3, RespCommand::kChanges, 1, 1, 1, HashDelete},
    {"hexists", 3, 0, 1, 1, 1, HashExists},
    {"hget", 3, 0, 1, 1, 1, HashGet},
    {"hgetall", 2, 0, 1, 1, 1, HashGetAll},
    {"hkeys", 2, 0, 1, 1, 1, FieldNames},
    {"hlen", 2, 0, 1, 1, 1, HashLength},
    {"hmget", -3, 0, 1, 1, 1, HashGetMany},
    {"hmset", -4, RespCommand::kChanges, 1, 1, 1, HashSetMany},
    {"hset", -4, RespCommand::kChanges, 1, 1, 1, HashSet},
    {"hvals", 2, 0, 1, 1, 1, FieldValues},
};

}  // namespace

std::span<const RespCommand> RespHashCommands() { return kHashCommands; }

}  // namespace pinstripe
