// SendTogether: who has something to send is told once, at the end.

#include "base/send_together.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/real_runtime.h"

namespace pinstripe {
namespace {

struct CountingSender : SendTogether::Sender {
  int told = 0;
  void SendWaiting() override { ++told; }
};

TEST(SendTogether, TellsEachSenderOnceAtItsEnd) {
  const auto a = std::make_shared<CountingSender>();
  const auto b = std::make_shared<CountingSender>();
  EXPECT_FALSE(SendTogether::Defers(a)) << "nobody would tell it";
  {
    const SendTogether together;
    EXPECT_TRUE(SendTogether::Defers(a));
    EXPECT_TRUE(SendTogether::Defers(b));
    EXPECT_TRUE(SendTogether::Defers(a));
    EXPECT_EQ(a->told, 0);
  }
  EXPECT_EQ(a->told, 1);
  EXPECT_EQ(b->told, 1);
  EXPECT_FALSE(SendTogether::Defers(a));
}

TEST(SendTogether, AnInnerOneLeavesItToTheOuterOne) {
  const auto both = std::make_shared<CountingSender>();
  const auto inner_only = std::make_shared<CountingSender>();
  {
    const SendTogether outer;
    EXPECT_TRUE(SendTogether::Defers(both));
    {
      const SendTogether inner;
      EXPECT_TRUE(SendTogether::Defers(both));
      EXPECT_TRUE(SendTogether::Defers(inner_only));
    }
    EXPECT_EQ(both->told, 0);
    EXPECT_EQ(inner_only->told, 0);
  }
  EXPECT_EQ(both->told, 1);
  EXPECT_EQ(inner_only->told, 1);
}

// A sender that is told may ask for more, which goes out at once.
TEST(SendTogether, EndsBeforeItTells) {
  struct Asking : SendTogether::Sender {
    bool deferred = true;
    std::weak_ptr<Sender> self;
    void SendWaiting() override { deferred = SendTogether::Defers(self.lock()); }
  };
  const auto sender = std::make_shared<Asking>();
  sender->self = sender;
  {
    const SendTogether together;
    EXPECT_TRUE(SendTogether::Defers(sender));
  }
  EXPECT_FALSE(sender->deferred);
}

// Who waits for somebody who waits for an answer would wait for ever if the question were held.
TEST(SendTogether, AThreadThatWaitsSendsWhatItHolds) {
  RealRuntime runtime;
  const auto outer_only = std::make_shared<CountingSender>();
  const auto sender = std::make_shared<CountingSender>();
  {
    const SendTogether outer;
    EXPECT_TRUE(SendTogether::Defers(outer_only));
    const SendTogether inner;
    EXPECT_TRUE(SendTogether::Defers(sender));
    runtime.NewSignal()->WaitUntil(runtime.Now());
    EXPECT_EQ(outer_only->told, 1);
    EXPECT_EQ(sender->told, 1);
    EXPECT_TRUE(SendTogether::Defers(sender)) << "what is asked after the wait is held again";
    EXPECT_EQ(sender->told, 1);
  }
  EXPECT_EQ(outer_only->told, 1);
  EXPECT_EQ(sender->told, 2);
}

}  // namespace
}  // namespace pinstripe
