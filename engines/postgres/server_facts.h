// What a PostgreSQL server says of itself: whether what it confirms is safe, and what its errors
// mean. Pure functions of its answers.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engines/engine.h"

namespace pinstripe {

// By name, as PgSql::Greeting() asks for them.
using PgFacts = std::map<std::string, std::string, std::less<>>;
std::string_view FactOf(const PgFacts& facts, std::string_view name);
uint64_t NumberOf(std::string_view text, int base = 10);  // 0: it is none

inline constexpr int kLeastPgVersion = 120000;  // as PQserverVersion() has it

// EHOSTUNREACH: it is a standby or takes no changes, or it could lose what it has confirmed; the
// sentence says what to set.
Status CheckPgServer(const PgFacts& facts);

// What should be set otherwise, in sentences. `standbys` is how many follow it.
std::vector<std::string> PgWarnings(std::string_view autovacuum, std::string_view synchronous,
                                    size_t standbys);

// One of several servers that are one store at different times. A server that takes the place of
// another has a higher timeline.
struct PgOrigin {
  std::string system;  // its identifier, made when its files were
  uint64_t timeline = 0;

  friend bool operator==(const PgOrigin&, const PgOrigin&) = default;
};
PgOrigin OriginOf(const PgFacts& facts);

// What an error of the server means.
struct PgError {
  std::string state;  // SQLSTATE, of five characters
  std::string message;
};
enum class PgMeaning {
  kFailed,  // what was asked failed, and nothing of it was done
  kAgain,   // likewise, and it may succeed when it is asked again: others were in its way
  kLost,    // the server, or the session, is to be left
  kOther,   // likewise: what we made there is not there any more
};
PgMeaning MeaningOf(std::string_view state);
Status StatusOf(const PgError& error);

// The SQLSTATE in a sentence of libpq about a connection that failed, if the server gave one.
PgError ConnectErrorOf(std::string_view sentence);

}  // namespace pinstripe
