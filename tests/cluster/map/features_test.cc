#include "cluster/map/features.h"

#include <gtest/gtest.h>

#include <random>

#include "base/coding.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

constexpr auto kMust = FeatureKind::kMustBeUnderstood;
constexpr auto kMay = FeatureKind::kMayBeIgnored;

std::string Written(const std::vector<Feature>& features) {
  Writer out;
  WriteFeatures(features, out);
  return out.Take();
}

Result<std::vector<Feature>> ReadBack(std::string_view bytes) {
  Reader in(bytes);
  auto features = ReadFeatures(in, "this");
  if (!features.has_value()) return features;
  const Status whole = in.Finish("this");
  if (!whole.ok()) return Failed(whole);
  return features;
}

TEST(Features, WhatThisVersionKnowsIsNamedInOrder) {
  for (size_t i = 0; i < kKnownFeatures.size(); ++i) {
    EXPECT_TRUE(IsPlainName(kKnownFeatures[i].name)) << kKnownFeatures[i].name;
    EXPECT_FALSE(kKnownFeatures[i].what.empty());
    if (i > 0) {
      EXPECT_LT(kKnownFeatures[i - 1].name, kKnownFeatures[i].name);
    }
  }
}

TEST(Features, AnOlderClusterLacksWhatANewOneHas) {
  const std::vector<Feature> all = FeaturesOfNewCluster(false);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &Feature::name)) << "as a map has them";
  EXPECT_TRUE(UsesFeature(all, kContentsBesideFeature));
  EXPECT_FALSE(UsesFeature(FeaturesOfNewCluster(true), kContentsBesideFeature));
  EXPECT_EQ(FeaturesToUse({}, false), all);
  EXPECT_TRUE(FeaturesToUse(all, false).empty());
  std::vector<Feature> some = all;
  some.erase(some.begin());
  some.push_back({"unknown", kMay, "x"});
  EXPECT_EQ(FeaturesToUse(some, false), std::vector<Feature>{all.front()});
  EXPECT_TRUE(FeaturesToUse(some, true).empty());
}

TEST(Features, OneThatMustBeUnderstoodIsRefusedByItsName) {
  const Status refused = CheckFeatures("home", {{"made-up", kMust, "x"}, {"z", kMay, ""}});
  EXPECT_EQ(refused.code(), ENOTSUP);
  EXPECT_EQ(refused.message(),
            "the cluster 'home' uses the feature 'made-up', which must be understood, and which "
            "this version of pinstripe does not know: use a newer pinstripe");
}

TEST(Features, AllThatMustBeUnderstoodAreNamedAtOnce) {
  const Status refused = CheckFeatures(
      "home", {{"a", kMust, ""}, {"b", kMay, ""}, {"c", kMust, ""}, {"d", kMust, ""}});
  EXPECT_EQ(refused.code(), ENOTSUP);
  EXPECT_EQ(refused.message(),
            "the cluster 'home' uses the features 'a', 'c' and 'd', which must be understood, and "
            "which this version of pinstripe does not know: use a newer pinstripe");
}

TEST(Features, WhatIsKnownOrMayBeIgnoredIsNoReason) {
  constexpr std::array kKnown{KnownFeature{"a", kMust, "A."}, KnownFeature{"b", kMay, "B."}};
  EXPECT_OK(CheckFeatures("home", {}));
  EXPECT_OK(CheckFeatures("home", {{"x", kMay, "section"}}));
  EXPECT_OK(CheckFeatures("home", {{"a", kMust, ""}, {"b", kMay, ""}, {"x", kMay, ""}}, kKnown));
  EXPECT_FAILS(CheckFeatures("home", {{"a", kMust, ""}, {"aa", kMust, ""}}, kKnown), ENOTSUP);
  EXPECT_EQ(FindFeature("a", kKnown)->what, "A.");
  EXPECT_EQ(FindFeature("aa", kKnown), nullptr);
  EXPECT_EQ(FindFeature("", kKnown), nullptr);
}

TEST(Features, ReadBackAsTheyWereWritten) {
  std::vector<Feature> most;
  for (size_t i = 0; i < kMaxFeatures; ++i) {
    most.push_back({fmt::format("{:0>{}}", i, kMaxPlainNameBytes), i % 2 == 0 ? kMust : kMay,
                    std::string(kMaxSectionsBytes / kMaxFeatures, static_cast<char>(i))});
  }
  for (const std::vector<Feature>& features :
       {std::vector<Feature>(), {{"a-z_0.9", kMay, std::string(kMaxSectionBytes, '\0')}}, most}) {
    const auto read = ReadBack(Written(features));
    ASSERT_OK(read);
    EXPECT_EQ(*read, features);
  }
}

TEST(Features, NoOthersAreTaken) {
  const auto refuses = [](const std::vector<Feature>& features) {
    const auto read = ReadBack(Written(features));
    return !read.has_value() && read.error().code() == EBADMSG;
  };
  for (const std::string& name :
       {std::string(), std::string(kMaxPlainNameBytes + 1, 'a'), std::string("Upper"),
        std::string("a b"), std::string("a\0", 2)}) {
    EXPECT_TRUE(refuses({{name, kMay, ""}})) << name;
  }
  EXPECT_TRUE(refuses({{"a", kMay, ""}, {"a", kMust, ""}}));
  EXPECT_TRUE(refuses({{"b", kMay, ""}, {"a", kMay, ""}}));
  EXPECT_TRUE(refuses({{"a", FeatureKind{0}, ""}}));
  EXPECT_TRUE(refuses({{"a", FeatureKind{3}, ""}}));
  EXPECT_TRUE(refuses({{"a", kMay, std::string(kMaxSectionBytes + 1, 'x')}}));
  EXPECT_TRUE(refuses({{"a", kMay, std::string(kMaxSectionBytes, 'x')},
                       {"b", kMay, std::string(kMaxSectionBytes, 'x')},
                       {"c", kMay, "x"}}));
  std::vector<Feature> many;
  for (size_t i = 0; i <= kMaxFeatures; ++i) many.push_back({fmt::format("{:03}", i), kMay, ""});
  EXPECT_TRUE(refuses(many));
  many.pop_back();
  EXPECT_FALSE(refuses(many));
}

// A value or EBADMSG, and what is accepted is accepted again as itself.
TEST(Features, SurviveAnyBytes) {
  const std::string good = Written({{"made-up", kMust, "12"}, {"x", kMay, ""}});
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(ReadBack(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(ReadBack(good + "x"), EBADMSG);
  const auto try_it = [](const std::string& bytes) {
    const auto read = ReadBack(bytes);
    if (read.has_value()) {
      EXPECT_EQ(Written(*read), bytes);
    } else {
      EXPECT_EQ(read.error().code(), EBADMSG);
    }
  };
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      try_it(bytes);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 24, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 5);
    try_it(bytes);
  }
}

}  // namespace
}  // namespace pinstripe
