// RunProgram: another program, run to its end, and what it said.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

struct ProgramOutcome {
  int exit_code = 0;   // 128 + the signal that ended it
  std::string output;  // both of standard output and error, at most 1 MiB
};

// The status of a child that has ended, as waitpid(2) tells it. Null: the time was over before.
std::optional<int> WaitForChild(Runtime& runtime, pid_t child, Duration patience);

// `command`: the program first, which PATH finds. ENOENT and the like: it cannot be run.
// ETIMEDOUT: it took too long, and was killed.
Result<ProgramOutcome> RunProgram(Runtime& runtime, const std::vector<std::string>& command,
                                  Duration patience);

}  // namespace pinstripe
