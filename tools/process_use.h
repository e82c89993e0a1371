// ProcessUse: what a process of this machine has used so far, from /proc. For measuring: the
// difference of two of them is what something has cost.
//
// Linux only.

#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pinstripe {

struct ProcessUse {
  double cpu_seconds = 0;      // user and system time
  uint64_t written_bytes = 0;  // to the disk, or on their way there

  bool operator==(const ProcessUse&) const = default;
  ProcessUse operator-(const ProcessUse& before) const {
    return {cpu_seconds - before.cpu_seconds, written_bytes - before.written_bytes};
  }
};

// None when it does not run, or may not be looked at.
std::optional<ProcessUse> UseOf(pid_t pid);

// CPU seconds of this process, more finely than /proc tells.
double OwnCpuSeconds();

// The bytes that the TCP connections of this process have carried so far, headers of TCP excluded.
// One that was closed does not count any more.
struct SocketBytes {
  uint64_t sent = 0;
  uint64_t received = 0;

  SocketBytes operator-(const SocketBytes& before) const {
    return {sent - std::min(sent, before.sent), received - std::min(received, before.received)};
  }
};
SocketBytes OwnSocketBytes();

// The process that listens on a TCP port of this machine, if we may know.
std::optional<pid_t> ListenerOn(uint16_t port);

// Who serves a drive's address, HOST:PORT, if that is on this machine and we may know.
std::optional<pid_t> DaemonAt(std::string_view address);

}  // namespace pinstripe
