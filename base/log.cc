#include "base/log.h"

#include <fmt/chrono.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/log_format.h"
#include "base/mutex.h"
#include "base/utf8.h"

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
  std::optional<bool> plain;  // as its lines are made now
  const bool journal = IsJournal(STDERR_FILENO, std::getenv("JOURNAL_STREAM"));
  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<LogFormat> format{LogFormat::kText};
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

// A line in JSON has all that the pattern adds to others.
void WriteToStderr(LogState& state, LogLevel level, std::string_view line) {
  const bool plain = state.journal || state.format == LogFormat::kJson;
  if (!state.stderr_logger) {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
    state.stderr_logger = std::make_shared<spdlog::logger>("pinstripe", std::move(sink));
    state.stderr_logger->set_level(spdlog::level::trace);
    state.stderr_logger->flush_on(spdlog::level::trace);
  }
  if (state.plain != plain) {
    state.plain = plain;
    state.stderr_logger->set_pattern(plain ? "%v" : "%Y-%m-%d %H:%M:%S.%e %l %v");
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

// As a part of a JSON string. What is no UTF-8 becomes U+FFFD.
void AppendJson(std::string& json, std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8CharacterBytes(text);
    const char first = text.front();
    if (length == 0) {
      json += "\\ufffd";
    } else if (IsControl(first)) {
      json += fmt::format("\\u{:04x}", first);
    } else {
      if (first == '"' || first == '\\') json += '\\';
      json += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
}

void AppendJsonField(std::string& json, std::string_view key, std::string_view value) {
  json += ",\"";
  AppendJson(json, key);
  json += "\":\"";
  AppendJson(json, value);
  json += '"';
}

int64_t WallClock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
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

std::string LogJson(int64_t now, LogLevel level, std::string_view event,
                    std::initializer_list<LogField> fields, uint64_t repeated, uint64_t lost) {
  std::string json = fmt::format("{{\"time\":\"{:%Y-%m-%dT%H:%M:%S}.{:03}Z\",\"level\":\"{}\"",
                                 fmt::gmtime(static_cast<std::time_t>(now / 1'000'000'000)),
                                 now / 1'000'000 % 1000, NameOf(level));
  AppendJsonField(json, "event", event);
  for (const LogField& field : fields) AppendJsonField(json, field.key(), field.value());
  if (repeated > 0) json += fmt::format(",\"repeated\":{}", repeated);
  if (lost > 0) json += fmt::format(",\"lost\":{}", lost);
  return json + "}";
}

bool IsJournal(int fd, const char* journal_stream) {
  struct stat about {};
  if (journal_stream == nullptr || fstat(fd, &about) != 0) return false;
  return fmt::format("{}:{}", about.st_dev, about.st_ino) == journal_stream;
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
  const bool json = state.format.load(std::memory_order_relaxed) == LogFormat::kJson;
  std::string line = json ? std::string() : LogLine(event, fields);

  const MutexLock lock(state.mutex);
  const std::string identity = fmt::format("{}{}", static_cast<int>(level), event);
  const auto [print, suppressed] = state.repeats[identity].Count(Now());
  if (!print) return;
  if (state.waiting.size() >= kMostWaiting) {
    ++state.lost;
    return;
  }
  const uint64_t lost = std::exchange(state.lost, 0);
  if (json) {
    line = LogJson(WallClock(), level, event, fields, static_cast<uint64_t>(suppressed), lost);
  } else {
    if (suppressed > 0) line += fmt::format(" (and {} more like it before)", suppressed);
    if (lost > 0) line += fmt::format(" ({} lines before it were lost, as the log is slow)", lost);
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

void SetLogFormat(LogFormat format) { State().format = format; }

Result<LogFormat> ParseLogFormat(std::string_view name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return Fail(EINVAL, "log format '{}' is neither text nor json", name);
}

bool LogEnabled(LogLevel level) { return level >= State().level.load(std::memory_order_relaxed); }

Result<LogLevel> ParseLogLevel(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError}) {
    if (name == NameOf(level)) return level;
  }
  return Fail(EINVAL, "log level '{}' is none of debug, info, warn, error", name);
}

}  // namespace pinstripe
