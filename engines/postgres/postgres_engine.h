// A NameEngine on PostgreSQL 12 or later: the names of a cluster in a schema of their own (sql.h).
//
// A connection string may name several servers, the one that takes changes and its standbys. They
// are tried in turn until one greets us that takes changes and is safe (server_facts.h). When it is
// reached, some more connections to that server are made; batches are spread over them, and each
// has several on its way. It is lost when none of them is left. A server with a higher timeline
// has taken the place of the one before, which is left then, and refused from then on.
//
// What was on its way on a connection that is lost is answered EHOSTUNREACH, and never sent again.
// What PostgreSQL has not done because others were in its way (a deadlock) is asked again until its
// deadline.
//
// What is read is what was last confirmed as long as only one server believes that it takes
// changes. Whoever promotes a standby has to see to it that its predecessor is down.
//
// It owns a thread, and for each name that is looked up another one that may outlive it, but not
// the runtime.

#pragma once

#include <memory>

#include "base/runtime.h"
#include "engines/engine.h"
#include "engines/options.h"

namespace pinstripe {

// `runtime` outlives it, and is a real one.
std::unique_ptr<NameEngine> NewPostgresEngine(Runtime& runtime, EngineOptions options);

}  // namespace pinstripe
