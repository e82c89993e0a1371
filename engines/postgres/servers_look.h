// PgServersLook: what somebody finds out of all servers who looks at the engine: of the one that is
// asked for names by a request, and of each other one as it greets us.
//
// For one thread. Never waits: its owner polls for the connections of its dials.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engines/engine.h"
#include "engines/postgres/dial.h"
#include "engines/postgres/requests.h"

namespace pinstripe {

struct PgServersLook {
  Terms terms;
  Callback<EngineState> done;                  // null: answered
  std::optional<Result<PgLook>> primary;       // of the server that is asked, once it is here
  std::vector<std::unique_ptr<PgDial>> dials;  // to all others; null: it has ended
  std::vector<EngineMember> members;           // of those that have ended
  std::vector<std::pair<size_t, int64_t>> positions;  // of the members that are standbys

  // Goes on with the dials. True: everything is here, and it is to be finished.
  bool GoOn();
  // `asked`: the server that is asked, while there is one.
  Result<EngineState> Finish(std::optional<EngineMember> asked);
};

}  // namespace pinstripe
