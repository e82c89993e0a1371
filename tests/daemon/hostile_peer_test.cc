// Peers that mean no good, or are broken: they hold little memory, for a limited time, and others
// are served.

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/real_runtime.h"
#include "daemon/server.h"
#include "kinetic/kinetic.pb.h"
#include "store/memory_store.h"
#include "tests/daemon/wire_client.h"
#include "tests/support/resident_bytes.h"
#include "tests/support/sanitized.h"

namespace pinstripe {
namespace {

using kinetic::Header;
using Client = WireClient;
using namespace std::chrono_literals;

class HostilePeers : public testing::Test {
 protected:
  void Start(const Server::Options& options) {
    server_.emplace(runtime_, options);
    port_ = *server_->Listen("127.0.0.1", 0, service_);
  }

  // Somebody who can sign.
  Client Friend() {
    Client client(port_);
    client.ReceiveFrame();
    ExpectServed(client);
    return client;
  }
  static void ExpectServed(Client& client) {
    ASSERT_TRUE(client.Request(Header::NOOP));
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  }

  static std::string Announce(uint32_t message_bytes, uint32_t value_bytes) {
    return std::string(AsText(EncodeFrameHeader({message_bytes, value_bytes})));
  }

  RealRuntime runtime_;
  Engine engine_{std::make_unique<MemoryStore>()};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
  std::optional<Server> server_;
  uint16_t port_ = 0;
};

TEST_F(HostilePeers, AFrameThatIsNotCompletedInTimeEndsItsConnection) {
  Start({.frame_timeout = 200ms});
  Client idle = Friend();
  for (const std::string& part :
       {std::string("F"), Announce(100, 0), Announce(100, 0) + "half of it",
        // The message is whole, the value is not.
        SignedFrame({}, 1, HmacKey("asdfasdf"), 1000) + std::string(999, 'v')}) {
    Client client(port_);
    client.ReceiveFrame();
    const Time begin = runtime_.Now();
    ASSERT_TRUE(client.Send(part));
    EXPECT_TRUE(client.SeesTheEnd());
    EXPECT_GE(runtime_.Now() - begin, 150ms);
  }
  ExpectServed(idle);  // silence between frames is nobody's fault
}

// Who knows the key is no exception: a request after others.
TEST_F(HostilePeers, ALaterFrameHasNoMoreTimeThanTheFirst) {
  Start({.frame_timeout = 200ms});
  Client client = Friend();
  ExpectServed(client);
  ASSERT_TRUE(client.Send(Announce(100, 0)));
  EXPECT_TRUE(client.SeesTheEnd());
}

TEST_F(HostilePeers, AByteNowAndThenDoesNotKeepAFrameAlive) {
  Start({.frame_timeout = 200ms});
  Client client(port_);
  client.ReceiveFrame();
  ASSERT_TRUE(client.Send(Announce(1 << 20, 0)));
  const Time begin = runtime_.Now();
  const auto never = runtime_.NewSignal();
  while (client.Send("x") && runtime_.Now() < begin + 10s) {
    never->WaitUntil(runtime_.Now() + 5ms);
  }
  EXPECT_LT(runtime_.Now() - begin, 10s);
}

TEST_F(HostilePeers, StrangersGiveWayWhenAllConnectionsAreTaken) {
  ASSERT_TRUE(CanHaveConnections(kUsualConnections));
  Start({});
  Client known = Friend();
  std::vector<Client> strangers;
  for (uint32_t i = 1; i < kUsualConnections; ++i) {
    strangers.emplace_back(port_);
    strangers.back().ReceiveFrame();
  }
  Client next = Friend();
  EXPECT_TRUE(strangers[0].SeesTheEnd()) << "the oldest";
  ExpectServed(strangers[1]);  // and has shown who it is
  Client another = Friend();
  EXPECT_TRUE(strangers[2].SeesTheEnd());
  for (Client* client : {&known, &next, &another, &strangers[1]}) ExpectServed(*client);
}

TEST_F(HostilePeers, NobodyWhoIsKnownGivesWay) {
  ASSERT_TRUE(CanHaveConnections(kUsualConnections));
  Start({});
  std::vector<Client> clients;
  for (uint32_t i = 0; i < kUsualConnections; ++i) clients.push_back(Friend());
  Client one_too_many(port_);
  EXPECT_EQ(one_too_many.ReceiveAnswer().code(), kinetic::Status::SERVICE_BUSY);
  for (Client& client : clients) ExpectServed(client);
}

// The socket on which they wait stays ready, so a server that only tried again would do nothing
// else.
TEST_F(HostilePeers, WithoutDescriptorsWhoConnectsIsSentAwayAndLaterServed) {
  Start({.accept_pause = 1ms});
  Client known = Friend();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{std::min<rlim_t>(512, limit.rlim_max), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<FileDescriptor> others;
  const auto take_all = [&others] {
    for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) others.emplace_back(fd);
  };
  take_all();
  for (int i = 0; i < 2; ++i) {
    others.pop_back();
    {
      Client one_too_many(port_);
      EXPECT_TRUE(one_too_many.SeesTheEnd());
    }
    ExpectServed(known);
    take_all();
  }
  others.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Friend();
}

TEST_F(HostilePeers, StrangersHaveABoundOfTheirOwn) {
  Start({.places = {.strangers = 2}});
  Client known = Friend();
  Client first(port_);
  first.ReceiveFrame();
  Client second(port_);
  second.ReceiveFrame();
  Client third(port_);
  third.ReceiveFrame();
  EXPECT_TRUE(first.SeesTheEnd());
  for (Client* client : {&known, &second, &third}) ExpectServed(*client);
}

TEST_F(HostilePeers, WhatIsAnnouncedIsNotYetHeld) {
  constexpr size_t kPeers = 900;
  ASSERT_TRUE(CanHaveConnections(kPeers));
  Start({});
  Client known = Friend();
  const size_t before = ResidentBytes();
  std::vector<Client> peers;
  for (size_t i = 0; i < kPeers; ++i) {
    peers.emplace_back(port_);
    peers.back().ReceiveFrame();
    ASSERT_TRUE(peers.back().Send(Announce(kMaxMessageBytes, kMaxValueBytes) + "and little more"));
  }
  ExpectServed(known);
  Friend();
  EXPECT_LT(ResidentBytes(), before + (size_t{200} << 20)) << "2 MiB were announced by each";
}

// --- Values under way ---------------------------------------------------------------------------

// One who sends as much as is taken, and does not wait.
class Pusher : public Client {
 public:
  Pusher(uint16_t port, std::string bytes) : Client(port), bytes_(std::move(bytes)) {
    ReceiveFrame();
  }
  void SignFirst() { ExpectServed(*this); }
  // Whether anything was taken.
  bool Push() {
    const ssize_t sent =
        send(socket(), bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) sent_ += static_cast<size_t>(sent);
    return sent > 0;
  }
  bool is_all_sent() const { return sent_ == bytes_.size(); }

 private:
  static void ExpectServed(Client& client) {
    ASSERT_TRUE(client.Request(Header::NOOP));
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  }
  const std::string bytes_;
  size_t sent_ = 0;
};

class ValuesUnderWay : public HostilePeers {
 protected:
  static constexpr size_t kValue = 1 << 20;

  // A put whose last byte is missing.
  static std::string MostOfAPut() {
    kinetic::Command command;
    command.mutable_header()->set_messagetype(Header::PUT);
    command.mutable_header()->set_sequence(2);
    command.mutable_body()->mutable_keyvalue()->set_key("half");
    return SignedFrame(command, 1, HmacKey("asdfasdf"), kValue) + std::string(kValue - 1, 'v');
  }
  // Until nobody has got rid of anything for a while.
  void PushAll(std::vector<Pusher>& pushers) {
    for (Time last = runtime_.Now(); runtime_.Now() < last + 300ms;) {
      for (Pusher& each : pushers) {
        if (each.Push()) last = runtime_.Now();
      }
    }
  }
  static void ExpectPut(Client& client) {
    ASSERT_TRUE(client.Request(
        Header::PUT, [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("key"); },
        std::string(kValue, 'v')));
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  }
};

TEST_F(ValuesUnderWay, AreBoundedOverAllConnections) {
  constexpr size_t kPeers = 200;
  ASSERT_TRUE(CanHaveConnections(kPeers));
  Start({.value_bytes = 16 << 20});
  std::vector<Pusher> pushers;
  for (size_t i = 0; i < kPeers; ++i) {
    pushers.emplace_back(port_, MostOfAPut());
    pushers.back().SignFirst();
  }
  const size_t before = ResidentBytes();
  PushAll(pushers);
  EXPECT_LT(ResidentBytes(), before + (size_t{kSanitized ? 140 : 70} << 20));
}

TEST_F(ValuesUnderWay, ThoseOfStrangersHoldUpNobodyWhoSigns) {
  constexpr size_t kPeers = 50;
  Start({.value_bytes = 8 << 20});
  std::vector<Pusher> strangers;
  for (size_t i = 0; i < kPeers; ++i) strangers.emplace_back(port_, MostOfAPut());
  PushAll(strangers);
  Client known = Friend();
  ExpectPut(known);
}

TEST_F(ValuesUnderWay, WhoStallsDoesNotHoldRoomForEver) {
  Start({.frame_timeout = 300ms, .value_bytes = kValue});
  std::vector<Pusher> pushers;
  for (int i = 0; i < 3; ++i) {
    pushers.emplace_back(port_, MostOfAPut());
    pushers.back().SignFirst();
  }
  PushAll(pushers);
  Client known = Friend();
  ExpectPut(known);
}

// While a frame waits for room nobody reads it, so its time begins when it has that.
TEST_F(ValuesUnderWay, WhoWaitedForRoomHasAsMuchTimeAsOthers) {
  constexpr Duration kTimeout = 1s;
  Start({.frame_timeout = kTimeout, .value_bytes = kValue});
  Pusher stalled(port_, MostOfAPut());
  stalled.SignFirst();
  for (const Time begun = runtime_.Now(); runtime_.Now() < begun + 3 * kTimeout / 10;) {
    stalled.Push();
  }
  Pusher known(port_, MostOfAPut());
  known.SignFirst();
  const Time begun = runtime_.Now();
  known.Push();
  EXPECT_TRUE(stalled.SeesTheEnd());
  while (runtime_.Now() < begun + 11 * kTimeout / 10) std::this_thread::yield();
  while (!known.is_all_sent()) known.Push();
  ASSERT_TRUE(known.Send("v"));
  EXPECT_EQ(known.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(ValuesUnderWay, WhoDoesNotTakeAnswersDoesNotHoldRoomForEver) {
  Start({.frame_timeout = 300ms, .value_bytes = kValue});
  Client writer = Friend();
  ExpectPut(writer);
  Client silent = Friend();
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(silent.Request(
        Header::GET, [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("key"); }));
  }
  for (int i = 0; i < 3; ++i) ExpectPut(writer);
  ExpectServed(writer);
}

TEST_F(ValuesUnderWay, AreMoreThanTheBudgetOnlyOneAtATime) {
  Start({.value_bytes = 1000});
  std::vector<Client> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(Friend());
  for (int round = 0; round < 3; ++round) {
    for (Client& client : clients) {
      ASSERT_TRUE(client.Request(
          Header::PUT, [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("key"); },
          std::string(kValue, 'v')));
    }
    for (Client& client : clients) {
      EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
    }
  }
}

// More connections than there may be at a time (GARBAGE_CONNECTIONS in the environment asks for
// more of them): each one's place and memory come back.
TEST_F(HostilePeers, GarbageLeavesNothingBehind) {
  SetLogLevel(LogLevel::kError);
  Start({});
  Client known = Friend();
  std::mt19937_64 random(1);
  const auto throw_garbage = [&](int connections) {
    for (int i = 0; i < connections; ++i) {
      Client client(port_);
      client.ReceiveFrame();
      std::string garbage(kFrameHeaderBytes + random() % 200, '\0');
      for (char& byte : garbage) byte = static_cast<char>(random());
      const bool framed = i % 2 == 0;  // and perhaps never completed
      framed ? garbage.insert(0, Announce(random() % 100, random() % 100)) : garbage.insert(0, "x");
      client.Send(garbage);
      if (!framed && i % 3 == 0) {
        EXPECT_TRUE(client.SeesTheEnd());
      }
    }
  };
  throw_garbage(500);
  const size_t before = ResidentBytes();
  const char* const asked = std::getenv("GARBAGE_CONNECTIONS");
  throw_garbage(asked == nullptr ? 3 * static_cast<int>(kUsualConnections) : std::atoi(asked));
  ExpectServed(known);
  Friend();
  const size_t after = ResidentBytes();
  // AddressSanitizer keeps up to 256 MiB of what was freed.
  EXPECT_LT(after, before + (size_t{kSanitized ? 256 + 16 : 16} << 20));
  SetLogLevel(LogLevel::kInfo);
}

}  // namespace
}  // namespace pinstripe
