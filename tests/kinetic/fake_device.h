// FakeDevice: a Kinetic device on a real loopback socket that follows a script, right or wrong. For
// each connection the script runs from its beginning, on a thread of its own, in plain blocking
// code:
//
//   FakeDevice device([](FakeDevice::Session& session) {
//     session.Handshake();
//     const auto get = session.Next();
//     session.Answer(get, kinetic::Status::NOT_FOUND);
//     session.WaitForEnd();
//   });
//
// When the script ends the connection is closed. When the client closes it first, or the device is
// destroyed, whatever the script waits for ends it.

#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "kinetic/hmac.h"
#include "kinetic/io_loop.h"
#include "kinetic/kinetic.pb.h"

namespace pinstripe {

class FakeDevice {
 public:
  static constexpr std::string_view kKey = "asdfasdf";
  static constexpr int64_t kIdentity = 1;
  static constexpr int64_t kConnectionId = 1000;

  struct Request {
    kinetic::Command command;
    std::string value;
    std::string frame;  // all its bytes
    bool authentic = false;
  };

  class Session {
   public:
    Session(int socket, int number) : socket_(socket), number_(number) {}

    int number() const { return number_; }  // of the connection: 0, 1, ...

    // The greeting; `limits` none means that the device does not say.
    void Greet(const kinetic::GetLog::Limits& limits = {});

    // The greeting and the answer about capabilities: with, or without range_get and
    // rooms.
    void Handshake(bool range_get = false, const kinetic::GetLog::Limits& limits = {});

    Request Next();
    bool NextWithin(int milliseconds, Request* request);

    // An answer with this status, or a good one whose body `fill` writes.
    void Answer(const Request& request, kinetic::Status::Code code);
    void Answer(const Request& request, const std::function<void(kinetic::Body*)>& fill = nullptr,
                std::string_view value = {});
    // The entry as a good GET answers it.
    void AnswerEntry(const Request& request, std::string_view version, std::string_view value);

    // The frame of a good answer, for the script to spoil.
    static std::string AnswerFrame(const Request& request, std::string_view value = {},
                                   std::string_view key = kKey);
    void Send(std::string_view bytes);

    void WaitForEnd();

   private:
    std::string Read(size_t size);

    const int socket_;
    const int number_;
  };

  using Script = std::function<void(Session&)>;

  explicit FakeDevice(Script script);
  ~FakeDevice();

  const std::string& address() const { return address_; }  // "127.0.0.1:port"

  // Cuts all connections and waits until the scripts have ended: then the test may look at what
  // they noted.
  void Stop();

 private:
  struct Connection {
    FileDescriptor socket;
    std::thread thread;
  };

  void Accept();

  const Script script_;
  std::string address_;
  FileDescriptor listener_;  // its making sets address_
  std::mutex mutex_;
  std::list<Connection> connections_;  // guarded by mutex_
  std::thread thread_;
};

// An address at which nobody listens.
std::string DeadAddress();

}  // namespace pinstripe
