// Registers: small replicated values with conditional change. All metadata is kept in them.
//
// A register has a name and lives in a placement group, on the first r = 2f+1 drives of the group.
// Its value is at most kMaxRegisterBytes, or absent. Each change raises its slot, so (name, slot)
// names one value for ever.
//
// The promises, with any number of clients, no leader, no clock and no lease, while a majority of
// the r drives answers (requests lost, late, repeated or reordered; clients dying anywhere):
//   - Reads and changes of one register are linearizable.
//   - A change is applied once or not at all, and its outcome is known before it is reported. The
//     only exception says so: Effect::kUnknown, when too few drives answered to find out, or did so
//     only after 16 more changes by others.
//   - A drive that was replaced by an empty one does not count: it has no superblock, so Cluster
//     treats it as away until it was rebuilt (cluster/membership/rebuild.h). An empty replica never
//     votes. Here alone time counts: nobody may conclude anything from an answer of the lost drive
//     once another one has taken its place, so no answer counts for longer than kAnswersCount after
//     it was asked for. docs/format.md, "Rebuilding a drive", says why that is enough.
//
// The protocol is single-register consensus with the drives as acceptors: CASPaxos (Rystsov 2018)
// over ballots (slot, round, proposer), with a fast round (Lamport, Fast Paxos, 2006) as round 0 of
// each slot. Every transition of a replica is a versioned put against exactly the state that was
// read, so a lost, late or repeated request cannot apply twice. docs/format.md, "Registers", has
// the bytes and the rules; tests/sim/register_sim_test.cc holds the class to its promises.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "drive/drive.h"

namespace pinstripe {

struct Quorums;

inline constexpr size_t kMaxRegisterBytes = 128 << 10;

// How long a replica's answer may be counted, from when it was asked, by the clock of the asker. A
// change or read that took longer looks again. The same everywhere, whatever the timeouts are.
inline constexpr Duration kAnswersCount = std::chrono::seconds(15);

// When a drive has been gone for this long, nobody counts its answers any more: clocks that run at
// any speed between half and twice that of ours are allowed for, and some more.
inline constexpr Duration kForgetting = 2 * kAnswersCount + std::chrono::seconds(5);

// The group in which registers of the drive map live; their drives are named by the superblocks.
inline constexpr uint32_t kMapGroup = UINT32_MAX;

struct RegisterName {
  uint32_t group = 0;
  std::string key;  // 1..1024 bytes, ordered within its group
  friend bool operator==(const RegisterName&, const RegisterName&) = default;
};

// Whether a register of this key may be given a value again after it was erased. Such registers
// begin a new sequence of slots in each epoch of the drive map.
inline bool IsReusable(std::string_view key) { return key.starts_with('E'); }

struct RegisterValue {
  uint64_t slot = 0;                 // 0: never written
  std::optional<std::string> value;  // null: absent (never written, or removed)
  // When it was removed, by the clock of the one who did, nanoseconds since 1970. 0: never written.
  int64_t removed_at = 0;
  bool is_instead = false;  // of a bound change: Companions::otherwise
};

// The terms of a change: when it must be safe from power loss, and how full its drives may be. A
// removal, and what is in the group of the drive map, may always take all the room that there is.
struct ChangeTerms {
  ChangeTerms(Durability durability_in = Durability::kWriteBack,  // NOLINT: most say no more
              Room room_in = Room::kNames)
      : durability(durability_in), room(room_in) {}

  Durability durability;
  Room room;
};

// The outcome of a conditional change. Decisions go by this alone, never by an errno.
enum class Effect {
  kApplied,  // it happened
  kRefused,  // it did not happen, and never will
  kUnknown,  // nobody can tell: it may have happened, or may still happen
};

// The part that the outcomes of all conditional changes have in common.
struct Changed {
  Effect effect = Effect::kRefused;
  // Success when it was applied, or refused because something else is there. Else the reason; of
  // an unknown one always EIO.
  Status why;

  bool applied() const { return effect == Effect::kApplied; }
  bool unknown() const { return effect == Effect::kUnknown; }
};

// Records of drives that a change comes with, one for each replica of its register, as the pieces
// of a small file come with its inode. The change is *bound*: in the fast round no replica takes it
// before it has its companion. If it becomes known while so few have it that it is of no use,
// its register gets something else instead, whoever finds that out.
struct Companions {
  struct One {
    const Drive* drive = nullptr;
    Guard guard;
  };
  std::vector<One> all;        // in the order of the replicas
  std::function<void()> send;  // sends them; called once, together with the change, or never
  size_t least = 1;            // so many are enough
  // What the register gets with fewer; null: it is removed.
  std::optional<std::string> otherwise;
};

struct ChangeOutcome : Changed {
  // What was applied, or what was there instead; of no meaning where `why` is a failure.
  RegisterValue now;
  // Of a bound one that was applied: every replica has told that it took it, and what it came with.
  bool everywhere = false;
  // Of a bound one that was refused: what is there now is what was to be there instead.
  bool otherwise = false;
};

struct SweepReport {
  uint64_t registers = 0;  // looked at
  uint64_t behind = 0;     // records, each of one replica, that were missing or out of date
  uint64_t failed = 0;     // of these, those that could not be brought up to date
  uint64_t unheard = 0;    // replicas that did not say what they hold, each for one register

  SweepReport& operator+=(const SweepReport& other);
};

// The rest of a removed register.
struct Tombstone {
  std::string key;  // within its group
  uint64_t slot = 0;
  int64_t removed_at = 0;  // by the clock of who removed it, nanoseconds since 1970
  // It is reusable, and nothing was done with it in this epoch: nobody can tell whether it is
  // there.
  bool of_former_epoch = false;
};

struct EraseReport {
  uint64_t tombstones = 0;  // of which no replica has anything else
  uint64_t erased = 0;      // of these
  uint64_t failed = 0;      // not everywhere: these are for the next time
};

// The replicas' records of a register, whatever they decide.
struct RegisterTraces {
  size_t replicas = 0;
  size_t answered = 0;               // of these; each says what it has, or that it has nothing
  size_t accepted = 0;               // of these, those that hold a value or a removal
  uint64_t slot = 0;                 // of the newest that any holds; a value before a removal
  bool removed = false;              // that is a removal
  std::optional<std::string> value;  // that is this
};

// Replicas that have told that they hold a register's value of this slot.
struct RegisterHolding {
  RegisterName name;
  uint64_t slot = 0;
  std::vector<const Drive*> drives;
  Time counts_until{};  // by the clock of the runtime
};

// Where the replicas of a group live, as one epoch of the drive map says; the drives outlive
// whoever asks.
struct GroupReplicas {
  std::vector<Drive*> drives;  // r; null: it is not known, or has no say (yet)
  // The drives must have this version, so that nobody decides anything with those of an earlier
  // epoch. Null: the replicas never move.
  std::optional<int64_t> cluster_version;
  // Why nobody is asked, and nothing is done, whatever the drives would say; else success.
  Status refused;
  // The group's registers are being copied to other replicas. Nothing decides anything with these
  // but who copies them: changes wait for the end of it, and a read answers what is chosen already.
  bool are_moving = false;
  // What they have answered is safe from power loss, whatever was asked for.
  bool are_durable = false;
};

class ReplicaLocator {
 public:
  virtual ~ReplicaLocator() = default;
  virtual GroupReplicas Replicas(uint32_t group) = 0;

  // A drive has refused a request under `known`: finds out what the replicas are now. EIO: there is
  // no later epoch, or it cannot be read.
  virtual Status CatchUp(const GroupReplicas& known) {
    return Fail(EIO, "a drive has a later cluster version than {}",
                known.cluster_version.value_or(0));
  }
};

// Thread-safe. Calls block until they can answer, at most Options::timeout.
class RegisterStore {
 public:
  struct Options {
    std::string prefix;                                  // of all keys: ClusterPrefix(name)
    Duration timeout = std::chrono::seconds(15);         // for a whole call
    Duration drive_timeout = std::chrono::seconds(5);    // for one request
    Duration straggler = std::chrono::milliseconds(20);  // how long one more answer is waited for
                                                         // before a classic round is begun instead
    Duration move_timeout = std::chrono::minutes(10);    // how long a change waits for a move
    size_t remembered = 4096;  // registers whose replicas' states are remembered, under 1 KiB each

    // For tests of the tests. Quorums: null is the right ones.
    Quorums (*quorums)(size_t replicas) = nullptr;
    Duration answers_count = kAnswersCount;
    bool restore_promises = true;  // false: what must not be done, gives a successor values only
    bool erase_unheard = false;    // true: what must not be done, erases where replicas are away
  };

  // `runtime` and `locator` outlive the store.
  RegisterStore(Runtime& runtime, ReplicaLocator& locator, Options options);
  ~RegisterStore();

  // The current value. EIO when no majority answered in time, naming the drives that did not.
  // One round trip when nobody is changing the register.
  Result<RegisterValue> Read(const RegisterName& name);

  // Several at once; element i answers names[i]. As quick as one while nobody is changing them;
  // those that a classic round has to finish are finished one after the other.
  std::vector<Result<RegisterValue>> ReadMany(std::span<const RegisterName> names);

  // Replaces `seen` by `value` (null removes it) if `seen` is still current; only its slot matters.
  // A register known to be new may be given as RegisterValue{}: then no read is needed at all. A
  // removed register is still there, absent, in a later slot than its last value. Reusable ones
  // that are absent, whether they were ever written or not, go to another slot with each epoch.
  //
  // Refused for a reason: ENOSPC too many drives are full, EFBIG the value is too large, EINVAL the
  // name is not a register's, EIO too few replicas answered. One that was to be durable, and is not
  // known to be, is unknown.
  //
  // `holding`, if any, is set to the replicas that have told that they hold it, where it was
  // applied and that was told by the change itself.
  ChangeOutcome Change(const RegisterName& name, const RegisterValue& seen,
                       std::optional<std::string> value, ChangeTerms terms = {},
                       RegisterHolding* holding = nullptr);

  // Two changes of different registers of one group. The second one is of no use without the first:
  // in the fast round no replica takes it before it has the first, if the drives know guards. (It
  // may be chosen all the same before the first is, or without it.) As quick as one change where
  // both registers are known or new. Otherwise one comes after the other.
  struct Wanted {
    RegisterName name;
    RegisterValue seen;
    std::string value;
    // The change is bound: see ChangeBound().
    const Companions* with = nullptr;
  };
  struct BothOutcomes {
    ChangeOutcome first;
    // If the first was not applied: refused, for the same reason; unless some replica may have
    // taken it before that was known. Then it is unknown where the first is.
    ChangeOutcome second;
    // The witness, where both were applied in one go; null: nobody knows. A majority of replicas,
    // or more, had this and nothing later after each of them had taken both changes.
    std::optional<RegisterValue> witness;
  };
  // `witness` is a third register of the group. Drives that can are asked for it in the message
  // that brings them both changes; others after it.
  BothOutcomes ChangeBoth(Wanted first, Wanted second, ChangeTerms terms = {},
                          const RegisterName* witness = nullptr);

  // Change() with companions. Refused with EAGAIN, and never tried, where they do not lie as the
  // replicas do, or not every replica can take part in a fast round, or value and `otherwise` have
  // more than kMaxRegisterBytes together. Then nothing was sent (Companions::send was not called),
  // unless an epoch began meanwhile: then companions may be there. The first of ChangeBoth() may be
  // bound as well, and the same is true of both.
  ChangeOutcome ChangeBound(Wanted wanted, ChangeTerms terms = {});

  // As Change() to a value, with a witness as above.
  struct WitnessedOutcome {
    ChangeOutcome change;
    std::optional<RegisterValue> witness;
  };
  WitnessedOutcome ChangeWitnessed(Wanted wanted, ChangeTerms terms, const RegisterName& witness);

  // As Read(). A change whose fast round was sent before, and which is not in what is read, never
  // succeeds in that round any more. 2 round trips, or 3 where it has to be accepted once more.
  Result<RegisterValue> ReadPinned(const RegisterName& name);

  // Makes safe from power loss what is chosen now, whoever changed it and however. 4 round trips.
  // EIO when too few replicas could be heard.
  Status MakeDurable(const RegisterName& name);

  // Asks every replica that is up, and decides nothing. A register that reads as never written was
  // either never written, or has lost what was: then a few may still have it, and say so here. EIO:
  // none answered.
  Result<RegisterTraces> FindTraces(const RegisterName& name);

  struct ScanEntry {
    std::string key;
    RegisterValue value;  // present: removed registers are left out
  };
  struct ScanPage {
    std::vector<ScanEntry> entries;   // ascending
    std::optional<std::string> next;  // where to go on; null at the end
  };
  // Registers of `group` with first <= key <= last, from the lowest, at least one and at most about
  // `max` unless there are none. A register that exists from before the call to after it is found.
  Result<ScanPage> Scan(uint32_t group, const std::string& first, const std::string& last,
                        size_t max);

  // The same of the group of `mark`, for whoever has closed something with that mark. Only replicas
  // are asked that held the mark before, and a majority of all has to answer. What they do not
  // agree on is read as by ReadPinned(). A change that is not found may still succeed in its fast
  // round. But then no majority of replicas tells that it took the change without holding the mark.
  // `mark` may learn of other holders. ESTALE: its register is in another slot, or too few replicas
  // can be made to hold it.
  Result<ScanPage> ScanAfter(RegisterHolding& mark, const std::string& first,
                             const std::string& last, size_t max);

  // Looks at every register of `group`, removed ones included, and brings replicas that are behind
  // up to date. EIO when no majority answers, or a register cannot be read; what was done by then
  // stays. `progress`, if any, is called after each page with the number of registers in it, on the
  // calling thread; it may wait.
  using SweepProgress = std::function<void(size_t registers)>;
  Result<SweepReport> Sweep(uint32_t group, const SweepProgress& progress = nullptr);

  // Makes `drive`, which answers but does not take part, as good a replica `replica` of every
  // register of `group` as the lost one was, as far as the others need to know. Their answers alone
  // decide what is chosen. Everything is written through. The lost one has been gone for
  // kForgetting when this begins; `drive` may take part as soon as all its groups were restored.
  // Failures as of Sweep, and of `drive`; EREMCHG when the replicas are others by now.
  Result<SweepReport> Restore(uint32_t group, size_t replica, Drive& drive,
                              const SweepProgress& progress = nullptr);

  // The same for the replica itself, which may have forgotten something. `others`, those that are
  // asked, are those of the locator unless they are given; null in the place of `replica`. From a
  // replica that goes on from a copy, records that none of them has are removed: they may have been
  // erased.
  Result<SweepReport> Compare(uint32_t group, size_t replica, Drive& drive, bool is_copy,
                              const GroupReplicas& others, const SweepProgress& progress = nullptr);

  // Copies all registers of `group`, removed ones included, from `replicas`, which may be moving,
  // to `drive`, which is none of them; everything is written through. They are decided as by
  // ReadPinned() before that. Nobody else may change them any more, and `drive` held none that
  // these lack. SweepReport::behind counts what `drive` had not. Failures as of Restore.
  Result<SweepReport> CopyTo(Drive& drive, uint32_t group, const GroupReplicas& replicas,
                             const SweepProgress& progress = nullptr);

  // Decides all registers of `group` anew with these replicas alone, whether they have a say or
  // not: cluster/registers/recovery.h.
  Result<SweepReport> Recover(uint32_t group, const GroupReplicas& replicas,
                              const SweepProgress& progress = nullptr);

  // Erases removed registers of `group` of which no replica holds a value any more, and for which
  // `may_erase` (element i about tombstones[i]) says so: they are as if they had never been
  // written. Those of a former epoch may always go. Others may go only if nobody gives a value to
  // their names any more. The removal must be so long ago that no request from before it is on its
  // way: such a request would bring a former value back. EHOSTUNREACH when not all replicas answer;
  // what was erased by then stays so.
  using MayErase = std::function<Result<std::vector<bool>>(std::span<const Tombstone> tombstones)>;
  Result<EraseReport> Erase(uint32_t group, const MayErase& may_erase);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pinstripe
