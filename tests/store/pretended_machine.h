// PretendedMachine: what programs of this process, and stores in it, take for the machine's run.
//
//   PretendedMachine machine("boot 1");
//   ...                             // a store is opened and destroyed
//   machine.Restart("boot 2");      // the power failed; nothing was lost, but a store cannot know

#pragma once

#include <stdlib.h>

#include <string>

namespace pinstripe {

class PretendedMachine {
 public:
  // Empty: one that does not say which run it is.
  explicit PretendedMachine(const std::string& boot_id) { Restart(boot_id); }
  ~PretendedMachine() { unsetenv("PINSTRIPE_BOOT_ID"); }
  PretendedMachine(const PretendedMachine&) = delete;
  PretendedMachine& operator=(const PretendedMachine&) = delete;

  void Restart(const std::string& boot_id) { setenv("PINSTRIPE_BOOT_ID", boot_id.c_str(), 1); }
};

}  // namespace pinstripe
