// HostNetwork: hosts with a network of their own, whose cables a test pulls and plugs in again.
// They are namespaces of the kernel (namespaces(7)), on two bridges: clients ask servers over the
// front, and servers talk among themselves over the back. What was sent over a pulled cable is lost
// without a word, as between machines.
//
// The thread that makes it, and whatever it starts from then on, is a further host on both bridges
// ("here"), and sees no other network any more. Needs root.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace pinstripe {

class HostNetwork {
 public:
  enum class Side { kFront, kBack };

  static bool IsAllowed();  // to this process

  explicit HostNetwork(size_t hosts);
  ~HostNetwork();  // what still runs on a host is for whoever started it to end
  HostNetwork(const HostNetwork&) = delete;
  HostNetwork& operator=(const HostNetwork&) = delete;

  std::string address(size_t host, Side side) const;
  std::string address_here(Side side) const { return address(kHere, side); }

  // What comes before a program's words, so that it runs on this host.
  std::vector<std::string> On(size_t host) const;
  // The calling process, which has one thread, moves there.
  void MoveTo(size_t host) const;

  void Pull(size_t host, Side side);
  void Plug(size_t host, Side side);

 private:
  static constexpr size_t kHere = 253;

  std::vector<pid_t> hosts_;  // processes that keep the namespaces
};

}  // namespace pinstripe
