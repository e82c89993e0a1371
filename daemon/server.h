// Server: the sockets of a drive daemon. One process serves any number of devices, each on its own
// port, with a few threads for all of them: loops that wait for sockets, cut frames and check
// signatures, workers that execute requests and send the answers, and flushers that make durable
// what has to be before it is answered, together what came together. What costs less to answer than
// to hand over (gets of small values that are in memory, a few small puts that come alone) the
// loops execute themselves; many puts that one read has brought are handed over, executed and
// answered together. Operations that take long (scans, pushes to peers) have threads of their own,
// and hold up nobody else.
//
// A connection has a bounded number of requests and bytes under way; beyond, its socket is not
// read, so that its peer feels back-pressure and nobody else does. All connections together have
// one budget (value_budget.h): a large frame is received when there is room for it. A connection
// that holds room and stands still, with half a frame or answers that it does not take, is closed
// after a time. Values are read from the store as fast as the peer takes them, and no faster. Bytes
// that are not Kinetic end the connection, and only that one; so does a request that was made for
// another connection. Requests of one connection may be answered in any order.
//
// A connection that has not yet sent a request with a right signature costs little: at most the one
// frame that it is sending, for a limited time, and a few refusals. When there are as many
// connections as there may be, the next one takes the place of one of those (places.h). Where
// descriptors are short all the same, who connects is sent away, or waits; nothing else does.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "daemon/kinetic_service.h"
#include "daemon/places.h"
#include "kinetic/tls.h"

namespace pinstripe {

class Server {
 public:
  struct Options {
    int loops = 1;
    int workers = 4;   // and as many for Redis clients
    int flushers = 4;  // threads that make things durable
    int scanners =
        2;  // threads for scans and compactions, and as many for listings of Redis clients
    int pushers = 8;  // threads that wait for peers
    // How long a peer may take until TLS is agreed on.
    Duration handshake_timeout = std::chrono::seconds(10);
    // How long a frame may take from its first byte to its last, and, where room is short, how long
    // answers may lie without one byte of them being taken.
    Duration frame_timeout = std::chrono::seconds(60);
    // Of all values under way, beyond which larger frames wait for their turn, and each connection
    // has one request answered after the other.
    uint64_t value_bytes = uint64_t{1} << 30;
    // How many connections there may be.
    Places::Limits places;
    // How long nobody is accepted when that fails for want of descriptors or memory.
    Duration accept_pause = std::chrono::milliseconds(100);
    // A put that a loop makes itself and that takes longer had to wait after all: for a while
    // workers make all of them.
    Duration long_put = std::chrono::milliseconds(5);
  };

  Server(Runtime& runtime, Options options);

  // Stops listening, lets the requests that were read finish, and closes all connections.
  ~Server();

  // Starts serving `service`, which outlives the server, at `host` (an address) and `port` (0: any
  // free one). The answer is the port. EADDRINUSE and the like say what to do. With `tls` the port
  // speaks TLS and nothing else. A device can have several ports; its connections are counted
  // together.
  Result<uint16_t> Listen(const std::string& host, uint16_t port, KineticService& service,
                          std::shared_ptr<const TlsServer> tls = nullptr);

  // Serves it to clients of the Redis protocol as well, in the same way (resp_device.h).
  // `write_through`: their changes are answered when they are safe from power loss.
  struct Resp {
    bool write_through = false;
  };
  Result<uint16_t> ListenResp(const std::string& host, uint16_t port, KineticService& service,
                              Resp how, std::shared_ptr<const TlsServer> tls = nullptr);

  // What all connections have under way now.
  struct Load {
    uint64_t value_bytes = 0;
    uint64_t most_value_bytes = 0;
    size_t waiting = 0;  // large frames whose receipt waits for room
    size_t connections = 0;
    size_t most_connections = 0;
  };
  Load CountLoad();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pinstripe
