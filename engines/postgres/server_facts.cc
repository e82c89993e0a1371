#include "engines/postgres/server_facts.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"

namespace pinstripe {
namespace {

constexpr size_t kMostSaid = 200;

// "FATAL" is none.
bool IsState(std::string_view text) {
  return text.size() == 5 && text.find_first_of("0123456789") != text.npos &&
         std::ranges::all_of(
             text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); });
}

std::string_view FirstLine(std::string_view text) { return text.substr(0, text.find('\n')); }

Status Needs(const PgFacts& facts, std::string_view name, std::string_view why) {
  const std::string_view is = FactOf(facts, name);
  if (is == "on") return {};
  return Fail(EHOSTUNREACH, "its setting '{}' is '{}': set '{} = on', or {}", name,
              Printable(is, kMostSaid), name, why);
}

}  // namespace

std::string_view FactOf(const PgFacts& facts, std::string_view name) {
  const auto found = facts.find(name);
  return found == facts.end() ? std::string_view() : std::string_view(found->second);
}

uint64_t NumberOf(std::string_view text, int base) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, base);
  return number;
}

Status CheckPgServer(const PgFacts& facts) {
  if (FactOf(facts, "standby") != "f") {
    return Fail(EHOSTUNREACH, "it is a standby: name the server that takes changes, or promote it");
  }
  if (FactOf(facts, "read_only") != "off") {
    return Fail(EHOSTUNREACH,
                "it takes no changes: set 'default_transaction_read_only = off' for the database "
                "'{}' and the role '{}'",
                Printable(FactOf(facts, "database"), kMostSaid),
                Printable(FactOf(facts, "user"), kMostSaid));
  }
  if (const Status syncs = Needs(facts, "fsync", "it loses what it confirmed with its power");
      !syncs.ok()) {
    return syncs;
  }
  return Needs(facts, "full_page_writes", "its pages may be torn when its power fails");
}

std::vector<std::string> PgWarnings(std::string_view autovacuum, std::string_view synchronous,
                                    size_t standbys) {
  std::vector<std::string> warnings;
  if (standbys > 0 && synchronous.empty()) {
    warnings.emplace_back(
        "standbys follow it, but none is waited for, so a failover may lose names: set "
        "'synchronous_standby_names'");
  }
  if (autovacuum != "on") {
    warnings.emplace_back(
        "its setting 'autovacuum' is off, so its tables grow and it will stop taking changes: set "
        "'autovacuum = on'");
  }
  return warnings;
}

PgOrigin OriginOf(const PgFacts& facts) {
  return {.system = std::string(FactOf(facts, "system")),
          .timeline = NumberOf(FactOf(facts, "timeline"), 16)};
}

PgMeaning MeaningOf(std::string_view state) {
  const auto is = [state](std::initializer_list<std::string_view> states) {
    return std::ranges::find(states, state) != states.end();
  };
  const std::string_view kind = state.substr(0, 2);
  // Serialization, deadlock, lock not available.
  if (is({"40001", "40P01", "55P03"})) return PgMeaning::kAgain;
  // No such table, function, schema or prepared statement; a plan that does not fit any more.
  if (is({"42P01", "42883", "3F000", "26000", "0A000", "42703"})) return PgMeaning::kOther;
  // It shuts down or starts, takes no changes any more, or broke the protocol.
  if (is({"57P01", "57P02", "57P03", "57P04", "57P05", "25006", "25P03", "25P04"}) ||
      kind == "08") {
    return PgMeaning::kLost;
  }
  return PgMeaning::kFailed;
}

Status StatusOf(const PgError& error) {
  const std::string_view kind = std::string_view(error.state).substr(0, 2);
  const std::string said = Printable(FirstLine(error.message), kMostSaid);
  if (error.state == "42501") {
    return Fail(EACCES,
                "it answered '{}' ({}): grant the role CREATE on the database, or make it the "
                "owner of the schema and of all that is in it",
                said, error.state);
  }
  int code = EIO;
  if (error.state == "53100") code = ENOSPC;
  if (error.state == "57014") code = ETIMEDOUT;  // it was cancelled before it was committed
  if (kind == "28") code = EACCES;
  if (MeaningOf(error.state) != PgMeaning::kFailed || error.state == "53300" || kind == "3D") {
    code = EHOSTUNREACH;
  }
  return Fail(code, "it answered '{}' ({})", said, error.state);
}

// "connection to server at ... failed: FATAL:  28P01: password authentication failed ..."
PgError ConnectErrorOf(std::string_view sentence) {
  constexpr std::string_view kEnds = ": ";
  PgError error;
  std::string_view rest = FirstLine(sentence);
  for (size_t at = rest.find(kEnds); at != rest.npos; at = rest.find(kEnds, at + 1)) {
    std::string_view after = rest.substr(at + kEnds.size());
    while (after.starts_with(' ')) after.remove_prefix(1);
    if (after.size() > 7 && IsState(after.substr(0, 5)) && after.substr(5, 2) == kEnds) {
      return {.state = std::string(after.substr(0, 5)), .message = std::string(after.substr(7))};
    }
  }
  constexpr std::string_view kFailed = "failed: ";
  const size_t at = rest.find(kFailed);
  if (at != rest.npos) rest = rest.substr(at + kFailed.size());
  error.message = Printable(rest, kMostSaid);
  return error;
}

}  // namespace pinstripe
