#include "daemon/device_events.h"

#include <fmt/chrono.h>

#include <ctime>
#include <utility>

namespace pinstripe {

void DeviceEvents::Add(int64_t now, LogLevel level, std::string_view event,
                       std::initializer_list<LogField> fields) {
  Log(level, event, fields);
  std::string text = fmt::format("{} {}", NameOf(level), LogLine(event, fields));
  if (text.size() > kMaxLineBytes) text.resize(kMaxLineBytes);
  const MutexLock lock(mutex_);
  if (!lines_.empty() && lines_.back().text == text) {
    lines_.back().when = now;
    ++lines_.back().times;
    return;
  }
  bytes_ += text.size();
  lines_.push_back({now, std::move(text)});
  while (bytes_ > kMaxBytes) {
    bytes_ -= lines_.front().text.size();
    lines_.pop_front();
  }
}

std::string DeviceEvents::Text() const {
  std::string text;
  const MutexLock lock(mutex_);
  for (const Line& line : lines_) {
    const std::time_t seconds = line.when / 1'000'000'000;
    text += fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {}", fmt::gmtime(seconds), line.text);
    if (line.times > 1) text += fmt::format(" ({} times)", line.times);
    text += '\n';
  }
  return text;
}

}  // namespace pinstripe
