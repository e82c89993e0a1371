// Small records that are read from a device in one message, on the client's side: what goes
// together, what a device is told, and that each is answered for itself whatever it answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kinetic/get_operation.h"
#include "kinetic/message.h"
#include "tests/kinetic/together_test_base.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using kinetic::Header;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class GetsTogetherTest : public TogetherTest {
 protected:
  static constexpr std::string_view kCanGet = "range_get 1\nunerased 1\ngets 1\n";

  // A device of which each key's version is "of <key>", and its value the key.
  static void AnswerGets(Connection& session, const Asked& request) {
    const kinetic::Body& asked = request.command.body();
    const auto tell = [](const std::string& key, kinetic::KeyValue* entry) {
      entry->set_key(key);
      entry->set_dbversion("of " + key);
      entry->set_tag("tag4");
    };
    std::string values;
    for (const std::string& key : asked.gets().keys()) values += key;
    if (!asked.has_gets()) values = asked.keyvalue().key();
    session.Answer(
        request,
        [&](kinetic::Body* body) {
          if (!asked.has_gets()) return tell(asked.keyvalue().key(), body->mutable_keyvalue());
          for (const std::string& key : asked.gets().keys()) {
            kinetic::Puts::Read* read = body->mutable_gets()->add_reads();
            read->mutable_status()->set_code(kinetic::Status::SUCCESS);
            read->set_valuebytes(static_cast<uint32_t>(key.size()));
            tell(key, read->mutable_keyvalue());
          }
        },
        values);
  }

  struct Wanted {
    std::string key;
    ValueRange range = kSmallRecord;
    Terms terms;
  };
  Wanted Small(const std::string& key) { return {key, kSmallRecord, Terms(deadline_)}; }

  std::vector<Result<Record>> GetTogether(const std::vector<Wanted>& wanted) {
    std::vector<std::promise<Result<Record>>> answers(wanted.size());
    {
      const SendTogether together;
      for (size_t i = 0; i < wanted.size(); ++i) {
        drive_->Get(wanted[i].key, wanted[i].range, wanted[i].terms,
                    [&answers, i](Result<Record> r) { answers[i].set_value(std::move(r)); });
      }
    }
    std::vector<Result<Record>> records;
    for (auto& answer : answers) records.push_back(answer.get_future().get());
    return records;
  }
  std::vector<Result<Record>> GetTogether(const std::vector<std::string>& keys) {
    std::vector<Wanted> wanted;
    for (const std::string& key : keys) wanted.push_back(Small(key));
    return GetTogether(wanted);
  }

  // How many keys each message had, so far; 0: it was an ordinary GET.
  std::vector<int> Keys() {
    const std::lock_guard lock(mutex_);
    std::vector<int> counts;
    for (const Asked& each : asked_) counts.push_back(each.command.body().gets().keys_size());
    return counts;
  }

  const Time deadline_ = Soon();
};

TEST_F(GetsTogetherTest, SmallOnesThatAreAskedAtOnceGoInOneMessage) {
  Serve(AnswerGets, kCanGet);
  const DriveTimes& times = *drive_->times();
  const uint64_t reads = times.reads.Load().count();  // as it was connected
  const uint64_t bytes = times.read_bytes;
  const auto records = GetTogether(std::vector<std::string>{"a", "bb", "ccc"});
  for (const auto& each : records) ASSERT_OK(each);
  EXPECT_TRUE(drive_->capabilities().gets);
  EXPECT_EQ(records[0]->version + records[1]->version, "of aof bb");
  EXPECT_EQ(records[2]->value.text(), "ccc");
  EXPECT_EQ(records[2]->tag, "tag4");
  EXPECT_THAT(Keys(), ElementsAre(3));
  const kinetic::Header& header = asked_[0].command.header();
  EXPECT_EQ(header.messagetype(), Header::GETS);
  EXPECT_TRUE(header.unerased());
  EXPECT_FALSE(asked_[0].command.body().has_keyvalue());
  EXPECT_EQ(times.reads.Load().count() - reads, 3u);
  EXPECT_EQ(times.read_bytes - bytes, 6u);
}

TEST_F(GetsTogetherTest, OneThatIsAloneIsAnOrdinaryGet) {
  Serve(AnswerGets, kCanGet);
  ASSERT_OK(GetTogether(std::vector<std::string>{"a"})[0]);
  EXPECT_EQ(asked_[0].command.header().messagetype(), Header::GET);
}

TEST_F(GetsTogetherTest, ADeviceThatCannotIsAskedForOneAfterTheOther) {
  for (const std::string_view can : {"range_get 1\nunerased 1\n", "gets 1\n"}) {
    asked_.clear();
    Serve(AnswerGets, can);
    EXPECT_THAT(GetTogether(std::vector<std::string>{"a", "b"}),
                Each(testing::Property(&Result<Record>::has_value, true)));
    EXPECT_FALSE(drive_->capabilities().gets);
    EXPECT_EQ(Keys()[0], 0);
    drive_.reset();
  }
}

// A part of a large value would keep the others waiting, and could be of any size.
TEST_F(GetsTogetherTest, WhatIsNotSmallGoesAlone) {
  Serve(AnswerGets, kCanGet);
  Wanted part = Small("p");
  part.range = {.offset = 0, .length = 4096};
  Wanted whole = Small("w");
  whole.range = {};
  for (const auto& each : GetTogether({Small("a"), Small("b"), part, whole, Small("c")})) {
    EXPECT_OK(each);
  }
  EXPECT_THAT(Keys(), ElementsAre(2, 0, 0, 0));
}

TEST_F(GetsTogetherTest, OtherTermsAndTooManyMakeAnotherMessage) {
  Serve(AnswerGets, kCanGet);
  Wanted later = Small("c");
  later.terms.deadline += std::chrono::seconds(1);
  for (const auto& each : GetTogether({Small("a"), Small("b"), later})) EXPECT_OK(each);
  EXPECT_THAT(Keys(), ElementsAre(2, 0));
  asked_.clear();
  for (const auto& each : GetTogether(std::vector<std::string>(kMostGetsTogether + 2, "k"))) {
    EXPECT_OK(each);
  }
  EXPECT_THAT(Keys(), ElementsAre(kMostGetsTogether, 2));
}

// A device answers with so many bytes at most, and what it leaves out is asked for once more.
TEST_F(GetsTogetherTest, WhatIsTooMuchForAnAnswerMakesAnotherMessage) {
  Serve(AnswerGets, kCanGet);
  Wanted half = Small("h");
  half.range.likely_bytes = kMostGetBytes / 2;
  for (const auto& each : GetTogether({half, half, half, Small("a")})) EXPECT_OK(each);
  EXPECT_THAT(Keys(), ElementsAre(2, 2));
}

// What takes any cluster version goes with what wants one, and is asked for alone where the device
// has another one.
TEST_F(GetsTogetherTest, OneThatTakesAnyClusterVersionGoesWithOthers) {
  Wanted wants = Small("w");
  wants.terms.cluster_version = -1;
  Wanted wants_other = Small("o");
  wants_other.terms.cluster_version = -2;
  Serve(AnswerGets, kCanGet);
  for (const auto& each : GetTogether({Small("a"), wants, Small("b"), wants_other})) {
    EXPECT_OK(each);
  }
  EXPECT_THAT(Keys(), ElementsAre(3, 0));
  EXPECT_EQ(asked_[0].command.header().clusterversion(), -1);
  drive_.reset();
  asked_.clear();
  Serve(
      [](Connection& session, const Asked& request) {
        if (request.command.header().clusterversion() == 0) return AnswerGets(session, request);
        session.Answer(request, kinetic::Status::VERSION_FAILURE);
      },
      kCanGet);
  const auto records = GetTogether({Small("a"), wants, Small("b")});
  EXPECT_OK(records[0]);
  EXPECT_FAILS(records[1], EREMCHG);
  EXPECT_OK(records[2]);
  EXPECT_THAT(Keys(), ElementsAre(3, 0, 0));
}

TEST_F(GetsTogetherTest, EachIsAnsweredForItself) {
  Serve(
      [](Connection& session, const Asked& request) {
        if (!request.command.body().has_gets()) return AnswerGets(session, request);
        session.Answer(
            request,
            [](kinetic::Body* body) {
              using Code = kinetic::Status;
              for (const Code::Code code : {Code::SUCCESS, Code::NOT_FOUND, Code::PERM_DATA_ERROR,
                                            Code::SERVICE_BUSY, Code::SUCCESS, Code::SUCCESS}) {
                kinetic::Puts::Read* read = body->mutable_gets()->add_reads();
                read->mutable_status()->set_code(code);
                if (code != Code::SUCCESS) continue;
                read->set_valuebytes(1);
              }
              body->mutable_gets()->mutable_reads(0)->mutable_keyvalue()->set_key("a");
              body->mutable_gets()->mutable_reads(4)->mutable_keyvalue()->set_key("other");
            },
            "xyz");
      },
      kCanGet);
  const auto records = GetTogether(std::vector<std::string>{"a", "b", "c", "busy", "e", "f"});
  ASSERT_OK(records[0]);
  EXPECT_EQ(records[0]->value.text(), "x");
  EXPECT_FAILS(records[1], ENOENT);
  EXPECT_FAILS(records[2], EBADMSG);
  ASSERT_OK(records[3]);  // for which there was no room
  EXPECT_EQ(records[3]->value.text(), "busy");
  EXPECT_FAILS(records[4], EBADMSG);
  EXPECT_FAILS(records[5], EBADMSG);
  EXPECT_THAT(std::string(records[5].error().message()), HasSubstr("drive 3"));
  EXPECT_THAT(Keys(), ElementsAre(6, 0));
}

// Nobody can tell whose the bytes are.
TEST_F(GetsTogetherTest, AnAnswerThatDoesNotAddUpIsNotBelieved) {
  const auto told = [](int reads, uint32_t bytes, kinetic::Status::Code code) {
    return [=](Connection& session, const Asked& request) {
      session.Answer(
          request,
          [&](kinetic::Body* body) {
            for (int i = 0; i < reads; ++i) {
              kinetic::Puts::Read* read = body->mutable_gets()->add_reads();
              read->mutable_status()->set_code(code);
              read->mutable_keyvalue()->set_key(i == 0 ? "a" : "b");
              read->set_valuebytes(bytes);
            }
          },
          "four");
    };
  };
  const auto good = kinetic::Status::SUCCESS;
  for (const Script& lie :
       {Script(told(1, 4, good)), Script(told(3, 1, good)), Script(told(0, 0, good)),
        Script(told(2, 1, good)), Script(told(2, 3, good)), Script(told(2, UINT32_MAX, good)),
        Script(told(2, 2, kinetic::Status::NOT_FOUND))}) {
    Serve(lie, kCanGet);
    for (const auto& each : GetTogether(std::vector<std::string>{"a", "b"})) {
      EXPECT_FAILS(each, EHOSTUNREACH);
    }
    drive_.reset();
  }
}

TEST_F(GetsTogetherTest, WithoutAnAnswerAllFail) {
  Serve([](Connection& session, const Asked&) { session.Send("no Kinetic"); }, kCanGet);
  for (const auto& each : GetTogether(std::vector<std::string>{"a", "b"})) {
    EXPECT_FAILS(each, EHOSTUNREACH);
  }
}

// The bytes on the wire.
TEST(GetsBytes, AreTheseForTwoGets) {
  kinetic::Command command;
  command.mutable_header()->set_messagetype(Header::GETS);
  const KineticOperationPtr together =
      NewGetsTogether({NewSmallGet("a", 1, Time(), nullptr, nullptr),
                       NewSmallGet("bc", 1, Time(), nullptr, nullptr)},
                      Time());
  EXPECT_EQ(together->message_type(), Header::GETS);
  together->Describe({.gets = true}, command.mutable_body());
  EXPECT_EQ(Hex(AsBytes(command.SerializeAsString())),
            "0a023866"          // header
            "120aaa0607"        // body, gets
            "0a01610a026263");  // keys
  kinetic::Gets told;
  kinetic::Puts::Read* read = told.add_reads();
  read->mutable_status()->set_code(kinetic::Status::SUCCESS);
  read->mutable_keyvalue()->set_key("a");
  read->set_valuebytes(2);
  EXPECT_EQ(Hex(AsBytes(told.SerializeAsString())), "120b0a02080112031a01611802");
}

}  // namespace
}  // namespace pinstripe
