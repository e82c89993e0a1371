#include "base/program.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/mutex.h"

namespace pinstripe {
namespace {

struct Said {
  Mutex mutex;
  ProgramName name GUARDED_BY(mutex);
};

// Lives as long as the process: others' threads may ask while it ends.
Said& TheSaid() {
  static Said* const said = new Said;
  return *said;
}

}  // namespace

void SetProgram(ProgramName name) {
  Said& said = TheSaid();
  const MutexLock lock(said.mutex);
  said.name = std::move(name);
}

ProgramName ThisProgram() {
  Said& said = TheSaid();
  const MutexLock lock(said.mutex);
  return said.name;
}

uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  rlimit raised = limit;
  raised.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

}  // namespace pinstripe
