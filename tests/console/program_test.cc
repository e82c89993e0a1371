// pinstripe-console as a process: what it refuses to start with, that a cluster which is away keeps
// nothing from it, and how it ends.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/console/http_client.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/free_ports.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;

class ConsoleProgram : public testing::Test {
 protected:
  ConsoleProgram() {
    // Nobody listens there.
    std::string config =
        "[cluster]\nname = \"away\"\n[layout]\ndata_shards = 2\nparity_shards = 1\n"
        "[limits]\nopen_timeout = \"1 s\"\n";
    for (int id = 1; id <= 4; ++id) {
      config += fmt::format("[[drive]]\nid = {0}\naddress = \"127.0.0.1:{0}\"\n", id);
    }
    Write("cluster.toml", config);
    Write("credentials.toml", "[default]\nidentity = 1\nkey = \"another\"\n");
    Write("tokens", "anna 0123456789abcdef0123456789abcdef\n");
    MakeCertificate(directory_ / "cert.pem", directory_ / "key.pem");
  }
  ~ConsoleProgram() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    chmod((directory_ / name).c_str(), 0600);
  }

  void Start(std::vector<std::string> options) {
    options.insert(options.begin(),
                   {PINSTRIPE_CONSOLE, directory_ / "cluster.toml", "--log-level", "error"});
    if (std::ranges::count(options, "--page") == 0) {
      options.insert(options.end(), {"--page", PINSTRIPE_SOURCE_DIR "/console/page"});
    }
    std::vector<char*> words;
    for (std::string& word : options) words.push_back(word.data());
    words.push_back(nullptr);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_ = FileDescriptor(ends[0]);
    const FileDescriptor input(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    ASSERT_EQ(posix_spawn(&pid_, words[0], &actions, nullptr, words.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }

  // Up to the end of its first line, or of all that it says.
  std::string Hear(bool to_the_end) {
    std::string said;
    char c = 0;
    while ((to_the_end || !said.ends_with('\n')) && read(output_.get(), &c, 1) == 1) said += c;
    return said;
  }

  // Whatever it says before of its cluster. 0: it has ended.
  uint16_t PortWhenReady() {
    std::string line;
    do {
      line = Hear(false);
    } while (!line.empty() && !line.starts_with("ready http"));
    EXPECT_FALSE(line.empty());
    return line.empty() ? 0 : static_cast<uint16_t>(std::stoi(line.substr(line.rfind(':') + 1)));
  }

  int End(int signal) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void ExpectRefused(const std::vector<std::string>& options, const std::string& why) {
    Start(options);
    EXPECT_THAT(Hear(true), HasSubstr(why));
    EXPECT_EQ(End(0), 1);
  }

  TemporaryDirectory directory_;
  pid_t pid_ = 0;
  FileDescriptor output_;
};

TEST_F(ConsoleProgram, ServesThoughItsClusterIsAwayAndEndsCleanly) {
  Start({"--listen", "127.0.0.1:0", "--token-file", directory_ / "tokens"});
  const std::string ready = Hear(false);
  ASSERT_THAT(ready, testing::StartsWith("ready http://127.0.0.1:"));
  const auto port = static_cast<uint16_t>(std::stoi(ready.substr(ready.rfind(':') + 1)));
  EXPECT_EQ(StatusIn(AskOnce(port, GetText("/"))), 200);
  EXPECT_EQ(StatusIn(AskOnce(port, GetText("/api/v1/status"))), 200);
  EXPECT_EQ(StatusIn(AskOnce(port, GetText("/api/v1/files?path=/"))), 503);
  const auto knows = [&](std::string_view token) {
    return StatusIn(AskOnce(port, GetText("/api/v1/operator",
                                          fmt::format("Authorization: Bearer {}\r\n", token)))) ==
           200;
  };
  EXPECT_TRUE(knows("0123456789abcdef0123456789abcdef"));
  Write("tokens", "ben bbbbbbbbbbbbbbbbbbbbbbbb\n");
  kill(pid_, SIGHUP);
  while (knows("0123456789abcdef0123456789abcdef")) {
  }
  EXPECT_TRUE(knows("bbbbbbbbbbbbbbbbbbbbbbbb"));
  HttpClient live(port);
  live.Send(GetText("/api/v1/live"));
  live.ReceiveUntil("event: status");
  EXPECT_EQ(End(SIGTERM), 0);
}

TEST_F(ConsoleProgram, ServesMetricsWhereItIsTold) {
  const uint16_t metrics = FreePorts(1).front();
  Start({"--listen", "127.0.0.1:0", "--metrics", std::to_string(metrics)});
  const uint16_t port = PortWhenReady();
  EXPECT_EQ(StatusIn(AskOnce(port, GetText("/api/v1/status"))), 200);
  const std::string page = AskOnce(metrics, GetText("/metrics"));
  EXPECT_EQ(StatusIn(page), 200);
  EXPECT_THAT(page, HasSubstr("program=\"pinstripe-console\""));
  EXPECT_THAT(page, HasSubstr("\npinstripe_console_requests_total{code=\"2xx\"} "));
  EXPECT_EQ(StatusIn(AskOnce(metrics, GetText("/api/v1/status"))), 404);
  EXPECT_EQ(StatusIn(AskOnce(port, GetText("/metrics"))), 404) << "nobody else is told";
  EXPECT_EQ(End(SIGTERM), 0);
}

TEST_F(ConsoleProgram, AConfigurationThatIsNotThereIsNoNameThatIsNotThere) {
  std::filesystem::remove(directory_ / "cluster.toml");
  Start({"--listen", "127.0.0.1:0"});
  EXPECT_EQ(StatusIn(AskOnce(PortWhenReady(), GetText("/api/v1/files?path=/"))), 503);
  EXPECT_EQ(End(SIGTERM), 0);
}

// The library takes a Range apart by as many calls in each other as it is long.
TEST_F(ConsoleProgram, OutlivesLongHeadersWithSmallStacks) {
  rlimit before{};
  getrlimit(RLIMIT_STACK, &before);
  const rlimit small{.rlim_cur = 512 << 10, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_STACK, &small);
  Start({"--listen", "127.0.0.1:0"});
  setrlimit(RLIMIT_STACK, &before);
  const uint16_t port = PortWhenReady();
  for (const size_t length : {200, 1000, 8000}) {
    AskOnce(port, GetText("/", "Range: bytes=" + std::string(length, '1') + "-\r\n"));
  }
  EXPECT_EQ(StatusIn(AskOnce(port, GetText("/"))), 200);
  EXPECT_EQ(End(SIGTERM), 0);
}

class ConsoleProgramAtWork : public ConsoleProgram {
 protected:
  void StartWith(const std::string& script) {
    const std::string program = directory_ / "program";
    std::ofstream(program) << "#!/bin/sh\n" << script;
    chmod(program.c_str(), 0700);
    Start({"--listen", "127.0.0.1:0", "--token-file", directory_ / "tokens", "--program", program});
    port_ = PortWhenReady();
    const std::string token = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
    EXPECT_EQ(StatusIn(AskOnce(port_, PostText("/api/v1/work", "{\"kind\": \"check\"}", token))),
              202);
  }
  std::string WaitForWork(std::string_view what) {
    for (;;) {
      const std::string work = AskOnce(port_, GetText("/api/v1/work"));
      if (work.find(what) != work.npos || work.empty()) return work;
    }
  }

  uint16_t port_ = 0;
};

TEST_F(ConsoleProgramAtWork, KnowsHowWorkEndsWhoeverHasStartedIt) {
  struct sigaction before {};
  sigaction(SIGCHLD, nullptr, &before);
  signal(SIGCHLD, SIG_IGN);  // a process that is started goes on so
  StartWith("exit 3\n");
  sigaction(SIGCHLD, &before, nullptr);
  EXPECT_THAT(WaitForWork("exit_code"), HasSubstr("\"exit_code\":3"));
  EXPECT_EQ(End(SIGTERM), 0);
}

TEST_F(ConsoleProgramAtWork, ASecondSignalEndsItAtOnce) {
  StartWith("trap '' INT; echo waiting; while kill -0 $PPID; do sleep 0.05; done\n");
  WaitForWork("waiting");
  kill(pid_, SIGTERM);
  while (HttpClient(port_).is_connected()) {
  }
  EXPECT_EQ(End(SIGTERM), -1);
}

TEST_F(ConsoleProgram, WhereOthersReachItFilesAreForOperators) {
  const auto files_for_all = [&](std::vector<std::string> options) {
    Start(std::move(options));
    const std::string status = AskOnce(PortWhenReady(), GetText("/api/v1/status"));
    EXPECT_EQ(End(SIGTERM), 0);
    return status.find("\"files_for_all\":true") != status.npos;
  };
  EXPECT_TRUE(files_for_all({"--listen", "127.0.0.1:0"}));
  EXPECT_FALSE(files_for_all({"--listen", "127.0.0.1:0", "--files", "operators"}));
  EXPECT_FALSE(files_for_all({"--listen", "0.0.0.0:0", "--open-to-all"}));
  EXPECT_TRUE(files_for_all({"--listen", "0.0.0.0:0", "--open-to-all", "--files", "everybody"}));
}

TEST_F(ConsoleProgram, OthersReachItOnlyWithTlsAndOperators) {
  const std::string cert = directory_ / "cert.pem";
  const std::string key = directory_ / "key.pem";
  const std::string tokens = directory_ / "tokens";
  ExpectRefused({"--listen", "0.0.0.0:0"}, "without TLS or without operators");
  ExpectRefused({"--listen", "[::]:0", "--token-file", tokens}, "without TLS or without operators");
  ExpectRefused({"--listen", "0.0.0.0:0", "--tls-certificate", cert, "--tls-key", key},
                "without TLS or without operators");
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--open-to-all"},
        {"--tls-certificate", cert, "--tls-key", key, "--token-file", tokens}}) {
    std::vector<std::string> all = options;
    all.insert(all.end(), {"--listen", "0.0.0.0:0"});
    Start(all);
    EXPECT_THAT(Hear(false), HasSubstr("ready http"));
    EXPECT_EQ(End(SIGINT), 0);
  }
}

TEST_F(ConsoleProgram, SaysWhatItCannotStartWith) {
  ExpectRefused({"--listen", "localhost:8070"}, "say the number of an address and a port");
  ExpectRefused({"--listen", "127.0.0.1:99999"}, "say the number of an address and a port");
  ExpectRefused({"--listen", "127.0.0.1"}, "say the number of an address and a port");
  ExpectRefused({"--tls-key", directory_ / "key.pem"}, "belong together");
  for (const char* address : {"localhost:9467", "[::1]:9467", "127.0.0.1", "99999", "x"}) {
    ExpectRefused({"--metrics", address}, "is not where metrics can be served");
  }
  ExpectRefused({"--public-origin", "console.example"}, "https://console.example.org");
  ExpectRefused({"--page", directory_.path()}, "there is no index.html");
  ExpectRefused({"--token-file", directory_ / "none"}, "none");
  chmod((directory_ / "tokens").c_str(), 0644);
  ExpectRefused({"--token-file", directory_ / "tokens"}, "chmod 0600");
}

}  // namespace
}  // namespace pinstripe
