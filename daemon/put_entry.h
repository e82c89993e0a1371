// What requests say about changes, in the engine's words, and how many puts they are.

#pragma once

#include <cstddef>
#include <span>
#include <string>

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

// What an answer says of a record, but for its value.
void DescribeRecord(const std::string& key, const StoredHead& head, VersionPart part,
                    kinetic::KeyValue* entry);
// One after the other.
SharedBytes Joined(std::span<const SharedBytes> values);

// EINVAL: a put by itself says what only a PUTS can say.
Status CheckSinglePut(const kinetic::Command& request);

// How many puts a request counts for: of a PUTS that cannot be executed, no more than it may have.
size_t CountPuts(const kinetic::Command& request);

// What the answer to a request for puts says when the flush that it waited for has failed.
// `values`: what goes with it, of the reads after its puts.
void SetFlushFailure(const Status& failure, const kinetic::Command& request,
                     kinetic::Command* answer, SharedBytes* values);

}  // namespace pinstripe
