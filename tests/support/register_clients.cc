#include "tests/support/register_clients.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/real_runtime.h"
#include "cluster/cluster.h"
#include "cluster/connect.h"
#include "kinetic/kinetic_drive.h"

namespace pinstripe {
namespace {

using Kind = RegisterOperation::Kind;
using std::chrono::milliseconds;

constexpr int kRegisters = 3;              // that are used at a time
constexpr uint64_t kTermNs = 500'000'000;  // after which others are

// One clock for all processes of a machine.
uint64_t Nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// What a client process does until it is killed. Only registers of the present term are used: the
// histories stay short enough to be checked.
[[noreturn]] void LiveAsClient(const ClusterConfig& config, const std::string& notes, int number) {
  SetLogLevel(LogLevel::kError);
  RealRuntime runtime;
  KineticIo io(runtime);
  std::ofstream out(notes, std::ios::app);
  std::mt19937_64 random(static_cast<uint64_t>(number));
  auto cluster = Cluster::Open(runtime, config, RealDriveFactory(io, milliseconds(500)));
  if (!cluster.has_value()) _exit(0);  // too few drives just now
  std::map<std::string, RegisterValue> seen;
  for (int step = 0;; ++step) {
    const std::string key = fmt::format("L{}-{}", Nanoseconds() / kTermNs, random() % kRegisters);
    const std::string who = fmt::format("{}.{}", number, step);
    const RegisterName name{0, key};
    const uint64_t called = Nanoseconds();
    if (random() % 3 == 0) {
      const auto read = (*cluster)->registers().Read(name);
      if (!read.has_value()) continue;
      seen[key] = *read;
      out << fmt::format("read {} {} {} {} {} {}\n", key, who, called, Nanoseconds(), read->slot,
                         read->value.value_or("-"))
          << std::flush;
      continue;
    }
    const bool removes = random() % 6 == 0;
    const RegisterValue before = seen[key];
    out << fmt::format("begin {} {} {} {} {}\n", key, who, called, before.slot, removes ? "-" : who)
        << std::flush;
    const auto outcome = (*cluster)->registers().Change(
        name, before, removes ? std::nullopt : std::optional(who),
        random() % 4 == 0 ? Durability::kWriteThrough : Durability::kWriteBack);
    if (!outcome.why.ok()) continue;  // it did not happen, or nobody knows
    seen[key] = outcome.now;
    out << fmt::format("{} {} {} {} {} {}\n", outcome.applied() ? "applied" : "refused", key, who,
                       Nanoseconds(), outcome.now.slot, outcome.now.value.value_or("-"))
        << std::flush;
  }
}

}  // namespace

void EndProcess(pid_t pid) {
  if (pid <= 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

RegisterClients::RegisterClients(ClusterConfig config, size_t count,
                                 std::function<void(size_t)> begin)
    : config_(std::move(config)), begin_(std::move(begin)), processes_(count) {}

void RegisterClients::Start(size_t client) {
  const int number = ++last_;
  const std::string notes = directory_ / fmt::format("notes-{}", number);
  processes_[client] = fork();
  if (processes_[client] != 0) return;
  if (begin_) begin_(client);
  LiveAsClient(config_, notes, number);
}

void RegisterClients::Restart(size_t client) {
  EndProcess(std::exchange(processes_[client], 0));
  Start(client);
}

void RegisterClients::StartThoseThatEnded() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (waitpid(processes_[i], nullptr, WNOHANG) == processes_[i]) Start(i);
  }
}

void RegisterClients::KillAll() {
  for (pid_t& process : processes_) EndProcess(std::exchange(process, 0));
}

// In a process of its own, for its threads.
void RegisterClients::Format() {
  const pid_t pid = fork();
  if (pid == 0) {
    RealRuntime runtime;
    KineticIo io(runtime);
    ClusterConfig patient = config_;
    patient.drive_timeout = std::chrono::seconds(20);
    const Status status = Cluster::Format(
        runtime, patient, RealDriveFactory(io, milliseconds(5000)), {.force = true});
    if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::fflush(stderr);
    _exit(status.ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  ASSERT_EQ(status, 0);
}

size_t RegisterClients::CountAnswers() const {
  size_t answers = 0;
  for (int client = 1; client <= last_; ++client) {
    std::ifstream in(directory_ / fmt::format("notes-{}", client));
    for (std::string line; std::getline(in, line);) answers += line.starts_with("begin") ? 0 : 1;
  }
  return answers;
}

RegisterClients::Histories RegisterClients::Read() const {
  Histories histories;
  for (int client = 1; client <= last_; ++client) {
    std::ifstream in(directory_ / fmt::format("notes-{}", client));
    std::map<std::string, size_t> begun;  // who: where it is
    for (std::string line; std::getline(in, line) && !in.eof();) {
      std::istringstream words(line);
      std::string kind, key, who, value;
      uint64_t slot = 0;
      words >> kind >> key >> who;
      std::vector<RegisterOperation>& history = histories[key];
      const auto parse = [&] { words >> slot >> value; };
      const auto content = [&] {
        return value == "-" ? std::nullopt : std::optional<std::string>(value);
      };
      if (kind == "read") {
        RegisterOperation operation{.kind = Kind::kRead, .who = who};
        words >> operation.called >> operation.returned;
        parse();
        operation.result = {slot, content()};
        history.push_back(operation);
      } else if (kind == "begin") {
        RegisterOperation operation{.kind = Kind::kUnknown, .who = who};
        words >> operation.called;
        parse();
        operation.seen_slot = slot;
        operation.value = content();
        begun[who] = history.size();
        history.push_back(operation);
      } else {
        RegisterOperation& operation = history[begun.at(who)];
        operation.kind = kind == "applied" ? Kind::kApplied : Kind::kRefused;
        words >> operation.returned;
        parse();
        operation.result = {slot, content()};
      }
    }
  }
  return histories;
}

void RegisterClients::ExpectLinearizable(const std::string& words) const {
  Histories histories = Read();
  size_t certain = 0;
  size_t uncertain = 0;
  for (const auto& [key, history] : histories) {
    for (const RegisterOperation& operation : history) {
      ++(operation.kind == Kind::kUnknown ? uncertain : certain);
    }
    const std::string why = WhyNotLinearizable(history);
    ASSERT_EQ(why, "") << key;
  }
  std::printf("%zu operations, %zu uncertain, on %zu registers; %s\n", certain, uncertain,
              histories.size(), words.c_str());
  EXPECT_GT(certain, kEnoughAnswers) << "nothing was tested";

  // A test of the test: a change that replaced what was never there is found.
  for (auto& [key, history] : histories) {
    for (RegisterOperation& operation : history) {
      if (operation.kind != Kind::kApplied) continue;
      operation.seen_slot += 1000;
      EXPECT_NE(WhyNotLinearizable(history), "");
      return;
    }
  }
  FAIL() << "nothing was ever changed";
}

}  // namespace pinstripe
