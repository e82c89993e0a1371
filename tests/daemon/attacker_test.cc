// What somebody between a client and a drive can do who can hear, keep, repeat and change
// everything and has no key: nothing but harm that is noticed. Each of these is a lie that once was
// believed, or could be.

#include "tests/daemon/attacker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/log.h"
#include "base/real_runtime.h"
#include "base/send_together.h"
#include "daemon/server.h"
#include "kinetic/kinetic_drive.h"
#include "kinetic/message.h"
#include "store/memory_store.h"
#include "store/tag_check.h"
#include "tests/daemon/wire_client.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using kinetic::Command;
using kinetic::Header;
using Heard = Attacker::Heard;
using Link = Attacker::Link;
using testing::HasSubstr;

// A device of the daemon.
struct Device {
  explicit Device(Runtime& runtime) : server(runtime, Server::Options{}) {
    port = *server.Listen("127.0.0.1", 0, service);
  }
  std::string ValueOf(std::string_view key) {
    const auto record = engine.Get(key);
    return record.has_value() ? std::string(record->value.text()) : "(none)";
  }

  Engine engine{std::make_unique<MemoryStore>(64 << 20)};
  DeviceSecurity security{{{1, FullAccess("asdfasdf")}}};
  KineticService service{{.serial_number = "SN1"}, security, engine};
  Server server;
  uint16_t port = 0;
};

class AttackerTest : public testing::Test {
 protected:
  AttackerTest() { SetLogLevel(LogLevel::kError); }
  ~AttackerTest() override { SetLogLevel(LogLevel::kInfo); }

  // While it lasts the attacker is there. It is declared after everything that the ways touch: they
  // are gone before that goes, however the test ends.
  class Meeting {
   public:
    explicit Meeting(AttackerTest& test) : test_(test) {}
    ~Meeting() {
      test_.drive_.reset();
      test_.attacker_.reset();
    }
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;

   private:
    AttackerTest& test_;
  };

  // Lets the attacker in, and the client through it.
  [[nodiscard]] Meeting Begin(Attacker::Ways ways) {
    attacker_.emplace(device_.port, std::move(ways));
    KineticDrive::Options options;
    options.name = "drive 3";
    options.addresses = {attacker_->address()};
    options.key = "asdfasdf";
    options.least_backoff = 1ms;
    options.most_backoff = 10ms;
    drive_ = std::make_unique<KineticDrive>(io_, std::move(options));
    return Meeting(*this);
  }

  std::future<Status> StartPut(const std::string& key, const std::string& value) {
    auto promise = std::make_shared<std::promise<Status>>();
    drive_->Put({.key = key, .value = SharedBytes(value), .durability = Durability::kWriteThrough},
                runtime_.Now() + 20s, [promise](Status status) { promise->set_value(status); });
    return promise->get_future();
  }
  Status Put(const std::string& key, const std::string& value) {
    return StartPut(key, value).get();
  }
  // It has noticed that its connection was cut.
  void WaitForLoss(uint64_t losses) {
    while (drive_->CountLosses() < losses) std::this_thread::yield();
  }

  RealRuntime runtime_;
  KineticIo io_{runtime_};
  Device device_{runtime_};
  std::optional<Attacker> attacker_;
  std::unique_ptr<KineticDrive> drive_;
};

// --- Answers heard before

enum class Greeting { kTrue, kHeardBefore };

class AnswersHeardBefore : public AttackerTest, public testing::WithParamInterface<Greeting> {};

// What came of it: "fsync says 0 for 60 of 60 files that do not exist afterwards".
TEST_P(AnswersHeardBefore, ConfirmNothing) {
  constexpr int kPuts = 60;
  std::string greeting;
  std::map<uint64_t, std::string> answers;  // to puts of the first connection
  std::map<uint64_t, std::string> others;   // to what else it was asked
  std::atomic<bool> lies = false;
  std::atomic<int> greetings = 0;
  const auto meeting = Begin(
      {.from_client =
           [&](Link& link, const Heard& heard) {
             const std::map<uint64_t, std::string>& said = heard.Is(Header::PUT) ? answers : others;
             if (!lies || (GetParam() == Greeting::kTrue && !heard.Is(Header::PUT))) {
               return link.ToDevice(heard.frame());
             }
             // The drive never hears of it.
             const auto same = said.find(heard.command.header().sequence());
             link.ToClient(same != said.end() ? same->second : said.begin()->second);
           },
       .from_device =
           [&](Link& link, const Heard& heard) {
             const bool greets = !heard.command.header().has_acksequence();
             if (greets && greeting.empty()) greeting = heard.frame();
             if (greets) ++greetings;
             if (!lies && !greets) {
               (heard.Is(Header::PUT_RESPONSE) ? answers
                                               : others)[heard.command.header().acksequence()] =
                   heard.frame();
             }
             link.ToClient(lies && greets && GetParam() == Greeting::kHeardBefore ? greeting
                                                                                  : heard.frame());
           }});
  for (int i = 0; i < kPuts; ++i) ASSERT_OK(Put(fmt::format("before {}", i), "value"));
  lies = true;
  attacker_->Cut();
  WaitForLoss(1);
  int confirmed = 0;
  for (int i = 0; i < kPuts; ++i) {
    // Up again, or two connections further without being so.
    const int enough = greetings + 2;
    while (!drive_->IsUp() && greetings < enough) std::this_thread::yield();
    const std::string key = fmt::format("after {}", i);
    const Status put = Put(key, "value");
    if (!put.ok()) {
      ASSERT_FAILS(put, EHOSTUNREACH);
      continue;
    }
    ++confirmed;
    EXPECT_EQ(device_.ValueOf(key), "value") << key << " was confirmed";
  }
  EXPECT_EQ(confirmed, 0);
}

INSTANTIATE_TEST_SUITE_P(With, AnswersHeardBefore,
                         testing::Values(Greeting::kTrue, Greeting::kHeardBefore),
                         [](const auto& info) {
                           return info.param == Greeting::kTrue ? "TheTrueGreeting"
                                                                : "AGreetingHeardBefore";
                         });

// --- Requests heard before

// Whether the device ends the connection on which this is said, which is not the one on which it
// was heard.
bool EndsAConnectionThatSays(uint16_t port, std::string_view frame) {
  WireClient client(port);
  client.ReceiveFrame();
  return client.Send(frame) && client.SeesTheEnd();
}

TEST_F(AttackerTest, ARequestHeardOnAnotherConnectionIsNotMadeAgain) {
  std::map<std::string, std::string> puts;  // by their value
  std::string deletion;
  const auto meeting = Begin({.from_client = [&](Link& link, const Heard& heard) {
    if (heard.Is(Header::PUT)) puts[heard.value] = heard.frame();
    if (heard.Is(Header::DELETE)) deletion = heard.frame();
    link.ToDevice(heard.frame());
  }});
  ASSERT_OK(Put("k", "old"));
  std::promise<Status> deleted;
  drive_->Delete("k", Expected::Any(), Durability::kWriteBack, runtime_.Now() + 20s,
                 [&](Status status) { deleted.set_value(std::move(status)); });
  ASSERT_OK(deleted.get_future().get());
  ASSERT_OK(Put("k", "new"));
  {
    const auto hold = attacker_->Hold();
    EXPECT_TRUE(EndsAConnectionThatSays(device_.port, puts["old"]));
  }
  EXPECT_EQ(device_.ValueOf("k"), "new");
  {
    const auto hold = attacker_->Hold();
    EXPECT_TRUE(EndsAConnectionThatSays(device_.port, deletion));
  }
  EXPECT_EQ(device_.ValueOf("k"), "new");
  ASSERT_OK(Put("k", "newer")) << "the client's own connection has nothing to do with it";
}

// All drives of a cluster may have one key.
TEST_F(AttackerTest, ARequestToOneDriveIsNotDoneByAnother) {
  Device other(runtime_);
  std::optional<WireClient> to_other;
  const auto meeting = Begin({.from_client = [&](Link& link, const Heard& heard) {
    if (!heard.Is(Header::PUT)) return link.ToDevice(heard.frame());
    to_other.emplace(other.port);
    to_other->ReceiveFrame();
    to_other->Send(heard.frame());
    link.ToClient(to_other->ReceiveFrame());
  }});
  EXPECT_FAILS(Put("k", "value"), EHOSTUNREACH);
  EXPECT_EQ(other.ValueOf("k"), "(none)");
  EXPECT_EQ(device_.ValueOf("k"), "(none)");
}

// The answer to the true one is kept back, and a refusal of its copy handed on in its place: a put
// that was made would be said not to have been.
TEST_F(AttackerTest, ACopyOfARequestIsNotRefusedInItsPlace) {
  const auto meeting = Begin({.from_client =
                                  [](Link& link, const Heard& heard) {
                                    link.ToDevice(heard.frame());
                                    if (heard.Is(Header::PUT)) link.ToDevice(heard.frame());
                                  },
                              .from_device =
                                  [](Link& link, const Heard& heard) {
                                    const bool done =
                                        heard.command.status().code() == kinetic::Status::SUCCESS;
                                    if (!heard.Is(Header::PUT_RESPONSE) || !done)
                                      link.ToClient(heard.frame());
                                  }});
  EXPECT_FAILS(Put("k", "value"), EHOSTUNREACH);  // nobody knows whether it was made
}

// The same with a request that was never signed.
TEST_F(AttackerTest, WhoHasNoKeyIsRefusedNothingInTheNameOfOthers) {
  const auto meeting =
      Begin({.from_client =
                 [](Link& link, const Heard& heard) {
                   link.ToDevice(heard.frame());
                   if (!heard.Is(Header::PUT)) return;
                   Command forged = heard.command;
                   forged.mutable_header()->clear_bound();
                   link.ToDevice(SignedFrame(forged, 1, HmacKey("not the key"), 0));
                 },
             .from_device =
                 [](Link& link, const Heard& heard) {
                   const bool done = heard.command.status().code() == kinetic::Status::SUCCESS;
                   if (!heard.Is(Header::PUT_RESPONSE) || !done) link.ToClient(heard.frame());
                 }});
  EXPECT_FAILS(Put("k", "value"), EHOSTUNREACH);
}

// --- Values

TEST_F(AttackerTest, AValueThatWasSwappedWithThatOfAnotherPutIsNotStored) {
  std::optional<Heard> first;
  int together = 0;
  const auto meeting = Begin({.from_client = [&](Link& link, const Heard& heard) {
    if (heard.Is(Header::PUTS)) {  // both in one message
      ++together;
      const size_t half = heard.value.size() / 2;
      return link.ToDevice(heard.FrameWith(heard.value.substr(half) + heard.value.substr(0, half)));
    }
    if (!heard.Is(Header::PUT)) return link.ToDevice(heard.frame());
    if (!first.has_value()) {
      first = heard;
      return;
    }
    link.ToDevice(first->FrameWith(heard.value));
    link.ToDevice(heard.FrameWith(first->value));
    first.reset();
  }});
  for (const size_t size : {10, 100'000}) {  // made by the loop, and by a worker
    std::future<Status> a;
    std::future<Status> b;
    {
      const SendTogether sent;
      a = StartPut("a", std::string(size, 'a'));
      b = StartPut("b", std::string(size, 'b'));
    }
    const Status refused = a.get();
    EXPECT_FAILS(refused, EBADMSG);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is not the one that was signed for"));
    EXPECT_FAILS(b.get(), EBADMSG);
    EXPECT_EQ(device_.ValueOf("a"), "(none)");
    EXPECT_EQ(device_.ValueOf("b"), "(none)");
  }
  EXPECT_EQ(together, 1);
}

TEST_F(AttackerTest, AValueThatWasCutOffOrGivenToAPutWithoutOneIsNotStored) {
  const auto meeting = Begin({.from_client = [&](Link& link, const Heard& heard) {
    link.ToDevice(!heard.Is(Header::PUT) ? heard.frame()
                                         : heard.FrameWith(heard.value.empty() ? "value" : ""));
  }});
  EXPECT_FAILS(Put("k", "value"), EBADMSG);
  EXPECT_FAILS(Put("k", ""), EBADMSG);
  EXPECT_EQ(device_.ValueOf("k"), "(none)");
}

// The log that tells of it is a value.
TEST_F(AttackerTest, WhatADriveCanDoCannotBeTakenAway) {
  bool altered = false;
  const auto meeting = Begin({.from_device = [&](Link& link, const Heard& heard) {
    const bool tells = heard.Is(Header::GETLOG_RESPONSE) && !heard.value.empty();
    altered = altered || tells;
    link.ToClient(heard.FrameWith(tells ? "" : heard.value));
  }});
  ASSERT_OK(Put("k", "value"));
  const auto hold = attacker_->Hold();
  EXPECT_TRUE(altered);
  EXPECT_TRUE(drive_->capabilities().range_get);
  EXPECT_TRUE(drive_->capabilities().bound);
}

// --- The tests' own proof: an attacker who changes nothing is not noticed

TEST_F(AttackerTest, WhoOnlyListensIsNotNoticed) {
  int heard_puts = 0;
  const auto meeting = Begin({.from_client = [&](Link& link, const Heard& heard) {
    if (heard.Is(Header::PUT)) ++heard_puts;
    link.ToDevice(heard.frame());
  }});
  for (int i = 0; i < 10; ++i) ASSERT_OK(Put("k", std::string(100, 'x')));
  const auto hold = attacker_->Hold();
  EXPECT_EQ(heard_puts, 10);
  EXPECT_EQ(drive_->CountLosses(), 0u);
}

}  // namespace
}  // namespace pinstripe
