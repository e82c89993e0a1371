// NameEngine: a store of records that others run in production, on which a cluster may keep its
// names (docs/operations.md, "Names on an engine"): etcd (engines/etcd/) or PostgreSQL
// (engines/postgres/). EngineDrive makes a Drive of one, so registers go there as to any drive.
// (What a drive of ours does with requests is an Engine, too: daemon/engine.h.)
//
// An engine keeps one store for each cluster of a name. The store has an id of 16 bytes by chance,
// made by whoever comes first, and a cluster version, 0 at first. Both are compared in the same
// step as everything else that is asked, so nothing happens in a store that was emptied, or by
// somebody who has not heard of a later epoch (Terms, drive/drive.h).
//
// What is answered is safe: on the disks of a majority of members, or on the disk of the server and
// of those that it waits for. An engine that is set to answer sooner is refused when it is reached,
// in a sentence that says what to set.
//
// Failures are those of a Drive. EHOSTUNREACH and ETIMEDOUT: what was asked may have been done, or
// may still be. EREMCHG, EACCES, ENOSPC, EINVAL: nothing was done. An engine never sends a change
// again by itself, unless it is known that the first one did nothing.
//
// Thread-safe. Answers come on a thread of the engine, never inside the call, each once. A callback
// does little and never waits. What is outstanding when the engine is destroyed is answered
// (EHOSTUNREACH) before its destructor returns.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "drive/drive.h"

namespace pinstripe {

// A put, or a removal, with what it requires of the record as it is.
struct EngineChange {
  std::string key;            // 1..kMaxKeyBytes
  std::optional<Record> put;  // null: the record is removed
  Expected expected = Expected::Any();
  std::optional<Guard> guard;
};

// What is done in one step where that is possible: the changes, one after the other, and then the
// reads. Each change has its own condition and its own answer, and one that is refused leaves the
// others alone. A guard and a read see the changes before them. A batch that is too large for the
// engine's step, or which others keep in the way of, is done in several of them, in this order;
// what was not reached by a failure is answered with that.
struct EngineBatch {
  std::vector<EngineChange> changes;
  std::vector<std::string> reads;  // keys
};

struct EngineAnswer {
  // Element i of batch.changes[i]: ESTALE the version is another one; ENOENT there is no such
  // record, and a version was expected of one to be removed; ECANCELED the guard has another
  // version. ESTALE comes before ECANCELED. With Expected::Any() a removal always succeeds.
  std::vector<Status> changes;
  std::vector<Result<Record>> reads;  // ENOENT, EBADMSG
};

struct EngineRange {
  std::string first;
  std::string last;  // both included
  uint32_t max = 1;  // entries, 1..kMaxRangeRecords
  bool reverse = false;
  uint32_t value_limit = 0;  // values of more bytes are left out
};

// For `pinstripe status`.
struct EngineMember {
  std::string name;
  std::string address;
  bool is_up = false;
  bool is_leader = false;  // of PostgreSQL: the server that takes changes
  std::string
      note;  // what else there is to say: "standby, 12 KiB behind", "learner", why it is down
};
struct EngineState {
  std::string software;      // "etcd 3.4.23"
  uint64_t used_bytes = 0;   // by all that it stores
  uint64_t limit_bytes = 0;  // 0: it has none of its own
  std::vector<EngineMember> members;
  std::vector<std::string> alarms;    // what keeps it from working as it should, in sentences
  std::vector<std::string> warnings;  // what should be set otherwise
};

class NameEngine {
 public:
  // Told by the engine, on one of its threads, and not while it is being told something else.
  class Listener {
   public:
    virtual ~Listener() = default;
    // The store can be asked now, for the first time or again: it is as safe as it must be.
    // `store` is its id: another one than before is another store, or one that was emptied.
    virtual void OnReached(const std::string& store) = 0;
    // Nothing can be asked any more, or not yet; what is asked fails at once.
    virtual void OnLost(const Status& why) = 0;
  };

  virtual ~NameEngine() = default;

  // Begins to connect, and goes on trying for as long as it lives. Once; `listener` outlives the
  // engine, or StopTelling().
  virtual void Start(Listener& listener) = 0;
  // Returns when the listener is not being told anything, and never will be again.
  virtual void StopTelling() = 0;

  // Asks the store that was reached last; EHOSTUNREACH if by then there is another one. `terms`
  // name the cluster version, as for a Drive.
  virtual void Do(EngineBatch batch, Terms terms, Callback<EngineAnswer> done) = 0;

  // As Drive::ListRecords(). A page ends before `max` where it would have more than a few MiB.
  virtual void List(EngineRange range, Terms terms, Callback<RangeRecords> done) = 0;

  // Sets the cluster version, also to a lower one.
  virtual void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) = 0;

  // Asks every member; the answer tells of those that are down, too.
  virtual void LookAt(Terms terms, Callback<EngineState> done) = 0;
};

// How a record is kept in a store of single values:
//   U8 form = 1, Text version, Text tag, U32 CRC32C(everything but these four bytes), value
std::string EncodeEngineRecord(const Record& record);
Result<Record> DecodeEngineRecord(SharedBytes bytes);  // EBADMSG

// How many changes and reads go into one batch at most.
inline constexpr size_t kMaxEngineBatch = 32;

}  // namespace pinstripe
