#include "cluster/map/drive_map.h"

#include <gtest/gtest.h>

#include <random>

#include "base/bytes.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

DriveMap SmallMap() {
  DriveMap map;
  map.epoch = 3;
  map.groups = 512;
  map.replicas = 1;
  map.drives = {{1, 100, "rack-a", DriveState::kActive}, {7, 1 << 20, "", DriveState::kDraining}};
  return map;
}

Superblock SmallSuperblock() {
  Superblock block;
  block.cluster_name = "home";
  block.cluster_uuid = "0123456789abcdef";
  block.drive = 258;
  block.map_drives = {1, 2, 258};
  block.formatted_at = 1;
  block.incarnation = 5;
  block.service = DriveService::kBeingRebuilt;
  return block;
}

// One that must be understood and one that may be ignored.
DriveMap MapWithFeatures() {
  DriveMap map = SmallMap();
  map.features = {{"made-up", FeatureKind::kMustBeUnderstood, std::string("\0\xff\x02", 3)},
                  {"x", FeatureKind::kMayBeIgnored, ""}};
  return map;
}

// These bytes are the format. If a test here fails, drives written yesterday cannot be read today.
TEST(DriveMap, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(SmallMap().Encode())),
            "05"
            "00000003"
            "00000200"
            "01"
            "02"
            "0001"
            "00000064"
            "01"
            "06"
            "7261636b2d61"
            "00000000"  // it pulls as it weighs
            "0007"
            "00100000"
            "02"
            "00"
            "00000000"
            "00");  // no features
}

TEST(DriveMap, ItsBytesWithPullsNeverChange) {
  DriveMap map = SmallMap();
  map.drives[0].pull = 1700;
  map.drives[1].pull = 0x01000000;
  EXPECT_EQ(Hex(AsBytes(map.Encode())),
            "05"
            "00000003"
            "00000200"
            "01"
            "02"
            "0001"
            "00000064"
            "01"
            "06"
            "7261636b2d61"
            "000006a4"
            "0007"
            "00100000"
            "02"
            "00"
            "01000000"
            "00");
  EXPECT_EQ(DriveMap::Decode(map.Encode()), map);
  for (const size_t without : {0, 1}) {
    DriveMap mixed = map;
    mixed.drives[without].pull = 0;
    EXPECT_FAILS(DriveMap::Decode(mixed.Encode()), EBADMSG);
  }
}

TEST(DriveMap, ItsBytesWithFeaturesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(MapWithFeatures().Encode())),
            "05"
            "00000003"
            "00000200"
            "01"
            "02"
            "0001"
            "00000064"
            "01"
            "06"
            "7261636b2d61"
            "00000000"
            "0007"
            "00100000"
            "02"
            "00"
            "00000000"
            "02"              // two features
            "07"              // a name of seven bytes
            "6d6164652d7570"  // made-up
            "01"              // must be understood
            "03"              // a section of three bytes
            "00ff02"
            "01"
            "78"
            "02"  // may be ignored
            "00");
  EXPECT_EQ(DriveMap::Decode(MapWithFeatures().Encode()), MapWithFeatures());
}

TEST(Superblock, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(SmallSuperblock().Encode())),
            "02"
            "04"
            "686f6d65"
            "30313233343536373839616263646566"
            "0102"
            "00000005"
            "02"
            "0000000000000001"
            "03"
            "0001"
            "0002"
            "0102");
  EXPECT_EQ(Hex(AsBytes(SmallSuperblock().Version())), "0000000502");
}

TEST(Incarnation, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(IncarnationKey(258))), "440102");
  EXPECT_EQ(Hex(AsBytes(GivenIncarnationKey(258))), "4e0102");
  EXPECT_EQ(Hex(AsBytes(EncodeIncarnation(5))), "0100000005");
  EXPECT_EQ(DecodeIncarnation(EncodeIncarnation(5)), 5u);
}

TEST(Incarnation, AnythingElseIsDamage) {
  const std::string good = EncodeIncarnation(5);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(DecodeIncarnation(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(DecodeIncarnation(good + '\0'), EBADMSG);
  EXPECT_FAILS(DecodeIncarnation("\x02" + good.substr(1)), EBADMSG);
}

TEST(Retirement, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(RetirementKey(258))), "470102");
  EXPECT_EQ(Hex(AsBytes(Retirement{5}.Encode())), "0100000005");
  EXPECT_EQ(Retirement::Decode(Retirement{5}.Encode())->epoch, 5u);
}

TEST(Retirement, AnythingElseIsDamage) {
  const std::string good = Retirement{5}.Encode();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(Retirement::Decode(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(Retirement::Decode(good + '\0'), EBADMSG);
  EXPECT_FAILS(Retirement::Decode("\x02" + good.substr(1)), EBADMSG);
  EXPECT_FAILS(Retirement::Decode(Retirement{0}.Encode()), EBADMSG);
}

TEST(DriveMap, ReadsBackAsWritten) {
  const Result<DriveMap> map = DriveMap::Decode(SmallMap().Encode());
  ASSERT_TRUE(map.has_value()) << map.error().message();
  EXPECT_EQ(*map, SmallMap());
}

TEST(Superblock, ReadsBackAsWritten) {
  const Result<Superblock> block = Superblock::Decode(SmallSuperblock().Encode());
  ASSERT_TRUE(block.has_value()) << block.error().message();
  EXPECT_EQ(block->cluster_name, "home");
  EXPECT_EQ(block->cluster_uuid, "0123456789abcdef");
  EXPECT_EQ(block->drive, 258);
  EXPECT_EQ(block->map_drives, (std::vector<DriveId>{1, 2, 258}));
  EXPECT_EQ(block->formatted_at, 1);
  EXPECT_EQ(block->incarnation, 5u);
  EXPECT_EQ(block->service, DriveService::kBeingRebuilt);
}

// Format 1 knew nothing of incarnations; it was never released.
TEST(Superblock, RefusesFormatsItDoesNotKnowAndNamesThem) {
  for (const char format : {'\1', '\3'}) {
    std::string bytes = SmallSuperblock().Encode();
    bytes[0] = format;
    const Status status = Superblock::Decode(bytes).error();
    EXPECT_EQ(status.code(), EBADMSG);
    EXPECT_NE(status.message().find(fmt::format("format {}", int{format})), std::string::npos)
        << status.message();
  }
}

TEST(DriveMap, RefusesAFormatItDoesNotKnowAndNamesIt) {
  std::string bytes = SmallMap().Encode();
  bytes[0] = 9;
  const Status status = DriveMap::Decode(bytes).error();
  EXPECT_EQ(status.code(), EBADMSG);
  EXPECT_EQ(status.message(),
            "drive map: format 9 is not known here (known: 5); a newer version wrote it");
}

// Format 1 had neither pulls nor features, format 2 no features; with format 3 stripes were
// elsewhere, and with format 4 directories were removed in another way.
TEST(DriveMap, RefusesFormatsThatWereNeverReleased) {
  for (const int format : {1, 2, 3, 4}) {
    std::string bytes = SmallMap().Encode();
    bytes[0] = static_cast<char>(format);
    const Status status = DriveMap::Decode(bytes).error();
    EXPECT_EQ(status.code(), EBADMSG);
    EXPECT_EQ(status.message(),
              fmt::format("drive map: format {} is not known here (known: 5); a version that was "
                          "never released wrote it",
                          format));
  }
}

TEST(DriveMap, RefusesWhatPlacementCouldNotWorkWith) {
  const auto refuses = [](auto change) {
    DriveMap map = SmallMap();
    change(map);
    const Result<DriveMap> decoded = DriveMap::Decode(map.Encode());
    return !decoded.has_value() && decoded.error().code() == EBADMSG;
  };
  EXPECT_FALSE(refuses([](DriveMap&) {}));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.epoch = 0; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.groups = 0; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.groups = 500; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.replicas = 2; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.replicas = 3; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.drives.clear(); }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.drives[0].id = 0; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.drives[1].id = 1; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.drives[0].weight = 0; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.drives[0].weight = (1 << 20) + 1; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.drives[0].state = DriveState{3}; }));
  EXPECT_TRUE(refuses([](DriveMap& map) { map.drives[0].domain.assign(256, 'x'); }));
}

TEST(Superblock, RefusesIdsThatMakeNoSense) {
  const auto refuses = [](auto change) {
    Superblock block = SmallSuperblock();
    change(block);
    return !Superblock::Decode(block.Encode()).has_value();
  };
  EXPECT_FALSE(refuses([](Superblock&) {}));
  EXPECT_TRUE(refuses([](Superblock& block) { block.drive = 0; }));
  EXPECT_TRUE(refuses([](Superblock& block) { block.map_drives.pop_back(); }));
  EXPECT_TRUE(refuses([](Superblock& block) { block.map_drives.clear(); }));
  EXPECT_TRUE(refuses([](Superblock& block) { block.map_drives[0] = 2; }));
  EXPECT_TRUE(refuses([](Superblock& block) { block.cluster_name = "NOT-A-NAME"; }));
  EXPECT_TRUE(refuses([](Superblock& block) { block.service = DriveService{0}; }));
  EXPECT_TRUE(refuses([](Superblock& block) { block.service = DriveService{3}; }));
}

// Whatever a drive sends: a value or EBADMSG, and what is accepted is accepted again as itself.
TEST(DriveMap, SurvivesAnyBytes) {
  std::mt19937 random(1);
  const std::string good = MapWithFeatures().Encode();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DriveMap::Decode(good.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(DriveMap::Decode(good + '\0').has_value());
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const Result<DriveMap> map = DriveMap::Decode(bytes);
    if (map.has_value()) {
      EXPECT_EQ(map->Encode(), bytes);
    }
    const Result<Superblock> block = Superblock::Decode(bytes);
    if (block.has_value()) {
      EXPECT_EQ(block->Encode(), bytes);
    }
  }
}

TEST(ClusterName, IsShortAndPlain) {
  EXPECT_TRUE(CheckClusterName("a").ok());
  EXPECT_TRUE(CheckClusterName("cern-t2_0.9").ok());
  EXPECT_TRUE(CheckClusterName(std::string(32, 'x')).ok());
  for (const std::string& name :
       {std::string(), std::string(33, 'x'), std::string("Upper"), std::string("with space"),
        std::string("a/b"), std::string("a\0b", 3), std::string("\xc3\xa9")}) {
    EXPECT_EQ(CheckClusterName(name).code(), EINVAL) << name;
  }
}

// Defect 5 of the ancestor: clusters on shared drives damaged each other when one's name was a
// prefix of the other's. The length comes first, so no prefix is a prefix of another, and no range
// of keys of one cluster holds keys of the other.
TEST(ClusterName, NoPrefixIsAPrefixOfAnother) {
  const std::vector<std::string> names = {"a", "ab", "abc", "a-", "a.b", "aS", "b"};
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      if (a == b) continue;
      EXPECT_FALSE(ClusterPrefix(b).starts_with(ClusterPrefix(a))) << a << " " << b;
    }
  }
  EXPECT_EQ(SuperblockKey("ab"), std::string("\x02") + "abS");
}

}  // namespace
}  // namespace pinstripe
