#include "console/main.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/program.h"
#include "base/real_runtime.h"
#include "base/try.h"
#include "console/api.h"
#include "console/console_metrics.h"
#include "console/live_cluster.h"
#include "metrics/address.h"
#include "metrics/server.h"

namespace pinstripe {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct ConsoleArguments {
  std::string config;
  std::string listen = "127.0.0.1:8070";
  std::string certificate;
  std::string key;
  std::string token_file;
  std::string page = PINSTRIPE_CONSOLE_PAGE;
  std::string program = PINSTRIPE_PROGRAM;
  std::vector<std::string> host_names;
  std::string public_origin;
  std::string files;    // empty: whoever is on this machine, and else operators
  std::string metrics;  // where they are served; empty: nowhere
  std::string log_level = "info";
  bool open_to_all = false;
};

struct ListenAddress {
  std::string address;
  uint16_t port = 0;
  bool is_loopback = false;
};

// "127.0.0.1:8070", "[::1]:8070". EINVAL.
Result<ListenAddress> ParseListen(const std::string& text) {
  ListenAddress listen;
  const size_t colon = text.rfind(':');
  const std::string port = colon == text.npos ? "" : text.substr(colon + 1);
  const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), listen.port);
  listen.address = HostWithoutPort(text);
  in_addr four{};
  in6_addr six{};
  const bool is_four = inet_pton(AF_INET, listen.address.c_str(), &four) == 1;
  const bool is_six = inet_pton(AF_INET6, listen.address.c_str(), &six) == 1;
  if (port.empty() || failed != std::errc() || *end != '\0' || (!is_four && !is_six)) {
    return Fail(EINVAL,
                "--listen {}: say the number of an address and a port, as 127.0.0.1:8070 or "
                "[::]:8070",
                text);
  }
  listen.is_loopback = is_four ? ntohl(four.s_addr) >> 24 == 127 : IN6_IS_ADDR_LOOPBACK(&six) != 0;
  return listen;
}

// The console acts for operators: where others than this machine reach it, nobody is to read a
// token on the way.
Status CheckExposure(const ConsoleArguments& arguments, const ListenAddress& listen) {
  if (arguments.certificate.empty() != arguments.key.empty()) {
    return Fail(EINVAL, "--tls-certificate and --tls-key belong together");
  }
  const bool is_safe = !arguments.certificate.empty() && !arguments.token_file.empty();
  if (listen.is_loopback || is_safe || arguments.open_to_all) return {};
  return Fail(EINVAL,
              "--listen {}: others than this machine would reach the console without TLS or "
              "without operators. Give --tls-certificate, --tls-key and --token-file, or say "
              "--open-to-all",
              arguments.listen);
}

sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  // Whoever has started us may have ignored it, and then nobody learns how work has ended.
  signal(SIGCHLD, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// Of the threads to come, whatever limit we were started with: the library that reads requests goes
// deep for some.
void SetStackSize() {
  constexpr size_t kStackBytes = 8 << 20;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

HostNames NamesOf(const ConsoleArguments& arguments, const Origin& public_origin) {
  HostNames names;
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) == 0) names.insert(HostWithoutPort(own.data()));
  for (const std::string& name : arguments.host_names) names.insert(HostWithoutPort(name));
  names.insert(public_origin.host);
  names.erase("");
  return names;
}

void ReloadAll(const ConsoleArguments& arguments, Operators& operators, HttpServer& server,
               LiveCluster& cluster) {
  const auto say = [](std::string_view what, const Status& done) {
    if (done.ok()) {
      Log(LogLevel::kInfo, "read again", {{"what", what}});
    } else {
      Log(LogLevel::kError, "not read again; it goes on with what was there before",
          {{"what", what}, {"why", done}});
    }
  };
  if (!arguments.token_file.empty()) say("operators", operators.Load(arguments.token_file));
  if (!arguments.certificate.empty()) say("certificate", server.ReloadCertificate());
  say("configuration", cluster.Reload());
}

Status Serve(const ConsoleArguments& arguments) {
  const sigset_t signals = BlockSignals();
  const ListenAddress listen = TRY(ParseListen(arguments.listen));
  TRY(CheckExposure(arguments, listen));
  if (!arguments.metrics.empty()) {
    TRY_CONTEXT(ParseMetricsAddress(arguments.metrics), "--metrics");
  }
  Origin origin;
  if (!arguments.public_origin.empty()) {
    const std::optional<Origin> known = ParseOrigin(arguments.public_origin);
    if (!known) {
      return Fail(EINVAL, "--public-origin {}: say it as https://console.example.org",
                  arguments.public_origin);
    }
    origin = *known;
  }
  SetStackSize();
  RaiseDescriptorLimit();
  SetProgram({.name = "pinstripe-console", .version = PINSTRIPE_VERSION, .detail = ""});
  const PageFiles page = TRY(PageFiles::Load(arguments.page));
  RealRuntime runtime;
  Operators operators(runtime);
  if (!arguments.token_file.empty()) TRY(operators.Load(arguments.token_file));
  LiveCluster cluster(runtime, arguments.config);
  Chores chores(runtime, {.program = arguments.program, .config = arguments.config});
  Watch watch(runtime, cluster);
  const ApiParts parts{runtime, cluster, watch, chores, operators, page};
  Api api(parts, {.names = NamesOf(arguments, origin),
                  .public_origin = origin.text,
                  .version = PINSTRIPE_VERSION,
                  .files_for_all = arguments.files.empty() ? listen.is_loopback
                                                           : arguments.files == "everybody"});
  const HttpOptions http{.address = listen.address,
                         .port = listen.port,
                         .certificate = arguments.certificate,
                         .key = arguments.key};
  auto server = TRY(HttpServer::Start(
      runtime, http, [&api](const HttpRequest& request) { return api.Answer(request); },
      [&api](const HttpRequest& request) { return api.BeforeTheBody(request); }));
  auto metrics = MetricsServer::StartOrWarn(
      arguments.metrics, [&] { return ConsoleMetricsText(parts, api, *server); });
  const std::string host =
      listen.address.find(':') == listen.address.npos ? listen.address : "[" + listen.address + "]";
  fmt::print("ready {}://{}:{}/\n", arguments.certificate.empty() ? "http" : "https", host,
             server->port());
  std::fflush(stdout);
  int number = 0;
  while (sigwait(&signals, &number) == 0 && number == SIGHUP) {
    ReloadAll(arguments, operators, *server, cluster);
  }
  Log(LogLevel::kInfo, "stopping", {{"signal", strsignal(number)}});
  // The next one ends it at once.
  sigset_t ending = signals;
  sigdelset(&ending, SIGHUP);
  pthread_sigmask(SIG_UNBLOCK, &ending, nullptr);
  api.End();
  watch.End();
  metrics.reset();
  server.reset();
  return {};
}

}  // namespace

int ConsoleMain(int argc, char** argv) {
  CLI::App app{"Serves a page that shows how a Pinstripe cluster is, and the JSON behind it."};
  app.name("pinstripe-console");
  ConsoleArguments arguments;
  app.add_option("CONFIG", arguments.config, "cluster.toml")->required();
  app.add_option("--listen", arguments.listen, "Where: the number of an address, and a port")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  app.add_option("--tls-certificate", arguments.certificate, "PEM: with it, the page is https")
      ->type_name("FILE");
  app.add_option("--tls-key", arguments.key, "PEM, its key; nobody else may read it")
      ->type_name("FILE");
  app.add_option("--token-file", arguments.token_file,
                 "Operators, a name and a token on each line: they may start and stop work. "
                 "Nobody else may read it")
      ->type_name("FILE");
  app.add_option("--host-name", arguments.host_names,
                 "A name that the page is reached by, besides the machine's own")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  app.add_option("--public-origin", arguments.public_origin,
                 "What browsers see instead, where a proxy speaks TLS: https://console.example.org")
      ->type_name("URL");
  app.add_option("--files", arguments.files,
                 "Who may look at the tree of files: everybody where only this machine reaches the "
                 "page, and else operators")
      ->check(CLI::IsMember({"everybody", "operators"}));
  app.add_flag("--open-to-all", arguments.open_to_all,
               "Listen for others than this machine though there is no TLS or no token file");
  app.add_option("--metrics", arguments.metrics,
                 "Where metrics are served: an address of IPv4 and a port, or a port of this "
                 "machine; not given: nowhere")
      ->type_name("ADDRESS:PORT");
  app.add_option("--page", arguments.page, "Where the files of the page are")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--program", arguments.program, "The pinstripe that does the work")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--log-level", arguments.log_level, "debug, info, warn or error")
      ->capture_default_str();
  app.set_version_flag("--version", "pinstripe-console " PINSTRIPE_VERSION);
  app.footer(
      "HUP has it read the token file, the certificate and the ways to the drives again. "
      "The manual is pinstripe-console(8).");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  const Result<LogLevel> level = ParseLogLevel(arguments.log_level);
  if (!level.has_value()) {
    fmt::print(stderr, "pinstripe-console: {}\n", level.error().message());
    return kExitUsage;
  }
  SetLogLevel(*level);
  const Status served = Serve(arguments);
  if (served.ok()) return 0;
  fmt::print(stderr, "pinstripe-console: {}\n", served.message());
  return kExitFailed;
}

}  // namespace pinstripe
