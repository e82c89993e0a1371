// Everything that is read back from drives and from a drive's own files, given bytes that no writer
// wrote (inputs.h says what must hold). Where a checksum stands at the end, three inputs in four
// get one that fits again, or they would all stop at the door.

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/log.h"
#include "tests/fuzz/inputs.h"
#include "tests/fuzz/mutator.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

const int kInputs = FuzzInputs();

// Decodes the examples and kInputs inputs made of them.
void Bombard(const RecordKind& kind) {
  std::vector<std::string> unsealed;
  for (const std::string& example : kind.examples) {
    const Result<std::string> again = kind.again(example);
    ASSERT_OK(again);
    ASSERT_EQ(Hex(AsBytes(*again)), Hex(AsBytes(example)));
    unsealed.push_back(kind.sealed_with ? example.substr(0, example.size() - 4) : example);
    ASSERT_EQ(Sealed(kind, unsealed.back()), example) << "the test seals otherwise";
  }
  Mutator whole(kind.examples, /*seed=*/1);
  Mutator inner(unsealed, /*seed=*/2);
  int count = 0;
  for (int i = 0; i < kInputs; ++i) {
    // A copy of exactly its size on the heap, so that a sanitizer sees the first byte too many.
    const Buffer input =
        Buffer::CopyOf(AsBytes(i % 4 == 0 ? whole.Next() : Sealed(kind, inner.Next())));
    bool refused = false;
    ASSERT_EQ(TryRecord(kind, input, &refused), "");
    count += refused;
  }
  EXPECT_GT(count, kInputs / 10) << "these inputs are too tame to test anything";
}

TEST(HostileBytes, AreNoSuperblock) { Bombard(KindOfRecord("superblock")); }
TEST(HostileBytes, AreNoDriveMap) { Bombard(KindOfRecord("drive map")); }
TEST(HostileBytes, AreNoHistoryOfTheDriveMap) { Bombard(KindOfRecord("history of the drive map")); }
TEST(HostileBytes, AreNoClaimOnADrive) { Bombard(KindOfRecord("drive claim")); }
TEST(HostileBytes, AreNoShardDescriptor) {
  Bombard(KindOfRecord("shard descriptor"));
  Bombard(KindOfRecord("part of a shard descriptor"));
}
TEST(HostileBytes, AreNoEvent) { Bombard(KindOfRecord("event")); }
TEST(HostileBytes, AreNoWork) {
  Bombard(KindOfRecord("work"));
  Bombard(KindOfRecord("work order"));
}
TEST(HostileBytes, AreNoAwayNote) { Bombard(KindOfRecord("away note")); }
TEST(HostileBytes, AreNoWorkStops) { Bombard(KindOfRecord("work stops")); }
TEST(HostileBytes, AreNoScrubNotes) { Bombard(KindOfRecord("scrub note")); }
TEST(HostileBytes, AreNoFillHistory) { Bombard(KindOfRecord("fill history")); }
TEST(HostileBytes, AreNoLastLook) { Bombard(KindOfRecord("last look")); }
TEST(HostileBytes, AreNoLastPlaces) { Bombard(KindOfRecord("last places")); }
TEST(HostileBytes, AreNoKeptLayout) { Bombard(KindOfRecord("kept layout")); }
TEST(HostileBytes, AreNoRetirement) { Bombard(KindOfRecord("retirement")); }
TEST(HostileBytes, AreNoRecordInARedisStore) { Bombard(KindOfRecord("record in a Redis store")); }
TEST(HostileBytes, AreNoRecordInAnEngine) { Bombard(KindOfRecord("record in an engine")); }
TEST(HostileBytes, AreNoHash) { Bombard(KindOfRecord("hash of the Redis protocol")); }
TEST(HostileBytes, AreNoDirectoryEntry) { Bombard(KindOfRecord("directory entry")); }
TEST(HostileStore, HasNoLogHeader) { Bombard(KindOfRecord("log header")); }
TEST(HostileStore, HasNoIndexRecord) { Bombard(KindOfRecord("index record")); }
TEST(HostileStore, HasNoPlace) { Bombard(KindOfRecord("place")); }
TEST(HostileStore, HasNoCountAndNoMark) {
  Bombard(KindOfRecord("count"));
  Bombard(KindOfRecord("durable mark"));
}

TEST(HostileStore, HasNoListOfStarts) { Bombard(KindOfRecord("list of starts")); }

TEST(HostileDiskCache, HasNoSegmentAndNoSlot) {
  Bombard(KindOfRecord("cache segment header"));
  Bombard(KindOfRecord("cache slot"));
}

TEST(HostileBytes, AreNoRegisterEvenWithRightSums) {
  const Examples examples = ExampleRegisters();
  for (const std::string& example : examples) {
    bool refused = false;
    ASSERT_EQ(TryRegister(example, &refused), "");
    ASSERT_FALSE(refused) << "this test knows the format";
  }
  Mutator mutator(examples, /*seed=*/1);
  int count = 0;
  for (int i = 0; i < kInputs; ++i) {
    bool refused = false;
    ASSERT_EQ(TryRegister(mutator.Next(), &refused), "");
    count += refused;
  }
  EXPECT_GT(count, kInputs / 10);
  EXPECT_GT(kInputs - count, kInputs / 100) << "everything stopped at the door";
}

TEST(HostileBytes, AreNoInodeOrOneThatIsSafeToUse) {
  InodeCount count;
  const Examples examples = ExampleInodes();
  for (const std::string& example : examples) ASSERT_EQ(TryInode(AsBytes(example), &count), "");
  ASSERT_EQ(count.refused, 0);
  Mutator mutator(examples, /*seed=*/1);
  for (int i = 0; i < kInputs; ++i) {
    const Buffer input = Buffer::CopyOf(AsBytes(mutator.Next()));
    ASSERT_EQ(TryInode(input, &count), "");
  }
  EXPECT_GT(count.refused, kInputs / 10);
  EXPECT_GT(count.with_map, kInputs / 100) << "no block map came through";
  EXPECT_GT(count.in_pages, kInputs / 200) << "no block map in pages came through";
}

TEST(HostileStore, IsRefusedOrRecovers) {
  SetLogLevel(LogLevel::kError);
  const int inputs = kInputs / 10;
  const Examples examples = ExampleRecoveries();
  for (const std::string& example : examples) {
    Recovered recovered;
    ASSERT_EQ(TryRecovery(AsBytes(example), IndexKind::kMap, OpenAgain::kAlways, &recovered), "");
    ASSERT_FALSE(recovered.refused) << "this test knows the format";
  }
  Mutator mutator(examples, /*seed=*/1);
  int count = 0;
  for (int i = 0; i < inputs; ++i) {
    const std::string input = mutator.Next();
    Recovered recovered;
    ASSERT_EQ(TryRecovery(AsBytes(input), IndexKind::kMap, OpenAgain::kAlways, &recovered), "")
        << Hex(AsBytes(input));
    count += recovered.refused;
  }
  EXPECT_GT(count, inputs / 40);
  EXPECT_GT(inputs - count, inputs / 10) << "nothing was ever recovered";
}

// Which says that the map does what RocksDB does. A RocksDB is opened three times for each: a few
// milliseconds.
TEST(HostileStore, RecoversTheSameWithItsIndexInMemory) {
  SetLogLevel(LogLevel::kError);
  Mutator mutator(ExampleRecoveries(), /*seed=*/2);
  for (int i = 0; i < kInputs / 500; ++i) {
    const std::string input = mutator.Next();
    Recovered one;
    Recovered other;
    ASSERT_EQ(TryRecovery(AsBytes(input), IndexKind::kRocksDb, OpenAgain::kAlways, &one), "")
        << Hex(AsBytes(input));
    ASSERT_EQ(TryRecovery(AsBytes(input), IndexKind::kMap, OpenAgain::kAlways, &other), "")
        << Hex(AsBytes(input));
    ASSERT_EQ(one.refused, other.refused) << Hex(AsBytes(input));
    ASSERT_EQ(one.contents, other.contents) << Hex(AsBytes(input));
  }
}

TEST(HostileStore, IsRefusedWhereItWasFoundToBeMisunderstood) {
  SetLogLevel(LogLevel::kError);
  for (const std::string& example : DamagedRecoveries()) {
    Recovered recovered;
    EXPECT_EQ(TryRecovery(AsBytes(example), IndexKind::kMap, OpenAgain::kAlways, &recovered), "");
    EXPECT_TRUE(recovered.refused);
  }
}

// A test of the test: a decoder that ignores what it does not expect is found.
TEST(HostileBytes, FindADecoderThatIsTooKind) {
  const RecordKind too_kind{.name = "number",
                            .examples = {"four"},
                            .again = [](std::string_view bytes) -> Result<std::string> {
                              Reader reader(bytes);
                              const uint32_t number = reader.U32();
                              if (!reader.ok()) return Fail(EBADMSG, "cut short");
                              return Writer().U32(number).Take();
                            }};
  Mutator mutator(too_kind.examples, /*seed=*/1);
  bool found = false;
  for (int i = 0; i < 100 && !found; ++i) {
    bool refused = false;
    found = !TryRecord(too_kind, AsBytes(mutator.Next()), &refused).empty();
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace pinstripe
