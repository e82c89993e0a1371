#include "cluster/registers/call.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/coding.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/send_together.h"
#include "base/try.h"
#include "cluster/fullness.h"
#include "cluster/registers/late_answers.h"
#include "kinetic/key_text.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostReplicas = 256;  // of one register; numbers the questions of many calls
constexpr Duration kLongestBackOff = 250ms;
constexpr int kMostTimeouts = 4;  // in which a call ends, while slow drives answer
constexpr int kSlowPart = 5;      // of the time of a request: what takes longer is slow

// For this part of the time in which a straggler may answer, answers are waited for together. After
// that each is looked at when it comes: a late one need not be needed.
constexpr int kTogether = 10;

// Whether an operation that answered this certainly changed nothing.
bool Refused(const Status& status) {
  switch (status.code()) {
    case 0:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EIO: return false;
    default: return true;
  }
}

}  // namespace

Result<ReplicaState> StateFrom(const std::string& key, const Drive& drive,
                               const Result<Record>& record) {
  if (!record.has_value()) {
    if (record.error().code() == ENOENT) return ReplicaState();
    return tl::unexpected(record.error());
  }
  Result<ReplicaState> state = DecodeRegister(key, *record);
  if (state.has_value()) return state;
  const Status why = state.error().OfDrive(drive.name());
  Log(LogLevel::kWarn, "register replica damaged",
      {{"record", KeyText(key)}, {"drive", drive.name()}, {"why", why}});
  return tl::unexpected(why);
}

std::optional<Drive::PutRequest> CatchUp(const std::string& key, const ReplicaState& state,
                                         const Chosen& chosen) {
  if (chosen.slot == 0 || state.accepted >= chosen.ballot || state.promised > chosen.ballot) {
    return std::nullopt;
  }
  return EncodeRegisterPut(key, EncodeRegisterVersion(state.promised, state.accepted),
                           {chosen.ballot, chosen.ballot, chosen.proposal}, Durability::kWriteBack,
                           chosen.proposal->value ? Room::kNames : Room::kFreeing);
}

bool OwnChange::Replaces(const Chosen& chosen) const {
  return VisibleSlot(chosen, floor) == seen_slot;
}

void OwnChange::MoveTo(uint64_t new_slot, const Chosen& chosen) {
  if (slot == new_slot) return;
  slot = new_slot;
  Proposal moved = *proposal;
  moved.earlier.clear();
  // Those who look for their own change must find it named, whatever slot it was taken over into.
  // Where slots were forgotten nobody knows what was in them.
  const bool is_next = new_slot == std::max(chosen.slot, floor) + 1;
  if (is_next && chosen.slot > 0) {
    moved.earlier = EarlierNonces(chosen.proposal->nonce, chosen.proposal->earlier);
  }
  proposal = std::make_shared<const Proposal>(std::move(moved));
}

void OwnChange::LearnFrom(const ReplicaStates& states) {
  for (const auto& state : states) {
    if (applied.has_value()) return;
    if (!state.has_value() || state->accepted.slot <= slot) continue;
    applied = WasChosenBefore(*state->proposal, state->accepted.slot, slot, *proposal);
  }
}

bool LieTogether(const std::vector<Drive*>& replicas, const std::vector<Companions::One>& all) {
  // Replicas may be reached by other objects than shards are, which know who has a say.
  return std::ranges::equal(replicas, all, [](const Drive* replica, const Companions::One& one) {
    return replica != nullptr && one.drive != nullptr && replica->name() == one.drive->name();
  });
}

std::string RegisterRecordKey(const std::string& prefix, const RegisterName& name) {
  return Writer().Raw(prefix).Raw("R").U32(name.group).Raw(name.key).Take();
}

RegisterCall::RegisterCall(const RegisterContext& context, const RegisterName& name,
                           GroupReplicas replicas, std::optional<ChangeTerms> terms)
    : context_(context),
      name_(name),
      key_(RegisterRecordKey(context.options.prefix, name)),
      drives_(std::move(replicas.drives)),
      cluster_version_(replicas.cluster_version),
      floor_(IsReusable(name.key) ? SlotFloor(replicas.cluster_version) : 0),
      terms_(terms.value_or(ChangeTerms{Durability::kWriteBack, Room::kFreeing})),
      only_reads_(!terms.has_value()),
      observes_(replicas.are_moving && only_reads_),
      quorums_(context.options.quorums != nullptr ? context.options.quorums(drives_.size())
                                                  : QuorumsOf(drives_.size())),
      deadline_(std::in_place, context.runtime, context.options.timeout),
      latest_(std::in_place, context.runtime, kMostTimeouts * context.options.timeout),
      states_(drives_.size()),
      states_count_until_(context.runtime.Now() + context.options.answers_count),
      expected_(drives_.size()),
      failures_(drives_.size()),
      exhausted_(drives_.size()),
      heard_(drives_.size()) {
  assert(drives_.size() < kMostReplicas);
}

void RegisterCall::Restart() {
  if (CountKnown(states_) >= quorums_.majority) Begin();
}

void RegisterCall::Begin() {
  deadline_.emplace(context_.runtime, context_.options.timeout);
  latest_.emplace(context_.runtime, kMostTimeouts * context_.options.timeout);
}

// That answers are slow is not counted against the call: it goes on as long as something moves.
// Time in which none came counts, so that drives which hang or are away are not waited for any
// longer because others are there. `last_answer`: a good one's; `start`, when there was none.
void RegisterCall::NoteRound(Time start, Time last_answer) {
  const Time now = context_.runtime.Now();
  last_round_ = now - start;
  const Duration slow = last_answer - start;
  if (slow < context_.options.drive_timeout / kSlowPart) return;
  deadline_.emplace(context_.runtime, std::min(deadline_->time() + slow, latest_->time()) - now);
}

std::string RegisterCall::Title() const { return RegisterText(name_.group, name_.key); }

Terms RegisterCall::RequestTerms() {
  const Time usual = context_.runtime.Now() + context_.options.drive_timeout;
  const Time deadline = deadline_->time();
  cut_short_ = deadline < usual;
  return {std::min(deadline, usual), cluster_version_};
}

void RegisterCall::NoteOutdated(const Status& answer) {
  outdated_ = outdated_ || answer.code() == EREMCHG;
}

// How long after an answer that is enough for a classic round one more is waited for: at least as
// long as the others took.
Duration RegisterCall::Patience(Time start) const {
  return std::max(context_.options.straggler, context_.runtime.Now() - start);
}

// Whether the replica's drive can be asked; if not, notes why.
bool RegisterCall::Usable(size_t replica) {
  const Drive* drive = drives_[replica];
  if (drive != nullptr && drive->IsUp()) return true;
  failures_[replica] = drive == nullptr
                           ? Status(EHOSTUNREACH, fmt::format("replica {}: no such drive", replica))
                           : Status(EHOSTUNREACH, drive->WhyAway()).OfDrive(drive->name());
  heard_[replica] = failures_[replica];
  return false;
}

// An answer that did not come says nothing about a replica when the call ended first: what the
// replica said before stands.
void RegisterCall::Hear(size_t replica, const Status& answer) {
  if (cut_short_ && answer.code() == ETIMEDOUT && heard_[replica].has_value()) return;
  heard_[replica] = answer;
}

void RegisterCall::ForgetStates() {
  states_count_until_ = context_.runtime.Now() + context_.options.answers_count;
  std::fill(states_.begin(), states_.end(), std::nullopt);
  std::fill(expected_.begin(), expected_.end(), std::nullopt);
}

bool RegisterCall::StatesCount() const { return context_.runtime.Now() < states_count_until_; }

void RegisterCall::Learn(size_t replica, Time asked, Result<Record> record) {
  states_count_until_ = std::min(states_count_until_, asked + context_.options.answers_count);
  Take(replica, std::move(record));
}

Ballot RegisterCall::HighestPromise() const {
  Ballot highest;
  for (const auto& state : states_) {
    if (state.has_value()) highest = std::max(highest, state->promised);
  }
  return highest;
}

void RegisterCall::SupposeNeverWritten() {
  std::fill(states_.begin(), states_.end(), ReplicaState());
}

void RegisterCall::Take(size_t replica, Result<Record> record) {
  const Result<ReplicaState> state = StateFrom(key_, *drives_[replica], record);
  if (state.has_value()) {
    states_[replica] = *state;
    expected_[replica] = Replica{state->promised, state->accepted};
  } else {
    failures_[replica] = state.error();
  }
  if (!state.has_value()) NoteOutdated(state.error());
  Hear(replica, state.has_value() ? Status() : state.error());
}

bool RegisterCall::KnowsEnough() const {
  const Finding finding = Judge();
  return finding.chosen.has_value() &&
         std::all_of(states_.begin(), states_.end(), [&](const auto& state) {
           return !state.has_value() || state->accepted == finding.chosen->ballot;
         });
}

// The state of one call's reading while the answers come.
struct RegisterCall::Reading {
  RegisterCall* call;
  std::shared_ptr<LateAnswers> late;
  size_t outstanding = 0;
  Time until;         // when waiting is no longer worth it
  size_t wanted = 1;  // answers, before it is likely to be done
  bool done = false;
  Time last_answer{};  // that was good; or the start

  void Reconsider(Time start) {
    const Finding finding = call->Judge();
    if (finding.chosen.has_value()) late->Know(*finding.chosen);
    const bool classic_can_begin = call->CanPrepare();
    if (classic_can_begin) {
      until = std::min(until, call->context_.runtime.Now() + call->Patience(start));
    }
    done = finding.chosen.has_value() || outstanding == 0 ||
           (classic_can_begin && !finding.more_may_help) || call->context_.runtime.Now() >= until;
  }

  void CatchUpOthers() const {
    const Finding finding = call->Judge();
    if (!finding.chosen.has_value()) return;
    for (size_t i = 0; i < call->states_.size(); ++i) {
      if (call->states_[i].has_value()) {
        late->Bring(*call->drives_[i], *call->states_[i], *finding.chosen);
      }
    }
  }
};

void RegisterCall::ReadUnknown(const RegisterContext& context, std::span<RegisterCall* const> calls,
                               bool catch_up) {
  Runtime& runtime = context.runtime;
  const Time start = runtime.Now();
  Gather<Result<Record>> gather(runtime);
  std::vector<Reading> readings;
  std::optional<SendTogether> together(std::in_place);
  for (RegisterCall* call : calls) {
    Reading reading{
        call, std::make_shared<LateAnswers>(context, call->key_, call->cluster_version_, catch_up)};
    reading.until = call->deadline_->time();
    reading.last_answer = start;
    call->stale_ = false;
    if (CountKnown(call->states_) == 0) {
      call->states_count_until_ = start + context.options.answers_count;
    }
    for (size_t i = 0; i < call->drives_.size(); ++i) {
      if (call->states_[i].has_value() || !call->Usable(i)) continue;
      ++reading.outstanding;
      call->Ask(i,
                [i, drive = call->drives_[i], late = reading.late,
                 answer = gather.Ask(readings.size() * kMostReplicas + i)](Result<Record> record) {
                  if (!late->Take(i, *drive, record)) answer(std::move(record));
                });
    }
    reading.Reconsider(start);
    const size_t known = CountKnown(call->states_);
    if (known < call->quorums_.fast) reading.wanted = call->quorums_.fast - known;
    readings.push_back(std::move(reading));
  }
  together.reset();

  size_t unfinished = 0;
  size_t wanted = 0;         // by those that are not done
  Time until = Time::max();  // no later than the first of them
  const auto look = [&] {
    unfinished = wanted = 0;
    until = Time::max();
    for (const Reading& reading : readings) {
      if (reading.done) continue;
      ++unfinished;
      wanted += reading.wanted;
      until = std::min(until, reading.until);
    }
  };
  look();
  const Time together_until = start + context.options.straggler / kTogether;
  while (unfinished > 0) {
    if (auto answer = gather.Next(until, wanted, together_until)) {
      Reading& reading = readings[answer->index / kMostReplicas];
      --reading.outstanding;
      if (answer->value.has_value()) reading.last_answer = runtime.Now();
      reading.call->Take(answer->index % kMostReplicas, std::move(answer->value));
      if (reading.done) continue;
      reading.Reconsider(start);
      if (reading.done) {
        --unfinished;
        wanted -= reading.wanted;
        continue;
      }
      if (reading.wanted > 1) {
        --reading.wanted;
        --wanted;
      }
      until = std::min(until, reading.until);
    } else {
      for (Reading& reading : readings) {
        reading.done = reading.done || gather.outstanding() == 0 || runtime.Now() >= reading.until;
      }
      look();
    }
  }
  while (auto answer = gather.TakeIfThere()) {
    const Reading& reading = readings[answer->index / kMostReplicas];
    const size_t replica = answer->index % kMostReplicas;
    reading.late->Keep(replica, *reading.call->drives_[replica], answer->value);
  }
  for (const Reading& reading : readings) {
    reading.CatchUpOthers();
    for (const auto& [replica, state] : reading.late->TakeKept()) {
      reading.call->expected_[replica] = state;
    }
    reading.call->NoteRound(start, reading.last_answer);
    // Those that were asked together wait together, and not one after the other.
    (void)reading.call->IsWaitingInVain();
  }
}

void RegisterCall::Ask(size_t replica, Callback<Record> answer) {
  drives_[replica]->Get(key_, kSmallRecord, RequestTerms(), std::move(answer));
}

std::unique_ptr<RegisterCall::Round> RegisterCall::PostPuts(std::vector<Step> posted,
                                                            const RegisterCall* witness) {
  auto round = std::make_unique<Round>(context_.runtime, std::move(posted));
  const std::vector<Step>& steps = round->steps;
  asked_.clear();
  for (const Step& step : steps) {
    asked_.push_back(step.replica);
    states_[step.replica].reset();  // until it answers
    expected_[step.replica] = Replica{step.next.promised, step.next.accepted};
    failures_[step.replica] = Status();
    auto done = [cache = context_.cache, key = key_,
                 answer =
                     round->gather.Ask(static_cast<size_t>(&step - steps.data()))](Status status) {
      if (!status.ok()) cache->Forget(key);
      answer(std::move(status));
    };
    Drive& drive = *drives_[step.replica];
    if (witness == nullptr) {
      drive.Put(step.request, RequestTerms(), std::move(done));
    } else {
      auto told = [cache = context_.cache, key = witness->key_, replica = step.replica, &drive,
                   answer = round->told.Ask(step.replica)](Result<Record> record) {
        const Result<ReplicaState> state = StateFrom(key, drive, record);
        if (state.has_value()) cache->Learn(key, replica, {state->promised, state->accepted});
        answer(std::move(record));
      };
      drive.PutThenGet(step.request, witness->key_, RequestTerms(), std::move(done),
                       std::move(told));
    }
  }
  return round;
}

// Sends all steps and waits for their answers.
size_t RegisterCall::SendPuts(std::vector<Step> steps, size_t needed, size_t enough, bool hurry) {
  return AwaitPuts(*PostPuts(std::move(steps)), needed, enough, hurry);
}

// Waits until `needed` replicas took what they were sent, or cannot any more. With `hurry`, no
// longer than patience says once a majority did, but while none took it, for the others to refuse
// it too, so that it is known not to have happened. Returns how many took it; none if that was so
// long ago that it does not count any more.
size_t RegisterCall::AwaitPuts(Round& round, size_t needed, size_t enough, bool hurry) {
  Runtime& runtime = context_.runtime;
  const Time start = round.start;
  const std::vector<Step>& steps = round.steps;
  Gather<Status>& gather = round.gather;
  size_t done = 0;
  Time last_answer = start;
  std::optional<Time> until;
  while (done < needed) {
    const bool hopeless = done + gather.outstanding() < enough;
    if (hopeless && !(hurry && done == 0)) break;
    if (hurry && (hopeless || done >= quorums_.majority) && !until) {
      until = runtime.Now() + Patience(start);
    }
    const size_t together =
        hopeless ? 1 : std::min(needed - done, std::max<size_t>(gather.outstanding(), 1));
    auto answer = gather.Next(until.value_or(deadline_->time()), together,
                              start + context_.options.straggler / kTogether);
    if (answer == nullptr) break;
    const Step& step = steps[answer->index];
    Hear(step.replica, answer->value);
    NoteOutdated(answer->value);
    if (answer->value.ok()) {
      states_[step.replica] = step.next;
      round.taken_by.insert(step.replica);
      last_answer = runtime.Now();
      ++done;
    } else {
      expected_[step.replica].reset();
      failures_[step.replica] = answer->value;
      stale_ = stale_ || answer->value.code() == ESTALE;
      const bool full = answer->value.code() == ENOSPC;
      if (full && !out_of_room_at_) out_of_room_at_ = runtime.Now() + kPatienceWhenFull;
    }
  }
  NoteRound(start, last_answer);
  return last_round_ < context_.options.answers_count ? done : 0;
}

// A replica that accepted something in this very ballot must not accept another value in it.
bool RegisterCall::MayAcceptFast(size_t replica, const RememberedRegister& remembered,
                                 uint64_t slot) {
  const auto& state = remembered.replicas[replica];
  return state.has_value() && state->promised < Ballot::Fast(slot) && Usable(replica);
}

bool RegisterCall::CanGoFast(const RememberedRegister& remembered, Needed needed) {
  size_t ready = 0;
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (MayAcceptFast(i, remembered, SlotAfter(remembered.slot))) ++ready;
  }
  if (needed == Needed::kAll) return ready == drives_.size() && AllKnowGuards();
  return ready >= quorums_.fast;
}

// After a round in which it was proposed.
void RegisterCall::NoteSent(OwnChange& own) const {
  own.sent = own.sent || std::ranges::any_of(asked_, [this](size_t replica) {
               return !Refused(failures_[replica]);
             });
}

bool RegisterCall::FastRound(OwnChange& own, const RememberedRegister& remembered) {
  return AwaitFastRound(own, *SendFastRound(own, remembered));
}

bool RegisterCall::AllKnowGuards() const {
  return std::ranges::all_of(drives_, [](const Drive* drive) {
    return drive == nullptr || !drive->IsUp() || drive->capabilities().guards;
  });
}

std::unique_ptr<RegisterCall::Round> RegisterCall::SendFastRound(
    OwnChange& own, const RememberedRegister& remembered, const std::optional<First>& first,
    const RegisterCall* witness) {
  const Ballot ballot = Ballot::Fast(own.slot);
  const ReplicaState next{ballot, ballot, own.proposal};
  Drive::PutRequest request = EncodeRegisterPut(key_, {}, next, terms_.durability, terms_.room);
  if (first) {
    const Ballot needed = Ballot::Fast(first->slot);
    request.guard =
        Guard{first->call.key_, Expected::Version(EncodeRegisterVersion(needed, needed))};
  }
  std::vector<Step> steps;
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (!MayAcceptFast(i, remembered, own.slot)) continue;
    const auto& replica = remembered.replicas[i];
    steps.push_back({i, request, next});
    steps.back().request.expected =
        Expected::Version(EncodeRegisterVersion(replica->promised, replica->accepted));
    if (!own.companions.empty()) steps.back().request.guard = own.companions[i];
  }
  if (steps.size() < quorums_.fast) return PostPuts({});
  ForgetStates();
  for (size_t i = 0; i < drives_.size(); ++i) {
    if (remembered.replicas[i].has_value() || !Usable(i)) continue;
    Ask(i,
        [i, cache = context_.cache, key = key_, drive = drives_[i]](const Result<Record>& record) {
          const Result<ReplicaState> state = StateFrom(key, *drive, record);
          if (state.has_value()) cache->Learn(key, i, {state->promised, state->accepted});
        });
  }
  return PostPuts(std::move(steps), witness);
}

bool RegisterCall::AwaitFastRound(OwnChange& own, Round& round) {
  const bool is_bound = own.proposal->bound.has_value();
  const size_t needed = is_bound ? drives_.size() : quorums_.fast;
  const size_t accepted = AwaitPuts(round, needed, quorums_.fast, /*hurry=*/true);
  NoteSent(own);
  own.everywhere = accepted == drives_.size();
  return accepted >= quorums_.fast;
}

// Whether so many replicas are known that a majority may promise.
bool RegisterCall::CanPrepare() const {
  size_t ready = 0;
  for (size_t i = 0; i < states_.size(); ++i) ready += states_[i].has_value() && !exhausted_[i];
  return ready >= quorums_.majority;
}

// Null when no majority promised. Else the states of those that did.
std::optional<ReplicaStates> RegisterCall::Prepare(const Ballot& ballot,
                                                   const ReplicaStates& before) {
  std::vector<Step> steps;
  for (size_t i = 0; i < before.size(); ++i) {
    if (!before[i].has_value() || !Usable(i)) continue;
    const ReplicaState next{ballot, before[i]->accepted, before[i]->proposal};
    steps.push_back(
        {i,
         EncodeRegisterPut(key_, EncodeRegisterVersion(before[i]->promised, before[i]->accepted),
                           next, Durability::kWriteBack),
         next});
  }
  // Only all of them together may show that a bound value is not chosen.
  const bool any_bound = !pinstripe::Judge(quorums_, before).chosen &&
                         std::ranges::any_of(before, [](const auto& state) {
                           return state && state->accepted.fast() && state->proposal->bound;
                         });
  const size_t needed = any_bound ? std::max(steps.size(), quorums_.majority) : quorums_.majority;
  const size_t promises =
      SendPuts(std::move(steps), needed, quorums_.majority, /*hurry=*/any_bound);
  for (const size_t i : asked_) exhausted_[i] = failures_[i].code() == ENOSPC;
  if (promises < quorums_.majority) return std::nullopt;
  ReplicaStates promised = states_;
  for (auto& state : promised) {
    if (state.has_value() && state->promised != ballot) state.reset();
  }
  return promised;
}

// Also sent to those that have not answered whether they promise: the version that it requires
// cannot come about in any other way.
bool RegisterCall::Accept(const Ballot& ballot, const ProposalPtr& proposal, Room room,
                          const ReplicaStates& before) {
  const ReplicaState next{ballot, ballot, proposal};
  const Drive::PutRequest request = EncodeRegisterPut(key_, {}, next, terms_.durability, room);
  std::vector<Step> steps;
  for (size_t i = 0; i < before.size(); ++i) {
    if (!before[i].has_value() || !expected_[i].has_value() || !Usable(i)) continue;
    if (expected_[i]->promised != ballot) continue;
    steps.push_back({i, request, next});
    steps.back().request.expected =
        Expected::Version(EncodeRegisterVersion(ballot, before[i]->accepted));
  }
  return SendPuts(std::move(steps), quorums_.majority, quorums_.majority, /*hurry=*/false) >=
         quorums_.majority;
}

// One attempt to find out, and where needed to decide, what is chosen. Null: somebody else was in
// the way, or too few replicas answered. With `insist`, what is chosen already is accepted once
// more.
std::optional<RegisterCall::Settled> RegisterCall::ClassicRound(OwnChange* own, uint64_t least_slot,
                                                                bool insist) {
  finishes_ = finishes_ || MayFinish(own);
  const Ballot ballot = NextBallot(states_, least_slot, context_.runtime.Random());
  const ReplicaStates before = states_;
  const std::optional<ReplicaStates> promised = Prepare(ballot, before);
  if (!promised.has_value()) return std::nullopt;

  const Finding finding = pinstripe::Judge(quorums_, *promised);
  ProposalPtr proposal;
  if (finding.chosen.has_value()) {
    const Chosen& chosen = *finding.chosen;
    const bool is_next = ballot.slot > chosen.slot;
    if (own != nullptr && own->Replaces(chosen) && is_next) {
      own->MoveTo(ballot.slot, chosen);
      proposal = own->InClassicRound();
    } else if (insist && chosen.slot > 0 && (!is_next || ballot.slot == floor_ + 1)) {
      proposal = TakenOver(chosen.proposal, chosen.slot, ballot.slot);
    } else {
      return Settled{chosen};
    }
  } else {
    // Something was accepted in the ballot's slot, or in an earlier epoch, from which it is taken
    // over; or all those promises would show what is chosen.
    const uint64_t slot = HighestAcceptedSlot(*promised);
    proposal = MayBeChosen(quorums_, *promised, slot);
    if (proposal != nullptr && LacksCompanions(*promised, slot, *proposal)) {
      if (!gives_up_bound_) return std::nullopt;  // others would show whether it is chosen
      proposal = InsteadOf(*proposal);
    }
    const bool own_slot = own != nullptr && own->slot == slot && slot == ballot.slot;
    if (proposal == nullptr && own_slot && !own->proposal->bound) proposal = own->proposal;
    if (proposal == nullptr) proposal = MostAccepted(*promised, slot);
    proposal = TakenOver(proposal, slot, ballot.slot);
  }
  const bool accepted = Accept(ballot, proposal, finishes_ ? Room::kNames : terms_.room, before);
  if (own != nullptr && proposal == own->proposal) NoteSent(*own);
  if (!accepted) return std::nullopt;
  return Settled{{ballot.slot, ballot, proposal}, true};
}

Result<RegisterCall::Settled> RegisterCall::Settle(OwnChange* own) {
  const auto still_as_seen = [&own](const Chosen& chosen) {
    return own != nullptr && own->Replaces(chosen);
  };
  RegisterCall* const self = this;
  if (IsWaitingInVain()) return tl::unexpected(Error());  // since it was asked with others
  for (int attempt = 0;; ++attempt) {
    if (!StatesCount()) ForgetStates();
    if (stale_ || CountKnown(states_) < quorums_.majority) {
      ReadUnknown(context_, {&self, 1}, /*catch_up=*/own == nullptr);
    }
    if (own != nullptr && own->sent) {
      own->LearnFrom(states_);
      if (own->applied == true) return Settled();
      if (own->applied == false) own = nullptr;  // what is left is to find out what came instead
    }
    const Finding finding = Judge();
    if (CountKnown(states_) >= quorums_.majority && StatesCount()) {
      if (finding.chosen && !still_as_seen(*finding.chosen)) return Settled{*finding.chosen};
      // A reader that comes upon a change lets it finish before it interferes.
      if (!observes_ && (own != nullptr || finding.quiet || attempt > 0)) {
        const uint64_t least_slot = SlotAfter(finding.chosen ? finding.chosen->slot : 0);
        const auto settled = ClassicRound(own, least_slot, /*insist=*/false);
        if (settled.has_value() && !still_as_seen(settled->chosen)) return *settled;
      }
    }
    // One drive alone may be at fault; the others decide without it.
    const bool outdated = outdated_ && CountKnown(states_) < quorums_.majority;
    const bool full = DrivesAreFull() && !MayFinish(own);
    if (outdated || full || IsWaitingInVain() || !BackOff(attempt)) {
      return tl::unexpected(Error());
    }
    ForgetStates();
  }
}

Status RegisterCall::MakeDurable() {
  RegisterCall* const self = this;
  for (int attempt = 0;; ++attempt) {
    ForgetStates();
    ReadUnknown(context_, {&self, 1}, /*catch_up=*/false);
    if (CountKnown(states_) >= quorums_.majority) {
      const auto settled = ClassicRound(nullptr, SlotAfter(0), /*insist=*/true);
      if (settled.has_value() && settled->accepted_here) return {};
    }
    const bool outdated = outdated_ && CountKnown(states_) < quorums_.majority;
    if (outdated || DrivesAreFull() || !BackOff(attempt)) {
      const Status why = Error();
      // ENOSPC would say that nothing has changed. But what is chosen stays chosen.
      if (why.code() != ENOSPC) return why;
      return Fail(EIO, "not known to be safe from power loss: {}", why.message());
    }
  }
}

// A pause before the next attempt. False when there is no time for one.
bool RegisterCall::BackOff(int attempt) {
  const bool too_few = CountKnown(states_) < quorums_.majority;
  const Duration unit = std::max<Duration>(last_round_, too_few ? Duration(10ms) : Duration(100us));
  const Duration most = std::min(unit * (1 << std::min(attempt, 5)), kLongestBackOff);
  const Duration delay(context_.runtime.Random() % static_cast<uint64_t>(most.count()));
  const Time now = context_.runtime.Now();
  context_.runtime.NewSignal()->WaitUntil(std::min(now + delay, deadline_->time()));
  return !deadline_->has_passed();
}

bool RegisterCall::DrivesAreFull() const {
  size_t full = 0;
  size_t away = 0;
  for (const Status& failure : failures_) {
    full += failure.code() == ENOSPC;
    away += failure.code() == EHOSTUNREACH || failure.code() == ETIMEDOUT;
  }
  // Who only reads needs no room but for a promise, and waits for those that are away.
  const bool too_late =
      !only_reads_ && out_of_room_at_ && context_.runtime.Now() >= *out_of_room_at_;
  return full > 0 && full + (too_late ? away : 0) + quorums_.majority > quorums_.replicas;
}

// Whether a call that only reads fails because too few replicas are there, and have been for long.
// Who did not answer in time is not away: answers may be lost, and he is asked again.
bool RegisterCall::IsWaitingInVain() {
  size_t there = 0;
  for (size_t i = 0; i < drives_.size(); ++i) {
    there += states_[i].has_value() || failures_[i].code() != EHOSTUNREACH;
  }
  if (there >= quorums_.majority) {
    patience_.reset();
  } else if (!patience_) {
    patience_.emplace(context_.runtime, kPatienceOfReads);
  }
  return only_reads_ && patience_ && patience_->has_passed();
}

// Some replicas may have taken the change, and others have no room for data. It is finished, once,
// with what is kept for names, or nobody would know what becomes of it.
bool RegisterCall::MayFinish(const OwnChange* own) const {
  return own != nullptr && own->sent && out_of_room_at_ && terms_.room == Room::kData && !finishes_;
}

Status RegisterCall::Error() const {
  std::string reasons;
  size_t well = 0;
  for (size_t i = 0; i < drives_.size(); ++i) {
    const std::optional<Status>& answer = heard_[i];
    // ESTALE: it answers, but somebody else's request was first.
    if (answer && (answer->ok() || answer->code() == ESTALE)) {
      ++well;
      continue;
    }
    reasons += reasons.empty() ? ": " : "; ";
    reasons += answer ? std::string(answer->message())
                      : fmt::format("{}: no answer in time",
                                    drives_[i] == nullptr ? "a drive" : drives_[i]->name());
  }
  std::string text = fmt::format("{}: ", Title());
  if (DrivesAreFull()) {
    text += "its drives are full";
  } else if (well < quorums_.majority) {
    text += fmt::format("{} of {} replicas needed, {} answered well", quorums_.majority,
                        quorums_.replicas, well);
  } else if (observes_) {
    text += "it was being changed when names began to move: known once they have moved";
  } else {
    text += "others kept changing it, or answers were lost, until the time was up";
  }
  const int code = outdated_ ? EREMCHG : DrivesAreFull() && !only_reads_ ? ENOSPC : EIO;
  return Status(code, text + reasons);
}

RememberedRegister RegisterCall::Known(const Chosen& chosen) const {
  return {.slot = chosen.slot,
          .visible_slot = VisibleSlot(chosen, floor_),
          .floor = floor_,
          .nonce = chosen.proposal->nonce,
          .earlier = chosen.proposal->earlier,
          .replicas = expected_};
}

}  // namespace pinstripe
