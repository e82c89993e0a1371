// TrunkSession: one client's connection to several devices of this process (kinetic/trunk.h). Each
// channel that the client opens to one of them has a Session of its own, with a place among those
// of its device; the trunk has the place of the connection.
//
// Of the connection's loop thread.

#pragma once

#include <functional>
#include <memory>

#include "base/bytes.h"
#include "daemon/places.h"
#include "daemon/shared_by_sessions.h"
#include "kinetic/channel.h"
#include "kinetic/drive_socket.h"
#include "kinetic/io_loop.h"
#include "kinetic/trunk.h"

namespace pinstripe {

class TrunkSession final : public Connection, public std::enable_shared_from_this<TrunkSession> {
 public:
  // A channel to the device at a port was opened, for a connection that has this place; one that is
  // let go of is refused.
  using Opened = std::function<void(std::shared_ptr<Channel> channel, uint32_t port,
                                    const std::shared_ptr<Places::Place>& carrier)>;

  struct Limits {
    Duration patience{};       // for so long it may have no channel
    size_t most_channels = 1;  // at a time
  };

  // `received`: what has come already. `closed` is called once.
  TrunkSession(IoLoop& loop, DriveSocket socket, std::unique_ptr<Places::Place> place,
               Buffer received, Limits limits, Opened opened,
               std::function<void(std::shared_ptr<Connection>)> closed);
  ~TrunkSession() override;

  void Start() override;
  void Close() override;  // and its channels

  // The trunk hears of its socket itself.
  void OnReady(uint32_t) override {}

 private:
  void WaitForChannel();
  void CloseIfEmpty();

  IoLoop& loop_;
  DriveSocket socket_;  // until Start()
  const std::shared_ptr<Places::Place> place_;
  Buffer received_;
  const Limits limits_;
  const Opened opened_;
  const std::function<void(std::shared_ptr<Connection>)> closed_;
  IoLoop::Timer timer_;
  std::shared_ptr<Trunk> trunk_;
};

}  // namespace pinstripe
