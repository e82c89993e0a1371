#include "tests/support/postgres_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/free_ports.h"
#include "tests/support/spawn.h"

namespace pinstripe {
namespace {

// Another version's may be tried (tests/interop/40-newer-stores.sh).
std::string Program(const std::string& name) {
  const char* const programs = std::getenv("POSTGRES_PROGRAMS");
  return fmt::format("{}/{}", programs != nullptr ? programs : "/usr/lib/postgresql/15/bin", name);
}

// The programs of a server refuse to run as root.
std::vector<std::string> AsServer(std::vector<std::string> words) {
  words[0] = Program(words[0]);
  if (geteuid() != 0) return words;
  words.insert(words.begin(),
               {"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"});
  return words;
}

void Own(const std::string& path) {
  if (geteuid() != 0) return;
  const passwd* const user = getpwnam("postgres");
  ASSERT_NE(user, nullptr);
  ASSERT_EQ(chown(path.c_str(), user->pw_uid, user->pw_gid), 0);
}

void RunToEnd(const std::vector<std::string>& words) {
  const pid_t process = SpawnProgram(words, -1, "/dev/null");
  ASSERT_GT(process, 0);
  int status = 0;
  waitpid(process, &status, 0);
  ASSERT_EQ(status, 0) << fmt::format("{}", fmt::join(words, " "));
}

// Ends with the test, also when that is killed.
pid_t StartServer(const std::string& data, const std::string& log) {
  std::vector<std::string> words = AsServer({"postgres", "-D", data});
  if (words[0] != "setpriv") words.insert(words.begin(), {"setpriv", "--"});
  words.insert(words.begin() + 1, {"--pdeathsig", "KILL"});
  return SpawnProgram(words, -1, log);
}

std::string Psql(uint16_t port, const std::string& database, const std::string& sql) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  const pid_t process =
      SpawnProgram({Program("psql"), "-XAtq", "-h", "127.0.0.1", "-p", std::to_string(port), "-U",
                    "postgres", "-d", database, "-c", sql},
                   ends[1], "/dev/null");
  close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  if (process >= 0) waitpid(process, nullptr, 0);
  return output;
}

// Waits until it answers; false: it ended.
bool Answers(pid_t process, uint16_t port) {
  const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (std::chrono::steady_clock::now() < most) {
    if (Psql(port, "postgres", "SELECT 1") == "1\n") return true;
    if (process < 0 || waitpid(process, nullptr, WNOHANG) != 0) return false;
  }
  return false;
}

constexpr const char* kSettings = R"(
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
max_connections = 60
wal_level = replica
max_wal_senders = 4
hot_standby = on
wal_receiver_timeout = 5s
wal_retrieve_retry_interval = 100ms
fsync = on
autovacuum_naptime = 10s
log_min_messages = warning
)";
constexpr const char* kAccess = R"(
host all secret 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 trust
host all all samenet trust
)";

// What initdb makes takes long, and is copied from then on.
const std::string& TemplateData() {
  static const TemporaryDirectory place;
  static const std::string data = place / "data";
  static const bool made = [] {
    Own(place.path());
    RunToEnd(AsServer({"initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "-E",
                       "UTF8", "--locale=C"}));
    const uint16_t port = FreePorts(1)[0];
    std::ofstream(data + "/postgresql.conf", std::ios::app) << kSettings;
    std::ofstream(data + "/pg_hba.conf") << kAccess;
    std::ofstream(data + "/postgresql.auto.conf", std::ios::app)
        << fmt::format("port = {}\n", port);
    const pid_t process = StartServer(data, place / "log");
    EXPECT_TRUE(Answers(process, port)) << "a fresh server does not start";
    Psql(port, "postgres", "CREATE ROLE pin LOGIN");
    Psql(port, "postgres", "CREATE ROLE secret LOGIN PASSWORD 'secret'");
    Psql(port, "postgres", "CREATE DATABASE names OWNER pin");
    kill(process, SIGINT);
    waitpid(process, nullptr, 0);
    return true;
  }();
  EXPECT_TRUE(made);
  return data;
}

}  // namespace

PostgresServer::PostgresServer(const Settings& settings)
    : data_(directory_ / "data"), port_(FreePorts(1)[0]) {
  Own(directory_.path());
  RunToEnd({"cp", "-a", TemplateData(), data_});
  WriteSettings(settings);
  Start();
}

PostgresServer::PostgresServer(const PostgresServer& primary, const std::string& name)
    : data_(directory_ / "data"), port_(FreePorts(1)[0]) {
  Own(directory_.path());
  RunToEnd(
      AsServer({"pg_basebackup", "-D", data_, "-R", "-c", "fast", "--no-sync", "-X", "stream", "-d",
                fmt::format("host=127.0.0.1 port={} user=postgres application_name={}",
                            primary.port(), name)}));
  WriteSettings({});
  Start();
}

// What a server that was killed leaves behind in this machine's memory.
PostgresServer::~PostgresServer() {
  Kill();
  std::ifstream file(data_ + "/postmaster.pid");
  std::string line;
  for (int i = 0; i < 7; ++i) std::getline(file, line);
  int key = 0;
  int id = 0;
  if (file && std::sscanf(line.c_str(), "%d %d", &key, &id) == 2) shmctl(id, IPC_RMID, nullptr);
}

std::string PostgresServer::connection(const std::string& user) const {
  return fmt::format("host=127.0.0.1 port={} dbname=names user={}", port_, user);
}

// Later lines count.
void PostgresServer::WriteSettings(const Settings& settings) {
  std::ofstream file(data_ + "/postgresql.auto.conf", std::ios::app);
  file << fmt::format("port = {}\n", port_);
  for (const auto& [name, value] : settings) file << fmt::format("{} = '{}'\n", name, value);
}

void PostgresServer::Start() {
  process_ = StartServer(data_, directory_ / "log");
  if (Answers(process_, port_)) return;
  std::ifstream log(directory_ / "log");
  ADD_FAILURE() << "PostgreSQL does not answer: "
                << std::string(std::istreambuf_iterator<char>(log), {});
}

// It and its children, which are in sessions of their own.
std::vector<pid_t> PostgresServer::Processes() const {
  std::vector<pid_t> all = {process_};
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    const size_t end = text.rfind(')');
    if (end == text.npos || end + 4 >= text.size()) continue;
    if (std::atoi(text.c_str() + end + 4) == process_) all.push_back(std::atoi(text.c_str()));
  }
  return all;
}

void PostgresServer::Kill() {
  if (process_ < 0) return;
  kill(process_, SIGSTOP);  // it starts no more of them
  const std::vector<pid_t> all = Processes();
  for (const pid_t each : all) kill(each, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
  // Its shared memory is free when they are gone; whoever has to reap them may take his time.
  for (size_t i = 1; i < all.size(); ++i) {
    for (;;) {
      std::ifstream file(fmt::format("/proc/{}/stat", all[i]));
      std::string text;
      if (!std::getline(file, text) || text.find(") Z ") != text.npos) break;
      std::this_thread::yield();
    }
  }
}

void PostgresServer::Stop() {
  if (process_ < 0) return;
  kill(process_, SIGINT);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

void PostgresServer::Promote() {
  RunToEnd(AsServer({"pg_ctl", "promote", "-D", data_}));
  while (Run("SELECT pg_is_in_recovery()", "postgres") != "f\n") std::this_thread::yield();
}

void PostgresServer::Pause() {
  for (const pid_t each : Processes()) kill(each, SIGSTOP);
}

void PostgresServer::Resume() {
  for (const pid_t each : Processes()) kill(each, SIGCONT);
}

void PostgresServer::Set(const std::string& name, const std::string& value) {
  Run(fmt::format("ALTER SYSTEM SET {} = '{}'", name, value), "postgres");
  Run("SELECT pg_reload_conf()", "postgres");
  while (Run(fmt::format("SHOW {}", name), "postgres") != value + "\n") std::this_thread::yield();
}

std::string PostgresServer::Run(const std::string& sql, const std::string& database) const {
  return Psql(port_, database, sql);
}

}  // namespace pinstripe
