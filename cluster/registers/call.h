// One call on one register: the rounds of the protocol, straight-line code over the register's
// replicas. What the rules say is in rules.h; here they are carried out.
//
// One thread. Requests that are still on their way when a call ends keep what they need alive.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/gather.h"
#include "cluster/registers/cache.h"
#include "cluster/registers/record.h"
#include "cluster/registers/rules.h"
#include "cluster/registers/store.h"
#include "drive/drive.h"

namespace pinstripe {

// How long whoever only reads waits for drives when too few are there: as for those of a stripe
// (StripeStore::Options::patience).
inline constexpr Duration kPatienceOfReads = std::chrono::seconds(3);

// State that the calls of a store share. Requests on their way may outlive the store, not the
// runtime.
struct RegisterContext {
  Runtime& runtime;
  RegisterStore::Options options;
  std::shared_ptr<RegisterCache> cache;
};

// A change that this call wants, of what its caller has seen.
struct OwnChange {
  uint64_t seen_slot = 0;
  uint64_t floor = 0;  // of the epoch in which it is tried
  uint64_t slot = 0;   // in which it was proposed last
  ProposalPtr proposal;
  // One for each replica, which must have it before; none: it is not bound.
  std::vector<Guard> companions = {};
  bool everywhere = false;      // every replica has taken it in the fast round
  bool sent = false;            // some replica may have accepted it
  std::optional<bool> applied;  // once that is known from what came after it

  // To a later slot than that for which it was proposed, to replace `chosen` there: the first of a
  // later epoch, or the one after it, if what it replaces was taken over into that; or replicas
  // forgot the slots between.
  void MoveTo(uint64_t new_slot, const Chosen& chosen);

  // Whether `chosen` is what the caller has seen.
  bool Replaces(const Chosen& chosen) const;

  // What is proposed for it in classic rounds, where nobody knows of companions: a bound one is
  // given up.
  ProposalPtr InClassicRound() const { return proposal->bound ? InsteadOf(*proposal) : proposal; }

  // Any value proposed for a later slot names what was chosen before it.
  void LearnFrom(const ReplicaStates& states);
};

class RegisterCall {
 public:
  // `terms`: of a change; none: it is only read.
  RegisterCall(const RegisterContext& context, const RegisterName& name, GroupReplicas replicas,
               std::optional<ChangeTerms> terms = std::nullopt);

  // Asks every replica whose state is not known, for all of `calls` at once, until each knows what
  // is chosen or cannot learn more without waiting long. With `catch_up`, replicas that are behind
  // are given what is chosen.
  static void ReadUnknown(const RegisterContext& context, std::span<RegisterCall* const> calls,
                          bool catch_up);

  // Takes over what a replica, asked at `asked`, was found to hold.
  void Learn(size_t replica, Time asked, Result<Record> record);
  // Whether what is chosen is known, and every replica whose state is known has it.
  bool KnowsEnough() const;

  Finding Judge() const { return pinstripe::Judge(quorums_, states_); }

  struct Settled {
    Chosen chosen;
    bool accepted_here = false;  // a quorum told this call that it accepted the value
  };
  // Without a change of its own: the current value. With one: the value in the change's slot or a
  // later one, or the current one if that is not what its caller has seen; nothing of use once
  // own->applied is true. EREMCHG: the replicas are others by now; `own` may be given to another
  // call.
  Result<Settled> Settle(OwnChange* own);

  // Whether enough replicas are up and in a state for the fast round of the slot after the
  // remembered. kAll: as a bound change needs it, all of them, which know guards.
  enum class Needed { kQuorum, kAll };
  bool CanGoFast(const RememberedRegister& remembered, Needed needed = Needed::kQuorum);

  // The known states of the replicas, and the highest ballot that any of them promised.
  const ReplicaStates& states() const { return states_; }
  Ballot HighestPromise() const;

  // For a call that had to wait for others after its replicas were asked: the time that it may take
  // begins now, if enough of them answered.
  void Restart();
  void Begin();  // whether they did or not

  // Tries to get `own` chosen in the fast round, from what is remembered. False: not known to be.
  bool FastRound(OwnChange& own, const RememberedRegister& remembered);

  // The same in two halves, between which others can be sent. With `first`, a call on the same
  // replicas whose fast round was sent before: each of these takes `own` only once it has that. The
  // drives are to know guards (AllKnowGuards). With `witness`, another call on these replicas: each
  // of them tells, once it took `own`, what it holds of that.
  struct Round;
  struct First {
    const RegisterCall& call;
    uint64_t slot;  // that was proposed for there
  };
  std::unique_ptr<Round> SendFastRound(OwnChange& own, const RememberedRegister& remembered,
                                       const std::optional<First>& first = std::nullopt,
                                       const RegisterCall* witness = nullptr);
  bool AwaitFastRound(OwnChange& own, Round& round);
  bool AllKnowGuards() const;

  // For a witness, a call that was asked nothing yet: learns what those replicas have told of it
  // that took what the round, which succeeded, brought them. What is chosen by that, if they all
  // have it, and are a majority at least. So none of these replicas had accepted anything later
  // when it took that.
  std::optional<Chosen> Witness(Round& round);

  // Whether all that are known, and of these a majority of all replicas that are among `some` (null
  // in the place of others), have what is chosen.
  bool AgreesWith(const GroupReplicas& some) const;
  // What replicas have told does not count any more.
  void ForgetStates();

  // What is chosen, once a majority has promised a ballot later than all that was accepted. So a
  // fast round whose requests were sent before is known to have succeeded, or never does.
  Result<Chosen> Pin();

  // The drives of replicas that are known to have accepted this, and until when that counts.
  std::vector<const Drive*> HoldersOf(const Chosen& chosen) const;
  Time counts_until() const { return states_count_until_; }
  // The same of what is chosen in this slot, a majority: replicas that are behind are brought up to
  // date. ESTALE: something else is chosen, or that cannot be done.
  Result<std::vector<const Drive*>> FindHolders(uint64_t slot);

  // Some replicas are lost for ever, so a bound change is given up that only they, and others that
  // are away, could show to be chosen. Nobody was told that it happened.
  void GiveUpBound() { gives_up_bound_ = true; }

  // Lets the next classic round suppose that no replica was ever written. Puts find out.
  void SupposeNeverWritten();

  // Makes sure that what is chosen is accepted durably by a majority.
  Status MakeDurable();

  // The states that the replicas are in, or will be when they answer, for the next change.
  RememberedRegister Known(const Chosen& chosen) const;

  const std::string& key() const { return key_; }
  size_t replicas() const { return drives_.size(); }
  uint64_t floor() const { return floor_; }
  std::string Title() const;  // "register 17/E..."

 private:
  using Replica = RememberedRegister::Replica;
  struct Step {
    size_t replica;
    Drive::PutRequest request;
    ReplicaState next;
  };
  struct Reading;

  // The first in which something may be proposed where `slot` is chosen.
  uint64_t SlotAfter(uint64_t slot) const { return std::max(slot, floor_) + 1; }

  std::unique_ptr<Round> PostPuts(std::vector<Step> steps, const RegisterCall* witness = nullptr);
  // `enough`: with which it is of use; more, up to `needed`, are waited for.
  size_t AwaitPuts(Round& round, size_t needed, size_t enough, bool hurry);
  size_t SendPuts(std::vector<Step> steps, size_t needed, size_t enough, bool hurry);
  std::optional<Settled> ClassicRound(OwnChange* own, uint64_t least_slot, bool insist);
  std::optional<ReplicaStates> Prepare(const Ballot& ballot, const ReplicaStates& before);
  bool Accept(const Ballot& ballot, const ProposalPtr& proposal, Room room,
              const ReplicaStates& before);

  void Take(size_t replica, Result<Record> record);
  void Ask(size_t replica, Callback<Record> answer);
  bool Usable(size_t replica);
  bool MayAcceptFast(size_t replica, const RememberedRegister& remembered, uint64_t slot);
  void NoteRound(Time start, Time last_answer);
  void Hear(size_t replica, const Status& answer);
  bool StatesCount() const;
  bool BackOff(int attempt);
  bool DrivesAreFull() const;
  bool IsWaitingInVain();
  bool MayFinish(const OwnChange* own) const;
  void NoteSent(OwnChange& own) const;
  bool CanPrepare() const;
  Status Error() const;
  Duration Patience(Time start) const;
  Terms RequestTerms();
  void NoteOutdated(const Status& answer);

  const RegisterContext& context_;
  const RegisterName name_;
  const std::string key_;  // of the record
  const std::vector<Drive*> drives_;
  const std::optional<int64_t> cluster_version_;
  const uint64_t floor_;  // no slot up to here is proposed for
  const ChangeTerms terms_;
  const bool only_reads_;
  const bool observes_;  // and decides nothing: the replicas are moving
  const Quorums quorums_;
  std::optional<TimeLimit> deadline_;  // always there; begun anew with the call
  std::optional<TimeLimit> latest_;    // beyond which it is never put off

  // Facts: each state is one that the replica was in during this call.
  ReplicaStates states_;
  // Until when they may be counted: a replica's drive may have been replaced since.
  Time states_count_until_;
  // The states in which the replicas are expected to be: also those that did not answer yet.
  std::vector<std::optional<Replica>> expected_;
  std::vector<Status> failures_;  // the last one of each replica
  std::vector<bool> exhausted_;   // has no room even for a promise
  // Each replica's last answer, for the message of a failed call; null: nothing yet.
  std::vector<std::optional<Status>> heard_;
  bool gives_up_bound_ = false;
  bool cut_short_ = false;     // what is asked now has less time than a drive may take
  bool outdated_ = false;      // some replica has a later cluster version
  bool stale_ = false;         // some replica was in another state than expected
  bool finishes_ = false;      // a change that others had no room for, with room kept for names
  std::vector<size_t> asked_;  // replicas, in the last round of puts
  std::optional<TimeLimit> patience_;  // since too few replicas are there
  // From when on those that are away are waited for no longer, as others have no room.
  std::optional<Time> out_of_room_at_;
  Duration last_round_{};
};

// Puts that were sent, and whose answers were not all looked at.
struct RegisterCall::Round {
  Round(Runtime& runtime, std::vector<Step> steps_in)
      : steps(std::move(steps_in)), start(runtime.Now()), gather(runtime), told(runtime) {}
  const std::vector<Step> steps;
  const Time start;
  Gather<Status> gather;
  std::set<size_t> taken_by;    // replicas
  Gather<Result<Record>> told;  // of the witness, by replica
};

// The request that gives a replica what is chosen, if it may accept that and has not. It is what
// the proposer would have sent it.
std::optional<Drive::PutRequest> CatchUp(const std::string& key, const ReplicaState& state,
                                         const Chosen& chosen);

// What a Get says about a replica. A record that is not there is the first state of all; a damaged
// one says nothing.
Result<ReplicaState> StateFrom(const std::string& key, const Drive& drive,
                               const Result<Record>& record);

// Whether each replica's drive has the companion of that replica.
bool LieTogether(const std::vector<Drive*>& replicas, const std::vector<Companions::One>& all);

std::string RegisterRecordKey(const std::string& prefix, const RegisterName& name);

}  // namespace pinstripe
