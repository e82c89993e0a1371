// SharedConnections: has the drives that one process serves share one connection to it, where that
// process can do so (trunk.h).
//
// A greeting tells which ports share. So whoever connects to a host first asks for all others that
// want to connect to it meanwhile; they wait for its answer, for a moment. Where the port of one is
// among those that were told it gets a channel, and else a connection of its own. The first one
// gets its connection itself where nothing is shared there: nothing was sent on it yet.
//
// Channels are shared by what asks for the same name of the same address and believes the same
// authorities, within one loop.
//
// Of one loop's thread.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kinetic/drive_socket.h"
#include "kinetic/io.h"
#include "kinetic/io_loop.h"
#include "kinetic/tls.h"

namespace pinstripe {

class Trunk;

class SharedConnections {
 public:
  // How long others wait for the one that connects to their host.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  struct Wanted {
    SocketAddress address;
    std::string host;  // one of whose addresses that is
    std::shared_ptr<const TlsClient> tls;
    std::string drive;  // for messages
    // Nobody wants it any more when this is gone.
    std::weak_ptr<void> asker;
    // Answered once, never inside the call. The socket may still be connecting.
    std::function<void(Result<DriveSocket>)> done;
  };

  explicit SharedConnections(IoLoop& loop);
  ~SharedConnections();

  void Connect(Wanted wanted);

  size_t CountTrunks() const { return trunks_.size(); }

 private:
  class Attempt;
  struct Shared {
    std::string place;
    std::vector<uint32_t> ports;
    std::shared_ptr<Trunk> trunk;
  };

  static std::string PlaceOf(const Wanted& wanted);
  bool Join(const Wanted& wanted);
  void ConnectAlone(Wanted wanted);
  void Answer(Wanted wanted, Result<DriveSocket> socket);
  void OnGreeting(Attempt& attempt, std::vector<uint32_t> ports);
  void GiveUp(Attempt& attempt, const Status& why);
  void LetGo(Attempt& attempt);
  void Forget(const Trunk* trunk);

  IoLoop& loop_;
  std::vector<std::shared_ptr<Attempt>> attempts_;
  std::vector<Shared> trunks_;
};

}  // namespace pinstripe
