// How full a cluster was in the last weeks, so that `status` can say when it will be full. Kept in
// a register in the group of the drive map (docs/format.md, "Fill"). Whoever looks through the
// cluster or cares for it adds what it finds.
//
// It is for people: nothing is safe because of it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"

namespace pinstripe {

struct FillSample {
  int64_t at = 0;     // by the clock of who looked, nanoseconds since 1970
  uint64_t used = 0;  // raw bytes, of the drives that take new data
  uint64_t bytes = 0;
  friend bool operator==(const FillSample&, const FillSample&) = default;
};

struct FillHistory {
  static constexpr size_t kMost = 64;
  static constexpr Duration kApart = std::chrono::hours(6);  // at least
  static constexpr Duration kKept = std::chrono::hours(24 * 15);

  std::vector<FillSample> samples;  // ascending by time

  // False, and nothing changes: there is a recent one. What is old, or of a clock that was ahead,
  // makes room.
  bool Add(const FillSample& sample);

  std::string Encode() const;
  static Result<FillHistory> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const FillHistory&, const FillHistory&) = default;
};

std::string FillKey();  // "U"

// When it will be full if it goes on as in the last week.
struct FillForecast {
  Duration over{};               // so long, a week at most and a day at least
  double bytes_a_day = 0;        // raw; negative where more was removed
  std::optional<Duration> left;  // null: it will not be, or not within a hundred years
};

// A pure function. Null: nothing is known of a day ago or before.
std::optional<FillForecast> ForecastFill(const FillHistory& history, const FillSample& now);

// As the drives answer now. Null: one of those that take new data does not, so that the sum would
// be of others.
std::optional<FillSample> MeasureFill(Cluster& cluster);

// Adds what is now, where that is due. What cannot be noted is noted the next time.
void NoteFill(Cluster& cluster);

}  // namespace pinstripe
