#include "cluster/registers/record.h"

#include <gtest/gtest.h>

#include <string>

#include "base/checksum.h"
#include "base/coding.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

const std::string kKey("\1cR\0\0\0\7name", 11);

ReplicaState SomeState() {
  return {.promised = {3, 2, 0x1122334455667788},
          .accepted = {3, 0, 0},
          .proposal = std::make_shared<const Proposal>(
              Proposal{.nonce = {0xa1a2a3a4a5a6a7a8, 0xb1b2b3b4b5b6b7b8},
                       .earlier = {0xc1c2c3c4c5c6c7c8, 0xd1d2d3d4d5d6d7d8},
                       .value = "hello"})};
}

Record RecordOf(const ReplicaState& state) {
  const auto put = EncodeRegisterPut(kKey, "", state, Durability::kWriteBack);
  return {.version = put.version, .tag = put.tag, .value = put.value};
}

// These bytes are the format. If this test fails, registers written yesterday cannot be read today.
TEST(RegisterRecord, ItsBytesNeverChange) {
  const Record record = RecordOf(SomeState());
  EXPECT_EQ(Hex(AsBytes(record.version)),
            "0000000000000003"
            "00000002"
            "1122334455667788"  // promised
            "0000000000000003"
            "00000000"
            "0000000000000000");  // accepted
  EXPECT_EQ(Hex(record.value),
            "01"
            "01"  // format, present
            "a1a2a3a4a5a6a7a8"
            "b1b2b3b4b5b6b7b8"  // nonce
            "02"
            "c1c2c3c4c5c6c7c8"
            "d1d2d3d4d5d6d7d8"  // earlier nonces
            "96613819"          // CRC32C of key and version
            "68656c6c6f");      // "hello"
  EXPECT_EQ(Hex(AsBytes(record.tag)), Hex(AsBytes(Writer().U32(Crc32c(record.value)).bytes())));
}

TEST(RegisterRecord, AnAbsentValueHasNoPayload) {
  ReplicaState state = SomeState();
  state.proposal = std::make_shared<const Proposal>(Proposal{.nonce = {1, 2}});
  const Record record = RecordOf(state);
  EXPECT_EQ(Hex(record.value).substr(0, 4), "0100");
  EXPECT_EQ(record.value.size(), 1u + 1 + 16 + 1 + 4);
}

TEST(RegisterRecord, ARemovalSaysWhenItWas) {
  ReplicaState state = SomeState();
  state.proposal =
      std::make_shared<const Proposal>(Proposal{.nonce = {1, 2}, .removed_at = 0x1112131415161718});
  const Record record = RecordOf(state);
  EXPECT_EQ(Hex(record.value).substr(0, 4), "0102");
  EXPECT_EQ(Hex(record.value).substr(2 * (1 + 1 + 16 + 1 + 4)), "1112131415161718");
  const Result<ReplicaState> read = DecodeRegister(kKey, record);
  ASSERT_OK(read);
  EXPECT_EQ(read->proposal->value, std::nullopt);
  EXPECT_EQ(read->proposal->removed_at, 0x1112131415161718);
}

TEST(RegisterRecord, WhatWasTakenOverSaysFromWhere) {
  ReplicaState state = SomeState();
  state.proposal =
      std::make_shared<const Proposal>(Proposal{.nonce = {1, 2}, .value = "x", .former_slot = 2});
  Record record = RecordOf(state);
  EXPECT_EQ(Hex(record.value).substr(0, 4), "0105");
  EXPECT_EQ(Hex(record.value).substr(2 * (1 + 1 + 16 + 1), 16), "0000000000000002");
  const Result<ReplicaState> read = DecodeRegister(kKey, record);
  ASSERT_OK(read);
  EXPECT_EQ(read->proposal->former_slot, 2u);
  EXPECT_EQ(read->proposal->value, "x");
  // Not from where it is.
  state.proposal =
      std::make_shared<const Proposal>(Proposal{.nonce = {1, 2}, .value = "x", .former_slot = 3});
  EXPECT_FAILS(DecodeRegister(kKey, RecordOf(state)), EBADMSG);
}

TEST(RegisterRecord, ABoundValueSaysWhatItNeedsAndWhatIsThereWithoutThat) {
  ReplicaState state = SomeState();
  for (const auto& otherwise : {std::optional<std::string>("no"), std::optional<std::string>()}) {
    state.proposal = std::make_shared<const Proposal>(
        Proposal{.nonce = {1, 2},
                 .value = "x",
                 .bound = Bound{.least = 3, .otherwise = otherwise, .proposed_at = 0x1112}});
    const Record record = RecordOf(state);
    EXPECT_EQ(Hex(record.value).substr(0, 4), "0109");
    EXPECT_EQ(Hex(record.value).substr(2 * (1 + 1 + 16 + 1), otherwise ? 26 : 20),
              otherwise ? "0300000000000011120102"
                          "6e6f"
                        : "03000000000000111200");
    const Result<ReplicaState> read = DecodeRegister(kKey, record);
    ASSERT_OK(read);
    EXPECT_EQ(read->proposal->value, "x");
    EXPECT_EQ(read->proposal->bound, state.proposal->bound);
    EXPECT_FALSE(read->proposal->is_instead);
  }
}

TEST(RegisterRecord, WhatIsThereInsteadSaysSo) {
  ReplicaState state = SomeState();
  state.proposal = std::make_shared<const Proposal>(
      Proposal{.nonce = {1, 2}, .removed_at = 5, .is_instead = true});
  const Record record = RecordOf(state);
  EXPECT_EQ(Hex(record.value).substr(0, 4), "0112");
  const Result<ReplicaState> read = DecodeRegister(kKey, record);
  ASSERT_OK(read);
  EXPECT_TRUE(read->proposal->is_instead);
  EXPECT_EQ(read->proposal->removed_at, 5);
}

TEST(RegisterRecord, ReadsBackWhatWasWritten) {
  for (const auto& value : {std::optional<std::string>("hello"), std::optional<std::string>(""),
                            std::optional<std::string>()}) {
    ReplicaState state = SomeState();
    Proposal proposal = *state.proposal;
    proposal.value = value;
    state.proposal = std::make_shared<const Proposal>(proposal);
    const Result<ReplicaState> read = DecodeRegister(kKey, RecordOf(state));
    ASSERT_OK(read);
    EXPECT_EQ(read->promised, state.promised);
    EXPECT_EQ(read->accepted, state.accepted);
    EXPECT_EQ(read->proposal->nonce, proposal.nonce);
    EXPECT_EQ(read->proposal->earlier, proposal.earlier);
    EXPECT_EQ(read->proposal->value, value);
  }
}

TEST(RegisterRecord, OneThatWasNeverWrittenHasTheVersionOfARecordThatIsNotThere) {
  EXPECT_EQ(EncodeRegisterVersion({}, {}), "");
}

TEST(RegisterRecord, AValueUnderAnotherKeyIsDamage) {
  EXPECT_FAILS(DecodeRegister(kKey + "x", RecordOf(SomeState())), EBADMSG);
}

TEST(RegisterRecord, AValueUnderAnotherVersionIsDamage) {
  Record record = RecordOf(SomeState());
  record.version = EncodeRegisterVersion({4, 1, 1}, {3, 0, 0});
  EXPECT_FAILS(DecodeRegister(kKey, record), EBADMSG);
}

TEST(RegisterRecord, EveryFlippedBitIsNoticed) {
  const Record record = RecordOf(SomeState());
  for (size_t bit = 0; bit < 8 * record.value.size(); ++bit) {
    Record damaged = record;
    Buffer value = Buffer::CopyOf(record.value);
    value.data()[bit / 8] ^= std::byte{1} << (bit % 8);
    damaged.value = SharedBytes(std::move(value));
    EXPECT_FAILS(DecodeRegister(kKey, damaged), EBADMSG) << "bit " << bit;
  }
  for (size_t bit = 0; bit < 8 * record.version.size(); ++bit) {
    Record damaged = record;
    damaged.version[bit / 8] = static_cast<char>(damaged.version[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FAILS(DecodeRegister(kKey, damaged), EBADMSG) << "bit " << bit;
  }
}

// Somebody who can compute checksums, but not write registers.
Record Forged(std::string value) {
  const Record good = RecordOf(SomeState());
  const std::string tag = Writer().U32(Crc32c(AsBytes(value))).Take();
  return {.version = good.version, .tag = tag, .value = SharedBytes(std::move(value))};
}

TEST(RegisterRecord, WhatIsCutShortOrUnknownIsRefused) {
  const std::string good(RecordOf(SomeState()).value.text());
  ASSERT_OK(DecodeRegister(kKey, Forged(good)));
  for (size_t length = 0; length + 5 < good.size(); ++length) {
    EXPECT_FAILS(DecodeRegister(kKey, Forged(good.substr(0, length))), EBADMSG) << length;
  }
  std::string other_format = good;
  other_format[0] = 2;
  const auto refused = DecodeRegister(kKey, Forged(other_format));
  EXPECT_FAILS(refused, EBADMSG);
  EXPECT_NE(refused.error().message().find("format 2"), std::string_view::npos);
  std::string unknown_flag = good;
  unknown_flag[1] = 2;
  EXPECT_FAILS(DecodeRegister(kKey, Forged(unknown_flag)), EBADMSG);
  std::string absent_with_payload = good;
  absent_with_payload[1] = 0;
  EXPECT_FAILS(DecodeRegister(kKey, Forged(absent_with_payload)), EBADMSG);
}

TEST(RegisterRecord, AVersionThatNoReplicaCanHaveIsRefused) {
  ReplicaState state = SomeState();
  state.promised = {2, 0, 0};  // below what it accepted
  EXPECT_FAILS(DecodeRegister(kKey, RecordOf(state)), EBADMSG);
  Record record = RecordOf(SomeState());
  record.version += "x";
  EXPECT_FAILS(DecodeRegister(kKey, record), EBADMSG);
  record.version = "";
  EXPECT_FAILS(DecodeRegister(kKey, record), EBADMSG);
}

}  // namespace
}  // namespace pinstripe
