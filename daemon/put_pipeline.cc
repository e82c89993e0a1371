#include "daemon/put_pipeline.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <optional>
#include <utility>

#include "daemon/put_entry.h"
#include "daemon/session.h"

namespace pinstripe {

using kinetic::Command;
using kinetic::Header;

namespace {

constexpr size_t kSmallPutsBytes = 64 << 10;    // values of puts that wait for those before them
constexpr size_t kMostPutsWaiting = 512 << 10;  // bytes of such values
constexpr size_t kMostPutsAtOnce = 4;           // by the loop
constexpr size_t kMostRequestReused = 512;      // bytes of a message whose memory is used again
constexpr size_t kMostReused = 64;              // requests and answers, of a connection

}  // namespace

size_t PutPipeline::CountPuts(const PendingPuts& puts) {
  size_t count = 0;
  for (const PendingPut& put : puts) count += put.puts;
  return count;
}

std::shared_ptr<Command> PutPipeline::UsedOrNew() {
  if (used_.empty()) return std::make_shared<Command>();
  std::shared_ptr<Command> command = std::move(used_.back());
  used_.pop_back();
  return command;
}

void PutPipeline::Add(const KineticService::Caller& caller, const std::shared_ptr<Command>& request,
                      Frame frame) {
  const int priority = PriorityOf(request->header());
  if (priority != puts_priority_) Hand();
  puts_priority_ = priority;
  PendingPut& put = puts_.emplace_back();
  put.request = request;
  put.caller = caller;
  put.answer = UsedOrNew();
  put.reusable = frame.message.size() <= kMostRequestReused;
  put.bytes = frame.value.size();
  put.puts = pinstripe::CountPuts(*request);
  put.value = SharedBytes(std::move(frame.value));
  put.received = session_.loop_.runtime().Now();
  put.expiry = session_.ExpiryOf(request->header());
}

// To a worker. Small ones wait for those before them, for together they cost less, and nobody has
// to be woken for them.
void PutPipeline::Hand() {
  if (puts_.empty()) return;
  size_t bytes = 0;
  for (const PendingPut& put : puts_) bytes += put.bytes;
  if (MakePutsAtOnce(bytes)) return;
  session_.CountUnderWay(CountPuts(puts_), bytes);
  bool next_wait = false;
  {
    const MutexLock lock(mutex_);
    if (used_.empty()) used_.swap(given_back_);
    const bool small = bytes <= kSmallPutsBytes;
    if (small && making_puts_ && puts_priority_ == making_priority_ &&
        waiting_bytes_ + bytes <= kMostPutsWaiting) {
      std::move(puts_.begin(), puts_.end(), std::back_inserter(waiting_puts_));
      puts_.clear();
      waiting_bytes_ += bytes;
      CheckInvariants();
      return;
    }
    if (small && !making_puts_) {
      next_wait = making_puts_ = true;
      making_priority_ = puts_priority_;
    }
  }
  const auto puts = std::make_shared<PendingPuts>(std::exchange(puts_, {}));
  session_.threads_.workers.Add(
      [self = session_.shared_from_this(), puts, next_wait] {
        self->puts_.MakePuts(puts);
        if (next_wait) self->puts_.MakeWaitingPuts();
      },
      puts_priority_);
}

// A few small ones while nobody else wants anything, as AnswerAtOnce(): to hand over a single one
// costs more than to make it. Many are left to a worker, beside whom the next ones can be read.
// False: they were not made.
bool PutPipeline::MakePutsAtOnce(size_t bytes) {
  if (CountPuts(puts_) > kMostPutsAtOnce || bytes > kMaxBytesAtOnce ||
      session_.loop_.others_wait()) {
    return false;
  }
  const Time begin = session_.loop_.runtime().Now();
  if (begin < session_.shared_->no_puts_at_once.load(std::memory_order_relaxed)) return false;
  {
    const MutexLock lock(mutex_);
    if (making_puts_) return false;
  }
  std::vector<KineticService::PutRequest> requests;
  requests.reserve(puts_.size());
  for (const PendingPut& put : puts_) {
    session_.StartAnswer(*put.request, put.answer.get());
    requests.push_back({put.caller, put.request.get(), put.value, put.answer.get()});
  }
  std::optional<std::vector<KineticService::Outcome>> outcomes =
      session_.service_.ExecutePutsAtOnce(requests);
  const Time end = session_.loop_.runtime().Now();
  if (end - begin > session_.options_.long_put)
    session_.shared_->no_puts_at_once = end + kRestFromPuts;
  if (!outcomes) return false;
  const auto flushed = std::make_shared<PendingPuts>();
  const auto unread = std::make_shared<PendingPuts>();
  for (size_t i = 0; i < puts_.size(); ++i) {
    PendingPut& put = puts_[i];
    put.value = {};
    KineticService::Outcome& outcome = (*outcomes)[i];
    put.after_flush = outcome.after_flush;
    put.read = std::move(outcome.value);
    put.begun = begin;
    if (put.after_flush) put.made = end;
    if (put.after_flush || outcome.reads_left) {
      session_.CountUnderWay(put.puts, put.bytes);
      (outcome.reads_left ? unread : flushed)->push_back(std::move(put));
      continue;
    }
    session_.Note(*put.request, put.bytes, {.received = put.received, .begun = begin}, *put.answer);
    session_.ready_.push_back(
        AnswerOf(*put.answer, put.caller.identity.get(), std::move(put.read), 0, put.puts));
    if (used_.size() >= kMostReused) continue;
    if (put.reusable) used_.push_back(std::move(put.request));
    if (put.puts == 1) used_.push_back(std::move(put.answer));  // others keep room for all theirs
  }
  puts_.clear();
  if (!flushed->empty()) SendAfterFlush(flushed);
  if (!unread->empty()) {
    session_.threads_.workers.Add(
        [self = session_.shared_from_this(), unread] { self->puts_.ReadAfterPuts(unread); },
        puts_priority_);
  }
  return true;
}

// Of a worker: what is left of puts that the loop has made.
void PutPipeline::ReadAfterPuts(const std::shared_ptr<PendingPuts>& puts) {
  bool any_later = false;
  for (PendingPut& put : *puts) {
    put.read = session_.service_.MakeReads({put.caller, put.request.get(), {}, put.answer.get()});
    any_later = any_later || put.after_flush;
  }
  SendPuts(*puts, /*after_flush=*/false);
  if (any_later) SendAfterFlush(puts);
}

// Of a worker, like the next.
void PutPipeline::MakeWaitingPuts() {
  const auto puts = std::make_shared<PendingPuts>();
  int priority = 0;
  {
    const MutexLock lock(mutex_);
    making_puts_ = !waiting_puts_.empty();
    if (!making_puts_) return;
    puts->swap(waiting_puts_);
    waiting_bytes_ = 0;
    priority = making_priority_;
    CheckInvariants();
  }
  session_.threads_.workers.AddLast(
      [self = session_.shared_from_this(), puts] {
        self->puts_.MakePuts(puts);
        self->puts_.MakeWaitingPuts();
      },
      priority);
}

void PutPipeline::MakePuts(const std::shared_ptr<PendingPuts>& puts) {
  std::vector<KineticService::PutRequest> requests;
  std::vector<PendingPut*> executed;
  requests.reserve(puts->size());
  executed.reserve(puts->size());
  const Time now = session_.loop_.runtime().Now();
  for (PendingPut& put : *puts) {
    session_.service_.statistics().waits().Add(now - put.received);
    put.begun = now;
    session_.StartAnswer(*put.request, put.answer.get());
    if (now >= put.expiry) {
      KineticService::SetFailure(TooLate(), put.answer.get());
      continue;
    }
    requests.push_back({put.caller, put.request.get(), std::move(put.value), put.answer.get()});
    executed.push_back(&put);
  }
  std::vector<KineticService::Outcome> outcomes = session_.service_.ExecutePuts(requests);
  requests.clear();  // the values are not needed any more
  const bool any_later =
      std::ranges::any_of(outcomes, [](const auto& outcome) { return outcome.after_flush; });
  const Time made = any_later ? session_.loop_.runtime().Now() : Time();
  for (size_t i = 0; i < executed.size(); ++i) {
    executed[i]->after_flush = outcomes[i].after_flush;
    executed[i]->read = std::move(outcomes[i].value);
    if (outcomes[i].after_flush) executed[i]->made = made;
  }
  SendPuts(*puts, /*after_flush=*/false);
  if (any_later) SendAfterFlush(puts);
}

// Those that wait for one.
void PutPipeline::SendAfterFlush(const std::shared_ptr<PendingPuts>& puts) {
  session_.shared_->flushes->Add([self = session_.shared_from_this(), puts](const Status& flushed) {
    for (PendingPut& put : *puts) {
      if (put.after_flush && !flushed.ok()) {
        SetFlushFailure(flushed, *put.request, put.answer.get(), &put.read);
      }
    }
    self->puts_.SendPuts(*puts, /*after_flush=*/true);
  });
}

// Answers those that wait for a flush, or those that do not, and gives back what they used.
void PutPipeline::SendPuts(PendingPuts& puts, bool after_flush) {
  std::vector<Outgoing> answers;
  answers.reserve(puts.size());
  for (PendingPut& put : puts) {
    if (put.after_flush != after_flush) continue;
    session_.Note(*put.request, put.bytes,
                  {.received = put.received, .begun = put.begun, .made = put.made}, *put.answer);
    answers.push_back(
        AnswerOf(*put.answer, put.caller.identity.get(), std::move(put.read), put.bytes, put.puts));
  }
  session_.SendAll(answers);
  const MutexLock lock(mutex_);
  for (PendingPut& put : puts) {
    if (put.after_flush != after_flush) continue;
    if (given_back_.size() >= kMostReused) break;
    if (put.reusable) given_back_.push_back(std::move(put.request));
    if (put.puts == 1) given_back_.push_back(std::move(put.answer));
  }
}

void PutPipeline::CheckInvariants() const {
  // Puts wait only while somebody makes those before them, and will look again.
  assert(making_puts_ || waiting_puts_.empty());
  assert(!waiting_puts_.empty() || waiting_bytes_ == 0);
  assert(waiting_bytes_ <= kMostPutsWaiting);
}

}  // namespace pinstripe
