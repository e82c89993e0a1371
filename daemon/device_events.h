// DeviceEvents: what happened to one device lately, for who asks it (GETLOG, MESSAGES): the last
// lines, in a bounded space. What is told here goes to the program's log, too.
//
// Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/mutex.h"

namespace pinstripe {

class DeviceEvents {
 public:
  static constexpr size_t kMaxBytes = 64 << 10;
  static constexpr size_t kMaxLineBytes = 1024;

  // `now` in nanoseconds since 1970. A line that comes again right after itself is counted.
  void Add(int64_t now, LogLevel level, std::string_view event,
           std::initializer_list<LogField> fields = {});

  // Oldest first: "2026-11-21T19:04:12Z warn connection given up port=8123 why=... (3 times)\n"
  std::string Text() const;

 private:
  struct Line {
    int64_t when;  // the last time
    std::string text;
    uint64_t times = 1;
  };

  mutable Mutex mutex_;
  std::deque<Line> lines_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;  // of the texts
};

}  // namespace pinstripe
