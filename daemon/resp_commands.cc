#include "daemon/resp_commands.h"

#include <openssl/crypto.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/try.h"
#include "daemon/resp_glob.h"
#include "daemon/rights.h"

namespace pinstripe {
namespace {

// The Redis whose manual describes these commands: clients ask for it, to know what they may send.
constexpr std::string_view kLikeRedis = "7.0.0";

constexpr std::string_view kNoAuth = "NOAUTH Authentication required.";
constexpr std::string_view kWrongPass =
    "WRONGPASS invalid username-password pair or user is disabled.";

std::string Small(std::string_view word) {
  std::string small(word);
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

// "1" and its key. Takes as long for a wrong key as for a right one of its length.
bool LogIn(RespCall& call, std::string_view user, std::string_view key) {
  int64_t id = 0;
  const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), id);
  if (error != std::errc() || end != user.data() + user.size()) return false;
  DeviceSecurity::IdentityPtr identity = call.device.service().security().Find(id);
  if (identity == nullptr) return false;
  const std::string& right = identity->rights.key;
  if (right.size() != key.size()) return false;
  if (CRYPTO_memcmp(right.data(), key.data(), key.size()) != 0) return false;
  call.client.caller.identity = std::move(identity);
  if (call.client.known != nullptr) call.client.known->SignedBy(id);
  return true;
}

// "AUTH 1 key"; or, for who has only a password to give, "AUTH 1:key".
bool LogIn(RespCall& call, std::string_view password) {
  const size_t colon = password.find(':');
  if (colon == std::string_view::npos) return false;
  return LogIn(call, password.substr(0, colon), password.substr(colon + 1));
}

// Nobody tries for long.
void RefuseLogin(RespCall& call) {
  constexpr int kMostRefused = 10;
  call.reply.Error(kWrongPass);
  if (++call.client.refused_logins < kMostRefused) return;
  call.device.service().events().Add(
      call.device.runtime().WallClock(), LogLevel::kWarn, "a Redis client does not know a key",
      {{"client", call.client.known == nullptr ? "" : call.client.known->address()}});
  call.client.quits = true;
}

// EINVAL: this is none.
Status CheckName(std::string_view name) {
  constexpr size_t kLongest = 128;
  const bool has_others = std::ranges::any_of(name, [](char c) { return c < '!' || c > '~'; });
  if (!has_others && name.size() <= kLongest) return {};
  return Fail(EINVAL,
              "Client names cannot contain spaces, newlines or special characters, nor have more "
              "than {} bytes",
              kLongest);
}

Status Auth(RespCall& call) {
  if (call.words() > 3) return SyntaxError();
  const bool in = call.words() == 2 ? LogIn(call, call.text(1))
                                    : LogIn(call, call.text(1), call.text(2)) ||
                                          (call.text(1) == "default" && LogIn(call, call.text(2)));
  in ? call.reply.Simple("OK") : RefuseLogin(call);
  return {};
}

Status Hello(RespCall& call) {
  int version = call.reply.version();
  size_t i = 1;
  if (call.words() > 1) {
    const Result<int64_t> wanted = call.Number(i++);
    if (!wanted.has_value() || *wanted < 2 || *wanted > 3) {
      call.reply.Error("NOPROTO unsupported protocol version");
      return {};
    }
    version = static_cast<int>(*wanted);
  }
  for (; i < call.words(); ++i) {
    if (call.Is(i, "AUTH") && i + 2 < call.words()) {
      const bool in = LogIn(call, call.text(i + 1), call.text(i + 2)) ||
                      (call.text(i + 1) == "default" && LogIn(call, call.text(i + 2)));
      if (!in) {
        RefuseLogin(call);
        return {};
      }
      i += 2;
    } else if (call.Is(i, "SETNAME") && i + 1 < call.words()) {
      TRY(CheckName(call.text(++i)));
      call.client.name = call.text(i);
      call.client.Introduce();
    } else {
      return SyntaxError();
    }
  }
  if (call.caller().identity == nullptr) {
    call.reply.Error(kNoAuth);
    return {};
  }
  call.reply.SetVersion(version);
  call.reply.Map(7);
  const auto text = [&](std::string_view key, std::string_view value) {
    call.reply.Text(key);
    call.reply.Text(value);
  };
  text("server", "redis");
  text("version", kLikeRedis);
  call.reply.Text("proto");
  call.reply.Integer(version);
  call.reply.Text("id");
  call.reply.Integer(call.client.number);
  text("mode", "standalone");
  text("role", "master");
  call.reply.Text("modules");
  call.reply.List(0);
  return {};
}

Status Ping(RespCall& call) {
  call.words() == 1 ? call.reply.Simple("PONG") : call.reply.Value(call.word(1));
  return {};
}

Status Echo(RespCall& call) {
  call.reply.Value(call.word(1));
  return {};
}

Status Quit(RespCall& call) {
  call.client.quits = true;
  call.reply.Simple("OK");
  return {};
}

Status Reset(RespCall& call) {
  call.client.caller.identity = nullptr;
  call.client.name.clear();
  call.client.queue.reset();
  call.client.watched.reset();
  call.reply.SetVersion(2);
  call.reply.Simple("RESET");
  return {};
}

Status Select(RespCall& call) {
  const int64_t number = TRY(call.Number(1));
  if (number != 0) return Fail(EINVAL, "DB index is out of range: a device has number 0 only");
  call.reply.Simple("OK");
  return {};
}

// Fields are between spaces, and Kinetic clients may have said anything.
std::string LineOf(const ConnectedClient& client) {
  ConnectedClient::Introduction said = client.introduction();
  for (std::string* text : {&said.detail, &said.program, &said.version}) {
    std::ranges::replace(*text, ' ', '_');
  }
  return fmt::format("id={} addr={} name={} user={} lib-name={} lib-ver={}\n", client.connection(),
                     client.address(), said.detail, client.identity().value_or(0), said.program,
                     said.version);
}

Status Client(RespCall& call) {
  RespClient& client = call.client;
  if (call.Is(1, "ID") && call.words() == 2) {
    call.reply.Integer(client.number);
  } else if (call.Is(1, "GETNAME") && call.words() == 2) {
    client.name.empty() ? call.reply.Null() : call.reply.Text(client.name);
  } else if (call.Is(1, "SETNAME") && call.words() == 3) {
    TRY(CheckName(call.text(2)));
    client.name = call.text(2);
    client.Introduce();
    call.reply.Simple("OK");
  } else if (call.Is(1, "SETINFO") && call.words() == 4) {
    if (!call.Is(2, "LIB-NAME") && !call.Is(2, "LIB-VER")) {
      return Fail(EINVAL, "Unrecognized option '{}'", call.text(2));
    }
    TRY(CheckName(call.text(3)));
    (call.Is(2, "LIB-NAME") ? client.library : client.library_version) = call.text(3);
    client.Introduce();
    call.reply.Simple("OK");
  } else if (call.Is(1, "INFO") && call.words() == 2) {
    call.reply.Verbatim(client.known == nullptr ? "" : LineOf(*client.known));
  } else if (call.Is(1, "LIST")) {
    TRY(Allow(call.caller().identity->rights, Permission::kGetLog, std::nullopt,
              call.caller().tls));
    std::string lines;
    for (const auto& each : call.device.service().clients().All()) lines += LineOf(*each);
    call.reply.Verbatim(lines);
  } else {
    return Fail(EINVAL, "unknown subcommand or wrong number of arguments for '{}'", call.text(1));
  }
  return {};
}

void Describe(const RespCommand& command, RespWriter& reply) {
  reply.List(6);
  reply.Text(command.name);
  reply.Integer(command.arity);
  const bool is_quick = command.Has(RespCommand::kQuick);
  const bool changes = command.Has(RespCommand::kChanges);
  reply.List((is_quick ? 1 : 0) + 1);
  reply.Simple(changes ? "write" : "readonly");
  if (is_quick) reply.Simple("fast");
  reply.Integer(command.first_key);
  reply.Integer(command.last_key);
  reply.Integer(command.step);
}

Status Command(RespCall& call) {
  const std::span<const RespCommand> all = RespCommands();
  if (call.words() == 1) {
    call.reply.List(all.size());
    for (const RespCommand& command : all) Describe(command, call.reply);
  } else if (call.Is(1, "COUNT") && call.words() == 2) {
    call.reply.Integer(static_cast<int64_t>(all.size()));
  } else if (call.Is(1, "LIST") && call.words() == 2) {
    call.reply.List(all.size());
    for (const RespCommand& command : all) call.reply.Text(command.name);
  } else if (call.Is(1, "INFO")) {
    call.reply.List(call.words() - 2);
    for (size_t i = 2; i < call.words(); ++i) {
      const RespCommand* command = FindRespCommand(call.text(i));
      command == nullptr ? call.reply.NullList() : Describe(*command, call.reply);
    }
  } else if (call.Is(1, "DOCS")) {
    // What a command is for is told by the manual; who asks is told that there is no more here.
    call.reply.Map(0);
  } else {
    return Fail(EINVAL, "unknown subcommand '{}'", call.text(1));
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> Settings(const RespDevice& device) {
  return {{"appendfsync", device.write_through() ? "always" : "everysec"},
          {"appendonly", "yes"},
          {"databases", "1"},
          {"maxmemory", "0"},
          {"maxmemory-policy", "noeviction"},
          {"proto-max-bulk-len", std::to_string(kMaxValueBytes)},
          {"save", ""},
          {"timeout", "0"}};
}

Status Config(RespCall& call) {
  if (!call.Is(1, "GET") || call.words() < 3) {
    return Fail(EINVAL, "this device has CONFIG GET only: its settings are in pinstriped.toml");
  }
  std::map<std::string, std::string> found;
  const auto settings = Settings(call.device);
  for (size_t i = 2; i < call.words(); ++i) {
    TRY(CheckPattern(call.text(i)));
    for (const auto& [name, value] : settings) {
      if (GlobMatches(Small(call.text(i)), name)) found.emplace(name, value);
    }
  }
  call.reply.Map(found.size());
  for (const auto& [name, value] : found) {
    call.reply.Text(name);
    call.reply.Text(value);
  }
  return {};
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// The sections of INFO, and the lines of each.
std::vector<std::pair<std::string, std::string>> Information(RespDevice& device) {
  KineticService& service = device.service();
  const StoreUsage usage = service.inside().engine.Usage();
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto up = std::chrono::duration_cast<std::chrono::seconds>(device.up()).count();
  return {
      {"Server",
       fmt::format("redis_version:{}\r\npinstripe_version:{}\r\nredis_mode:standalone\r\n"
                   "os:Linux\r\narch_bits:64\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\n",
                   kLikeRedis, PINSTRIPE_VERSION, getpid(), up)},
      {"Clients", fmt::format("connected_clients:{}\r\nmaxclients:{}\r\n",
                              service.clients().Count(), service.device().max_connections)},
      {"Memory",
       fmt::format("used_memory_peak:{}\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
                   use.ru_maxrss * 1024)},
      {"Persistence", fmt::format("loading:0\r\naof_enabled:1\r\naof_last_write_status:{}\r\n",
                                  usage.failure.ok() ? "ok" : "err")},
      {"Stats", fmt::format("total_commands_processed:{}\r\n", device.CountCommands())},
      {"Replication", "role:master\r\nconnected_slaves:0\r\n"},
      {"CPU", fmt::format("used_cpu_sys:{:.6f}\r\nused_cpu_user:{:.6f}\r\n", Seconds(use.ru_stime),
                          Seconds(use.ru_utime))},
      {"Drive",
       fmt::format("serial_number:{}\r\ncapacity_bytes:{}\r\nused_bytes:{}\r\n",
                   service.device().serial_number, usage.capacity_bytes, usage.used_bytes)},
  };
}

Status Info(RespCall& call) {
  TRY(Allow(call.caller().identity->rights, Permission::kGetLog, std::nullopt, call.caller().tls));
  std::string text;
  for (const auto& [section, lines] : Information(call.device)) {
    bool wanted = call.words() == 1;
    for (size_t i = 1; i < call.words(); ++i) {
      const std::string asked = Small(call.text(i));
      wanted |=
          asked == Small(section) || asked == "all" || asked == "default" || asked == "everything";
    }
    if (!wanted) continue;
    if (!text.empty()) text += "\r\n";
    text += fmt::format("# {}\r\n{}", section, lines);
  }
  call.reply.Verbatim(text);
  return {};
}

Status FlushKeys(RespCall& call) {
  for (size_t i = 1; i < call.words(); ++i) {
    if (!call.Is(i, "SYNC") && !call.Is(i, "ASYNC")) return SyntaxError();
  }
  call.client.changed = true;
  TRY(call.device.DeleteAll(call.caller()));
  call.reply.Simple("OK");
  return {};
}

// What was answered before is safe from power loss after. There are no replicas to wait for.
Status WaitForFile(RespCall& call) {
  const int64_t local = TRY(call.Number(1));
  TRY(call.Number(2));
  TRY(call.Number(3));
  if (local < 0 || local > 1) return Fail(EINVAL, "numlocal is 0 or 1");
  if (local == 1) TRY(call.device.Flush());
  call.reply.List(2);
  call.reply.Integer(local);
  call.reply.Integer(0);
  return {};
}

Status WaitForReplicas(RespCall& call) {
  TRY(call.Number(1));
  TRY(call.Number(2));
  call.reply.Integer(0);
  return {};
}

Status TellTime(RespCall& call) {
  const int64_t microseconds = call.device.runtime().WallClock() / 1000;
  call.reply.List(2);
  call.reply.Text(std::to_string(microseconds / 1'000'000));
  call.reply.Text(std::to_string(microseconds % 1'000'000));
  return {};
}

constexpr uint8_t kQuick = RespCommand::kQuick;
constexpr uint8_t kAlways = RespCommand::kAlways | kQuick;
constexpr uint8_t kNow = RespCommand::kNow;
constexpr uint8_t kOutside = RespCommand::kOutside;
constexpr uint8_t kRemoval = RespCommand::kChanges | RespCommand::kLong | kOutside;

constexpr RespCommand kConnectionCommands[] = {
    {"auth", -2, kAlways | kOutside, 0, 0, 0, Auth},
    {"client", -2, 0, 0, 0, 0, Client},
    {"command", -1, 0, 0, 0, 0, Command},
    {"config", -2, 0, 0, 0, 0, Config},
    {"echo", 2, kQuick, 0, 0, 0, Echo},
    {"flushall", -1, kRemoval, 0, 0, 0, FlushKeys},
    {"flushdb", -1, kRemoval, 0, 0, 0, FlushKeys},
    {"hello", -1, kAlways | kOutside, 0, 0, 0, Hello},
    {"info", -1, 0, 0, 0, 0, Info},
    {"ping", -1, kQuick, 0, 0, 0, Ping},
    {"quit", -1, kAlways | kNow, 0, 0, 0, Quit},
    {"reset", 1, kAlways | kNow, 0, 0, 0, Reset},
    {"select", 2, kQuick, 0, 0, 0, Select},
    {"time", 1, kQuick, 0, 0, 0, TellTime},
    {"wait", 3, kQuick, 0, 0, 0, WaitForReplicas},
    {"waitaof", 4, kOutside, 0, 0, 0, WaitForFile},
};

std::vector<RespCommand> AllCommands() {
  std::vector<RespCommand> all;
  for (const std::span<const RespCommand> some :
       {std::span<const RespCommand>(kConnectionCommands), RespTextCommands(), RespHashCommands(),
        RespListingCommands(), RespTransactionCommands()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  std::ranges::sort(all, {}, &RespCommand::name);
  return all;
}

bool IsWord(const RespRequest& request, std::string_view capitals, size_t words) {
  if (request.size() != words || request.words[0].size() != capitals.size()) return false;
  const std::string_view name = request.text(0);
  return std::equal(name.begin(), name.end(), capitals.begin(),
                    [](char a, char b) { return (a & ~0x20) == b; });
}

}  // namespace

void RespClient::Introduce() const {
  if (known == nullptr) return;
  known->Introduce({.program = library.empty() ? "redis-client" : library,
                    .version = library_version,
                    .host = "",
                    .detail = name,
                    .process = 0});
}

bool RespCall::Is(size_t i, std::string_view word) const {
  if (i >= words() || text(i).size() != word.size()) return false;
  return std::equal(word.begin(), word.end(), text(i).begin(), [](char capital, char c) {
    return capital == (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  });
}

Result<int64_t> RespCall::Number(size_t i) const {
  int64_t number = 0;
  const std::string_view word = text(i);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  // As it would be written: "01" and "-0" are none.
  const bool is_read = error == std::errc() && end == word.data() + word.size();
  if (!is_read || std::to_string(number) != word) {
    return Fail(EINVAL, "value is not an integer or out of range");
  }
  return number;
}

std::span<const RespCommand> RespCommands() {
  static const std::vector<RespCommand> all = AllCommands();
  return all;
}

const RespCommand* FindRespCommand(std::string_view name) {
  constexpr size_t kLongest = 32;
  if (name.size() > kLongest) return nullptr;
  const std::string small = Small(name);
  const auto all = RespCommands();
  const auto found = std::ranges::lower_bound(all, small, {}, &RespCommand::name);
  return found == all.end() || found->name != small ? nullptr : &*found;
}

std::string RefusalOf(const RespCommand* command, const RespCall& call) {
  constexpr size_t kMostTold = 64;
  const bool is_stranger = call.caller().identity == nullptr;
  if (is_stranger && (command == nullptr || !command->Has(RespCommand::kAlways))) {
    return std::string(kNoAuth);
  }
  const std::string_view name = call.text(0).substr(0, kMostTold);
  if (command == nullptr) return fmt::format("ERR unknown command '{}'", name);
  if (!command->Takes(call.words())) {
    return fmt::format("ERR wrong number of arguments for '{}' command", command->name);
  }
  if (call.device.service().security().locked() && !command->Has(RespCommand::kAlways)) {
    return "ERR this device is locked, until somebody unlocks it by its PIN";
  }
  return {};
}

Status ExecuteResp(const RespCommand* command, RespCall& call) {
  const std::string refusal = RefusalOf(command, call);
  if (!refusal.empty()) {
    if (call.client.queue) call.client.queue->spoilt = true;
    call.reply.Error(refusal);
    return {};
  }
  if (call.client.queue && !command->Has(RespCommand::kNow)) {
    QueueResp(*command, call);
    return {};
  }
  Status done = command->run(call);
  if (!done.ok()) call.reply.Failure(done);
  return done;
}

bool IsPlainSet(const RespRequest& request) { return IsWord(request, "SET", 3); }

bool IsPlainGet(const RespRequest& request) { return IsWord(request, "GET", 2); }

bool IsOfBrowser(const RespRequest& request) {
  const std::string name = Small(request.text(0).substr(0, 8));
  return name == "post" || name == "host:";
}

RespTurns::Kind TurnOf(const RespCommand* command, const RespRequest& request) {
  if (command == nullptr) return RespTurns::Kind::kNone;
  if (command->Has(RespCommand::kLong)) return RespTurns::Kind::kNone;
  if (command->Has(RespCommand::kAlone)) return RespTurns::Kind::kAlone;
  const bool has_many = request.size() > static_cast<size_t>(command->first_key + command->step);
  if (command->Has(RespCommand::kAloneIfMany) && has_many) return RespTurns::Kind::kAlone;
  return RespTurns::Kind::kBeside;
}

// It is compared with each key, and takes as long as both lengths say.
Status CheckPattern(std::string_view pattern) {
  constexpr size_t kLongest = 1024;
  if (pattern.size() <= kLongest) return {};
  return Fail(EINVAL, "a pattern of {} bytes; the limit is {}", pattern.size(), kLongest);
}

Failed SyntaxError() { return Fail(EINVAL, "syntax error"); }

Failed WrongType() {
  return Fail(EPROTOTYPE, "Operation against a key holding the wrong kind of value");
}

Status CheckText(const std::optional<RespDevice::Entry>& there) {
  if (!there || there->type == RespDevice::Type::kText) return {};
  return WrongType();
}

}  // namespace pinstripe
