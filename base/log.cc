#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace pinstripe {
namespace {

constexpr size_t kMostWaiting = 1000;  // lines

// The one piece of global state of the project: a process has one log.
struct LogState {
  struct Line {
    LogLevel level;
    std::string text;
  };
  Mutex mutex;
  Condition written;                                            // and `writing` has ended
  std::map<std::string, LogRepeats> repeats GUARDED_BY(mutex);  // by level and event
  std::deque<Line> waiting GUARDED_BY(mutex);
  uint64_t lost GUARDED_BY(mutex) = 0;     // lines, since one was kept
  bool writing GUARDED_BY(mutex) = false;  // some thread does
  // Changed with mutex held, and while nobody writes. The writer uses them without it.
  LogSink sink;
  std::shared_ptr<spdlog::logger> stderr_logger;
  const bool journal = std::getenv("JOURNAL_STREAM") != nullptr;
  std::atomic<LogLevel> level{LogLevel::kInfo};
};

LogState& State() {
  static LogState* const state = new LogState;  // never destroyed: late threads may still log
  return *state;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

// sd-daemon(3): "<3>" and so on in front of a line sets its priority in the journal.
std::string_view JournalPrefix(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "<7>";
    case LogLevel::kInfo: return "<6>";
    case LogLevel::kWarn: return "<4>";
    case LogLevel::kError: return "<3>";
  }
  return "<3>";
}

void WriteToStderr(LogState& state, LogLevel level, std::string_view line) {
  if (!state.stderr_logger) {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
    state.stderr_logger = std::make_shared<spdlog::logger>("pinstripe", std::move(sink));
    state.stderr_logger->set_level(spdlog::level::trace);
    state.stderr_logger->flush_on(spdlog::level::trace);
    state.stderr_logger->set_pattern(state.journal ? "%v" : "%Y-%m-%d %H:%M:%S.%e %l %v");
  }
  if (state.journal) {
    state.stderr_logger->log(ToSpdlog(level), "{}{}", JournalPrefix(level), line);
  } else {
    state.stderr_logger->log(ToSpdlog(level), "{}", line);
  }
}

// Writes what is there, and what comes meanwhile. A thread that logs beside it leaves its line
// here, and waits for nobody.
void WriteAll(LogState& state) REQUIRES(state.mutex) {
  state.writing = true;
  while (!state.waiting.empty()) {
    const LogState::Line line = std::move(state.waiting.front());
    state.waiting.pop_front();
    state.mutex.Unlock();
    if (state.sink) {
      state.sink(line.level, line.text);
    } else {
      WriteToStderr(state, line.level, line.text);
    }
    state.mutex.Lock();
  }
  state.writing = false;
  state.written.WakeAll();
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool NeedsQuotes(std::string_view value) {
  return value.empty() || value.find_first_of(" \"=") != std::string_view::npos ||
         std::ranges::any_of(value, IsControl);
}

// Values hold names that anybody may choose: they cannot end the line or talk to the terminal.
void AppendField(std::string& line, const LogField& field) {
  line += fmt::format(" {}=", field.key());
  if (!NeedsQuotes(field.value())) {
    line += field.value();
    return;
  }
  line += '"';
  for (char c : field.value()) {
    if (IsControl(c)) {
      line += fmt::format("\\x{:02x}", c);
      continue;
    }
    if (c == '"' || c == '\\') line += '\\';
    line += c;
  }
  line += '"';
}

Time Now() {
  return Time(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace

LogRepeats::Answer LogRepeats::Count(Time now) {
  int suppressed = 0;
  if (count_ == 0 || now - since_ > std::chrono::seconds(10)) {
    suppressed = std::max(0, count_ - kLogBurst);
    since_ = now;
    count_ = 0;
  }
  return {++count_ <= kLogBurst, suppressed};
}

std::string LogLine(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line(event);
  for (const LogField& field : fields) AppendField(line, field);
  return line;
}

std::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarn: return "warn";
    case LogLevel::kError: return "error";
  }
  return "error";
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  LogState& state = State();
  if (level < state.level.load(std::memory_order_relaxed)) return;
  std::string line = LogLine(event, fields);

  const MutexLock lock(state.mutex);
  const std::string identity = fmt::format("{}{}", static_cast<int>(level), event);
  const auto [print, suppressed] = state.repeats[identity].Count(Now());
  if (!print) return;
  if (suppressed > 0) line += fmt::format(" (and {} more like it before)", suppressed);
  if (state.waiting.size() >= kMostWaiting) {
    ++state.lost;
    return;
  }
  if (state.lost > 0) {
    line += fmt::format(" ({} lines before it were lost, as the log is slow)",
                        std::exchange(state.lost, 0));
  }
  state.waiting.push_back({level, std::move(line)});
  if (!state.writing) WriteAll(state);
}

void SetLogSink(LogSink sink) {
  LogState& state = State();
  const MutexLock lock(state.mutex);
  while (state.writing) state.written.Wait(lock);
  state.sink = std::move(sink);
  state.repeats.clear();
}

void SetLogLevel(LogLevel level) { State().level = level; }

bool LogEnabled(LogLevel level) { return level >= State().level.load(std::memory_order_relaxed); }

Result<LogLevel> ParseLogLevel(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError}) {
    if (name == NameOf(level)) return level;
  }
  return Fail(EINVAL, "log level '{}' is none of debug, info, warn, error", name);
}

}  // namespace pinstripe
