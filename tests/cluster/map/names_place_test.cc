// Where names are, as the section of a feature says it: docs/format.md, "Names on an engine".

#include "cluster/map/names_place.h"

#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using Where = NamesPlace::Where;

constexpr auto kRequired = FeatureKind::kMustBeUnderstood;

DriveMap MapWith(std::vector<Feature> features) {
  DriveMap map;
  map.features = std::move(features);
  return map;
}

TEST(NamesPlace, HasTheBytesThatTheFormatSays) {
  const std::vector<Feature> features = WithNamesPlace(
      {{"a", kRequired, ""}, {"packs", kRequired, ""}}, {Where::kMovingIn, "etcd", 0x01020304});
  ASSERT_EQ(features.size(), 3u);
  EXPECT_EQ(features[1].name, "engine") << "features are ascending by name";
  EXPECT_EQ(features[1].kind, kRequired);
  EXPECT_EQ(features[1].section, Unhex("0102046574636401020304"));
}

TEST(NamesPlace, ReadsBackAndGoesWithTheEngine) {
  for (const Where where : {Where::kEngine, Where::kMovingIn, Where::kMovingOut}) {
    const NamesPlace place{where, "postgresql", 7};
    std::vector<Feature> features = WithNamesPlace({{"packs", kRequired, ""}}, place);
    const auto read = ReadNamesPlace(MapWith(features));
    ASSERT_OK(read);
    EXPECT_EQ(*read, place);
    // Another place replaces it, and the drives need no feature.
    features = WithNamesPlace(features, {Where::kEngine, "etcd", 8});
    EXPECT_EQ(features.size(), 2u);
    EXPECT_EQ(WithNamesPlace(features, {}), (std::vector<Feature>{{"packs", kRequired, ""}}));
  }
  EXPECT_EQ(*ReadNamesPlace(MapWith({})), NamesPlace{});
}

TEST(NamesPlace, WhatIsNotUnderstoodIsRefused) {
  const std::string good = WithNamesPlace({}, {Where::kEngine, "etcd", 1})[0].section;
  const auto refuses = [](const std::string& section) {
    const auto read = ReadNamesPlace(MapWith({{"engine", kRequired, section}}));
    return !read.has_value() && read.error().code() == ENOTSUP;
  };
  ASSERT_FALSE(refuses(good));
  for (size_t size = 0; size < good.size(); ++size) EXPECT_TRUE(refuses(good.substr(0, size)));
  EXPECT_TRUE(refuses(good + "x"));
  for (const char format : {0, 2}) EXPECT_TRUE(refuses(format + good.substr(1)));
  for (const char where : {0, 4}) EXPECT_TRUE(refuses(good.substr(0, 1) + where + good.substr(2)));
  EXPECT_TRUE(refuses(Unhex("0101044554434400000001"))) << "not a plain name";
}

TEST(NamesPlace, SaysWhereRegistersAreRead) {
  EXPECT_FALSE(NamesPlace{}.NamesEngine());
  EXPECT_FALSE((NamesPlace{Where::kMovingIn, "etcd"}.OnEngine()));
  EXPECT_TRUE((NamesPlace{Where::kMovingOut, "etcd"}.OnEngine()));
  EXPECT_TRUE((NamesPlace{Where::kMovingOut, "etcd"}.IsMoving()));
  EXPECT_FALSE((NamesPlace{Where::kEngine, "etcd"}.IsMoving()));
}

}  // namespace
}  // namespace pinstripe
