// What this process is called: drives that it connects to can tell who uses them, and its metrics
// say what serves them.

#pragma once

#include <cstdint>
#include <string>

namespace pinstripe {

struct ProgramName {
  std::string name;     // "pinstripe-fuse"; empty: it was not said
  std::string version;  // "0.2.0"
  std::string detail;   // what it is at: a mount point, the instance of a gateway
};

// Said once, before anything connects.
void SetProgram(ProgramName name);

ProgramName ThisProgram();

// Raises the limit of descriptors as far as this process may: connections to many drives, segments
// and index files are many. How many there may be now.
uint64_t RaiseDescriptorLimit();

// The name of this machine.
std::string HostName();

}  // namespace pinstripe
