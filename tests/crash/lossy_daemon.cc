// pinstriped on a disk whose power can fail.
//
//   lossy_daemon DIRECTORY SEED [--disk-lies] ARGUMENTS-OF-PINSTRIPED...
//
// All drives that it serves are below DIRECTORY, as on one file system. At SIGUSR1 the power fails:
// what was not synced is lost, as far as SEED has it, and the process ends at once, with SIGKILL.
// DIRECTORY is what the disk has left. Whoever starts it again gives it another
// PINSTRIPE_BOOT_ID, as the machine was down. Killed otherwise it has lost nothing. It ends with
// the thread that has started it.
//
// With --disk-lies syncs keep nothing.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "daemon/main.h"
#include "tests/support/lossy_disk.h"

int main(int argc, char** argv) {
  uint64_t seed = 0;
  const std::string_view number = argc > 2 ? argv[2] : "";
  const auto [end, error] = std::from_chars(number.begin(), number.end(), seed);
  if (number.empty() || error != std::errc() || end != number.end()) {
    std::fprintf(stderr, "usage: lossy_daemon DIRECTORY SEED [--disk-lies] ARGUMENT...\n");
    return 2;
  }
  const bool lies = argc > 3 && std::string_view(argv[3]) == "--disk-lies";
  const int first = lies ? 4 : 3;
  std::vector<char*> arguments = {argv[0]};
  arguments.insert(arguments.end(), argv + first, argv + argc + 1);  // with the null at its end

  prctl(PR_SET_PDEATHSIG, SIGKILL);

  sigset_t power;  // blocked in all threads that are made from here on
  sigemptyset(&power);
  sigaddset(&power, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &power, nullptr);

  const std::string directory = argv[1];
  pinstripe::LossyDisk disk(directory, lies);
  std::thread([&] {
    int signal = 0;
    sigwait(&power, &signal);
    disk.FailPower(directory + ".image", seed);
    kill(getpid(), SIGKILL);
  }).detach();
  return pinstripe::DaemonMain(static_cast<int>(arguments.size()) - 1, arguments.data(),
                               {.calls = &disk, .index_env = disk.env()});
}
