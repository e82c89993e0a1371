// A drive that nobody asks anything closes its connection, and nobody who asks later notices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/real_runtime.h"
#include "kinetic/kinetic_drive.h"
#include "tests/kinetic/fake_device.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using Session = FakeDevice::Session;
using Request = FakeDevice::Request;

constexpr std::string_view kIdentityKey = "who";

class IdleDriveTest : public testing::Test {
 protected:
  IdleDriveTest() { SetLogLevel(LogLevel::kError); }
  ~IdleDriveTest() override { SetLogLevel(LogLevel::kInfo); }

  // Answers everything until the client hangs up, and counts who did.
  void Serve(Session& session) {
    // Else the first one might rest before anybody has asked.
    if (connections_++ == 0) {
      while (!was_asked_) std::this_thread::yield();
    }
    try {
      session.Handshake();
      for (;;) Answer(session, session.Next());
    } catch (...) {
      ++ended_;
      throw;
    }
  }

  void Answer(Session& session, const Request& request) {
    if (request.command.header().messagetype() != kinetic::Header::GETLOG) {
      return session.AnswerEntry(request, "v", "value");
    }
    session.Answer(request, [this](kinetic::Body* body) {
      kinetic::GetLog& log = *body->mutable_getlog();
      if (start_ == 0) return;
      const auto add = [&log](uint64_t id, bool clean) {
        auto* const start = log.add_starts();
        start->set_id(id);
        start->set_clean(clean);
      };
      add(start_, is_clean_);
      if (before_ != 0) add(before_, false);
      log.set_startcount(before_ == 0 ? 1 : 2);
    });
  }

  KineticDrive::Options OptionsFor(std::string address) {
    KineticDrive::Options options;
    options.name = "drive 3";
    options.addresses = {std::move(address)};
    options.key = FakeDevice::kKey;
    options.identity_key = kIdentityKey;
    options.check_identity = [this](const auto& record, const auto& info) {
      if (info.has_value() && info->goes_on) ++gone_on_;
      return record ? Status() : record.error();
    };
    options.least_backoff = 1ms;
    options.most_backoff = 10ms;
    options.idle_timeout = 5ms;
    return options;
  }

  Time In(Duration delay) { return runtime_.Now() + delay; }

  Result<Record> GetBy(Drive& drive, Time deadline) {
    std::promise<Result<Record>> answer;
    drive.Get("k", {}, deadline,
              [&answer](Result<Record> record) { answer.set_value(std::move(record)); });
    was_asked_ = true;
    return answer.get_future().get();
  }
  Result<Record> Get(Drive& drive) { return GetBy(drive, In(20s)); }

  // Until the drive has closed so many connections.
  void WaitForRest(int times) const {
    while (ended_ < times) std::this_thread::yield();
  }

  // For ten times as long as others do.
  void ExpectToStayConnected(KineticDrive::Options options) {
    std::promise<bool> stayed;
    FakeDevice device([&](Session& session) {
      session.Handshake();
      Answer(session, session.Next());
      Answer(session, session.Next());
      try {
        Request more;
        EXPECT_FALSE(session.NextWithin(50, &more)) << "nobody has asked for anything";
        stayed.set_value(true);
      } catch (...) {
        if (session.number() == 0) stayed.set_value(false);
        throw;
      }
      session.WaitForEnd();
    });
    options.addresses = {device.address()};
    KineticDrive drive(io_, options);
    EXPECT_TRUE(stayed.get_future().get()) << "it hung up";
  }

  RealRuntime runtime_;
  KineticIo io_{runtime_};
  std::atomic<bool> was_asked_ = false;
  std::atomic<int> connections_ = 0;
  std::atomic<int> ended_ = 0;
  std::atomic<int> gone_on_ = 0;      // connections, of which the drive said so
  std::atomic<uint64_t> start_ = 7;   // 0: the device tells none
  std::atomic<uint64_t> before_ = 0;  // the one before
  std::atomic<bool> is_clean_ = false;
};

TEST_F(IdleDriveTest, IsConnectedAgainByTheNextOperation) {
  FakeDevice device([this](Session& session) { Serve(session); });
  KineticDrive drive(io_, OptionsFor(device.address()));
  for (int times = 1; times <= 3; ++times) {
    ASSERT_OK(Get(drive));
    WaitForRest(times);
    EXPECT_TRUE(drive.IsUp());
    EXPECT_EQ(connections_, times) << "nobody has asked for another one";
  }
  EXPECT_EQ(drive.CountLosses(), 0u) << "the same start of the device has forgotten nothing";
  EXPECT_EQ(gone_on_, 2) << "which its owner is told";
}

TEST_F(IdleDriveTest, KeepsItsConnectionUnlessItIsToldATime) {
  KineticDrive::Options options = OptionsFor("");
  options.idle_timeout = {};
  ExpectToStayConnected(options);
}

TEST_F(IdleDriveTest, IsCountedAsLostWhereItsDeviceWasStartedAnew) {
  FakeDevice device([this](Session& session) { Serve(session); });
  KineticDrive drive(io_, OptionsFor(device.address()));
  ASSERT_OK(Get(drive));
  WaitForRest(1);
  EXPECT_EQ(drive.CountLosses(), 0u);
  start_ = 8;
  ASSERT_OK(Get(drive));
  EXPECT_EQ(drive.CountLosses(), 1u);
  EXPECT_EQ(gone_on_, 0);
  WaitForRest(2);
  ASSERT_OK(Get(drive));
  EXPECT_EQ(drive.CountLosses(), 1u);
  EXPECT_EQ(gone_on_, 1);
}

TEST_F(IdleDriveTest, IsNotCountedAsLostWhereAllThatItsDeviceHadWasFlushedBefore) {
  FakeDevice device([this](Session& session) { Serve(session); });
  KineticDrive drive(io_, OptionsFor(device.address()));
  ASSERT_OK(Get(drive));
  WaitForRest(1);
  before_ = 7;
  start_ = 8;
  is_clean_ = true;
  ASSERT_OK(Get(drive));
  EXPECT_EQ(drive.CountLosses(), 0u);
  EXPECT_EQ(gone_on_, 0) << "but it was started anew";
  WaitForRest(2);
  is_clean_ = false;
  before_ = 8;
  start_ = 9;
  ASSERT_OK(Get(drive));
  EXPECT_EQ(drive.CountLosses(), 1u);
}

TEST_F(IdleDriveTest, KeepsItsConnectionToADeviceThatDoesNotTellItsStarts) {
  start_ = 0;
  ExpectToStayConnected(OptionsFor(""));
}

TEST_F(IdleDriveTest, IsAwayOnceSomebodyHasAskedInVain) {
  auto device = std::make_unique<FakeDevice>([this](Session& session) { Serve(session); });
  KineticDrive drive(io_, OptionsFor(device->address()));
  ASSERT_OK(Get(drive));
  WaitForRest(1);
  device.reset();
  EXPECT_TRUE(drive.IsUp()) << "nobody knows yet";
  EXPECT_EQ(drive.CountLosses(), 0u);
  EXPECT_FAILS(Get(drive), EHOSTUNREACH);
  EXPECT_FALSE(drive.IsUp());
  EXPECT_EQ(drive.CountLosses(), 1u);
}

TEST_F(IdleDriveTest, IsNotIdleWhileAnAnswerIsAwaited) {
  FakeDevice device([this](Session& session) {
    session.Handshake();
    Answer(session, session.Next());
    Answer(session, session.Next());
    const Request get = session.Next();
    Request more;
    EXPECT_FALSE(session.NextWithin(50, &more));  // throws if the client hangs up
    session.AnswerEntry(get, "v", "late");
    session.WaitForEnd();
  });
  KineticDrive drive(io_, OptionsFor(device.address()));
  const Result<Record> record = Get(drive);
  ASSERT_OK(record);
  EXPECT_EQ(record->value.text(), "late");
}

TEST_F(IdleDriveTest, AnOperationDoesNotWaitLongerThanItMayForTheConnection) {
  FakeDevice device([this](Session& session) {
    if (session.number() == 0) Serve(session);
    session.WaitForEnd();  // without a greeting
  });
  KineticDrive drive(io_, OptionsFor(device.address()));
  ASSERT_OK(Get(drive));
  WaitForRest(1);
  EXPECT_FAILS(GetBy(drive, In(20ms)), ETIMEDOUT);
  EXPECT_TRUE(drive.IsUp()) << "the attempt goes on";
}

TEST_F(IdleDriveTest, MayEndOrMoveWhileItRests) {
  FakeDevice before([this](Session& session) { Serve(session); });
  FakeDevice after([this](Session& session) { Serve(session); });
  KineticDrive drive(io_, OptionsFor(before.address()));
  ASSERT_OK(Get(drive));
  WaitForRest(1);
  drive.Redirect(OptionsFor(after.address()));
  EXPECT_EQ(drive.CountLosses(), 1u);
  ASSERT_OK(Get(drive));
  WaitForRest(2);
}

TEST_F(IdleDriveTest, ManyMayWakeItAtOnce) {
  FakeDevice device([this](Session& session) { Serve(session); });
  KineticDrive::Options options = OptionsFor(device.address());
  options.idle_timeout = 50ms;
  KineticDrive drive(io_, options);
  for (int times = 1; times <= 10; ++times) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { EXPECT_OK(Get(drive)); });
    }
    for (std::thread& each : threads) each.join();
    WaitForRest(times);
  }
  EXPECT_EQ(drive.CountLosses(), 0u);
}

}  // namespace
}  // namespace pinstripe
