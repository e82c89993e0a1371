// The bytes of a store on disk (docs/format.md, "Store of a pinstriped drive"): pinned, so that a
// drive written yesterday can be read tomorrow, and safe to decode whatever they are.

#include "store/log_entry.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "base/try.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

std::string HexOf(std::string_view bytes) { return Hex(AsBytes(bytes)); }

const StoredHead kHead{.version = "v1", .tag = "tag", .algorithm = 4, .value_bytes = 5};
const uint32_t kCrc = Crc32c(AsBytes("world"));

TEST(LogEntryGolden, BytesOnDiskAreWhatTheyWere) {
  EXPECT_EQ(HexOf(EncodeLogHeader("hello", kHead, kCrc)),
            "50734c65"
            "01"
            "00000027"
            "00000005"
            "31aa814e"
            "01"
            "00000004"
            "0568656c6c6f"
            "027631"
            "03746167"
            "c66e098f");
  EXPECT_EQ(HexOf(EncodeIndexRecord(
                "hello", {.head = kHead, .value_crc = kCrc, .place = InlineValue{"world"}})),
            "02"
            "01"
            "00000004"
            "00000005"
            "31aa814e"
            "027631"
            "03746167"
            "776f726c64"
            "50ce0770");
  EXPECT_EQ(HexOf(EncodeIndexRecord("hello", {.head = {.value_bytes = 0x1000},
                                              .value_crc = 0x01020304,
                                              .place = LoggedValue{{7, 0x123456789a}, 39}})),
            "02"
            "02"
            "00000000"
            "00001000"
            "01020304"
            "00"
            "00"
            "00000007"
            "000000123456789a"
            "00000027"
            "29ed011a");
  EXPECT_EQ(HexOf(EncodePlaceRecord({7, 0x123456789a}, {0x1027, "hello"})),
            "02"
            "0000000000001027"
            "68656c6c6f"
            "24da0637");
  EXPECT_EQ(HexOf(EncodeCount(0x1027)),
            "0000000000001027"
            "479aa93e");
  EXPECT_EQ(HexOf(EncodeDurable({7, 0x123456789a})),
            "00000007"
            "000000123456789a"
            "e15c4810");
}

TEST(LogEntryGolden, KeysOfTheIndexAreWhatTheyWere) {
  EXPECT_EQ(RecordIndexKey("hello"), "Khello");
  EXPECT_EQ(HexOf(PlaceIndexKey({7, 0x123456789a})),
            "4c"
            "00000007"
            "000000123456789a");
  EXPECT_EQ(HexOf(PreviousIndexKey({7, 0x123456789a})),
            "50"
            "00000007"
            "000000123456789a");
  EXPECT_EQ(HexOf(SegmentIndexKey(7)),
            "53"
            "00000007");
  EXPECT_EQ(InlineBytesIndexKey(), "U");
  EXPECT_EQ(DurableIndexKey(), "W");
}

TEST(LogEntry, EverythingComesBack) {
  for (const std::optional<int32_t> algorithm : {std::optional<int32_t>(), {0}, {-1}, {4}}) {
    const StoredHead head{std::string(2048, 'v'), std::string(128, 't'), algorithm, 1 << 20};
    const auto header = DecodeLogHeader(EncodeLogHeader(std::string(4096, 'k'), head, 17));
    ASSERT_OK(header);
    EXPECT_EQ(header->key, std::string(4096, 'k'));
    EXPECT_EQ(header->head.version, head.version);
    EXPECT_EQ(header->head.tag, head.tag);
    EXPECT_EQ(header->head.algorithm, algorithm);
    EXPECT_EQ(header->head.value_bytes, head.value_bytes);
    EXPECT_EQ(header->value_crc, 17u);
  }
}

TEST(LogEntry, AHeaderThatIsShortenedOrChangedAnywhereIsRefused) {
  const std::string header = EncodeLogHeader("hello", kHead, kCrc);
  for (size_t size = 0; size < header.size(); ++size) {
    EXPECT_FAILS(DecodeLogHeader(header.substr(0, size)), EBADMSG);
  }
  for (size_t bit = 0; bit < header.size() * 8; ++bit) {
    std::string changed = header;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    EXPECT_FAILS(DecodeLogHeader(changed), EBADMSG);
  }
  EXPECT_FAILS(DecodeLogHeader(header + '\0'), EBADMSG);
}

TEST(LogEntry, AnIndexValueThatIsChangedOrBelongsToAnotherKeyIsRefused) {
  const IndexRecord record{.head = kHead, .value_crc = kCrc, .place = InlineValue{"world"}};
  const LogLocation here{7, 42};
  const std::string encoded[] = {EncodeIndexRecord("hello", record),
                                 EncodePlaceRecord(here, {0x1027, "hello"}), EncodeCount(17),
                                 EncodeDurable(here)};
  const auto decode = [&](int which, const std::string& bytes) -> Status {
    switch (which) {
      case 0: TRY(DecodeIndexRecord("hello", bytes)); break;
      case 1: TRY(DecodePlaceRecord(here, bytes)); break;
      case 2: TRY(DecodeCount(bytes)); break;
      default: TRY(DecodeDurable(bytes)); break;
    }
    return {};
  };
  for (int which = 0; which < 4; ++which) {
    EXPECT_OK(decode(which, encoded[which]));
    for (size_t bit = 0; bit < encoded[which].size() * 8; ++bit) {
      std::string changed = encoded[which];
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
      EXPECT_FAILS(decode(which, changed), EBADMSG) << which << " " << bit;
    }
  }
  EXPECT_FAILS(DecodeIndexRecord("hellp", encoded[0]), EBADMSG);
  EXPECT_FAILS(DecodePlaceRecord({7, 43}, encoded[1]), EBADMSG);
}

TEST(LogEntry, AnIndexRecordThatIsShortenedOrOfANewerFormatIsRefused) {
  const std::string record =
      EncodeIndexRecord("hello", {.head = kHead, .value_crc = kCrc, .place = InlineValue{"world"}});
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_FAILS(DecodeIndexRecord("hello", record.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(DecodeIndexRecord("hello", record + "!"), EBADMSG);
  std::string newer = record;
  newer[0] = 3;
  EXPECT_FAILS(DecodeIndexRecord("hello", newer), EBADMSG);
}

}  // namespace
}  // namespace pinstripe
