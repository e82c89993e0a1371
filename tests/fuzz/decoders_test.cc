// Everything that is read back from drives, given bytes that no writer wrote. A decoder either
// refuses them with EBADMSG, or what it accepted encodes to these very bytes: there are no two ways
// to write one thing, so that whoever compares bytes compares things. That it neither crashes nor
// reads beyond the end is what the sanitizers see here.

#include <gtest/gtest.h>

#include <set>

#include "base/checksum.h"
#include "base/coding.h"
#include "cluster/drive_map.h"
#include "cluster/register_record.h"
#include "cluster/shard.h"
#include "tests/fuzz/mutator.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

const int kInputs = FuzzInputs();

// Decodes the examples and kInputs inputs made of them; `decode` gives back the bytes again.
template <typename Decode>
void Bombard(const std::vector<std::string>& examples, Decode decode) {
  for (const std::string& example : examples) {
    const Result<std::string> again = decode(example);
    ASSERT_OK(again);
    ASSERT_EQ(Hex(AsBytes(*again)), Hex(AsBytes(example)));
  }
  Mutator mutator(examples, /*seed=*/1);
  int refused = 0;
  for (int i = 0; i < kInputs; ++i) {
    // A copy of exactly its size on the heap, so that a sanitizer sees the first byte too many.
    const Buffer input = Buffer::CopyOf(AsBytes(mutator.Next()));
    const Result<std::string> again = decode(AsText(input));
    if (again.has_value()) {
      ASSERT_EQ(Hex(AsBytes(*again)), Hex(input)) << "accepted, but not what would be written";
    } else {
      ASSERT_EQ(again.error().code(), EBADMSG) << Hex(input) << ": " << again.error().message();
      ++refused;
    }
  }
  EXPECT_GT(refused, kInputs / 10) << "these inputs are too tame to test anything";
}

template <typename T>
Result<std::string> Again(const Result<T>& decoded) {
  return decoded.map([](const T& value) { return value.Encode(); });
}

TEST(HostileBytes, AreNoSuperblock) {
  const Superblock small{"a", std::string(16, 'u'), 1, {1}, 0};
  const Superblock large{"a-longer.name",
                         std::string(16, '\0'),
                         700,
                         {1, 2, 3, 500, 65535},
                         int64_t{1700000000} * 1000000000};
  Bombard({small.Encode(), large.Encode()},
          [](std::string_view bytes) { return Again(Superblock::Decode(bytes)); });
}

TEST(HostileBytes, AreNoDriveMap) {
  const DriveMap small{1, 1, 1, {{1, 1, "", DriveState::kActive}}};
  const DriveMap large{300,
                       512,
                       5,
                       {{1, 1000, "rack 1", DriveState::kActive},
                        {2, 1 << 20, "rack 2", DriveState::kDraining},
                        {3, 1, "", DriveState::kActive},
                        {4, 77, "rack 1", DriveState::kActive},
                        {65535, 5, std::string(100, 'd'), DriveState::kActive}}};
  Bombard({small.Encode(), large.Encode()},
          [](std::string_view bytes) { return Again(DriveMap::Decode(bytes)); });
}

TEST(HostileBytes, AreNoShardDescriptor) {
  const StripeLayout coded{4, 2, 1 << 20};
  const StripeLayout copied{1, 2, 64 << 10};
  const Buffer large = Buffer::Zeroed(3 * (64 << 10) + 64);
  const Buffer small = Buffer::Zeroed(64);
  Bombard(
      {DescribeShard(coded, 4 * large.size() - 5, 3, large).Encode(),
       DescribeShard(coded, 200, 5, small).Encode(), DescribeShard(copied, 60, 0, small).Encode()},
      [](std::string_view bytes) { return Again(ShardDescriptor::Decode(bytes)); });
}

// The sums are made right again after every change, or they would stop everything at the door.
TEST(HostileBytes, AreNoRegisterEvenWithRightSums) {
  const std::string key = "\3atcRkey";
  const auto join = [](const Drive::PutRequest& put) {
    return Writer().Text(put.version).Raw(put.value.text()).Take();
  };
  const auto example = [&](Ballot promised, Ballot accepted, std::optional<std::string> value) {
    auto proposal = std::make_shared<Proposal>();
    proposal->nonce = {1, 2};
    proposal->earlier = {9, 8, 7};
    proposal->value = std::move(value);
    return join(EncodeRegisterPut(key, "", {promised, accepted, proposal}, Durability::kWriteBack));
  };
  const std::vector<std::string> examples = {
      example(Ballot::Fast(1), Ballot::Fast(1), "value"),
      example({7, 3, 0x1234567890}, {7, 2, 0x987654321}, std::string(300, 'v')),
      example({2, 1, 5}, {2, 1, 5}, std::nullopt),
  };

  const auto decode = [&](const std::string& version, std::string value, bool repair) {
    // U8 format, U8 flags, nonce[16], U8 n, n x U64, then the sum of key and version
    // (docs/format.md).
    constexpr size_t kCountAt = 18;
    if (repair && value.size() > kCountAt) {
      const size_t sum_at = kCountAt + 1 + 8 * static_cast<uint8_t>(value[kCountAt]);
      const uint32_t sum = Crc32c(AsBytes(version), Crc32c(AsBytes(key)));
      if (sum_at + 4 <= value.size()) value.replace(sum_at, 4, Writer().U32(sum).Take());
    }
    Record record;
    record.version = version;
    record.tag = RecordTag(Crc32c(AsBytes(value)));
    record.value = SharedBytes(value);
    return std::pair(DecodeRegister(key, record), value);
  };
  const auto split = [](std::string_view bytes) {
    Reader reader(bytes);
    const std::string version(reader.Text());
    return std::pair(version, std::string(reader.Rest()));
  };

  for (const std::string& bytes : examples) {
    const auto [version, value] = split(bytes);
    ASSERT_OK(decode(version, value, /*repair=*/false).first);
    ASSERT_EQ(decode(version, value, /*repair=*/true).second, value)
        << "this test knows the format";
  }

  Mutator mutator(examples, /*seed=*/1);
  std::set<std::string> seen;
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < kInputs; ++i) {
    const auto [version, mutated] = split(mutator.Next());
    const auto [state, value] = decode(version, mutated, /*repair=*/true);
    if (!state.has_value()) {
      ASSERT_EQ(state.error().code(), EBADMSG) << state.error().message();
      ++refused;
      continue;
    }
    ++accepted;
    const Drive::PutRequest again = EncodeRegisterPut(key, "", *state, Durability::kWriteBack);
    ASSERT_EQ(Hex(AsBytes(again.version)), Hex(AsBytes(version)));
    ASSERT_EQ(Hex(again.value), Hex(AsBytes(value)));
  }
  EXPECT_GT(refused, kInputs / 10);
  EXPECT_GT(accepted, kInputs / 100) << "everything stopped at the door";
}

// A test of the test: a decoder that ignores what it does not expect is found.
TEST(HostileBytes, FindADecoderThatIsTooKind) {
  const auto too_kind = [](std::string_view bytes) -> Result<std::string> {
    Reader reader(bytes);
    const uint32_t number = reader.U32();
    if (!reader.ok()) return Fail(EBADMSG, "cut short");
    return Writer().U32(number).Take();
  };
  Mutator mutator({"four"}, /*seed=*/1);
  bool found = false;
  for (int i = 0; i < 100 && !found; ++i) {
    const std::string input = mutator.Next();
    const Result<std::string> again = too_kind(input);
    found = again.has_value() && *again != input;
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace pinstripe
