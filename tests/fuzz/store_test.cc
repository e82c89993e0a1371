// The bytes of a drive's store, log and index, as nobody wrote them. Each is tried as it comes,
// which its checksum refuses, and with a checksum that fits again, as a writer with a bug would
// leave it: then it is refused all the same, or it means something that encodes to these very
// bytes.

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "base/coding.h"
#include "drive/log_entry.h"
#include "tests/fuzz/mutator.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

const int kInputs = FuzzInputs();

constexpr std::string_view kKey = "key";
constexpr LogLocation kHere{7, 0x123456789a};

std::string Sealed(std::string_view context, std::string_view value) {
  const uint32_t crc = Crc32c(AsBytes(value), Crc32c(AsBytes(context)));
  return Writer().Raw(value).U32(crc).Take();
}

// `decode` gives back the bytes again; `context` is what else the checksum covers.
template <typename Decode>
void Bombard(const std::vector<std::string>& examples, std::string_view context, Decode decode) {
  std::vector<std::string> values;
  for (const std::string& example : examples) {
    const Result<std::string> again = decode(example);
    ASSERT_OK(again);
    ASSERT_EQ(Hex(AsBytes(*again)), Hex(AsBytes(example)));
    values.push_back(example.substr(0, example.size() - 4));
    ASSERT_EQ(Sealed(context, values.back()), example) << "the test seals otherwise";
  }
  Mutator whole(examples, /*seed=*/1);
  Mutator unsealed(values, /*seed=*/2);
  int refused = 0;
  for (int i = 0; i < kInputs; ++i) {
    // On the heap and of exactly its size, so that a sanitizer sees the first byte too many.
    const Buffer input =
        Buffer::CopyOf(AsBytes(i % 4 == 0 ? whole.Next() : Sealed(context, unsealed.Next())));
    const Result<std::string> again = decode(AsText(input));
    if (again.has_value()) {
      ASSERT_TRUE(*again == AsText(input))
          << Hex(input) << " is accepted, but " << Hex(AsBytes(*again)) << " would be written";
    } else {
      ASSERT_EQ(again.error().code(), EBADMSG) << Hex(input) << ": " << again.error().message();
      ++refused;
    }
  }
  EXPECT_GT(refused, kInputs / 10) << "these inputs are too tame to test anything";
}

const StoredHead kSmall{.value_bytes = 5};
const StoredHead kLarge{.version = std::string(300, 'v'),
                        .tag = std::string(128, 't'),
                        .algorithm = -1,
                        .value_bytes = 1 << 20};

TEST(HostileStore, HasNoLogHeader) {
  Bombard({EncodeLogHeader("", kSmall, 0), EncodeLogHeader(std::string(500, 'k'), kLarge, 77)}, "",
          [](std::string_view bytes) -> Result<std::string> {
            return DecodeLogHeader(bytes).map([](const LogHeader& header) {
              return EncodeLogHeader(header.key, header.head, header.value_crc);
            });
          });
}

TEST(HostileStore, HasNoIndexRecord) {
  Bombard({EncodeIndexRecord(kKey, {.head = kSmall, .value_crc = 7, .place = InlineValue{"world"}}),
           EncodeIndexRecord(kKey,
                             {.head = kLarge, .value_crc = 8, .place = LoggedValue{kHere, 4000}})},
          kKey, [](std::string_view bytes) -> Result<std::string> {
            return DecodeIndexRecord(kKey, bytes).map([](const IndexRecord& record) {
              return EncodeIndexRecord(kKey, record);
            });
          });
}

TEST(HostileStore, HasNoPlace) {
  const std::string index_key = PlaceIndexKey(kHere);
  Bombard({EncodePlaceRecord(kHere, {1, ""}),
           EncodePlaceRecord(kHere, {uint64_t{1} << 40, std::string(4096, 'k')})},
          index_key, [](std::string_view bytes) -> Result<std::string> {
            return DecodePlaceRecord(kHere, bytes).map([](const PlaceRecord& place) {
              return EncodePlaceRecord(kHere, place);
            });
          });
}

TEST(HostileStore, HasNoCountAndNoMark) {
  Bombard({EncodeCount(0), EncodeCount(UINT64_MAX)}, "",
          [](std::string_view bytes) -> Result<std::string> {
            return DecodeCount(bytes).map([](uint64_t count) { return EncodeCount(count); });
          });
  Bombard({EncodeDurable({}), EncodeDurable(kHere)}, DurableIndexKey(),
          [](std::string_view bytes) -> Result<std::string> {
            return DecodeDurable(bytes).map([](LogLocation at) { return EncodeDurable(at); });
          });
}

}  // namespace
}  // namespace pinstripe
