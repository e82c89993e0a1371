// The cluster keeps its layout, and whoever comes with another one in his file is told.

#include "cluster/kept_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/log.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr KeptLayout kLayout{
    .layout = {4, 2, 1 << 20}, .inline_limit = 4096, .replicate_limit = 65536, .min_redundancy = 1};

// These bytes are the format.
TEST(KeptLayout, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(LayoutKey())), "4c");
  EXPECT_EQ(Hex(AsBytes(kLayout.Encode())),
            "01"
            "04"
            "02"
            "00100000"
            "00001000"
            "00010000"
            "01");
  const auto again = KeptLayout::Decode(kLayout.Encode());
  ASSERT_OK(again);
  EXPECT_EQ(*again, kLayout);
}

TEST(KeptLayout, AnythingElseIsDamage) {
  const std::string good = kLayout.Encode();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(KeptLayout::Decode(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(KeptLayout::Decode(good + '\0'), EBADMSG);
  EXPECT_FAILS(KeptLayout::Decode("\x02" + good.substr(1)), EBADMSG);
  KeptLayout none = kLayout;
  none.layout.data_shards = 0;
  EXPECT_FAILS(KeptLayout::Decode(none.Encode()), EBADMSG);
}

class KeptLayoutTest : public testing::Test {
 protected:
  KeptLayoutTest() : machines_(sim_, {.drives = 6, .layout = {2, 1, 64 << 10}, .groups = 4}) {
    EXPECT_OK(machines_.Format());
  }
  std::vector<std::string> Differences() {
    const auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    std::vector<std::string> all;
    for (const ConfigDifference& each :
         CompareConfig((*cluster)->config(), (*cluster)->map(), (*cluster)->kept_layout())) {
      all.push_back(each.Text());
    }
    return all;
  }
  SimRuntime sim_{1};
  TestCluster machines_;
};

TEST_F(KeptLayoutTest, ANewClusterKeepsWhatItWasFormattedWith) {
  EXPECT_EQ((*machines_.Open())->kept_layout(), KeptLayout::Of(machines_.config()));
  EXPECT_THAT(Differences(), IsEmpty());
}

TEST_F(KeptLayoutTest, AnotherLayoutDomainOrWeightIsTold) {
  machines_.config().layout = {3, 2, 128 << 10};
  machines_.config().drives[1].domain = "rack";
  machines_.config().drives[2].weight = 7;
  EXPECT_THAT(Differences(),
              ElementsAre(HasSubstr("layout.data_shards is 3 in the file and 2 in the cluster"),
                          HasSubstr("layout.parity_shards is 2 in the file and 1"),
                          HasSubstr("layout.shard_size is 131072 in the file and 65536"),
                          HasSubstr("domain of drive 2 is rack in the file and not given in the"),
                          HasSubstr("weight of drive 3 is 7 in the file and 100 in")));
}

// A process says so when it starts, once for each difference, and works by its file.
TEST_F(KeptLayoutTest, WhoOpensTheClusterWithAnotherFileIsWarned) {
  machines_.config().layout = {3, 1, 64 << 10};
  std::vector<std::string> warnings;
  SetLogSink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarn) warnings.emplace_back(line);
  });
  const auto cluster = machines_.Open();
  SetLogSink(nullptr);
  ASSERT_OK(cluster);
  EXPECT_THAT(
      warnings,
      ElementsAre(AllOf(HasSubstr("the configuration is not what the cluster is"),
                        HasSubstr("layout.data_shards is 3 in the file and 2 in the cluster"))));
  EXPECT_EQ((*cluster)->config().layout.data_shards, 3);
}

TEST_F(KeptLayoutTest, AFileThatIsRightIsAppliedAndTheOthersDiffer) {
  const ClusterConfig old = machines_.config();
  machines_.config().layout = {3, 1, 64 << 10};
  {
    const auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    const auto before = KeepLayout((*cluster)->registers(), (*cluster)->config());
    ASSERT_OK(before);
    EXPECT_EQ(*before, KeptLayout::Of(old));
    EXPECT_EQ(*KeepLayout((*cluster)->registers(), (*cluster)->config()),
              KeptLayout::Of(machines_.config()));
  }
  EXPECT_THAT(Differences(), IsEmpty());
  machines_.config() = old;
  EXPECT_THAT(Differences(), ElementsAre(HasSubstr("layout.data_shards is 2 in the file and 3")));
}

// As earlier versions of this program have made them.
TEST_F(KeptLayoutTest, AClusterThatKeepsNoneIsOpenedAndNothingIsSaid) {
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  const RegisterName name{kMapGroup, LayoutKey()};
  const auto set = [&](std::optional<std::string> value) {
    const auto seen = (*cluster)->registers().Read(name);
    ASSERT_OK(seen);
    ASSERT_OK((*cluster)->registers().Change(name, *seen, std::move(value)).why);
  };
  set(std::nullopt);
  machines_.config().layout = {3, 1, 64 << 10};
  EXPECT_FALSE((*machines_.Open())->kept_layout().has_value());
  EXPECT_THAT(Differences(), IsEmpty());
  // One of a later version is not understood, and stays.
  set("\x07"
      "later");
  const auto other = machines_.Open();
  ASSERT_OK(other);
  EXPECT_FALSE((*other)->kept_layout().has_value());
  EXPECT_FAILS(KeepLayout((*other)->registers(), (*other)->config()), EBADMSG);
}

}  // namespace
}  // namespace pinstripe
