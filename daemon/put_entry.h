// What requests say about changes, in the engine's words, and how many puts they are.

#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/rights.h"

namespace pinstripe {

namespace kinetic {
class Command;
class KeyValue;
}  // namespace kinetic

// Whether it is to be safe from power loss before it is answered. Without a word about it: yes.
// EINVAL: nobody knows what is asked for.
Result<bool> WantsFlush(const kinetic::KeyValue& entry);

// `bound`: the request says that the tag covers the value. EBADMSG: the value is not the one of
// which the request speaks.
Result<Engine::Change> PutOf(const kinetic::KeyValue& entry, bool bound, SharedBytes value);
// EACCES: it may not be put. An answer tells which version a guard has, as one does to who writes
// a record.
Status AllowPut(const Rights& rights, const kinetic::KeyValue& entry, bool tls);
// EINVAL: it has a guard.
Result<Engine::Change> DeletionOf(const kinetic::KeyValue& entry);

// How many puts a request counts for: of a PUTS that cannot be executed, no more than it may have.
size_t CountPuts(const kinetic::Command& request);

// What the answer to a request for puts says when the flush that it waited for has failed.
void SetFlushFailure(const Status& failure, const kinetic::Command& request,
                     kinetic::Command* answer);

}  // namespace pinstripe
