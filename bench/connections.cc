// What idle connections of many clients to the drives of one pinstriped take, where each drive has
// one of its own, and where they share one. Prints a JSON object for each figure, on a line, and
// ends with standard input. bench/run-connections.py calls it.
//
//   connections_bench CLIENTS plain|tls own|shared PORT...

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/real_runtime.h"
#include "kinetic/kinetic_drive.h"
#include "kinetic/tls.h"

namespace pinstripe {
namespace {

double Cpu() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double ResidentBytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

void Say(const char* what, double value) {
  fmt::print("{{\"what\": \"{}\", \"value\": {}}}\n", what, value);
  std::fflush(stdout);
}

// Each has its own I/O, as a process has.
struct Client {
  explicit Client(Runtime& runtime) : io(runtime) {}
  KineticIo io;
  std::vector<std::unique_ptr<KineticDrive>> drives;
};

bool AllAreUp(const std::vector<std::unique_ptr<Client>>& clients) {
  for (const auto& client : clients) {
    for (const auto& drive : client->drives) {
      if (!drive->IsUp()) return false;
    }
  }
  return true;
}

int Main(const std::vector<std::string>& words) {
  SetLogLevel(LogLevel::kError);
  RealRuntime runtime;
  KineticDrive::Options way;
  way.key = "asdfasdf";
  way.connect_timeout = std::chrono::seconds(60);
  way.shares_connection = words.at(2) == "shared";
  // As programs do it: each drive's configuration makes its own.
  const auto tls = [&]() -> std::shared_ptr<const TlsClient> {
    return words[1] == "tls" ? *TlsClient::Create("") : nullptr;
  };
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < std::stoi(words[0]); ++i) {
    clients.push_back(std::make_unique<Client>(runtime));
  }
  const double resident = ResidentBytes();
  const double began = Cpu();
  for (const auto& client : clients) {
    for (size_t i = 3; i < words.size(); ++i) {
      way.name = fmt::format("drive {}", i);
      way.addresses = {"127.0.0.1:" + words[i]};
      way.tls = tls();
      client->drives.push_back(std::make_unique<KineticDrive>(client->io, way));
    }
  }
  while (!AllAreUp(clients)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  Say("CPU of the clients", Cpu() - began);
  Say("memory of the clients", ResidentBytes() - resident);
  while (std::getchar() != EOF) {
  }
  return 0;
}

}  // namespace
}  // namespace pinstripe

int main(int count, char** words) {
  if (count < 5) {
    std::fputs("usage: connections_bench CLIENTS plain|tls own|shared PORT...\n", stderr);
    return 2;
  }
  return pinstripe::Main({words + 1, words + count});
}
