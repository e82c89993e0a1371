// LogFormat: how lines of the log (base/log.h) look. A process decides once, at start.
//
//   text   drive lost drive="drive 3 (h1:8103)" why="no answer"
//   json   {"time":"2026-11-25T19:30:00.125Z","level":"warn","event":"drive lost","drive":"drive 3
//          (h1:8103)","why":"no answer"}, in one line; every field is a string
//
// A line that stands for more like it says how many: "repeated" in JSON.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"

namespace pinstripe {

enum class LogFormat { kText, kJson };

// Thread-safe. Of the lines that come from now on; kText by default.
void SetLogFormat(LogFormat format);
Result<LogFormat> ParseLogFormat(std::string_view name);  // "text", "json"

// What Log() makes of this in JSON. `now`: nanoseconds since 1970. `repeated`: how many like it
// came before and were not printed; `lost`: how many lines of any kind, as the log is slow.
std::string LogJson(int64_t now, LogLevel level, std::string_view event,
                    std::initializer_list<LogField> fields, uint64_t repeated = 0,
                    uint64_t lost = 0);

// Whether standard error is connected to systemd's journal, of which JOURNAL_STREAM
// ("device:inode") says so: a variable that was inherited by a process whose standard error goes
// elsewhere does not count.
bool IsJournal(int fd, const char* journal_stream);

}  // namespace pinstripe
