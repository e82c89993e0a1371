// RespDevice: what one device keeps for clients of the Redis protocol, on the engine that serves
// its Kinetic clients. Each key of theirs is a record below a prefix, where no cluster has any
// (docs/format.md, "Keys"). So nobody writes a register by hand, and Kinetic clients can read what
// these have written.
//
// Whoever asks is who he has said, with the rights that the protocol gives him (rights.h), on the
// records' keys.
//
// A transaction is executed while no other command of a client of this protocol is (turns()), and
// its changes are made in one step. So nobody sees a part of it, whatever becomes of the process.
//
// Calls may wait for the disk, except where they say that they do not. Callers have visited the
// device (KineticService::inside()), except for what goes through many keys: EachKey() and
// DeleteAll() visit it for some keys after the other. Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "daemon/batch.h"
#include "daemon/engine.h"
#include "daemon/kinetic_service.h"
#include "daemon/resp_turns.h"

namespace pinstripe {

inline constexpr std::string_view kRespPrefix = "resp/";
inline constexpr size_t kMaxRespKeyBytes = kMaxKeyBytes - kRespPrefix.size();

// Where a listing goes on: keys by numbers, which is all that SCAN gives to clients. Bounded, the
// oldest goes first.
class RespCursors {
 public:
  static constexpr size_t kMostBytes = 4 << 20;  // of keys, and as many more around them

  // `key` is the last one that was listed. The number is neither 0 nor one that was given before.
  uint64_t Add(std::string key, uint64_t chance);
  // None: there is no such number, or none any more.
  std::optional<std::string> Find(uint64_t number) const;

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, std::string> keys_ GUARDED_BY(mutex_);
  std::deque<uint64_t> order_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;
};

// Who asks, and how.
struct RespCaller {
  DeviceSecurity::IdentityPtr identity;  // null: has not said who he is
  bool tls = false;
  // Set when he has gone: nobody wants to know any more what takes long. Null: he stays.
  const std::atomic<bool>* gone = nullptr;
  // Of a transaction that is being executed: by records' keys, what it has changed so far. All of
  // it is made in one step when it ends; meanwhile only this caller sees it. Null: there is none.
  struct Staged {
    std::map<std::string, Engine::Change> changes;
    size_t bytes = 0;  // of their values
  };
  Staged* staged = nullptr;
};

class RespDevice {
 public:
  // `write_through`: changes are answered when they are safe from power loss. Both outlive it.
  RespDevice(Runtime& runtime, KineticService& service, bool write_through)
      : runtime_(runtime),
        service_(service),
        write_through_(write_through),
        started_(runtime.Now()),
        next_version_(runtime.Random()) {}

  Runtime& runtime() { return runtime_; }
  KineticService& service() { return service_; }
  bool write_through() const { return write_through_; }
  Duration up() const { return runtime_.Now() - started_; }
  uint64_t CountCommands() const { return commands_.load(std::memory_order_relaxed); }
  void NoteCommands(uint64_t count) { commands_.fetch_add(count, std::memory_order_relaxed); }
  RespCursors& cursors() { return cursors_; }
  // Each command but those that go through many keys has one.
  RespTurns& turns() { return turns_; }
  // Of what connections have it keep for them.
  BatchBudget& kept() { return kept_; }

  // What a value is.
  enum class Type : char { kText = 's', kHash = 'h' };

  struct Entry {
    Type type = Type::kText;
    std::string version;
    SharedBytes value;         // or the part that was asked for
    uint32_t value_bytes = 0;  // of the whole
  };

  // The record's key. EINVAL: too long.
  static Result<std::string> RecordOf(std::string_view key);

  // None: there is no such key.
  Result<std::optional<Entry>> Get(const RespCaller& caller, std::string_view key,
                                   ValueRange range = {});
  // The same without waiting. EAGAIN: it has to.
  Result<std::optional<Entry>> GetAtOnce(const RespCaller& caller, std::string_view key);
  // The same without its value.
  Result<std::optional<Entry>> Head(const RespCaller& caller, std::string_view key) {
    return Get(caller, key, {0, 0});
  }

  // A put, or with no value a deletion. EACCES, EINVAL: it may not be.
  struct Value {
    Type type = Type::kText;
    SharedBytes bytes;
  };
  Result<Engine::Change> ChangeOf(const RespCaller& caller, std::string_view key,
                                  std::optional<Value> value);

  // As of Engine, outside of transactions.
  std::vector<Status> PutEach(std::span<const Engine::Change> puts) {
    return service_.inside().engine.PutEach(puts);
  }
  bool PutAllAtOnce(std::span<const Engine::Change> puts) {
    return service_.inside().engine.PutAllAtOnce(puts);
  }

  // Makes all of these changes, or none. ESTALE: one finds something else than it expects. ENOENT:
  // a single deletion finds nothing.
  Status Make(const RespCaller& caller, std::vector<Engine::Change> changes);
  // The same for all that a transaction has staged.
  Status MakeAll(RespCaller::Staged staged);

  // Makes of what is there what `decide` says, or leaves it, where that says nothing. Both are one
  // step; `decide` is asked again when somebody else was quicker. It needs the right to read, too.
  // EBUSY: somebody else always was.
  struct Decision {
    std::optional<Value> value;  // none: the key goes
  };
  using Decide = std::function<Result<std::optional<Decision>>(const std::optional<Entry>& there)>;
  Status Change(const RespCaller& caller, std::string_view key, const Decide& decide);

  // Whatever is there.
  Status Put(const RespCaller& caller, std::string_view key, Value value);

  // As Change(), where nothing is there. False: something was. (A Kinetic client may put a record
  // without a version at this very moment, which is taken for nothing then.)
  Result<bool> Create(const RespCaller& caller, std::string_view key, Value value);

  // False: there is no such key.
  Result<bool> Delete(const RespCaller& caller, std::string_view key);

  // How many of these there were. All go in one step, where nobody else is at work.
  Result<int64_t> DeleteEach(const RespCaller& caller, std::span<const std::string_view> keys);

  // Calls `take` with the keys of a range that the caller may know of, in their order, until it
  // says false.
  struct Keys {
    std::string first;
    bool first_included = true;
    std::optional<std::string> last;  // none: to the end
    bool last_included = true;
  };
  // EINVAL: this is a transaction, which cannot. ECANCELED: the caller has gone. EACCES: or the
  // device was erased since he came.
  Status EachKey(const RespCaller& caller, const Keys& keys, bool reverse,
                 const std::function<bool(std::string_view)>& take);

  // Removes all of them, some at a time, for which it has turns.
  Status DeleteAll(const RespCaller& caller);

  Status Flush() { return service_.Flush(); }

 private:
  static Result<Entry> EntryOf(Result<StoredRecord> record);
  static Result<std::optional<Entry>> StagedEntry(const RespCaller& caller,
                                                  const std::string& record, ValueRange range);
  Status Stage(RespCaller::Staged& staged, std::vector<Engine::Change> changes);
  Status CheckStays(const RespCaller& caller) const;
  Result<std::vector<std::string>> SomeKeys(const RespCaller& caller, const KeyRange& range,
                                            bool reverse);
  Status DeleteSome(const RespCaller& caller, std::vector<Engine::Change> deletions);
  Result<std::optional<Entry>> Read(const RespCaller& caller, std::string_view key,
                                    ValueRange range, bool at_once);
  Result<std::vector<KeyRange>> PartsOf(const RespCaller& caller, const Keys& keys,
                                        bool reverse) const;

  Runtime& runtime_;
  KineticService& service_;
  const bool write_through_;
  const Time started_;
  std::atomic<uint64_t> next_version_;
  std::atomic<uint64_t> commands_ = 0;
  RespCursors cursors_;
  RespTurns turns_;
  BatchBudget kept_;
};

}  // namespace pinstripe
