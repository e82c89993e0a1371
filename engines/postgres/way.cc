#include "engines/postgres/way.h"

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/utf8.h"

namespace pinstripe {
namespace {

// What we do ourselves, or for each server.
constexpr std::array kOurs = {
    "host", "hostaddr", "port", "target_session_attrs", "connect_timeout", "load_balance_hosts"};
// What holds where the string says nothing else. A peer that is gone is noticed within seconds.
const std::array<std::pair<const char*, const char*>, 8> kDefaults = {{
    {"fallback_application_name", "pinstripe"},
    {"client_encoding", "UTF8"},
    {"gssencmode", "disable"},
    {"keepalives", "1"},
    {"keepalives_idle", "5"},
    {"keepalives_interval", "3"},
    {"keepalives_count", "3"},
    {"tcp_user_timeout", "10000"},
}};

std::vector<std::string> PartsOf(std::string_view list) {
  std::vector<std::string> parts;
  if (list.empty()) return parts;
  for (;;) {
    const size_t comma = list.find(',');
    parts.emplace_back(list.substr(0, comma));
    if (comma == list.npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

std::string NameOfServer(const PgServer& server) {
  const std::string& host = server.host.empty() ? server.address : server.host;
  if (host.empty()) return "the server on this machine";
  return host.find(':') == host.npos
             ? fmt::format("{}:{}", host, server.port.empty() ? "5432" : server.port)
             : fmt::format("[{}]:{}", host, server.port.empty() ? "5432" : server.port);
}

Result<std::vector<std::string>> AddressesOf(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return Fail(EHOSTUNREACH, "its name is not found: {}", gai_strerror(error));
  std::vector<std::string> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text.data());
    }
  }
  freeaddrinfo(found);
  if (addresses.empty()) return Fail(EHOSTUNREACH, "its name has no address");
  return addresses;
}

bool IsAddress(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

Result<PgWay> ParsePgWay(const EngineOptions& options) {
  char* error = nullptr;
  PQconninfoOption* const parsed = PQconninfoParse(options.connection.c_str(), &error);
  if (parsed == nullptr) {
    // It may repeat a part of the string, which may have a password after all.
    PQfreemem(error);
    return Fail(EINVAL,
                "its connection string cannot be understood: write it as libpq takes it, such as "
                "'host=db1,db2 dbname=names'");
  }
  std::map<std::string, std::string> said;
  for (const PQconninfoOption* each = parsed; each->keyword != nullptr; ++each) {
    if (each->val != nullptr) said[each->keyword] = each->val;
  }
  PQconninfoFree(parsed);
  if (!options.user.empty()) said["user"] = options.user;
  if (!options.password.empty()) said["password"] = options.password;

  const std::vector<std::string> hosts = PartsOf(said["host"]);
  const std::vector<std::string> addresses = PartsOf(said["hostaddr"]);
  const std::vector<std::string> ports = PartsOf(said["port"]);
  const size_t count = std::max<size_t>({hosts.size(), addresses.size(), 1});
  if ((!hosts.empty() && hosts.size() != count) ||
      (!addresses.empty() && addresses.size() != count) ||
      (ports.size() > 1 && ports.size() != count)) {
    return Fail(EINVAL, "its connection string has {} hosts, {} addresses and {} ports",
                hosts.size(), addresses.size(), ports.size());
  }
  PgWay way;
  for (size_t i = 0; i < count; ++i) {
    PgServer server;
    if (!hosts.empty()) server.host = hosts[i];
    if (!addresses.empty()) server.address = addresses[i];
    if (!ports.empty()) server.port = ports.size() == 1 ? ports[0] : ports[i];
    if (server.address.empty() && IsAddress(server.host)) server.address = server.host;
    server.name = NameOfServer(server);
    way.servers.push_back(std::move(server));
  }
  for (const char* const ours : kOurs) said.erase(ours);
  for (const auto& [name, value] : kDefaults) said.try_emplace(name, value);
  way.parameters.assign(said.begin(), said.end());
  return way;
}

PgParameters PgWay::To(const PgServer& server, const std::string& address) const {
  PgParameters all = parameters;
  if (!server.host.empty()) all.emplace_back("host", server.host);
  if (!address.empty()) all.emplace_back("hostaddr", address);
  if (!server.port.empty()) all.emplace_back("port", server.port);
  return all;
}

PgWake::PgWake() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void PgWake::Set() const {
  const uint64_t one = 1;
  // Fails only when the counter is full: then the thread is awake already.
  [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
}

void PgWake::Clear() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd_.get(), &count, sizeof count);
}

std::shared_ptr<PgLookup> PgLookup::Start(Runtime& runtime, const std::string& host,
                                          std::shared_ptr<const PgWake> wake) {
  auto lookup = std::make_shared<PgLookup>();
  runtime.Spawn("pg lookup", [lookup, host, wake = std::move(wake)] {
    Result<std::vector<std::string>> addresses = AddressesOf(host);
    {
      const MutexLock lock(lookup->mutex_);
      lookup->addresses_ = std::move(addresses);
      lookup->done_ = true;
    }
    wake->Set();
  });
  return lookup;
}

bool PgLookup::is_done() const {
  const MutexLock lock(mutex_);
  return done_;
}

Result<std::vector<std::string>> PgLookup::Take() {
  const MutexLock lock(mutex_);
  return addresses_;
}

}  // namespace pinstripe
