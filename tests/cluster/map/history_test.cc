#include "cluster/map/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/bytes.h"
#include "base/coding.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

DriveMap FirstMap() {
  DriveMap map;
  map.epoch = 1;
  map.groups = 512;
  map.replicas = 1;
  map.drives = {{1, 100, "a", DriveState::kActive}, {7, 200, "", DriveState::kActive}};
  return map;
}

// A drive comes, one is drained and a feature comes, nothing changes.
std::vector<DriveMap> FourEpochs() {
  std::vector<DriveMap> epochs(4, FirstMap());
  for (size_t i = 1; i < epochs.size(); ++i) {
    epochs[i] = epochs[i - 1];
    ++epochs[i].epoch;
    if (i == 1)
      epochs[i].drives.insert(epochs[i].drives.begin() + 1, {3, 50, "b", DriveState::kActive});
    if (i == 2) epochs[i].drives[0].state = DriveState::kDraining;
    if (i == 2) epochs[i].features = {{"x", FeatureKind::kMayBeIgnored, "y"}};
  }
  return epochs;
}

// These bytes are the format. If a test here fails, clusters of yesterday are opened slowly today.
TEST(DriveMapHistory, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(EncodeHistory(FourEpochs()))),
            "02"
            "00000004"
            "25"  // epoch 1 as it is stored itself
            "0500000001000002000102"
            "00010000006401016100000000"
            "0007000000c8010000000000"
            "00"
            "01"  // epoch 2: one drive is new
            "00030000003201"
            "0162"
            "00"  // the features are those of the epoch before
            "01"  // epoch 3: one drive is another
            "00010000006402"
            "0161"
            "01"  // the features are
            "01"  // one
            "0178"
            "02"
            "0179"
            "00"  // epoch 4: no drive is another
            "00");
}

TEST(DriveMapHistory, TellsWhatItWasTold) {
  const auto epochs = DecodeHistory(EncodeHistory(FourEpochs()));
  ASSERT_OK(epochs);
  EXPECT_EQ(*epochs, FourEpochs());
}

std::vector<Feature> FeaturesOf(size_t count) {
  std::vector<Feature> features;
  for (size_t i = 0; i < count; ++i) {
    features.push_back({fmt::format("made-up-{}", i), FeatureKind::kMustBeUnderstood, "section"});
  }
  return features;
}

TEST(DriveMapHistory, HoldsWhatHappensToRealClusters) {
  std::mt19937 random(1);
  std::vector<DriveMap> epochs{FirstMap()};
  for (MappedDrive& drive : epochs[0].drives) drive.pull = drive.weight << 8;
  for (int i = 0; i < 500; ++i) {
    DriveMap next = epochs.back();
    ++next.epoch;
    MappedDrive& drive = next.drives[random() % next.drives.size()];
    switch (random() % 5) {
      case 0:
        next.drives.push_back({static_cast<DriveId>(next.drives.back().id + 1 + random() % 3),
                               static_cast<uint32_t>(1 + random() % 1000), "rack",
                               DriveState::kActive, 77});
        break;
      case 1: drive.state = DriveState::kDraining; break;
      case 3: next.features = FeaturesOf(random() % 4); break;
      case 2: drive.weight = 1 + random() % 1000, drive.pull = 1 + random() % 1000; break;
      default: break;
    }
    epochs.push_back(next);
  }
  const std::string bytes = EncodeHistory(epochs);
  const auto read = DecodeHistory(bytes);
  ASSERT_OK(read);
  EXPECT_EQ(*read, epochs);
  EXPECT_LT(bytes.size(), 500 * 25u);
}

TEST(DriveMapHistory, TakesAsManyAsItHasRoomFor) {
  std::vector<DriveMap> epochs{FirstMap()};
  while (epochs.size() < 3000) {
    epochs.push_back(epochs.back());
    ++epochs.back().epoch;
    epochs.back().drives[0].domain = std::string(epochs.size() % 2 * 100, 'x');
  }
  const std::string bytes = EncodeHistory(epochs);
  EXPECT_LE(bytes.size(), kMaxHistoryBytes + 16);
  const auto read = DecodeHistory(bytes);
  ASSERT_OK(read);
  EXPECT_GT(read->size(), 500u);
  EXPECT_LT(read->size(), 3000u);
  EXPECT_TRUE(std::equal(read->begin(), read->end(), epochs.begin()));
}

// Few bytes could ask for much memory: an epoch that changes nothing takes two bytes.
TEST(DriveMapHistory, AHugeMapOfManyEpochsIsRefused) {
  DriveMap map = FirstMap();
  while (map.drives.size() < 3000) {
    map.drives.push_back(
        {static_cast<DriveId>(map.drives.back().id + 1), 1, "", DriveState::kActive});
  }
  const uint32_t epochs = 20'000;
  const std::string bytes =
      Writer().U8(2).U32(epochs).Text(map.Encode()).Raw(std::string(2 * (epochs - 1), '\0')).Take();
  EXPECT_FAILS(DecodeHistory(bytes), EBADMSG);

  // Who writes a history keeps to the same.
  std::vector<DriveMap> many(400, map);
  for (size_t i = 1; i < many.size(); ++i) many[i].epoch = static_cast<Epoch>(i + 1);
  const auto read = DecodeHistory(EncodeHistory(many));
  ASSERT_OK(read);
  EXPECT_EQ(read->size(), kMaxHistoryDrives / map.drives.size());
}

// The same with features: sections are copied into each epoch.
TEST(DriveMapHistory, ManyEpochsOfLongSectionsAreRefused) {
  DriveMap map = FirstMap();
  map.features = {{"a", FeatureKind::kMayBeIgnored, std::string(kMaxSectionBytes, 'a')},
                  {"b", FeatureKind::kMayBeIgnored, std::string(kMaxSectionBytes, 'b')}};
  const uint32_t epochs = 20'000;
  const std::string bytes =
      Writer().U8(2).U32(epochs).Text(map.Encode()).Raw(std::string(2 * (epochs - 1), '\0')).Take();
  EXPECT_LE(bytes.size(), kMaxHistoryBytes);
  const auto read = DecodeHistory(bytes);
  EXPECT_FAILS(read, EBADMSG);
  EXPECT_NE(read.error().message().find("too many"), std::string::npos) << read.error().message();
}

// What was heavy at first and is not any more: who reads counts as who wrote.
TEST(DriveMapHistory, IsReadHoweverTheMapShrinksInIt) {
  DriveMap map = FirstMap();
  while (map.drives.size() < 300) {
    map.drives.push_back(
        {static_cast<DriveId>(map.drives.back().id + 1), 1, "", DriveState::kActive});
  }
  std::vector<DriveMap> epochs{map};
  epochs[0].features = {{"a", FeatureKind::kMayBeIgnored, std::string(kMaxSectionBytes, 'a')},
                        {"b", FeatureKind::kMayBeIgnored, std::string(kMaxSectionBytes, 'b')}};
  while (epochs.size() < kMaxHistoryDrives / map.drives.size() + 10) {
    epochs.push_back(map);
    epochs.back().epoch = static_cast<Epoch>(epochs.size());
  }
  const auto read = DecodeHistory(EncodeHistory(epochs));
  ASSERT_OK(read);
  EXPECT_LT(read->size(), epochs.size());
  EXPECT_GT(read->size(), epochs.size() - 20);
}

// Format 1 had no features.
TEST(DriveMapHistory, OtherFormatsAreRefusedWithTheirNumber) {
  for (const int format : {1, 3}) {
    std::string bytes = EncodeHistory(FourEpochs());
    bytes[0] = static_cast<char>(format);
    const auto read = DecodeHistory(bytes);
    EXPECT_FAILS(read, EBADMSG);
    EXPECT_NE(read.error().message().find(fmt::format("format {}", format)), std::string::npos)
        << read.error().message();
  }
}

// One history has one form.
TEST(DriveMapHistory, WhatSaysNothingNewIsRefused) {
  std::vector<DriveMap> epochs(2, FirstMap());
  epochs[1].epoch = 2;
  const std::string first = epochs[0].Encode();
  const auto with = [&](std::string_view change) {
    return DecodeHistory(Writer().U8(2).U32(2).Text(first).Raw(change).Take());
  };
  ASSERT_EQ(with(std::string_view("\0\0", 2)), epochs);
  // Features again as they are; a drive as it is; no known word about features.
  EXPECT_FAILS(with(std::string_view("\0\1\0", 3)), EBADMSG);
  EXPECT_FAILS(with(Writer().U8(1).U16(7).U32(200).U8(1).Text("").U8(0).Take()), EBADMSG);
  EXPECT_FAILS(with(std::string_view("\0\2", 2)), EBADMSG);
  EXPECT_OK(with(Writer().U8(1).U16(7).U32(201).U8(1).Text("").U8(0).Take()));
}

// What a change cannot say is left to the registers of the epochs.
TEST(DriveMapHistory, StopsBeforeADriveGoes) {
  std::vector<DriveMap> epochs = FourEpochs();
  epochs[2].drives.pop_back();
  const auto read = DecodeHistory(EncodeHistory(epochs));
  ASSERT_OK(read);
  EXPECT_EQ(read->size(), 2u);
}

TEST(DriveMapHistory, DamagedOnesAreRefused) {
  const std::string good = EncodeHistory(FourEpochs());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(DecodeHistory(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(DecodeHistory(good + "x"), EBADMSG);
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const auto read = DecodeHistory(bad);
      if (!read.has_value()) {
        EXPECT_EQ(read.error().code(), EBADMSG);
      } else {  // other epochs, but such as can be
        EXPECT_EQ(read->back().epoch, read->size());
      }
    }
  }
}

}  // namespace
}  // namespace pinstripe
