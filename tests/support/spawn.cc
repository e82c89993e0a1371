#include "tests/support/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <unistd.h>

extern char** environ;

namespace pinstripe {

pid_t SpawnProgram(const std::vector<std::string>& words, int output,
                   const std::string& complaints) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (output >= 0) {
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  } else {
    const char* const nowhere = complaints.empty() ? "/dev/null" : complaints.c_str();
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, nowhere,
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
  }
  if (complaints.empty()) {
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, complaints.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
  }
  pid_t process = -1;
  const int error =
      posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0) << "cannot start " << words[0] << ": ./dev setup installs it";
  return error == 0 ? process : -1;
}

}  // namespace pinstripe
