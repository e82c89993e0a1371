// Commands on values that are texts, and on keys whatever their values are.

#include <algorithm>
#include <limits>
#include <utility>

#include "base/try.h"
#include "daemon/resp_commands.h"

namespace pinstripe {
namespace {

using Entry = RespDevice::Entry;
using Decision = RespDevice::Decision;
using Value = RespDevice::Value;
using There = std::optional<Entry>;

// What the values of one answer may have together: no client can be made to hold up others by one
// command.
constexpr size_t kMostAnswered = 64 << 20;

Value TextOf(const SharedBytes& bytes) { return {.type = RespDevice::Type::kText, .bytes = bytes}; }

void AnswerText(RespCall& call, There entry) {
  entry ? call.reply.Value(std::move(entry->value)) : call.reply.Null();
}

Status Get(RespCall& call) {
  There there = TRY(call.device.Get(call.caller(), call.text(1)));
  TRY(CheckText(there));
  AnswerText(call, std::move(there));
  return {};
}

struct SetOptions {
  enum class If { kAlways, kAbsent, kPresent, kEqual };
  If condition = If::kAlways;
  std::string_view equal;
  bool gets = false;
};

Result<SetOptions> SetOptionsOf(const RespCall& call) {
  SetOptions options;
  const auto set_condition = [&](SetOptions::If condition) -> Status {
    if (options.condition != SetOptions::If::kAlways) return SyntaxError();
    options.condition = condition;
    return {};
  };
  for (size_t i = 3; i < call.words(); ++i) {
    if (call.Is(i, "NX")) {
      TRY(set_condition(SetOptions::If::kAbsent));
    } else if (call.Is(i, "XX")) {
      TRY(set_condition(SetOptions::If::kPresent));
    } else if (call.Is(i, "IFEQ") && i + 1 < call.words()) {
      TRY(set_condition(SetOptions::If::kEqual));
      options.equal = call.text(++i);
    } else if (call.Is(i, "GET")) {
      options.gets = true;
    } else if (call.Is(i, "EX") || call.Is(i, "PX") || call.Is(i, "EXAT") || call.Is(i, "PXAT")) {
      return Fail(EINVAL, "this device keeps what it has until it is deleted: no {} can be given",
                  call.text(i));
    } else if (!call.Is(i, "KEEPTTL")) {
      return SyntaxError();
    }
  }
  return options;
}

bool Holds(const SetOptions& options, const There& there) {
  switch (options.condition) {
    case SetOptions::If::kAbsent: return !there;
    case SetOptions::If::kPresent: return there.has_value();
    case SetOptions::If::kEqual:
      return there && there->type == RespDevice::Type::kText &&
             there->value.text() == options.equal;
    case SetOptions::If::kAlways: break;
  }
  return true;
}

Status Set(RespCall& call) {
  const SetOptions options = TRY(SetOptionsOf(call));
  const Value value = TextOf(call.word(2));
  bool made = true;
  There before;
  if (options.condition == SetOptions::If::kAlways && !options.gets) {
    TRY(call.device.Put(call.caller(), call.text(1), value));
  } else if (options.condition == SetOptions::If::kAbsent && !options.gets) {
    made = TRY(call.device.Create(call.caller(), call.text(1), value));
  } else {
    TRY(call.device.Change(call.caller(), call.text(1),
                           [&](const There& there) -> Result<std::optional<Decision>> {
                             if (options.gets) TRY(CheckText(there));
                             before = there;
                             made = Holds(options, there);
                             if (!made) return std::nullopt;
                             return Decision{value};
                           }));
  }
  call.client.changed |= made;
  if (options.gets) {
    AnswerText(call, std::move(before));
  } else {
    made ? call.reply.Simple("OK") : call.reply.Null();
  }
  return {};
}

Status SetIfAbsent(RespCall& call) {
  const bool made = TRY(call.device.Create(call.caller(), call.text(1), TextOf(call.word(2))));
  call.client.changed |= made;
  call.reply.Integer(made ? 1 : 0);
  return {};
}

Status GetSet(RespCall& call) {
  There before;
  TRY(call.device.Change(call.caller(), call.text(1),
                         [&](const There& there) -> Result<std::optional<Decision>> {
                           TRY(CheckText(there));
                           before = there;
                           return Decision{TextOf(call.word(2))};
                         }));
  call.client.changed = true;
  AnswerText(call, std::move(before));
  return {};
}

Status GetDelete(RespCall& call) {
  There before;
  TRY(call.device.Change(call.caller(), call.text(1),
                         [&](const There& there) -> Result<std::optional<Decision>> {
                           TRY(CheckText(there));
                           before = there;
                           return Decision{};
                         }));
  call.client.changed |= before.has_value();
  AnswerText(call, std::move(before));
  return {};
}

Status GetMany(RespCall& call) {
  std::vector<There> entries;
  size_t bytes = 0;
  for (size_t i = 1; i < call.words(); ++i) {
    There there = TRY(call.device.Get(call.caller(), call.text(i)));
    if (there && there->type != RespDevice::Type::kText) there.reset();
    bytes += there ? there->value.size() : 0;
    if (bytes > kMostAnswered) {
      return Fail(EINVAL, "these values have more than {} bytes together; ask for fewer",
                  kMostAnswered);
    }
    entries.push_back(std::move(there));
  }
  call.reply.List(entries.size());
  for (There& entry : entries) AnswerText(call, std::move(entry));
  return {};
}

// All of them, or none.
Status SetMany(RespCall& call) {
  if (call.words() % 2 == 0) return Fail(EINVAL, "wrong number of arguments for 'mset' command");
  std::vector<Engine::Change> puts;
  for (size_t i = 1; i + 1 < call.words(); i += 2) {
    puts.push_back(
        TRY(call.device.ChangeOf(call.caller(), call.text(i), TextOf(call.word(i + 1)))));
  }
  TRY(call.device.Make(call.caller(), std::move(puts)));
  call.client.changed = true;
  call.reply.Simple("OK");
  return {};
}

Status Length(RespCall& call) {
  const There there = TRY(call.device.Head(call.caller(), call.text(1)));
  TRY(CheckText(there));
  call.reply.Integer(there ? there->value_bytes : 0);
  return {};
}

// A part that is counted from the value's beginning is read by itself. Where it is counted from the
// end, its length comes first; when somebody changes it in between, once more.
Status GetRange(RespCall& call) {
  const int64_t from = TRY(call.Number(2));
  const int64_t to = TRY(call.Number(3));
  while (true) {
    const There head = TRY(call.device.Head(call.caller(), call.text(1)));
    TRY(CheckText(head));
    const auto size = static_cast<int64_t>(head ? head->value_bytes : 0);
    const int64_t first = std::max<int64_t>(from < 0 ? size + from : from, 0);
    const int64_t last = std::min(std::max<int64_t>(to < 0 ? size + to : to, 0), size - 1);
    if (first > last || (from < 0 && to < 0 && from > to)) {
      call.reply.Text("");
      return {};
    }
    const ValueRange range{.offset = static_cast<uint32_t>(first),
                           .length = static_cast<uint32_t>(last - first + 1)};
    There part = TRY(call.device.Get(call.caller(), call.text(1), range));
    if (!part || part->version != head->version) continue;
    AnswerText(call, std::move(part));
    return {};
  }
}

Status Append(RespCall& call) {
  size_t size = 0;
  TRY(call.device.Change(call.caller(), call.text(1),
                         [&](const There& there) -> Result<std::optional<Decision>> {
                           TRY(CheckText(there));
                           std::string bytes(there ? there->value.text() : std::string_view());
                           bytes += call.text(2);
                           size = bytes.size();
                           return Decision{TextOf(SharedBytes(std::move(bytes)))};
                         }));
  call.client.changed = true;
  call.reply.Integer(static_cast<int64_t>(size));
  return {};
}

Status AddTo(RespCall& call, int64_t difference) {
  int64_t sum = 0;
  TRY(call.device.Change(
      call.caller(), call.text(1), [&](const There& there) -> Result<std::optional<Decision>> {
        TRY(CheckText(there));
        const RespRequest as_word{{there ? there->value : SharedBytes(std::string("0"))}};
        const RespCall value{call.device, call.client, as_word, call.reply};
        const int64_t number = TRY(value.Number(0));
        if (__builtin_add_overflow(number, difference, &sum)) {
          return Fail(EINVAL, "increment or decrement would overflow");
        }
        return Decision{TextOf(SharedBytes(std::to_string(sum)))};
      }));
  call.client.changed = true;
  call.reply.Integer(sum);
  return {};
}

Status Increment(RespCall& call) { return AddTo(call, 1); }
Status Decrement(RespCall& call) { return AddTo(call, -1); }
Status IncrementBy(RespCall& call) { return AddTo(call, TRY(call.Number(2))); }
Status DecrementBy(RespCall& call) {
  const int64_t difference = TRY(call.Number(2));
  if (difference == std::numeric_limits<int64_t>::min()) {
    return Fail(EINVAL, "decrement would overflow");
  }
  return AddTo(call, -difference);
}

Status Delete(RespCall& call) {
  std::vector<std::string_view> keys;
  for (size_t i = 1; i < call.words(); ++i) keys.push_back(call.text(i));
  const int64_t deleted = TRY(call.device.DeleteEach(call.caller(), keys));
  call.client.changed |= deleted > 0;
  call.reply.Integer(deleted);
  return {};
}

Status Exists(RespCall& call) {
  int64_t found = 0;
  for (size_t i = 1; i < call.words(); ++i) {
    if (TRY(call.device.Head(call.caller(), call.text(i)))) ++found;
  }
  call.reply.Integer(found);
  return {};
}

Status TypeOf(RespCall& call) {
  const There there = TRY(call.device.Head(call.caller(), call.text(1)));
  call.reply.Simple(!there ? "none" : there->type == RespDevice::Type::kHash ? "hash" : "string");
  return {};
}

// Nothing here ends by itself.
Status TimeToLive(RespCall& call) {
  const There there = TRY(call.device.Head(call.caller(), call.text(1)));
  call.reply.Integer(there ? -1 : -2);
  return {};
}

constexpr uint8_t kChangesMany = RespCommand::kChanges | RespCommand::kAloneIfMany;

constexpr RespCommand kTextCommands[] = {
    {"append", 3, RespCommand::kChanges, 1, 1, 1, Append},
    {"decr", 2, RespCommand::kChanges, 1, 1, 1, Decrement},
    {"decrby", 3, RespCommand::kChanges, 1, 1, 1, DecrementBy},
    {"del", -2, kChangesMany, 1, -1, 1, Delete},
    {"exists", -2, 0, 1, -1, 1, Exists},
    {"get", 2, 0, 1, 1, 1, Get},
    {"getdel", 2, RespCommand::kChanges, 1, 1, 1, GetDelete},
    {"getrange", 4, 0, 1, 1, 1, GetRange},
    {"getset", 3, RespCommand::kChanges, 1, 1, 1, GetSet},
    {"incr", 2, RespCommand::kChanges, 1, 1, 1, Increment},
    {"incrby", 3, RespCommand::kChanges, 1, 1, 1, IncrementBy},
    {"mget", -2, 0, 1, -1, 1, GetMany},
    {"mset", -3, kChangesMany, 1, -1, 2, SetMany},
    {"pttl", 2, 0, 1, 1, 1, TimeToLive},
    {"set", -3, RespCommand::kChanges, 1, 1, 1, Set},
    {"setnx", 3, RespCommand::kChanges, 1, 1, 1, SetIfAbsent},
    {"strlen", 2, 0, 1, 1, 1, Length},
    {"substr", 4, 0, 1, 1, 1, GetRange},
    {"ttl", 2, 0, 1, 1, 1, TimeToLive},
    {"type", 2, 0, 1, 1, 1, TypeOf},
    {"unlink", -2, kChangesMany, 1, -1, 1, Delete},
};

}  // namespace

std::span<const RespCommand> RespTextCommands() { return kTextCommands; }

}  // namespace pinstripe
