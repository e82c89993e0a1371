#include "daemon/value_budget.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace pinstripe {
namespace {

class ValueBudgetTest : public testing::Test {
 protected:
  // Takes room, under a name; false: it waits.
  bool Take(const std::string& name, uint64_t bytes) {
    ValueBudget::Share share = budget_.TakeOrWait(
        &names_[name], bytes, [this, name](const std::shared_ptr<ValueBudget::Share>& granted) {
          served_.push_back(name);
          kept_.push_back(std::move(*granted));
        });
    if (share.bytes() == 0) return false;
    kept_.push_back(std::move(share));
    return true;
  }
  using Names = std::vector<std::string>;

  ValueBudget budget_{100};
  std::map<std::string, int> names_;
  std::vector<ValueBudget::Share> kept_;
  Names served_;
};

TEST_F(ValueBudgetTest, WhoFindsNoRoomIsServedWhenItComesBack) {
  EXPECT_TRUE(Take("a", 60));
  EXPECT_FALSE(Take("b", 50));
  EXPECT_TRUE(budget_.is_wanted());
  kept_[0].Return();
  EXPECT_EQ(served_, Names{"b"});
  EXPECT_EQ(budget_.used(), 50u);
  EXPECT_FALSE(budget_.is_wanted());
}

// Or large values would wait for as long as small ones come.
TEST_F(ValueBudgetTest, NobodyOvertakes) {
  EXPECT_TRUE(Take("a", 60));
  EXPECT_FALSE(Take("large", 90));
  EXPECT_FALSE(Take("small", 10));
  kept_[0].Return();
  EXPECT_EQ(served_, (Names{"large", "small"}));
}

TEST_F(ValueBudgetTest, WhatIsLargerThanAllOfItGoesAlone) {
  EXPECT_TRUE(Take("a", 10));
  EXPECT_FALSE(Take("huge", 1000));
  kept_[0].Return();
  EXPECT_EQ(served_, Names{"huge"});
  EXPECT_FALSE(Take("next", 1));
  kept_[1].Return();
  EXPECT_EQ(served_, (Names{"huge", "next"}));
}

TEST_F(ValueBudgetTest, WhoGoesAwayIsInNobodysWay) {
  EXPECT_TRUE(Take("a", 60));
  EXPECT_FALSE(Take("large", 90));
  EXPECT_FALSE(Take("small", 10));
  budget_.Forget(&names_["large"]);
  EXPECT_EQ(served_, Names{"small"});
}

TEST_F(ValueBudgetTest, WhatIsUnderWayAlreadyCounts) {
  budget_.Add(200);
  EXPECT_TRUE(budget_.exhausted());
  EXPECT_FALSE(Take("a", 1));
  budget_.Subtract(150);
  EXPECT_EQ(served_, Names{"a"});
}

}  // namespace
}  // namespace pinstripe
