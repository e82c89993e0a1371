// RegisterRecovery: decides all registers of a group anew. It is for a loss of power that struck
// several machines at once, after which so many replicas may have forgotten their answers that the
// others are not a majority. A majority still has what was written through. For the rest, the
// newest value counts that any replica still has.
//
// Each register is taken over into a slot far behind all that was ever used. The slot for which its
// value was proposed goes along, and its users go on knowing it by that. So no slot comes back with
// another value, and nothing that was sent before the loss has any effect. docs/format.md, "Drives
// that have forgotten", says why this is safe, beside others who do the same, too.
//
// One thread. Holds a page of registers at a time.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cluster/registers/call.h"
#include "cluster/registers/range.h"
#include "cluster/registers/store.h"

namespace pinstripe {

class RegisterRecovery {
 public:
  // `replicas`: those that take part, null where one does not; whether they have a say or not.
  RegisterRecovery(const RegisterContext& context, uint32_t group, GroupReplicas replicas);

  // All that take part have to answer. EHOSTUNREACH: one did not, or was lost meanwhile; what was
  // done by then does no harm, and all of it is to be done again. EREMCHG: the replicas are others
  // by now.
  Result<SweepReport> Run(const RegisterStore::SweepProgress& progress);

 private:
  struct Register {
    std::string key;  // of the record
    bool is_reusable = false;
    ReplicaStates states;
    std::vector<bool> damaged;  // replicas whose record cannot be read
    Ballot ballot;
    ProposalPtr proposal;
  };
  struct Step {
    Register* of;
    size_t replica;
    ReplicaState next;
    Drive::PutRequest request;
  };

  Result<std::vector<Register>> ReadPage(const std::string& first,
                                         std::optional<std::string>& next);
  Status AskOneByOne(std::vector<Register>& registers);
  Status Decide(std::vector<Register*>& registers);
  bool HaveAllPromised(const Register& each) const;
  Status Send(std::vector<Step> steps);
  Status FlushAll();
  std::vector<uint64_t> CountLosses() const;
  Terms RequestTerms() const;

  const RegisterContext& context_;
  const uint32_t group_;
  const std::string prefix_;  // of the records' keys
  const GroupReplicas replicas_;
  const std::vector<Drive*>& drives_;  // of these
  const Quorums quorums_;
};

// How far a register's slot moves when it is decided anew: more than it is changed between two
// flushes of its drives.
inline constexpr uint64_t kForgottenSlots = uint64_t{1} << 22;

// The slot in which a register is decided anew of which these states are left, in its epoch.
uint64_t RecoverySlot(const ReplicaStates& states, bool is_reusable);

}  // namespace pinstripe
