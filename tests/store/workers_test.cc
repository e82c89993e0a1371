// Which task runs next.

#include "store/workers.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <vector>

#include "base/real_runtime.h"

namespace pinstripe {
namespace {

// What ran, in which order, after everything was added behind a task that held the only worker.
class Order {
 public:
  Order() {
    workers_->Add([this] {
      held_.set_value();
      go_.get_future().wait();
    });
    held_.get_future().wait();
  }
  void Add(int name, int priority) {
    workers_->Add([this, name] { names_.push_back(name); }, priority);
  }
  std::vector<int> Run() {
    go_.set_value();
    workers_.reset();
    return names_;
  }

 private:
  RealRuntime runtime_;
  std::promise<void> held_;
  std::promise<void> go_;
  std::vector<int> names_;  // of the only worker
  std::unique_ptr<Workers> workers_ = std::make_unique<Workers>(runtime_, "test", 1);
};

TEST(Workers, TheHighestPriorityRunsFirstAndEqualOnesInTurn) {
  Order order;
  order.Add(10, 1);
  order.Add(50, 5);
  order.Add(51, 5);
  order.Add(90, 9);
  order.Add(52, 5);
  EXPECT_EQ(order.Run(), (std::vector<int>{90, 50, 51, 52, 10}));
}

TEST(Workers, TheLowestPriorityNeverStandsStill) {
  Order order;
  constexpr int kUrgent = 100;
  for (int i = 0; i < 5; ++i) order.Add(-i - 1, 1);
  for (int i = 0; i < kUrgent; ++i) order.Add(i, 9);
  const std::vector<int> ran = order.Run();
  ASSERT_EQ(ran.size(), 105u);
  int low = 0;
  for (int i = 0; i < 50; ++i) low += ran[static_cast<size_t>(i)] < 0;
  EXPECT_EQ(low, 5) << "each eighth task is the oldest one";
  for (int i = 0; i < 6; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

TEST(Workers, WhatATaskAddsLastRunsAfterItInItsTurn) {
  RealRuntime runtime;
  std::vector<int> names;
  std::promise<void> added;
  {
    Workers workers(runtime, "test", 1);
    workers.Add([&] {
      added.get_future().wait();
      names.push_back(1);
      workers.AddLast([&] { names.push_back(3); });
    });
    workers.Add([&] { names.push_back(2); });
    added.set_value();
  }
  EXPECT_EQ(names, (std::vector<int>{1, 2, 3}));
}

}  // namespace
}  // namespace pinstripe
