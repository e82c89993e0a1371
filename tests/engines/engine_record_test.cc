#include <gtest/gtest.h>

#include "base/checksum.h"
#include "base/coding.h"
#include "engines/engine.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

Record NewRecord(std::string version, std::string tag, std::string value) {
  return {
      .version = std::move(version), .tag = std::move(tag), .value = SharedBytes(std::move(value))};
}

// With the right sum, whatever the lengths say.
std::string Sealed(std::string head, const std::string& value) {
  const uint32_t sum = Crc32c(AsBytes(value), Crc32c(AsBytes(head)));
  return head + Writer().U32(sum).Take() + value;
}

TEST(EngineRecord, HasItsHeadFirstAndThenTheSumAndTheValue) {
  const std::string bytes = EncodeEngineRecord(NewRecord("v1", "tag", "value"));
  EXPECT_EQ(Hex(AsBytes(bytes)),
            "01"
            "027631"
            "03746167"
            "7301e823"
            "76616c7565");
  const Result<Record> record = DecodeEngineRecord(SharedBytes(bytes));
  ASSERT_OK(record);
  EXPECT_EQ(record->version, "v1");
  EXPECT_EQ(record->tag, "tag");
  EXPECT_EQ(record->value.text(), "value");
}

TEST(EngineRecord, MayBeEmptyInAllItsPartsAndAsLargeAsADriveTakes) {
  for (const size_t times : {0, 1}) {
    const Record record =
        NewRecord(std::string(times * kMaxVersionBytes, 'x'),
                  std::string(times * kMaxTagBytes, 't'), std::string(times * kMaxValueBytes, 'v'));
    const Result<Record> again = DecodeEngineRecord(SharedBytes(EncodeEngineRecord(record)));
    ASSERT_OK(again);
    EXPECT_EQ(again->version, record.version);
    EXPECT_EQ(again->tag, record.tag);
    EXPECT_TRUE(Equal(again->value, record.value));
  }
}

TEST(EngineRecord, SharesTheBytesThatItWasReadFrom) {
  const SharedBytes bytes(EncodeEngineRecord(NewRecord("v1", "tag", "value")));
  const Result<Record> record = DecodeEngineRecord(bytes);
  ASSERT_OK(record);
  EXPECT_EQ(record->value.data() + record->value.size(), bytes.data() + bytes.size());
}

TEST(EngineRecord, ThatIsDamagedIsNotBelieved) {
  const std::string bytes = EncodeEngineRecord(NewRecord("v1", "tag", "value"));
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_FAILS(DecodeEngineRecord(SharedBytes(damaged)), EBADMSG) << at << " " << bit;
    }
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FAILS(DecodeEngineRecord(SharedBytes(bytes.substr(0, size))), EBADMSG) << size;
  }
  EXPECT_FAILS(DecodeEngineRecord(SharedBytes(bytes + '\0')), EBADMSG);
}

TEST(EngineRecord, ThatIsLargerThanARecordCanBeIsNotBelieved) {
  const auto head = [](size_t version, size_t tag) {
    return Writer().U8(1).Text(std::string(version, 'x')).Text(std::string(tag, 't')).Take();
  };
  EXPECT_OK(DecodeEngineRecord(SharedBytes(Sealed(head(1, 1), "value"))));
  EXPECT_FAILS(DecodeEngineRecord(SharedBytes(Sealed(head(kMaxVersionBytes + 1, 1), "value"))),
               EBADMSG);
  EXPECT_FAILS(DecodeEngineRecord(SharedBytes(Sealed(head(1, kMaxTagBytes + 1), "value"))),
               EBADMSG);
  EXPECT_FAILS(
      DecodeEngineRecord(SharedBytes(Sealed(head(1, 1), std::string(kMaxValueBytes + 1, 'v')))),
      EBADMSG);
}

}  // namespace
}  // namespace pinstripe
