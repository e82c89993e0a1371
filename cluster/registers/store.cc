#include "cluster/registers/store.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "base/log.h"
#include "base/send_together.h"
#include "cluster/registers/store_impl.h"
#include "cluster/registers/traces.h"

namespace pinstripe {
namespace {

constexpr size_t kReadAtOnce = 2048;  // registers, so that a large directory takes few round trips

ChangeOutcome Refusal(Status why) {
  ChangeOutcome refused;
  refused.why = std::move(why);
  return refused;
}

Status NotInOneGo() {
  return Fail(EAGAIN, "not every replica can take the change at once with what comes with it");
}

}  // namespace

Status RegisterStore::Impl::CheckName(const RegisterName& name) {
  if (name.key.empty() || name.key.size() > kMaxRegisterKeyBytes) {
    return Fail(EINVAL, "a register's key has 1..{} bytes, not {}", kMaxRegisterKeyBytes,
                name.key.size());
  }
  return {};
}

RegisterValue RegisterStore::Impl::ValueOf(const RegisterCall& call, const Chosen& chosen) {
  return {VisibleSlot(chosen, call.floor()), chosen.proposal->value, chosen.proposal->removed_at,
          chosen.proposal->is_instead};
}

void RegisterStore::Impl::Remember(const RegisterCall& call, const Chosen& chosen) {
  if (chosen.slot > 0 || call.floor() > 0) context_.cache->Remember(call.key(), call.Known(chosen));
}

// ---- Reading

std::vector<Result<RegisterValue>> RegisterStore::Impl::ReadMany(
    std::span<const RegisterName> names) {
  std::vector<Result<RegisterValue>> values;
  while (values.size() < names.size()) {
    const auto batch =
        names.subspan(values.size(), std::min(kReadAtOnce, names.size() - values.size()));
    std::vector<std::unique_ptr<RegisterCall>> calls;
    std::vector<RegisterCall*> asked;
    std::vector<Status> possible;
    for (const RegisterName& name : batch) {
      GroupReplicas replicas = locator_.Replicas(name.group);
      possible.push_back(CheckName(name));
      if (possible.back().ok()) possible.back() = replicas.refused;
      calls.push_back(std::make_unique<RegisterCall>(context_, name, std::move(replicas)));
      if (possible.back().ok()) asked.push_back(calls.back().get());
    }
    Ask(asked);
    for (size_t i = 0; i < batch.size(); ++i) {
      values.push_back(possible[i].ok() ? Finish(*calls[i]) : tl::unexpected(possible[i]));
      if (CodeOf(values.back()) == EREMCHG) values.back() = ReadAgain(batch[i]);
    }
  }
  return values;
}

// One that was asked of replicas that are others by now.
Result<RegisterValue> RegisterStore::Impl::ReadAgain(const RegisterName& name) {
  return UnderNewestMap(name.group, [&](const GroupReplicas& replicas) {
    RegisterCall call(context_, name, replicas);
    return Finish(call);
  });
}

void RegisterStore::Impl::Ask(std::span<RegisterCall* const> calls) {
  while (!calls.empty()) {
    const auto batch = calls.first(std::min(kReadAtOnce, calls.size()));
    RegisterCall::ReadUnknown(context_, batch, /*catch_up=*/true);
    calls = calls.subspan(batch.size());
  }
}

// After the replicas were asked once.
Result<RegisterValue> RegisterStore::Impl::Finish(RegisterCall& call) {
  call.Restart();
  const Settled settled = TRY(call.Settle(nullptr));
  Remember(call, settled.chosen);
  return ValueOf(call, settled.chosen);
}

// ---- Changing

std::shared_ptr<const RememberedRegister> RegisterStore::Impl::Recall(const RegisterCall& call,
                                                                      uint64_t slot,
                                                                      size_t replicas) {
  const uint64_t floor = call.floor();
  auto remembered = context_.cache->Find(call.key());
  if (remembered != nullptr && remembered->replicas.size() == replicas &&
      remembered->floor == floor && remembered->visible_slot == slot) {
    if (remembered->slot > 0) return remembered;
    // A majority has nothing. The others will have nothing either; their puts find out.
    RememberedRegister absent = *remembered;
    for (auto& replica : absent.replicas) {
      if (!replica.has_value()) replica.emplace();
    }
    return std::make_shared<const RememberedRegister>(std::move(absent));
  }
  if (slot > 0 || floor > 0) return nullptr;
  RememberedRegister never_written;
  never_written.replicas.resize(replicas, RememberedRegister::Replica());
  return std::make_shared<const RememberedRegister>(std::move(never_written));
}

Proposal RegisterStore::Impl::NewProposal(const RememberedRegister& replaced,
                                          std::optional<std::string> value) {
  Proposal proposal{.nonce = {runtime_.Random(), runtime_.Random()}, .value = std::move(value)};
  if (!proposal.value.has_value()) {
    proposal.removed_at = std::max<int64_t>(1, runtime_.WallClock());
  }
  if (replaced.slot > 0) proposal.earlier = EarlierNonces(replaced.nonce, replaced.earlier);
  return proposal;
}

Status RegisterStore::Impl::Check(const Attempt& attempt) const {
  TRY(CheckName(attempt.name));
  if (!attempt.value || attempt.value->size() <= kMaxRegisterBytes) return {};
  return Fail(EFBIG, "a register holds up to {} bytes, not {}", kMaxRegisterBytes,
              attempt.value->size());
}

ChangeOutcome RegisterStore::Impl::Change(const RegisterName& name, const RegisterValue& seen,
                                          std::optional<std::string> value, ChangeTerms terms,
                                          RegisterHolding* holding) {
  Attempt attempt(name, seen, std::move(value), terms);
  attempt.holding = holding;
  const Status possible = Check(attempt);
  if (!possible.ok()) return {{.effect = Effect::kRefused, .why = possible}, {}};
  return Carry(attempt);
}

RegisterStore::BothOutcomes RegisterStore::Impl::ChangeBoth(Wanted first, Wanted second,
                                                            ChangeTerms terms,
                                                            const RegisterName* witness) {
  Attempt one(std::move(first.name), first.seen, std::move(first.value), terms);
  Attempt other(std::move(second.name), second.seen, std::move(second.value), terms);
  Status possible = Check(one);
  if (possible.ok()) possible = Check(other);
  if (possible.ok() && (one.name.group != other.name.group || one.name.key == other.name.key)) {
    possible = Fail(EINVAL, "two registers of one group are changed together");
  }
  if (!possible.ok()) {
    return {Refusal(possible), Refusal(possible), {}};
  }
  one.with = first.with;
  auto told = TryFast(&one, other, witness);
  if (one.with != nullptr && one.call == nullptr) {
    return {Refusal(NotInOneGo()), Refusal(NotInOneGo()), {}};
  }
  BothOutcomes outcomes{.first = Carry(one), .second = {}, .witness = std::move(told)};
  const bool sent = other.own.sent;
  if (outcomes.first.applied() || (sent && !outcomes.first.unknown())) {
    outcomes.second = Carry(other);
  } else if (sent) {
    outcomes.second.effect = Effect::kUnknown;
    outcomes.second.why = outcomes.first.why;
  } else {
    outcomes.second.why = outcomes.first.why;
  }
  return outcomes;
}

ChangeOutcome RegisterStore::Impl::ChangeBound(Wanted wanted, ChangeTerms terms) {
  Attempt attempt(std::move(wanted.name), wanted.seen, std::move(wanted.value), terms);
  attempt.with = wanted.with;
  const Status possible = Check(attempt);
  if (!possible.ok()) return Refusal(possible);
  TryFast(nullptr, attempt, nullptr);
  return attempt.call == nullptr ? Refusal(NotInOneGo()) : Carry(attempt);
}

RegisterStore::WitnessedOutcome RegisterStore::Impl::ChangeWitnessed(Wanted wanted,
                                                                     ChangeTerms terms,
                                                                     const RegisterName& witness) {
  Attempt attempt(std::move(wanted.name), wanted.seen, std::move(wanted.value), terms);
  Status possible = Check(attempt);
  if (possible.ok() && witness.group != attempt.name.group) {
    possible = Fail(EINVAL, "a register's witness is one of its group");
  }
  if (!possible.ok()) return {{{.effect = Effect::kRefused, .why = possible}, {}}, {}};
  auto told = TryFast(nullptr, attempt, &witness);
  return {Carry(attempt), std::move(told)};
}

std::optional<RegisterValue> RegisterStore::Impl::TryFast(Attempt* first, Attempt& last,
                                                          const RegisterName* witness) {
  const GroupReplicas replicas = locator_.Replicas(last.name.group);
  if (!replicas.refused.ok() || replicas.are_moving) return std::nullopt;
  const auto first_before = first != nullptr ? Begin(*first, replicas) : nullptr;
  const auto last_before = Begin(last, replicas);
  if ((first != nullptr && first_before == nullptr) || last_before == nullptr) {
    if (first != nullptr) first->call.reset();
    last.call.reset();
    return std::nullopt;
  }
  if (first != nullptr) Propose(*first->call, *first_before, *first);
  Propose(*last.call, *last_before, last);
  std::optional<RegisterCall::First> guard;
  if (first != nullptr && first->call->AllKnowGuards()) {
    guard.emplace(RegisterCall::First{*first->call, first->own.slot});
  }
  std::optional<RegisterCall> asked;
  // What a drive tells counts if it took both.
  if (witness != nullptr && (first == nullptr || guard)) {
    asked.emplace(context_, *witness, replicas);
  }
  std::unique_ptr<RegisterCall::Round> sent_first;
  std::optional<SendTogether> together(std::in_place);
  const Companions* const companions = first != nullptr ? first->with : last.with;
  if (companions != nullptr) companions->send();
  if (first != nullptr) sent_first = first->call->SendFastRound(first->own, *first_before);
  const auto sent_last =
      last.call->SendFastRound(last.own, *last_before, guard, asked ? &*asked : nullptr);
  together.reset();
  if (first != nullptr) first->is_chosen = first->call->AwaitFastRound(first->own, *sent_first);
  last.is_chosen = last.call->AwaitFastRound(last.own, *sent_last);
  if (!asked || !last.is_chosen || (first != nullptr && !first->is_chosen)) return std::nullopt;
  const auto chosen = asked->Witness(*sent_last);
  if (!chosen) return std::nullopt;
  // A memory of the same may know more replicas than those who were waited for.
  const auto known = context_.cache->Find(asked->key());
  if (known == nullptr || known->slot != chosen->slot) Remember(*asked, *chosen);
  return ValueOf(*asked, *chosen);
}

std::shared_ptr<const RememberedRegister> RegisterStore::Impl::Begin(
    Attempt& attempt, const GroupReplicas& replicas) {
  attempt.replicas = replicas;
  attempt.call = std::make_unique<RegisterCall>(context_, attempt.name, replicas, attempt.terms);
  auto remembered = Recall(*attempt.call, attempt.seen.slot, attempt.call->replicas());
  const bool is_bound = attempt.with != nullptr;
  if (is_bound && !LieTogether(replicas.drives, attempt.with->all)) return nullptr;
  if (is_bound && attempt.with->otherwise &&
      attempt.value->size() + attempt.with->otherwise->size() > kMaxRegisterBytes) {
    return nullptr;
  }
  const auto needed = is_bound ? RegisterCall::Needed::kAll : RegisterCall::Needed::kQuorum;
  if (remembered != nullptr && attempt.call->CanGoFast(*remembered, needed)) return remembered;
  return nullptr;
}

ChangeOutcome RegisterStore::Impl::Carry(Attempt& attempt) {
  OwnChange& own = attempt.own;
  using Outcome = Result<ChangeOutcome>;
  const auto carry = [&](const GroupReplicas& replicas) -> Outcome {
    if (const auto begun = std::move(attempt.call)) {
      return End(*begun, attempt, attempt.is_chosen);
    }
    // Other replicas have nothing of what a bound change came with.
    if (attempt.with != nullptr && !own.sent) return Refusal(NotInOneGo());
    RegisterCall call(context_, attempt.name, replicas, attempt.terms);
    own.floor = call.floor();
    if (own.proposal != nullptr && !own.sent) {
      attempt.value = std::exchange(own.proposal, nullptr)->value;
    }
    return TryChange(call, attempt);
  };
  const GroupReplicas* const known = attempt.call != nullptr ? &attempt.replicas : nullptr;
  Outcome outcome = WhileTheyStay(attempt.name.group, carry, known);
  if (outcome.has_value()) return *std::move(outcome);
  const Status& why = outcome.error();
  if (!own.sent) return {{.effect = Effect::kRefused, .why = why}, {}};
  return {{.effect = Effect::kUnknown,
           .why = Fail(EIO, "the change may have happened: {}", why.message())},
          {}};
}

// The chosen value is not what the caller has seen. It may be so only because an epoch has begun
// since: then somebody may take over into this epoch what was proposed in the one before. A caller
// that is refused must be able to rely on it: nothing that anybody proposed for what it has seen
// takes effect any more. So where nothing has happened in this epoch it is removed once more.
Result<RegisterCall::Settled> RegisterStore::Impl::MakeFinal(RegisterCall& call, Settled settled) {
  const Chosen& chosen = settled.chosen;
  const bool has_value = chosen.proposal->value.has_value();
  if (has_value || chosen.slot > call.floor() || call.floor() == 0) return settled;
  Proposal removal = NewProposal(call.Known(chosen), std::nullopt);
  if (chosen.proposal->removed_at != 0) removal.removed_at = chosen.proposal->removed_at;
  OwnChange closing{.seen_slot = VisibleSlot(chosen, call.floor()),
                    .floor = call.floor(),
                    .slot = call.floor() + 1,
                    .proposal = std::make_shared<const Proposal>(std::move(removal))};
  settled = TRY(call.Settle(&closing));
  if (closing.applied == true) settled = TRY(call.Settle(nullptr));
  return settled;
}

void RegisterStore::Impl::Propose(RegisterCall& call, const RememberedRegister& remembered,
                                  Attempt& attempt) {
  OwnChange& own = attempt.own;
  own.floor = call.floor();
  own.slot = std::max(remembered.slot, call.floor()) + 1;
  Proposal proposal = NewProposal(remembered, std::move(attempt.value));
  if (attempt.with != nullptr) {
    proposal.bound = {.least = static_cast<uint8_t>(attempt.with->least),
                      .otherwise = attempt.with->otherwise,
                      .proposed_at = std::max<int64_t>(1, runtime_.WallClock())};
    for (const auto& one : attempt.with->all) own.companions.push_back(one.guard);
  }
  own.proposal = std::make_shared<const Proposal>(std::move(proposal));
}

// Replicas that are others by now may have been sent the change already, with `own.proposal`: some
// of them may have accepted it.
Result<ChangeOutcome> RegisterStore::Impl::TryChange(RegisterCall& call, Attempt& attempt) {
  OwnChange& own = attempt.own;
  bool is_chosen = false;
  if (own.proposal == nullptr) {
    auto remembered = Recall(call, attempt.seen.slot, call.replicas());
    if (remembered != nullptr && !call.CanGoFast(*remembered)) {
      if (remembered->slot == 0) {
        call.SupposeNeverWritten();
      } else {
        remembered = nullptr;
      }
    }
    if (remembered == nullptr) {
      const Settled before = TRY(call.Settle(nullptr));
      Remember(call, before.chosen);
      if (!own.Replaces(before.chosen)) {
        const Settled last = TRY(MakeFinal(call, before));
        Remember(call, last.chosen);
        return ChangeOutcome{{.effect = Effect::kRefused, .why = {}}, ValueOf(call, last.chosen)};
      }
      remembered = std::make_shared<const RememberedRegister>(call.Known(before.chosen));
    }
    Propose(call, *remembered, attempt);
    is_chosen = call.CanGoFast(*remembered) && call.FastRound(own, *remembered);
  }
  return End(call, attempt, is_chosen);
}

// After the fast round, if there was one.
Result<ChangeOutcome> RegisterStore::Impl::End(RegisterCall& call, Attempt& attempt,
                                               bool is_chosen) {
  OwnChange& own = attempt.own;
  Settled settled;
  if (is_chosen) {
    settled = {{own.slot, Ballot::Fast(own.slot), own.proposal}, true};
  } else {
    settled = TRY(call.Settle(&own));
    if (own.applied != true) settled = TRY(MakeFinal(call, settled));
  }
  if (own.applied != true) Remember(call, settled.chosen);
  auto outcome = TRY(Conclude(call, own, settled, attempt.terms.durability));
  const bool is_held = outcome.applied() && outcome.now.slot == settled.chosen.slot;
  if (attempt.holding != nullptr && is_held) {
    *attempt.holding = {.name = attempt.name,
                        .slot = outcome.now.slot,
                        .drives = call.HoldersOf(settled.chosen),
                        .counts_until = call.counts_until()};
  }
  return outcome;
}

Result<ChangeOutcome> RegisterStore::Impl::Conclude(RegisterCall& call, const OwnChange& own,
                                                    const Settled& settled, Durability durability) {
  std::optional<bool> applied = own.applied;
  if (!own.sent) applied = false;
  if (!applied.has_value()) applied = WasChosen(settled.chosen, own.slot, *own.proposal);
  if (!applied.has_value()) {
    return Fail(EIO, "{}: others came before that could be found out", call.Title());
  }
  if (!*applied) {
    const bool otherwise =
        own.proposal->bound && settled.chosen.proposal->nonce == InsteadOf(*own.proposal)->nonce;
    return ChangeOutcome{{.effect = Effect::kRefused, .why = {}},
                         ValueOf(call, settled.chosen),
                         /*everywhere=*/false,
                         otherwise};
  }
  if (durability == Durability::kWriteThrough && !settled.accepted_here) {
    const Status durable = call.MakeDurable();
    if (!durable.ok()) {
      return Failed(durable.Context("it happened, but may be lost with the next loss of power"));
    }
  }
  // It may have been taken over into the first slot of a later epoch.
  const bool is_chosen_now =
      own.applied != true && settled.chosen.proposal->nonce == own.proposal->nonce;
  return ChangeOutcome{{.effect = Effect::kApplied, .why = {}},
                       {is_chosen_now ? VisibleSlot(settled.chosen, call.floor()) : own.slot,
                        own.proposal->value, own.proposal->removed_at},
                       is_chosen_now && own.everywhere};
}

Status RegisterStore::Impl::MakeDurable(const RegisterName& name) {
  TRY(CheckName(name));
  return WhileTheyStay(name.group, [&](const GroupReplicas& replicas) -> Status {
    if (replicas.are_durable) return {};
    RegisterCall call(context_, name, replicas,
                      ChangeTerms{Durability::kWriteThrough, Room::kFreeing});
    if (TRY(call.Settle(nullptr)).chosen.slot == 0) return {};  // nothing was ever written
    context_.cache->Forget(call.key());  // the replicas' states are about to change
    return call.MakeDurable();
  });
}

Result<RegisterTraces> RegisterStore::Impl::FindTraces(const RegisterName& name) {
  TRY(CheckName(name));
  return UnderNewestMap(name.group, [&](const GroupReplicas& replicas) {
    return FindRegisterTraces(context_, name, replicas);
  });
}

// ---- RegisterStore

RegisterStore::RegisterStore(Runtime& runtime, ReplicaLocator& locator, Options options)
    : impl_(std::make_unique<Impl>(runtime, locator, std::move(options))) {}

RegisterStore::~RegisterStore() = default;

Result<RegisterValue> RegisterStore::Read(const RegisterName& name) {
  return std::move(ReadMany({&name, 1}).front());
}

std::vector<Result<RegisterValue>> RegisterStore::ReadMany(std::span<const RegisterName> names) {
  return impl_->ReadMany(names);
}

ChangeOutcome RegisterStore::Change(const RegisterName& name, const RegisterValue& seen,
                                    std::optional<std::string> value, ChangeTerms terms,
                                    RegisterHolding* holding) {
  return impl_->Change(name, seen, std::move(value), terms, holding);
}

RegisterStore::BothOutcomes RegisterStore::ChangeBoth(Wanted first, Wanted second,
                                                      ChangeTerms terms,
                                                      const RegisterName* witness) {
  return impl_->ChangeBoth(std::move(first), std::move(second), terms, witness);
}

ChangeOutcome RegisterStore::ChangeBound(Wanted wanted, ChangeTerms terms) {
  return impl_->ChangeBound(std::move(wanted), terms);
}

RegisterStore::WitnessedOutcome RegisterStore::ChangeWitnessed(Wanted wanted, ChangeTerms terms,
                                                               const RegisterName& witness) {
  return impl_->ChangeWitnessed(std::move(wanted), terms, witness);
}

Result<RegisterValue> RegisterStore::ReadPinned(const RegisterName& name) {
  return impl_->ReadPinned(name);
}

Result<RegisterStore::ScanPage> RegisterStore::ScanAfter(RegisterHolding& mark,
                                                         const std::string& first,
                                                         const std::string& last, size_t max) {
  return impl_->ScanAfter(mark, first, last, max);
}

Status RegisterStore::MakeDurable(const RegisterName& name) { return impl_->MakeDurable(name); }

Result<RegisterTraces> RegisterStore::FindTraces(const RegisterName& name) {
  return impl_->FindTraces(name);
}

Result<RegisterStore::ScanPage> RegisterStore::Scan(uint32_t group, const std::string& first,
                                                    const std::string& last, size_t max) {
  return impl_->Scan(group, first, last, max);
}

Result<SweepReport> RegisterStore::Sweep(uint32_t group, const SweepProgress& progress) {
  return impl_->Sweep(group, progress);
}

Result<SweepReport> RegisterStore::Restore(uint32_t group, size_t replica, Drive& drive,
                                           const SweepProgress& progress) {
  return impl_->Restore(group, {replica, drive}, progress);
}

Result<SweepReport> RegisterStore::Compare(uint32_t group, size_t replica, Drive& drive,
                                           bool is_copy, const GroupReplicas& others,
                                           const SweepProgress& progress) {
  return impl_->Compare(group, {replica, drive, /*remembers=*/true, is_copy}, others, progress);
}

Result<SweepReport> RegisterStore::CopyTo(Drive& drive, uint32_t group,
                                          const GroupReplicas& replicas,
                                          const SweepProgress& progress) {
  return impl_->CopyTo(drive, group, replicas, progress);
}

Result<SweepReport> RegisterStore::Recover(uint32_t group, const GroupReplicas& replicas,
                                           const SweepProgress& progress) {
  return impl_->Recover(group, replicas, progress);
}

Result<EraseReport> RegisterStore::Erase(uint32_t group, const MayErase& may_erase) {
  return impl_->Erase(group, may_erase);
}

}  // namespace pinstripe
