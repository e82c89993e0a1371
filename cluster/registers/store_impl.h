// What is behind RegisterStore: store.cc reads and changes, scan.cc lists.

#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cluster/registers/call.h"
#include "cluster/registers/eraser.h"
#include "cluster/registers/range.h"
#include "cluster/registers/recovery.h"
#include "cluster/registers/store.h"
#include "cluster/registers/sweep.h"

namespace pinstripe {

class RegisterStore::Impl {
 public:
  using Settled = RegisterCall::Settled;

  Impl(Runtime& runtime, ReplicaLocator& locator, Options options)
      : runtime_(runtime),
        locator_(locator),
        context_{runtime, options, std::make_shared<RegisterCache>(options.remembered)} {}

  std::vector<Result<RegisterValue>> ReadMany(std::span<const RegisterName> names);
  ChangeOutcome Change(const RegisterName& name, const RegisterValue& seen,
                       std::optional<std::string> value, ChangeTerms terms,
                       RegisterHolding* holding);
  BothOutcomes ChangeBoth(Wanted first, Wanted second, ChangeTerms terms,
                          const RegisterName* witness);
  ChangeOutcome ChangeBound(Wanted wanted, ChangeTerms terms);
  WitnessedOutcome ChangeWitnessed(Wanted wanted, ChangeTerms terms, const RegisterName& witness);
  Result<RegisterValue> ReadPinned(const RegisterName& name);
  Result<ScanPage> ScanAfter(RegisterHolding& mark, const std::string& first,
                             const std::string& last, size_t max);
  Status MakeDurable(const RegisterName& name);
  Result<RegisterTraces> FindTraces(const RegisterName& name);
  Result<ScanPage> Scan(uint32_t group, const std::string& first, const std::string& last,
                        size_t max);
  Result<SweepReport> Sweep(uint32_t group, const SweepProgress& progress) {
    return WhileTheyStay(group, [&](const GroupReplicas& replicas) {
      return RegisterSweep(context_, group, replicas, nullptr).Run(progress);
    });
  }
  Result<SweepReport> CopyTo(Drive& drive, uint32_t group, const GroupReplicas& replicas,
                             const SweepProgress& progress) {
    TRY(replicas.refused);
    const Successor successor{std::nullopt, drive};
    return RegisterSweep(context_, group, replicas, &successor).Run(progress);
  }
  // Not tried again with other replicas: whether this is the one to restore is decided above.
  Result<SweepReport> Restore(uint32_t group, const Successor& successor,
                              const SweepProgress& progress) {
    const GroupReplicas replicas = TRY(Locate(group));
    return RegisterSweep(context_, group, replicas, &successor).Run(progress);
  }
  Result<SweepReport> Compare(uint32_t group, const Successor& successor,
                              const GroupReplicas& others, const SweepProgress& progress) {
    TRY(others.refused);
    return RegisterSweep(context_, group, others, &successor).Run(progress);
  }
  Result<SweepReport> Recover(uint32_t group, const GroupReplicas& replicas,
                              const SweepProgress& progress) {
    TRY(replicas.refused);
    return RegisterRecovery(context_, group, replicas).Run(progress);
  }
  Result<EraseReport> Erase(uint32_t group, const MayErase& may_erase) {
    return WhileTheyStay(group, [&](const GroupReplicas& replicas) {
      return RegisterEraser(context_, group, replicas).Run(may_erase);
    });
  }

 private:
  static constexpr Duration kPauseOfMove = std::chrono::milliseconds(100);

  static Status CheckName(const RegisterName& name);
  static RegisterValue ValueOf(const RegisterCall& call, const Chosen& chosen);
  Result<RegisterValue> ReadAgain(const RegisterName& name);
  // With `mark`, those that hold it are asked to list, and what they do not agree on is pinned.
  Result<ScanPage> TryScan(const GroupReplicas& replicas, RegisterHolding* mark, uint32_t group,
                           const std::string& first, const std::string& last, size_t max);
  // Those who were asked to list alone, null in the place of others, and until when they count.
  struct Listers {
    GroupReplicas replicas;
    Time count_until = Time::max();
  };
  std::vector<Result<RegisterValue>> ReadListed(const GroupReplicas& replicas,
                                                const std::vector<RegisterName>& names,
                                                const RegisterRange& range, const Listers* listers);
  Result<Listers> HoldersAmong(const GroupReplicas& replicas, RegisterHolding& mark);
  Result<RegisterRange> ReadRangeOf(const GroupReplicas& replicas, RegisterHolding& mark,
                                    const RegisterRange::Question& question, Listers& listers);
  Result<RegisterValue> Pin(RegisterCall& call);
  void Ask(std::span<RegisterCall* const> calls);

  Result<GroupReplicas> Locate(uint32_t group) {
    GroupReplicas replicas = locator_.Replicas(group);
    TRY(replicas.refused);
    return replicas;
  }

  // Once they are not being moved any more.
  Result<GroupReplicas> LocateToChange(uint32_t group) {
    const TimeLimit limit(runtime_, context_.options.move_timeout);
    for (;;) {
      GroupReplicas replicas = TRY(Locate(group));
      if (!replicas.are_moving) return replicas;
      if (limit.has_passed()) {
        return Fail(EIO,
                    "names are being moved, and changes wait until that is done; it is not after "
                    "{:.0f} s. If nobody is at it: `pinstripe metadata move` goes on",
                    std::chrono::duration<double>(context_.options.move_timeout).count());
      }
      runtime_.NewSignal()->WaitUntil(runtime_.Now() + kPauseOfMove);
    }
  }

  // Does it with the group's replicas, and again with others when these turn out to be others by
  // now. `operation` says so with EREMCHG. It begins with `known`, if that is given.
  template <typename Operation>
  auto UnderNewestMap(uint32_t group, Operation operation, const GroupReplicas* known = nullptr)
      -> decltype(operation(GroupReplicas())) {
    return Under(&Impl::Locate, group, std::move(operation), known);
  }
  // The same for what decides or changes something: it waits while they are being moved.
  template <typename Operation>
  auto WhileTheyStay(uint32_t group, Operation operation, const GroupReplicas* known = nullptr)
      -> decltype(operation(GroupReplicas())) {
    return Under(&Impl::LocateToChange, group, std::move(operation), known);
  }
  template <typename Operation>
  auto Under(Result<GroupReplicas> (Impl::*locate)(uint32_t), uint32_t group, Operation operation,
             const GroupReplicas* known) -> decltype(operation(GroupReplicas())) {
    for (;;) {
      const GroupReplicas replicas =
          known != nullptr ? *std::exchange(known, nullptr) : TRY((this->*locate)(group));
      auto result = operation(replicas);
      if (CodeOf(result) != EREMCHG) return result;
      const Status newer = locator_.CatchUp(replicas);
      if (!newer.ok()) return Failed(newer.Context(fmt::format("group {}", group)));
    }
  }
  template <typename T>
  static int CodeOf(const Result<T>& result) {
    return result.has_value() ? 0 : result.error().code();
  }
  static int CodeOf(const Status& status) { return status.code(); }

  Result<RegisterValue> Finish(RegisterCall& call);
  // A change that is tried until its outcome is known.
  struct Attempt {
    Attempt(RegisterName name_in, const RegisterValue& seen_in, std::optional<std::string> value_in,
            ChangeTerms terms_in)
        : name(std::move(name_in)),
          seen(seen_in),
          value(std::move(value_in)),
          terms(terms_in),
          own{.seen_slot = seen_in.slot} {
      if (!value || name.group == kMapGroup) terms.room = Room::kFreeing;
    }

    const RegisterName name;
    const RegisterValue seen;
    std::optional<std::string> value;  // until it is proposed
    ChangeTerms terms;
    OwnChange own;
    const Companions* with = nullptr;
    // Of one whose fast round is over already.
    GroupReplicas replicas;
    std::unique_ptr<RegisterCall> call;
    bool is_chosen = false;
    RegisterHolding* holding = nullptr;  // to be set
  };
  Status Check(const Attempt& attempt) const;
  // Sends the fast round of `last`, and at once that of `first` if any, if all can have one now.
  // What is known of the witness.
  std::optional<RegisterValue> TryFast(Attempt* first, Attempt& last, const RegisterName* witness);
  // Makes its call, if that can have a fast round now; null if not.
  std::shared_ptr<const RememberedRegister> Begin(Attempt& attempt, const GroupReplicas& replicas);
  void Propose(RegisterCall& call, const RememberedRegister& remembered, Attempt& attempt);
  ChangeOutcome Carry(Attempt& attempt);
  Result<ChangeOutcome> TryChange(RegisterCall& call, Attempt& attempt);
  Result<ChangeOutcome> End(RegisterCall& call, Attempt& attempt, bool is_chosen);
  Result<Settled> MakeFinal(RegisterCall& call, Settled settled);
  Result<ChangeOutcome> Conclude(RegisterCall& call, const OwnChange& own, const Settled& settled,
                                 Durability durability);
  void Remember(const RegisterCall& call, const Chosen& chosen);
  std::shared_ptr<const RememberedRegister> Recall(const RegisterCall& call, uint64_t slot,
                                                   size_t replicas);
  Proposal NewProposal(const RememberedRegister& replaced, std::optional<std::string> value);

  Runtime& runtime_;
  ReplicaLocator& locator_;
  const RegisterContext context_;
};

}  // namespace pinstripe
