#include "cluster/registers/recovery.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "cluster/gather.h"

namespace pinstripe {
namespace {

constexpr size_t kPutsAtOnce = 256;  // of up to 64 KiB
constexpr int kRounds = 50;          // of one page, where others decide the same

bool WasWritten(const ReplicaStates& states) { return HighestAcceptedSlot(states) > 0; }

}  // namespace

uint64_t RecoverySlot(const ReplicaStates& states, bool is_reusable) {
  uint64_t highest = 0;
  for (const auto& state : states) {
    if (state) highest = std::max({highest, state->promised.slot, state->accepted.slot});
  }
  // An epoch's slots are its own: at their end they are used one after the other again.
  const uint64_t last = SlotFloor(1) * ((std::max<uint64_t>(highest, 1) - 1) / SlotFloor(1) + 1);
  const bool fits = !is_reusable || highest + kForgottenSlots < last;
  return highest + (fits ? kForgottenSlots : 1);
}

RegisterRecovery::RegisterRecovery(const RegisterContext& context, uint32_t group,
                                   GroupReplicas replicas)
    : context_(context),
      group_(group),
      prefix_(RegisterRecordKey(context.options.prefix, {group, ""})),
      replicas_(std::move(replicas)),
      drives_(replicas_.drives),
      quorums_(QuorumsOf(drives_.size())) {}

Terms RegisterRecovery::RequestTerms() const {
  return {context_.runtime.Now() + context_.options.drive_timeout, replicas_.cluster_version};
}

std::vector<uint64_t> RegisterRecovery::CountLosses() const {
  std::vector<uint64_t> losses;
  for (const Drive* drive : drives_) losses.push_back(drive != nullptr ? drive->CountLosses() : 0);
  return losses;
}

Result<std::vector<RegisterRecovery::Register>> RegisterRecovery::ReadPage(
    const std::string& first, std::optional<std::string>& next) {
  const std::string last = prefix_ + std::string(kMaxRegisterKeyBytes, '\xff');
  const RegisterRange range = TRY(RegisterRange::Read(
      context_, group_, replicas_, {first, last, kPageRecords, /*patient=*/true}));
  const auto taking_part = static_cast<size_t>(
      std::ranges::count_if(drives_, [](const Drive* drive) { return drive != nullptr; }));
  if (range.answers.size() < taking_part) {
    return Fail(EHOSTUNREACH, "group {}: {} of {} drives answered, and all are needed", group_,
                range.answers.size(), taking_part);
  }
  std::vector<Register> registers;
  for (const std::string& key : range.Keys()) {
    Register& each = registers.emplace_back();
    each.key = key;
    each.is_reusable = IsReusable(key.substr(prefix_.size()));
    each.states.resize(drives_.size());
    each.damaged.resize(drives_.size());
    for (const RegisterRange::Answer& answer : range.answers) {
      const auto found = std::ranges::lower_bound(answer.records, key, {}, &RangeRecord::key);
      if (found == answer.records.end() || found->key != key) {
        each.states[answer.replica].emplace();  // never written
      } else if (found->has_value) {
        const auto state = StateFrom(key, *drives_[answer.replica], found->record);
        if (state.has_value()) each.states[answer.replica] = *state;
      }
    }
  }
  next.reset();
  if (range.through.has_value()) next = *range.through + '\0';
  return registers;
}

// For those states that are not known.
Status RegisterRecovery::AskOneByOne(std::vector<Register>& registers) {
  Gather<Result<Record>> gather(context_.runtime);
  const size_t replicas = drives_.size();
  for (size_t i = 0; i < registers.size(); ++i) {
    for (size_t j = 0; j < replicas; ++j) {
      if (drives_[j] == nullptr || registers[i].states[j] || registers[i].damaged[j]) continue;
      drives_[j]->Get(registers[i].key, kSmallRecord, RequestTerms(), gather.Ask(i * replicas + j));
    }
  }
  while (const auto answer = gather.Next(Time::max())) {
    Register& each = registers[answer->index / replicas];
    const size_t replica = answer->index % replicas;
    const auto state = StateFrom(each.key, *drives_[replica], answer->value);
    if (state.has_value()) {
      each.states[replica] = *state;
    } else if (state.error().code() == EBADMSG) {
      each.damaged[replica] = true;  // as if it were not there
    } else {
      return state.error();
    }
  }
  return {};
}

// Any of them may be the only one that has not forgotten what was chosen, so a majority is not
// enough.
bool RegisterRecovery::HaveAllPromised(const Register& each) const {
  size_t promised = 0;
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (drives_[i] == nullptr || each.damaged[i]) continue;
    if (!each.states[i] || each.states[i]->promised != each.ballot) return false;
    ++promised;
  }
  return promised >= quorums_.majority;
}

// A replica whose put was refused, or is not known to have been executed, is asked again.
Status RegisterRecovery::Send(std::vector<Step> steps) {
  Gather<Status> gather(context_.runtime);
  for (const Step& step : steps) step.of->states[step.replica].reset();
  size_t sent = 0;
  while (sent < steps.size() || gather.outstanding() > 0) {
    for (; sent < steps.size() && gather.outstanding() < kPutsAtOnce; ++sent) {
      drives_[steps[sent].replica]->Put(std::move(steps[sent].request), RequestTerms(),
                                        gather.Ask(sent));
    }
    const auto answer = gather.Next(Time::max());
    const Step& step = steps[answer->index];
    if (answer->value.ok()) {
      step.of->states[step.replica] = step.next;
    } else if (answer->value.code() != ESTALE) {
      return answer->value;
    }
  }
  return {};
}

// One classic round for each, all at once. Those that others were faster with are left.
Status RegisterRecovery::Decide(std::vector<Register*>& registers) {
  std::vector<Step> prepares;
  for (Register* each : registers) {
    each->ballot = {.slot = RecoverySlot(each->states, each->is_reusable),
                    .round = 1,
                    .proposer = context_.runtime.Random()};
    for (size_t i = 0; i < drives_.size(); ++i) {
      const auto& state = each->states[i];
      if (!state) continue;
      const ReplicaState next{each->ballot, state->accepted, state->proposal};
      prepares.push_back(
          {each, i, next,
           EncodeRegisterPut(each->key, EncodeRegisterVersion(state->promised, state->accepted),
                             next, Durability::kWriteBack)});
    }
  }
  TRY(Send(std::move(prepares)));

  std::vector<Step> accepts;
  for (Register* each : registers) {
    each->proposal = nullptr;
    if (!HaveAllPromised(*each)) continue;
    const uint64_t slot = HighestAcceptedSlot(each->states);
    const Finding finding = Judge(quorums_, each->states);
    if (finding.chosen) each->proposal = finding.chosen->proposal;
    if (!each->proposal) each->proposal = MayBeChosen(quorums_, each->states, slot);
    if (each->proposal && !finding.chosen && LacksCompanions(each->states, slot, *each->proposal)) {
      each->proposal = InsteadOf(*each->proposal);
    }
    if (!each->proposal) each->proposal = MostAccepted(each->states, slot);
    each->proposal = TakenOver(each->proposal, slot, each->ballot.slot);
    for (size_t i = 0; i < drives_.size(); ++i) {
      const auto& state = each->states[i];
      if (!state) continue;
      const ReplicaState next{each->ballot, each->ballot, each->proposal};
      accepts.push_back(
          {each, i, next,
           EncodeRegisterPut(each->key, EncodeRegisterVersion(state->promised, state->accepted),
                             next, Durability::kWriteBack)});
    }
  }
  TRY(Send(std::move(accepts)));
  std::erase_if(registers, [&](const Register* each) {
    const auto accepted = static_cast<size_t>(std::ranges::count_if(
        each->states, [&](const auto& state) { return state && state->accepted == each->ballot; }));
    return accepted >= quorums_.majority;
  });
  return {};
}

Status RegisterRecovery::FlushAll() {
  Gather<Status> gather(context_.runtime);
  const Time deadline = context_.runtime.Now() + context_.options.timeout;
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (drives_[i] == nullptr) continue;
    drives_[i]->Flush({deadline, replicas_.cluster_version}, gather.Ask(i));
  }
  while (const auto answer = gather.Next(Time::max(), drives_.size())) TRY(answer->value);
  return {};
}

Result<SweepReport> RegisterRecovery::Run(const RegisterStore::SweepProgress& progress) {
  SweepReport report;
  const std::vector<uint64_t> losses = CountLosses();
  std::optional<std::string> next = prefix_ + '\0';
  while (next) {
    std::vector<Register> registers = TRY(ReadPage(*next, next));
    std::vector<Register*> open;
    for (Register& each : registers) open.push_back(&each);
    for (int round = 0; !open.empty(); ++round) {
      if (round > 0) {  // others are at it
        const auto pause = Duration(context_.runtime.Random() % (round * 2'000'000ull));
        context_.runtime.NewSignal()->WaitUntil(context_.runtime.Now() + pause);
      }
      if (round == kRounds) {
        return Fail(EHOSTUNREACH, "group {}: others keep changing {} of its registers", group_,
                    open.size());
      }
      TRY(AskOneByOne(registers));
      std::erase_if(open, [](const Register* each) { return !WasWritten(each->states); });
      TRY(Decide(open));
    }
    for (const Register& each : registers) context_.cache->Forget(each.key);
    TRY(FlushAll());
    report.registers += registers.size();
    if (progress != nullptr) progress(registers.size());
  }
  if (CountLosses() != losses) {
    return Fail(EHOSTUNREACH, "group {}: drives were lost again meanwhile", group_);
  }
  return report;
}

}  // namespace pinstripe
