#include "upkeep/fill_history.h"

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "base/try.h"
#include "cluster/registers/store.h"
#include "upkeep/events.h"

namespace pinstripe {
namespace {

constexpr uint8_t kFillFormat = 1;
constexpr Duration kDay = std::chrono::hours(24);
constexpr Duration kWeek = 7 * kDay;
constexpr double kMostDays = 36'500;

RegisterName NameOfFill() { return {kMapGroup, FillKey()}; }

double DaysOf(Duration duration) {
  return std::chrono::duration<double>(duration) / std::chrono::duration<double>(kDay);
}

}  // namespace

bool FillHistory::Add(const FillSample& sample) {
  std::vector<FillSample> kept;
  for (const FillSample& each : samples) {
    const Duration age = TimeBetween(each.at, sample.at);
    if (age >= Duration::zero() && age <= kKept) kept.push_back(each);
  }
  if (!kept.empty() && TimeBetween(kept.back().at, sample.at) < kApart) return false;
  kept.push_back(sample);
  if (kept.size() > kMost) kept.erase(kept.begin());
  samples = std::move(kept);
  return true;
}

std::string FillHistory::Encode() const {
  Writer out;
  out.U8(kFillFormat).Varint(samples.size());
  for (const FillSample& each : samples) {
    out.U64(static_cast<uint64_t>(each.at)).Varint(each.used).Varint(each.bytes);
  }
  return out.Take();
}

Result<FillHistory> FillHistory::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kFillFormat) {
    return Fail(EBADMSG, "how full the cluster was: format {} is not known here (known: {})",
                format, kFillFormat);
  }
  FillHistory history;
  const uint64_t count = in.Varint();
  if (count > kMost) return Fail(EBADMSG, "how full the cluster was: {} times", count);
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    FillSample sample;
    sample.at = static_cast<int64_t>(in.U64());
    sample.used = in.Varint();
    sample.bytes = in.Varint();
    if (!history.samples.empty() && sample.at <= history.samples.back().at) {
      return Fail(EBADMSG, "how full the cluster was: the times do not ascend");
    }
    history.samples.push_back(sample);
  }
  TRY(in.Finish("how full the cluster was"));
  return history;
}

std::string FillKey() { return "U"; }

std::optional<FillForecast> ForecastFill(const FillHistory& history, const FillSample& now) {
  // The oldest of the last week; before that things were different.
  const auto then = std::ranges::find_if(history.samples, [&](const FillSample& each) {
    const Duration age = TimeBetween(each.at, now.at);
    return age >= kDay && age <= kWeek + FillHistory::kApart;
  });
  if (then == history.samples.end()) return std::nullopt;
  FillForecast forecast{.over = TimeBetween(then->at, now.at)};
  forecast.bytes_a_day =
      (static_cast<double>(now.used) - static_cast<double>(then->used)) / DaysOf(forecast.over);
  const double free = now.bytes > now.used ? static_cast<double>(now.bytes - now.used) : 0;
  if (forecast.bytes_a_day <= 0) return forecast;
  const double days = free / forecast.bytes_a_day;
  if (days > kMostDays) return forecast;
  forecast.left = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(days * std::chrono::duration<double>(kDay).count()));
  return forecast;
}

std::optional<FillSample> MeasureFill(Cluster& cluster) {
  std::map<DriveId, DriveInfo> infos;
  for (DriveStatus& drive : cluster.Drives(cluster.config().drive_timeout)) {
    if (drive.info.has_value()) infos[drive.id] = *std::move(drive.info);
  }
  FillSample sample{.at = cluster.runtime().WallClock()};
  for (const MappedDrive& drive : cluster.map().drives) {
    if (drive.state != DriveState::kActive) continue;
    const auto info = infos.find(drive.id);
    if (info == infos.end()) return std::nullopt;
    const double portion = std::clamp(info->second.portion_full, 0.0, 1.0);
    const auto bytes = static_cast<double>(info->second.capacity_bytes);
    sample.used += static_cast<uint64_t>(bytes * portion);
    sample.bytes += info->second.capacity_bytes;
  }
  return sample;
}

void NoteFill(Cluster& cluster) {
  const auto seen = cluster.registers().Read(NameOfFill());
  if (!seen.has_value()) return;
  FillHistory history;
  if (seen->value) {
    const auto decoded = FillHistory::Decode(*seen->value);
    if (decoded.has_value()) history = *decoded;  // what cannot be understood is begun anew
  }
  const auto sample = MeasureFill(cluster);
  if (!sample || !history.Add(*sample)) return;
  (void)cluster.registers().Change(NameOfFill(), *seen, history.Encode());
}

}  // namespace pinstripe
