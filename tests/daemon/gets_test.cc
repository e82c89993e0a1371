// Several gets in one message: what a device answers, and what the client makes of that.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "base/real_runtime.h"
#include "base/send_together.h"
#include "kinetic/covering_tag.h"
#include "kinetic/kinetic_drive.h"
#include "store/memory_store.h"
#include "tests/daemon/served_device.h"
#include "tests/daemon/wire_client.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using testing::ElementsAre;
using Code = kinetic::Status;

class GetsTest : public testing::Test {
 protected:
  GetsTest() : device_(runtime_, std::make_unique<MemoryStore>()), client_(device_.port()) {
    client_.ReceiveAnswer();
  }

  void Put(const std::string& key, const std::string& value) {
    const SharedBytes bytes{std::string(value)};
    ASSERT_OK(device_.engine().Put(key, {{.version = "1", .tag = CoveringTag(bytes)}, bytes},
                                   Expected::Any()));
  }

  WireClient::Answer Ask(const std::vector<std::string>& keys) {
    Command command;
    command.mutable_header()->set_messagetype(Header::GETS);
    command.mutable_body()->mutable_gets();
    for (const std::string& key : keys) command.mutable_body()->mutable_gets()->add_keys(key);
    EXPECT_TRUE(client_.SendCommand(command, ""));
    return client_.ReceiveAnswer();
  }

  // "version=value" of each, or the status.
  static std::vector<std::string> Reads(const WireClient::Answer& answer) {
    std::vector<std::string> reads;
    std::string_view left = answer.value;
    for (const kinetic::Puts::Read& read : answer.command.body().gets().reads()) {
      const std::string_view value = left.substr(0, read.valuebytes());
      left.remove_prefix(value.size());
      reads.push_back(read.status().code() == Code::SUCCESS
                          ? fmt::format("{}={}", read.keyvalue().dbversion(), value)
                          : std::string(StatusCodeName(read.status().code())));
    }
    EXPECT_EQ(left, "");
    return reads;
  }

  RealRuntime runtime_;
  ServedDevice device_;
  WireClient client_;
};

TEST_F(GetsTest, EachIsAnsweredAsAGetWouldBe) {
  Put("a", "value of a");
  Put("empty", "");
  Put("b", "b's");
  const WireClient::Answer answer =
      Ask({"a", "none", "empty", "b", "a", std::string(kMaxKeyBytes + 1, 'k'), ""});
  EXPECT_EQ(answer.code(), Code::SUCCESS);
  EXPECT_EQ(answer.command.header().messagetype(), Header::GETS_RESPONSE);
  EXPECT_THAT(Reads(answer), ElementsAre("1=value of a", "NOT_FOUND", "1=", "1=b's", "1=value of a",
                                         "INVALID_REQUEST", "NOT_FOUND"));
  EXPECT_EQ(answer.command.body().gets().reads(3).keyvalue().key(), "b");
  EXPECT_EQ(answer.command.body().gets().reads(3).keyvalue().tag(), CoveringTag(AsBytes("b's")));
}

TEST_F(GetsTest, AValueForWhichThereIsNoRoomIsPassedOver) {
  const std::string half(kMostGetBytes / 2, 'h');
  Put("half", half);
  Put("more", half + "m");
  Put("large", std::string(kMaxValueBytes, 'l'));
  EXPECT_THAT(
      Reads(Ask({"large", "half", "more", "half", "more"})),
      ElementsAre("SERVICE_BUSY", "1=" + half, "SERVICE_BUSY", "1=" + half, "SERVICE_BUSY"));
}

TEST_F(GetsTest, NoneAndTooManyAreRefused) {
  Put("k", "v");
  for (const size_t count : {size_t{0}, kMostGetsTogether + 1}) {
    const WireClient::Answer answer = Ask(std::vector<std::string>(count, "k"));
    EXPECT_EQ(answer.code(), Code::INVALID_REQUEST);
    EXPECT_EQ(answer.command.body().gets().reads_size(), 0);
  }
  EXPECT_EQ(Reads(Ask(std::vector<std::string>(kMostGetsTogether, "k"))).size(), kMostGetsTogether);
}

TEST_F(GetsTest, AreCountedAsIfTheyHadComeAlone) {
  Put("a", "12345");
  Ask({"a", "none", "a"});
  Put("b", "");
  Ask({"b"});  // answered: the ones before are counted
  const auto gets = device_.service().statistics().Of(Header::GET);
  EXPECT_EQ(gets.operations, 4u);
  EXPECT_EQ(gets.value_bytes, 10u);
}

TEST_F(GetsTest, OurClientGetsThoseAloneThatHadNoRoom) {
  KineticIo io(runtime_);
  KineticDrive drive(io, {.name = "drive",
                          .addresses = {fmt::format("127.0.0.1:{}", device_.port())},
                          .key = "asdfasdf"});
  while (!drive.IsUp()) std::this_thread::yield();
  EXPECT_TRUE(drive.capabilities().gets);
  constexpr int kRecords = 100;
  const auto value = [](int i) {
    return std::string(static_cast<size_t>(i) * i * 7, static_cast<char>('a' + i % 26));
  };
  for (int i = 0; i < kRecords; ++i) Put(std::to_string(i), value(i));
  std::vector<std::promise<Result<Record>>> answers(kRecords);
  {
    const SendTogether together;
    const Time deadline = runtime_.Now() + std::chrono::seconds(60);
    for (int i = 0; i < kRecords; ++i) {
      drive.Get(std::to_string(i), kSmallRecord, deadline,
                [&answers, i](Result<Record> record) { answers[i].set_value(std::move(record)); });
    }
  }
  for (int i = 0; i < kRecords; ++i) {
    const Result<Record> record = answers[i].get_future().get();
    ASSERT_OK(record);
    EXPECT_EQ(record->value.text(), value(i));
    EXPECT_EQ(record->tag, CoveringTag(record->value));
  }
}

}  // namespace
}  // namespace pinstripe
