#include "base/latency_histogram.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace pinstripe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(LatencyHistogram, CountsInTheBucketWhoseEndIsNotPassed) {
  LatencyHistogram histogram;
  histogram.Add(microseconds(20));
  histogram.Add(microseconds(20) + Duration(1));
  histogram.Add(std::chrono::hours(1));
  histogram.Add(Duration(-5));
  const LatencyCounts counts = histogram.Load();
  EXPECT_EQ(counts.of[0], 2u);
  EXPECT_EQ(counts.of[1], 1u);
  EXPECT_EQ(counts.of.back(), 1u);
  EXPECT_EQ(counts.count(), 4u);
  EXPECT_EQ(counts.nanoseconds, 3'600'000'040'001u);
}

TEST(LatencyHistogram, QuantilesLieInTheirBucket) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Load().Quantile(0.99), Duration());
  for (int i = 0; i < 99; ++i) histogram.Add(milliseconds(1));
  histogram.Add(milliseconds(150));
  const LatencyCounts counts = histogram.Load();
  EXPECT_GT(counts.Quantile(0.5), microseconds(500));
  EXPECT_LE(counts.Quantile(0.5), milliseconds(1));
  EXPECT_LE(counts.Quantile(0.99), milliseconds(1));
  EXPECT_GT(counts.Quantile(0.995), milliseconds(100));
  EXPECT_LE(counts.Quantile(1), milliseconds(200));
}

TEST(LatencyHistogram, WhatTookLongestIsAtLeastTheLastEnd) {
  LatencyHistogram histogram;
  histogram.Add(std::chrono::hours(1));
  EXPECT_EQ(histogram.Load().Quantile(0.5), Duration(LatencyCounts::kEnds.back()));
}

TEST(LatencyHistogram, TellsWhatCameSince) {
  LatencyHistogram histogram;
  histogram.Add(milliseconds(1));
  const LatencyCounts before = histogram.Load();
  histogram.Add(milliseconds(3));
  const LatencyCounts since = histogram.Load().Since(before);
  EXPECT_EQ(since.count(), 1u);
  EXPECT_EQ(since.nanoseconds, 3'000'000u);
  // The process that counted was started anew.
  EXPECT_EQ(before.Since(histogram.Load()).count(), 1u);
}

TEST(LatencyHistogram, LosesNothingAmongThreads) {
  LatencyHistogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&histogram] {
      for (int i = 0; i < 10'000; ++i) histogram.Add(microseconds(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Load().count(), 40'000u);
}

}  // namespace
}  // namespace pinstripe
