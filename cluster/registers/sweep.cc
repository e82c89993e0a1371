#include "cluster/registers/sweep.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

#include "base/try.h"
#include "cluster/gather.h"

namespace pinstripe {
namespace {

constexpr size_t kPutsAtOnce = 256;  // of up to 64 KiB
constexpr int kLooks = 4;            // at a register that others change meanwhile

// The state of a replica that has learnt what is chosen, and keeps `promise`. Null: it is in it.
//
// It may have promised a higher ballot than that of what is chosen. This takes nothing from that
// promise: the one who asked for it has met one of those who made the value chosen.
std::optional<ReplicaState> Learnt(const ReplicaState& state, const Chosen& chosen,
                                   const Ballot& promise) {
  ReplicaState next = state;
  if (state.accepted < chosen.ballot) {
    next.accepted = chosen.ballot;
    next.proposal = chosen.proposal;
  }
  next.promised = std::max({state.promised, next.accepted, promise});
  if (next.promised == state.promised && next.accepted == state.accepted) return std::nullopt;
  return next;
}

}  // namespace

struct RegisterSweep::Register {
  Register(const RegisterContext& context, RegisterName name_in, const GroupReplicas& replicas)
      : name(std::move(name_in)),
        // With the patience of a change: it goes on for hours, and drives that restart come back.
        call(context, name, replicas, ChangeTerms{Durability::kWriteBack, Room::kFreeing}),
        answered(replicas.drives.size()) {}

  const RegisterName name;
  RegisterCall call;
  std::vector<bool> answered;             // said what it holds, when it was asked
  std::optional<ReplicaState> successor;  // what the successor holds
  std::optional<Chosen> chosen;
  bool look_again = false;
};

struct RegisterSweep::Step {
  Register* of;
  Drive* drive;
  Drive::PutRequest request;
  Status outcome;
};

RegisterSweep::RegisterSweep(const RegisterContext& context, uint32_t group, GroupReplicas replicas,
                             const Successor* successor)
    : context_(context),
      group_(group),
      prefix_(RegisterRecordKey(context.options.prefix, {group, ""})),
      replicas_(std::move(replicas)),
      drives_(replicas_.drives),
      successor_(successor) {
  if (successor != nullptr && successor->replica) replicas_.drives[*successor->replica] = nullptr;
}

Terms RegisterSweep::RequestTerms() const {
  return {context_.runtime.Now() + context_.options.drive_timeout, replicas_.cluster_version};
}

// What the replicas hold from `first` on and, of the same keys, the successor.
Result<RegisterRange> RegisterSweep::ReadPage(const std::string& first, RangeRecords* theirs) {
  const std::string last = prefix_ + std::string(kMaxRegisterKeyBytes, '\xff');
  RegisterRange range = TRY(RegisterRange::Read(context_, group_, replicas_,
                                                {first, last, kPageRecords, /*patient=*/true}));
  if (successor_ == nullptr) return range;
  Gather<Result<RangeRecords>> gather(context_.runtime);
  const RegisterRange::Question question{first, range.through.value_or(last), kMaxRangeRecords};
  successor_->drive.ListRecords(question.first, question.last, question.max, /*reverse=*/false,
                                kRangeValueBytes, RequestTerms(), gather.Ask(0));
  *theirs = TRY(std::move(gather.Next(Time::max())->value));
  TRY(RegisterRange::Check(*theirs, question));
  if (theirs->more) range.through = theirs->records.back().key;
  return range;
}

namespace {

// A record with its value, or that there is none; null: it has to be asked for.
std::optional<Result<Record>> Told(const std::vector<RangeRecord>& records,
                                   const std::string& key) {
  const auto found =
      std::lower_bound(records.begin(), records.end(), key,
                       [](const RangeRecord& a, const std::string& b) { return a.key < b; });
  if (found == records.end() || found->key != key) return Fail(ENOENT, "no such record");
  if (!found->has_value) return std::nullopt;
  return found->record;
}

}  // namespace

// The keys of the page are among those that every answer covers.
void RegisterSweep::LearnFrom(const RegisterRange& range, const RangeRecords& theirs,
                              Registers& registers) {
  for (const auto& each : registers) {
    const std::string& key = each->call.key();
    for (const RegisterRange::Answer& answer : range.answers) {
      if (auto record = Told(answer.records, key)) {
        each->answered[answer.replica] = true;
        each->call.Learn(answer.replica, range.asked, *std::move(record));
      }
    }
    if (successor_ == nullptr) continue;
    if (const auto record = Told(theirs.records, key)) {
      const auto state = StateFrom(key, successor_->drive, *record);
      if (state.has_value()) each->successor = *state;
    }
  }
}

// Asks everybody that is up for what was not told, and waits for all of them.
void RegisterSweep::AskOneByOne(Registers& registers) {
  Runtime& runtime = context_.runtime;
  const Time start = runtime.Now();
  const Terms terms = RequestTerms();
  const size_t replicas = drives_.size();
  Gather<Result<Record>> gather(runtime);
  for (size_t i = 0; i < registers.size(); ++i) {
    Register& each = *registers[i];
    for (size_t j = 0; j < replicas; ++j) {
      if (each.answered[j] || drives_[j] == nullptr || !drives_[j]->IsUp()) continue;
      drives_[j]->Get(each.call.key(), kSmallRecord, terms, gather.Ask(i * (replicas + 1) + j));
    }
    if (successor_ != nullptr && !each.successor.has_value()) {
      successor_->drive.Get(each.call.key(), kSmallRecord, terms,
                            gather.Ask(i * (replicas + 1) + replicas));
    }
  }
  while (auto answer = gather.Next(Time::max())) {
    Register& each = *registers[answer->index / (replicas + 1)];
    const size_t replica = answer->index % (replicas + 1);
    if (replica == replicas) {
      const auto state = StateFrom(each.call.key(), successor_->drive, answer->value);
      if (state.has_value()) each.successor = *state;
      continue;
    }
    each.answered[replica] = answer->value.has_value() || answer->value.error().code() == ENOENT;
    each.call.Learn(replica, start, std::move(answer->value));
  }
}

Status RegisterSweep::Settle(Register& each) {
  each.call.Begin();
  // Of a copy nobody is lost: those who would show what is chosen are waited for.
  const bool is_lost = successor_ != nullptr && successor_->replica && !successor_->remembers;
  if (is_lost) each.call.GiveUpBound();
  each.chosen = TRY(each.call.Settle(nullptr)).chosen;
  return {};
}

// The puts that bring the replicas of a settled register, or the successor, up to date.
void RegisterSweep::PlanSteps(Register& each, std::vector<Step>& steps) {
  const auto plan = [&](Drive* drive, const ReplicaState& state, const Ballot& promise,
                        Durability durability) {
    const auto next = Learnt(state, *each.chosen, promise);
    if (!next.has_value()) return;
    steps.push_back({&each,
                     drive,
                     EncodeRegisterPut(
                         each.call.key(), EncodeRegisterVersion(state.promised, state.accepted),
                         *next, durability, next->proposal->value ? Room::kNames : Room::kFreeing),
                     {}});
  };
  if (successor_ != nullptr) {
    // A later value than ours: somebody else restores it as well, and knows more. Or it voted for
    // something that was not chosen, and still does.
    const bool is_later =
        each.successor.has_value() && each.successor->accepted > each.chosen->ballot;
    if (!each.successor.has_value() || (is_later && !successor_->remembers)) {
      each.look_again = true;
      return;
    }
    assert(CountKnown(each.call.states()) > drives_.size() / 2);
    const Ballot promise =
        context_.options.restore_promises ? each.call.HighestPromise() : Ballot();
    plan(&successor_->drive, *each.successor, promise, Durability::kWriteThrough);
    return;
  }
  for (size_t i = 0; i < drives_.size(); ++i) {
    const auto& state = each.call.states()[i];
    if (state.has_value()) {
      plan(drives_[i], *state, Ballot(), Durability::kWriteBack);
    } else if (each.answered[i]) {
      each.look_again = true;  // it is not known what became of it when the register was settled
    }
  }
}

void RegisterSweep::Send(std::vector<Step>& steps) {
  Gather<Status> gather(context_.runtime);
  size_t sent = 0;
  while (sent < steps.size() || gather.outstanding() > 0) {
    for (; sent < steps.size() && gather.outstanding() < kPutsAtOnce; ++sent) {
      steps[sent].drive->Put(std::move(steps[sent].request), RequestTerms(), gather.Ask(sent));
    }
    auto answer = gather.Next(Time::max());
    steps[answer->index].outcome = std::move(answer->value);
  }
}

// Those that have to be looked at again are left in `registers`.
Status RegisterSweep::LookAt(Registers& registers, bool last_time, SweepReport& report) {
  std::vector<Step> steps;
  for (const auto& each : registers) {
    TRY(Settle(*each));
    PlanSteps(*each, steps);
  }
  Send(steps);
  for (const Step& step : steps) {
    if (step.outcome.ok()) {
      ++report.behind;
    } else if (!last_time) {
      step.of->look_again = true;
    } else if (successor_ != nullptr) {
      return step.outcome.Context(step.of->call.Title());
    } else {
      ++report.behind;
      ++report.failed;
    }
  }
  Registers again;
  for (auto& each : registers) {
    if (each->look_again && !last_time) {
      again.push_back(std::make_unique<Register>(context_, each->name, replicas_));
      continue;
    }
    if (each->look_again && successor_ != nullptr) {
      return Fail(EIO, "{}: {} cannot take it over: what it holds cannot be read, or is of later",
                  each->call.Title(), successor_->drive.name());
    }
    for (size_t i = 0; i < drives_.size(); ++i) {
      const bool lacks = successor_ == nullptr || successor_->replica != i;
      if (lacks && !each->answered[i]) ++report.unheard;
    }
  }
  registers = std::move(again);
  return {};
}

// A record that none of the others has was never chosen, or was erased since the copy was made. It
// must not come back when the drive has a say again.
Status RegisterSweep::DropErased(const RegisterRange& range, const RangeRecords& theirs) {
  const std::set<std::string> known = range.Keys();
  Gather<Status> gather(context_.runtime);
  for (size_t i = 0; i < theirs.records.size(); ++i) {
    const RangeRecord& record = theirs.records[i];
    if (known.contains(record.key)) continue;
    successor_->drive.Delete(record.key, Expected::Version(record.record.version),
                             Durability::kWriteThrough, RequestTerms(), gather.Ask(i));
  }
  while (const auto answer = gather.Next(Time::max())) {
    const int code = answer->value.code();
    if (code != 0 && code != ENOENT && code != ESTALE) return answer->value;
  }
  return {};
}

Result<SweepReport> RegisterSweep::Run(const RegisterStore::SweepProgress& progress) {
  SweepReport report;
  std::string first = prefix_ + '\0';
  for (;;) {
    RangeRecords theirs;
    const RegisterRange range = TRY(ReadPage(first, &theirs));
    Registers registers;
    for (const std::string& key : range.Keys()) {
      registers.push_back(std::make_unique<Register>(
          context_, RegisterName{group_, key.substr(prefix_.size())}, replicas_));
    }
    const size_t found = registers.size();
    LearnFrom(range, theirs, registers);
    if (successor_ != nullptr && successor_->is_copy) TRY(DropErased(range, theirs));
    for (int look = 1; !registers.empty(); ++look) {
      AskOneByOne(registers);
      TRY(LookAt(registers, look == kLooks, report));
    }
    report.registers += found;
    if (progress != nullptr) progress(found);
    if (!range.through.has_value()) return report;
    first = *range.through + '\0';
  }
}

SweepReport& SweepReport::operator+=(const SweepReport& other) {
  registers += other.registers;
  behind += other.behind;
  failed += other.failed;
  unheard += other.unheard;
  return *this;
}

}  // namespace pinstripe
