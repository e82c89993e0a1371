// Starting the programs that tests need: servers of other projects, and what asks them.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace pinstripe {

// Starts a program of the path, or fails the test: -1. What it prints goes to `output`, or nowhere
// if that is negative and no file `complaints` is named. What it complains about is added to that
// file; without one it goes where the rest goes. The caller waits for its end.
pid_t SpawnProgram(const std::vector<std::string>& words, int output,
                   const std::string& complaints = "");

}  // namespace pinstripe
