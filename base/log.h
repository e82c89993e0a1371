// The log: one line per event, "what happened key=value key=value", for grep and for people.
//
//   Log(LogLevel::kWarn, "shard unreadable", {{"stripe", id}, {"drive", 3}, {"why", status}});
//
// error: somebody must act. warn: we coped, redundancy was used. info: state changed. debug: off by
// default. Values, keys' secrets and data are never logged; ids, names and sizes are. A line that
// repeats itself (same level and event) more than kLogBurst times within ten seconds is counted
// instead, and the count is printed when the ten seconds are over and it comes again.
//
// Lines are written by one thread after the other, whichever finds nobody at it; the others leave
// theirs and go on. Where the place they go to hangs, one thread waits, and what comes beyond a
// thousand lines is counted and lost.
//
// The process decides once, at start, where lines go: standard error by default, with journald's
// priority prefix when systemd is listening; XRootD's own logger in the plugin.

#pragma once

#include <fmt/format.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

inline constexpr int kLogBurst = 20;

class LogField {
 public:
  LogField(std::string_view key, const Status& status) : key_(key), value_(status.message()) {}
  template <typename T>
  LogField(std::string_view key, const T& value) : key_(key), value_(fmt::format("{}", value)) {}

  std::string_view key() const { return key_; }
  const std::string& value() const { return value_; }

 private:
  std::string_view key_;
  std::string value_;
};

// Thread-safe. `event` is one of the program's own sentences: what varies goes into the fields.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

// The line that Log() makes of this, and of the level.
std::string LogLine(std::string_view event, std::initializer_list<LogField> fields);
std::string_view NameOf(LogLevel level);  // "warn"

// Called with complete lines, without a newline, by one thread at a time, without a lock.
using LogSink = std::function<void(LogLevel, std::string_view line)>;
// Null: back to standard error. It has heard nothing before, and after this the one before it hears
// nothing more. Not called by a sink.
void SetLogSink(LogSink sink);

void SetLogLevel(LogLevel level);  // default kInfo
bool LogEnabled(LogLevel level);
Result<LogLevel> ParseLogLevel(std::string_view name);  // "debug", "info", "warn", "error"

// Counts how often one line comes within ten seconds: the first kLogBurst times are printed.
class LogRepeats {
 public:
  struct Answer {
    bool print = false;
    int suppressed = 0;  // since a line was printed last
  };
  Answer Count(Time now);

 private:
  Time since_{};
  int count_ = 0;
};

}  // namespace pinstripe
