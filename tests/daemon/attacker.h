// Attacker: somebody between clients and a device who has no key. It hears every frame, whole, and
// decides what becomes of it; it can say anything to either side, and what it has heard on another
// connection, too.
//
//   Attacker attacker(port, {.from_client = [](Attacker::Link& link, const Attacker::Heard& heard)
//   {
//                              if (!heard.Is(kinetic::Header::PUT)) link.ToDevice(heard.frame());
//                            }});
//
// What is not set is passed on. Only one frame is handled at a time, so that what a test notes
// needs no lock of its own; whoever looks at it from elsewhere holds Hold().

#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "kinetic/io_loop.h"
#include "kinetic/kinetic.pb.h"

namespace pinstripe {

class Attacker {
 public:
  struct Heard {
    std::string message;
    std::string value;
    kinetic::Command command;

    std::string frame() const { return FrameWith(value); }
    std::string FrameWith(std::string_view other_value) const;
    bool Is(kinetic::Header::MessageType type) const {
      return command.header().has_messagetype() && command.header().messagetype() == type;
    }
    const std::string& key() const { return command.body().keyvalue().key(); }
  };

  // A client's connection, and the one to the device that was made for it.
  class Link {
   public:
    int number() const { return number_; }  // 0, 1, ...
    void ToClient(std::string_view bytes);
    void ToDevice(std::string_view bytes);

   private:
    friend class Attacker;
    int number_ = 0;
    FileDescriptor client_;
    FileDescriptor device_;
    std::thread thread_;
  };

  using Handle = std::function<void(Link&, const Heard&)>;
  struct Ways {
    Handle from_client;
    Handle from_device;
  };

  Attacker(uint16_t device_port, Ways ways);
  ~Attacker();

  const std::string& address() const { return address_; }  // "127.0.0.1:port"

  // No frame is handled while this is held.
  std::unique_lock<std::mutex> Hold() { return std::unique_lock(mutex_); }

  // Ends all connections that there are; clients may make others.
  void Cut();

  // What is in a frame; none when it is not whole.
  static bool Parse(std::string_view frame, Heard* heard);

 private:
  void Accept();
  void Carry(Link& link);
  bool Hear(int socket, Link& link, bool from_client);

  const uint16_t device_port_;
  const Ways ways_;
  FileDescriptor listener_;
  std::string address_;
  std::mutex mutex_;  // held while a frame is handled
  std::mutex links_mutex_;
  std::list<Link> links_;  // guarded by links_mutex_
  std::thread thread_;
};

}  // namespace pinstripe
