// The Redis protocol of a drive.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "base/real_runtime.h"
#include "daemon/resp_commands.h"
#include "store/memory_store.h"
#include "tests/fuzz/inputs.h"

namespace pinstripe {
namespace {

// Takes one whole answer from the front of `bytes`. False: there is none.
bool TakeAnswer(std::string_view* bytes, int depth = 0) {
  constexpr int kDeepest = 4;
  const size_t end = bytes->find("\r\n");
  if (end == std::string_view::npos || end == 0 || depth > kDeepest) return false;
  const char kind = bytes->front();
  const std::string_view line = bytes->substr(1, end - 1);
  bytes->remove_prefix(end + 2);
  if (kind == '+' || kind == '-' || (kind == '_' && line.empty())) return true;
  int64_t number = 0;
  const auto [last, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || last != line.data() + line.size()) return false;
  switch (kind) {
    case ':': return true;
    case '$':
    case '=': {
      if (number == -1) return kind == '$';
      const auto size = static_cast<size_t>(number);
      if (number < 0 || bytes->size() < size + 2 || bytes->substr(size, 2) != "\r\n") return false;
      bytes->remove_prefix(size + 2);
      return true;
    }
    case '*':
    case '%':
      if (number == -1) return kind == '*';
      for (int64_t i = 0; i < (kind == '%' ? 2 * number : number); ++i) {
        if (!TakeAnswer(bytes, depth + 1)) return false;
      }
      return number >= 0;
    default: return false;
  }
}

std::string Sent(RespWriter& writer) {
  std::string all;
  while (writer.unsent_bytes() > 0) {
    std::array<iovec, RespWriter::kMostParts> parts;
    const size_t count = writer.NextParts(parts);
    size_t sent = 0;
    for (size_t i = 0; i < count; ++i) {
      all.append(static_cast<const char*>(parts.at(i).iov_base), parts.at(i).iov_len);
      sent += parts.at(i).iov_len;
    }
    writer.Sent(sent);
  }
  return all;
}

}  // namespace

struct ObedientRespDevice::Parts {
  RealRuntime runtime;
  Engine engine{std::make_unique<MemoryStore>(64 << 20)};
  DeviceSecurity security{{{1, FullAccess("asdfasdf")}}};
  KineticService service{{"serial", "name"}, security, engine};
  RespDevice device{runtime, service, /*write_through=*/false};
};

ObedientRespDevice::ObedientRespDevice() : parts_(std::make_unique<Parts>()) {}
ObedientRespDevice::~ObedientRespDevice() = default;

std::string ObedientRespDevice::Execute(Bytes stream,
                                        const std::function<uint64_t(uint64_t most)>& random,
                                        Count* count) {
  RespReader reader(RespReader::kOfClients);
  RespWriter writer;
  RespClient client;
  client.caller.identity = parts_->security.Find(1);
  while (!stream.empty()) {
    iovec space[2];
    const int places = reader.Space(space);
    size_t filled = 0;
    size_t piece = std::min<size_t>(stream.size(), random(300));
    for (int i = 0; i < places && piece > 0; ++i) {
      const size_t part = std::min(piece, space[i].iov_len);
      std::memcpy(space[i].iov_base, stream.data(), part);
      stream = stream.subspan(part);
      filled += part;
      piece -= part;
    }
    reader.Filled(filled);
    while (true) {
      Result<std::optional<RespRequest>> next = reader.Next();
      if (!next.has_value()) {
        if (next.error().code() != EBADMSG) return std::string(next.error().message());
        ++count->refused;
        return "";
      }
      if (!*next) break;
      const RespRequest& request = **next;
      if (request.words.empty()) return "a command without a name";
      RespCall call{parts_->device, client, request, writer};
      const Status done = ExecuteResp(FindRespCommand(request.text(0)), call);
      ++count->commands;
      if (!done.ok()) ++count->failures;
      const std::string sent = Sent(writer);
      std::string_view answer = sent;
      if (!TakeAnswer(&answer) || !answer.empty()) return "no answer, or more than one: " + sent;
    }
  }
  return "";
}

Examples ExampleRespStreams() {
  const std::string_view kLines[] = {"SET k v NX",
                                     "SET k v XX GET",
                                     "SET k v IFEQ w GET",
                                     "GET k",
                                     "GETRANGE k 0 -1",
                                     "GETRANGE k -3 -2",
                                     "STRLEN k",
                                     "APPEND k xyz",
                                     "INCR n",
                                     "INCRBY n 42",
                                     "DECRBY n 7",
                                     "MSET a 1 b 2",
                                     "MGET a b c",
                                     "DEL a k",
                                     "EXISTS a b",
                                     "TYPE h",
                                     "HSET h f v g w",
                                     "HGETALL h",
                                     "HMGET h f x",
                                     "HDEL h f g",
                                     "SCAN 0 MATCH a* COUNT 3",
                                     "KEYS [a-c]?*",
                                     "ZRANGE pinstripe:keys [a (z BYLEX REV LIMIT 1 2",
                                     "ZRANGE pinstripe:keys - + BYLEX",
                                     "ZLEXCOUNT pinstripe:keys - +",
                                     "DBSIZE",
                                     "FLUSHDB",
                                     "PING",
                                     "ECHO \"a\\x00b\"",
                                     "HELLO 3 AUTH 1 asdfasdf SETNAME me",
                                     "HELLO 2",
                                     "CLIENT LIST",
                                     "CLIENT INFO",
                                     "COMMAND INFO get",
                                     "CONFIG GET *",
                                     "INFO",
                                     "WAITAOF 1 0 0",
                                     "GETDEL k",
                                     "WATCH k",
                                     "MULTI",
                                     "SET a 1",
                                     "INCR a",
                                     "EXEC",
                                     "MULTI",
                                     "DISCARD",
                                     "UNWATCH",
                                     "GETSET k v",
                                     "RESET",
                                     "AUTH 1:asdfasdf",
                                     "TIME",
                                     "SELECT 0",
                                     "QUIT"};
  Examples streams;
  std::string all;
  std::string lists;
  for (const std::string_view line : kLines) {
    all += fmt::format("{}\r\n", line);
    // The same as a list of words.
    std::string words;
    size_t count = 0;
    for (size_t at = 0; at < line.size(); ++count) {
      const size_t end = std::min(line.find(' ', at), line.size());
      words += fmt::format("${}\r\n{}\r\n", end - at, line.substr(at, end - at));
      at = end + 1;
    }
    lists += fmt::format("*{}\r\n{}", count, words);
    streams.push_back(fmt::format("*{}\r\n{}{}\r\n", count, words, line));
  }
  const std::string value(20'000, 'v');
  streams.push_back(
      fmt::format("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{}\r\nGET k\r\n", value.size(), value));
  streams.push_back(all);
  streams.push_back(lists);
  return streams;
}

}  // namespace pinstripe
