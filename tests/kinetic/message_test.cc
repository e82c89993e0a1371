// The wire, against exchanges that another implementation had: what we read and write again must be
// the same bytes, and what we sign must have the same signature.

#include "kinetic/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kinetic/covering_tag.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/support/expect_ok.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

constexpr std::string_view kKey = "asdfasdf";

struct Parsed {
  std::string head;  // frame header and message
  std::string value;
  kinetic::Message message;
  kinetic::Command command;
};

Parsed Parse(std::string_view hex) {
  const std::string bytes = Unhex(hex);
  Parsed parsed;
  const Bytes frame = AsBytes(bytes);
  const Result<FrameHeader> header = DecodeFrameHeader(frame.first<kFrameHeaderBytes>());
  EXPECT_OK(header);
  const size_t head = kFrameHeaderBytes + header->message_bytes;
  EXPECT_EQ(bytes.size(), head + header->value_bytes);
  parsed.head = bytes.substr(0, head);
  parsed.value = bytes.substr(head);
  EXPECT_OK(ParseMessage(frame.subspan(kFrameHeaderBytes, header->message_bytes), &parsed.message));
  EXPECT_OK(ParseCommand(parsed.message, &parsed.command));
  return parsed;
}

class KineticVectors : public testing::TestWithParam<KineticVector> {};

TEST_P(KineticVectors, AreReadAndWrittenAgainByteForByte) {
  const KineticVector& vector = GetParam();
  const HmacKey key(kKey);
  for (const auto& [frame, command, hmac] :
       {std::tuple(vector.request, vector.request_command, vector.request_hmac),
        std::tuple(vector.response, vector.response_command, vector.response_hmac)}) {
    const Parsed parsed = Parse(frame);
    EXPECT_EQ(Hex(AsBytes(parsed.message.commandbytes())), command);
    EXPECT_EQ(Hex(AsBytes(parsed.command.SerializeAsString())), command);
    EXPECT_EQ(Hex(AsBytes(parsed.message.hmacauth().hmac())), hmac);
    if (Authentic(parsed.message, key)) {
      EXPECT_EQ(Hex(AsBytes(SignedFrame(parsed.command, 1, key, parsed.value.size()))),
                Hex(AsBytes(parsed.head)));
    } else if (frame == vector.response) {
      EXPECT_EQ(vector.name, "PINOP erase, empty pin");
      EXPECT_EQ(Hex(AsBytes(UnsignedFrame(Unsigned::kPinAnswer, parsed.command))),
                Hex(AsBytes(parsed.head)));
    } else {
      EXPECT_TRUE(vector.name.starts_with("NOOP with a wrong HMAC") ||
                  vector.name.starts_with("PINOP"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KineticVectors, testing::ValuesIn(kKineticVectors));

TEST(Message, ABatchedPutIsReadAndWrittenAgain) {
  const Parsed put = Parse(kKineticBatchedPut);
  EXPECT_EQ(put.value, "bv");
  EXPECT_EQ(put.command.header().batchid(), 1u);
  EXPECT_EQ(SignedFrame(put.command, 1, HmacKey(kKey), put.value.size()), put.head);
}

TEST(Message, AGreetingIsReadAndWrittenAgain) {
  const Parsed greeting = Parse(kKineticGreeting);
  EXPECT_EQ(greeting.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
  EXPECT_EQ(greeting.command.body().getlog().limits().maxkeyrangecount(), 200u);
  EXPECT_EQ(greeting.command.body().getlog().limits().maxoutstandingreadrequests(), UINT32_MAX);
  EXPECT_EQ(greeting.command.body().getlog().configuration().model(), "Simulator");
  EXPECT_EQ(UnsignedFrame(Unsigned::kUnsolicited, greeting.command), greeting.head);
}

TEST(Message, WhatBindsARequestIsInTheseBytes) {
  kinetic::Command put;
  put.mutable_header()->set_connectionid(1000);
  put.mutable_header()->set_sequence(uint64_t{1} << 61);
  put.mutable_header()->set_messagetype(kinetic::Header::PUT);
  put.mutable_header()->set_bound(true);
  put.mutable_body()->mutable_keyvalue()->set_key("k");
  put.mutable_body()->mutable_keyvalue()->set_tag(CoveringTag(AsBytes("123456789")));
  put.mutable_body()->mutable_keyvalue()->set_algorithm(4);
  EXPECT_EQ(Hex(AsBytes(put.SerializeAsString())),
            "0a1218e80720808080808080808020"
            "3804a00601"
            "120d0a0b1a016b2a04e30692833004");
  kinetic::KeyValue::Guard* guard = put.mutable_body()->mutable_keyvalue()->mutable_guard();
  guard->set_key("d");
  guard->set_version("v");
  EXPECT_THAT(Hex(AsBytes(put.SerializeAsString())),
              testing::EndsWith("12160a141a016b2a04e30692833004"
                                "ba06060a0164120176"));
  kinetic::GetLog log;
  log.set_capabilities("bound 1\n");
  EXPECT_EQ(Hex(AsBytes(log.SerializeAsString())), "f20608626f756e6420310a");
}

TEST(Message, NumbersThatNobodyKnowsYetAreKept) {
  kinetic::Command command;
  command.mutable_body()->mutable_keyvalue()->set_algorithm(12345);
  command.mutable_header()->set_priority(7);
  kinetic::Command again;
  ASSERT_TRUE(again.ParseFromString(command.SerializeAsString()));
  EXPECT_EQ(again.body().keyvalue().algorithm(), 12345);
  EXPECT_EQ(again.header().priority(), 7);
}

TEST(Message, AnyChangedBitMakesItUnauthentic) {
  const HmacKey key(kKey);
  const Parsed get = Parse(kKineticVectors[3].request);
  ASSERT_TRUE(Authentic(get.message, key));
  for (size_t bit = 0; bit < 8 * get.message.commandbytes().size(); ++bit) {
    kinetic::Message changed = get.message;
    (*changed.mutable_commandbytes())[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(Authentic(changed, key)) << "bit " << bit;
  }
  EXPECT_FALSE(Authentic(get.message, HmacKey("asdfasdg")));
  kinetic::Message cut = get.message;
  cut.mutable_hmacauth()->mutable_hmac()->pop_back();
  EXPECT_FALSE(Authentic(cut, key));
  cut.clear_hmacauth();
  EXPECT_FALSE(Authentic(cut, key));
}

TEST(Message, TruncatedAndChangedBytesAreRefusedOrReadButNeverCrash) {
  for (const KineticVector& vector : kKineticVectors) {
    const std::string bytes = Unhex(vector.response).substr(kFrameHeaderBytes);
    for (size_t size = 0; size < bytes.size(); ++size) {
      kinetic::Message message;
      kinetic::Command command;
      if (!ParseMessage(AsBytes(bytes).first(size), &message).ok()) continue;
      const Status status = ParseCommand(message, &command);
      EXPECT_TRUE(status.ok() || status.code() == EBADMSG);
    }
  }
  kinetic::Message message;
  EXPECT_FAILS(ParseMessage(AsBytes("not a message at all"), &message), EBADMSG);
}

// The sum of nothing under the empty key, as any table of HMAC-SHA1 has it.
TEST(Hmac, OfAnEmptyCommandIsTheHmacOfNothing) {
  EXPECT_EQ(Hex(HmacKey("").Sign({})), "fbdb1d1b18aa6c08324b7d64b71fb76370690e1d");
}

TEST(Hmac, TakesKeysLongerThanABlock) {
  // Over 00 00 00 01 61, from another implementation.
  EXPECT_EQ(Hex(HmacKey(std::string(100, 'k')).Sign(AsBytes("a"))),
            "810285fd260ddfca1ad26dd42591f0186df1bdbd");
  EXPECT_EQ(Hex(HmacKey(std::string(64, 'k')).Sign(AsBytes("a"))),
            "1dee7e2e4db7be8e64ae2eb6f38f3a5686f28838");
}

TEST(StatusCodes, MeanTheErrnoThatTheInterfaceOfDrivesPromises) {
  const auto code_of = [](kinetic::Status::Code code) {
    kinetic::Status answer;
    answer.set_code(code);
    return StatusOfAnswer(answer).code();
  };
  EXPECT_EQ(code_of(kinetic::Status::SUCCESS), 0);
  EXPECT_EQ(code_of(kinetic::Status::NOT_FOUND), ENOENT);
  EXPECT_EQ(code_of(kinetic::Status::VERSION_MISMATCH), ESTALE);
  EXPECT_EQ(code_of(kinetic::Status::PERM_DATA_ERROR), EBADMSG);
  EXPECT_EQ(code_of(kinetic::Status::GUARD_MISMATCH), ECANCELED);
  EXPECT_EQ(code_of(kinetic::Status::NO_SPACE), ENOSPC);
  EXPECT_EQ(code_of(kinetic::Status::INVALID_REQUEST), EINVAL);
  EXPECT_EQ(code_of(kinetic::Status::NOT_AUTHORIZED), EACCES);
  EXPECT_EQ(code_of(kinetic::Status::VERSION_FAILURE), EHOSTUNREACH);
  EXPECT_EQ(code_of(kinetic::Status::INTERNAL_ERROR), EIO);
  EXPECT_EQ(code_of(kinetic::Status::INVALID_STATUS_CODE), EIO);
  EXPECT_EQ(StatusOfAnswer(kinetic::Status()).code(), EIO);  // says nothing: not a success
}

TEST(StatusCodes, OfFailuresMeanTheSameFailureAtTheOtherEnd) {
  for (const int error :
       {0, ENOENT, ESTALE, EBADMSG, ENOSPC, EINVAL, EACCES, EIO, ETIMEDOUT, ECANCELED}) {
    kinetic::Status answer;
    answer.set_code(static_cast<kinetic::Status::Code>(
        StatusCodeFor(error == 0 ? Status() : Status(error, "why"))));
    EXPECT_EQ(StatusOfAnswer(answer).code(), error);
  }
}

TEST(StatusCodes, CarryThePeersTextWithoutWhatWouldBreakALogLine) {
  kinetic::Status answer;
  answer.set_code(kinetic::Status::NO_SPACE);
  answer.set_statusmessage("disk\nfull\x1b[2J" + std::string(1000, 'x'));
  const std::string message(StatusOfAnswer(answer).message());
  EXPECT_TRUE(message.starts_with("full (NO_SPACE: disk?full?[2Jxxx")) << message;
  EXPECT_LT(message.size(), 300u);
}

}  // namespace
}  // namespace pinstripe
