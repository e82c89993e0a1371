#include "tools/time_span.h"

#include <time.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace pinstripe {
namespace {

std::optional<Duration> FindSpan(std::string_view text) {
  constexpr std::chrono::seconds kMost = std::chrono::hours(24 * 36500);
  static constexpr std::pair<std::string_view, int64_t> kUnits[] = {
      {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}};
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (digits == 0 || digits > 6) return std::nullopt;
  for (const auto& [name, seconds] : kUnits) {
    if (unit != name) continue;
    const std::chrono::seconds span(std::stoll(std::string(text.substr(0, digits))) * seconds);
    return span > kMost ? std::nullopt : std::optional<Duration>(span);
  }
  return std::nullopt;
}

std::optional<int64_t> FindTime(const std::string& text) {
  for (const char* const format :
       {"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    tm calendar{};
    calendar.tm_isdst = -1;
    const char* const end = strptime(text.c_str(), format, &calendar);
    if (end == nullptr || *end != '\0') continue;
    const time_t seconds = mktime(&calendar);
    if (seconds < 0 || seconds > INT64_MAX / 1'000'000'000) return std::nullopt;
    return int64_t{seconds} * 1'000'000'000;
  }
  return std::nullopt;
}

}  // namespace

Result<Duration> ParseSpan(std::string_view option, std::string_view text) {
  if (const auto span = FindSpan(text)) return *span;
  return Fail(EINVAL, "{} {}: write a number and s, min, h, d or w, such as 7d, at most 100 years",
              option, text);
}

Result<int64_t> ParseSince(std::string_view option, std::string_view text, int64_t now) {
  if (const auto span = FindSpan(text)) return now - span->count();
  if (const auto time = FindTime(std::string(text))) return *time;
  return Fail(EINVAL,
              "{} {}: write how long ago, such as 12h, 30min or 7d, or a time such as "
              "\"2026-11-24 20:30\"",
              option, text);
}

}  // namespace pinstripe
