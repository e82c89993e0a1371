#include "engines/engine_line.h"

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "engines/engine_checks.h"

namespace pinstripe {
namespace {

// Of what is put, and of what is likely to be read, in a batch of more than one thing.
constexpr size_t kMostBatchBytes = 512 << 10;

// What is asked with deadlines that are no farther apart may go together, and times out with the
// last of it.
constexpr Duration kDeadlinesApart = std::chrono::milliseconds(250);

// Tells the calling thread from others.
const void* ThisThread() {
  static thread_local char mark;
  return &mark;
}

}  // namespace

// --- What goes together

void EngineCompany::TakeFrom(std::deque<AskedOfEngine>& waiting) {
  while (!waiting.empty() && MayJoin(waiting.front())) {
    Add(std::move(waiting.front()));
    waiting.pop_front();
  }
}

bool EngineCompany::MayJoin(const AskedOfEngine& next) const {
  if (asked_.empty()) return true;
  if (next.alone || is_alone()) return false;
  return next.terms.cluster_version == asked_[0].terms.cluster_version &&
         places_ + next.places() <= kMaxEngineBatch &&
         bytes_ + next.likely_bytes <= kMostBatchBytes &&
         std::max(latest_, next.terms.deadline) - std::min(earliest_, next.terms.deadline) <=
             kDeadlinesApart;
}

void EngineCompany::Add(AskedOfEngine next) {
  places_ += next.places();
  bytes_ += next.likely_bytes;
  earliest_ = std::min(earliest_, next.terms.deadline);
  latest_ = std::max(latest_, next.terms.deadline);
  asked_.push_back(std::move(next));
}

EngineBatch EngineCompany::ToBatch() const {
  EngineBatch batch;
  for (const AskedOfEngine& each : asked_) {
    if (each.change) batch.changes.push_back(*each.change);
    if (each.read) batch.reads.push_back(*each.read);
  }
  return batch;
}

// --- Its end

void EngineLine::Stop() {
  std::deque<AskedOfEngine> left;
  {
    MutexLock lock(mutex_);
    left = FallLocked(Fail(EHOSTUNREACH, "the drive is being shut down"));
    state_ = State::kStopped;
    for (auto& [thread, held] : held_) {
      std::move(held.begin(), held.end(), std::back_inserter(left));
    }
    held_.clear();
    while (uses_ > 0) unused_.Wait(lock);
  }
  engine_->StopTelling();
  engine_.reset();
  const Status why = Status(EHOSTUNREACH, WhyAway()).OfDrive(options_.name);
  for (AskedOfEngine& each : left) each.done(PutAndRead(why));
  GiveAnswers();
  MutexLock lock(mutex_);
  while (uses_ > 0) unused_.Wait(lock);  // answers that another thread gives
}

// --- From those who ask to the engine

void EngineLine::Submit(const Status& valid, AskedOfEngine asked) {
  Status status = valid.OfDrive(options_.name);
  const auto self = shared_from_this();
  // Before it is there: who is told of it takes all that this thread holds.
  const bool waits = status.ok() && SendTogether::Defers(self);
  if (status.ok()) {
    const MutexLock lock(mutex_);
    if (state_ == State::kDown || state_ == State::kStopped) {
      status = away_;
    } else {
      if (armed_ && asked.terms.deadline < *armed_) ArmLocked(asked.terms.deadline);
      (waits ? held_[ThisThread()] : waiting_).push_back(std::move(asked));
    }
  }
  if (!status.ok()) {
    return AnswerLater([done = std::move(asked.done), status] { done(PutAndRead(status)); });
  }
  if (!waits) Pump();
}

void EngineLine::AskAnyway(Terms terms, Callback<EngineState> done) {
  std::unique_ptr<Use> engine;
  Status away;
  {
    const MutexLock lock(mutex_);
    engine = UseLocked();
    away = away_;
  }
  if (engine == nullptr)
    return AnswerLater([done = std::move(done), away] { done(tl::unexpected(away)); });
  (*engine)->LookAt(terms, [self = shared_from_this(), done = std::move(done)](
                               Result<EngineState> state) { done(self->Named(std::move(state))); });
}

// What this thread holds joins the line.
void EngineLine::SendWaiting() {
  Status away;
  std::deque<AskedOfEngine> held;
  {
    const MutexLock lock(mutex_);
    if (auto found = held_.extract(ThisThread())) held = std::move(found.mapped());
    if (state_ == State::kDown || state_ == State::kStopped) {
      away = away_;
    } else {
      std::move(held.begin(), held.end(), std::back_inserter(waiting_));
    }
  }
  if (away.ok()) return Pump();
  for (AskedOfEngine& each : held) {
    AnswerLater([done = std::move(each.done), away] { done(PutAndRead(away)); });
  }
}

void EngineLine::Pump() {
  for (;;) {
    const auto batch = std::make_shared<EngineCompany>();
    std::unique_ptr<Use> engine;
    {
      const MutexLock lock(mutex_);
      const bool may = state_ == State::kUp && !waiting_.empty() &&
                       (waiting_.front().alone || in_flight_ < options_.max_in_flight);
      if (!may) {
        if (waiting_.empty() || armed_) return;
        Time first = Time::max();
        for (const AskedOfEngine& each : waiting_) first = std::min(first, each.terms.deadline);
        return ArmLocked(first);
      }
      batch->TakeFrom(waiting_);
      if (!batch->is_alone()) ++in_flight_;
      engine = UseLocked();
    }
    Send(**engine, batch);
  }
}

void EngineLine::Send(NameEngine& engine, std::shared_ptr<EngineCompany> batch) {
  batch->sent_at = runtime_.Now();
  if (batch->is_alone()) return batch->asked()[0].alone(engine);
  const Terms terms = batch->terms();
  EngineBatch asked = batch->ToBatch();
  engine.Do(std::move(asked), terms,
            [self = shared_from_this(), batch = std::move(batch)](Result<EngineAnswer> answer) {
              self->OnAnswer(*batch, std::move(answer));
            });
}

void EngineLine::OnAnswer(EngineCompany& batch, Result<EngineAnswer> answer) {
  {
    const MutexLock lock(mutex_);
    --in_flight_;
  }
  Pump();  // the engine is not to wait for those who are told
  AnswerEach(batch, std::move(answer));
}

void EngineLine::AnswerEach(EngineCompany& batch, Result<EngineAnswer> answer) {
  size_t changes = 0;
  size_t reads = 0;
  for (const AskedOfEngine& each : batch.asked()) {
    changes += each.change ? 1 : 0;
    reads += each.read ? 1 : 0;
  }
  if (answer && (answer->changes.size() != changes || answer->reads.size() != reads)) {
    answer = Fail(EHOSTUNREACH, "it answered something else than was asked");
  }
  changes = reads = 0;
  for (AskedOfEngine& each : batch.asked()) {
    PutAndRead both = answer ? PutAndRead(Status(), Record()) : PutAndRead(Named(answer.error()));
    if (answer && each.change) both.put = Named(answer->changes[changes++]);
    if (answer && each.read) both.read = Named(CheckedRecord(std::move(answer->reads[reads++])));
    if (each.change) {
      Count(Kind::kWrite, batch.sent_at, both.put,
            each.change->put ? each.change->put->value.size() : 0);
    }
    // Nothing was read for who hears of the put that it failed.
    if (!both.put.ok()) both.read = tl::unexpected(both.put);
    if (each.read && both.put.ok()) {
      Count(each.is_flush ? Kind::kWrite : Kind::kRead, batch.sent_at,
            both.read ? Status() : both.read.error(), both.read ? both.read->value.size() : 0);
    }
    std::exchange(each.done, {})(std::move(both));
  }
}

void EngineLine::Count(Kind kind, Time sent_at, const Status& status, size_t bytes) const {
  DriveTimes& times = *options_.times;
  const bool reads = kind == Kind::kRead;
  switch (status.code()) {
    case EHOSTUNREACH: return;  // no answer
    case ETIMEDOUT: times.timeouts.fetch_add(1, std::memory_order_relaxed); return;
    // That something is not there, or another version is, is an answer like others.
    case 0:
    case ENOENT:
    case ESTALE:
    case ECANCELED: break;
    default: times.failures.fetch_add(1, std::memory_order_relaxed);
  }
  (reads ? times.reads : times.writes).Add(runtime_.Now() - sent_at);
  if (!status.ok()) return;
  (reads ? times.read_bytes : times.written_bytes).fetch_add(bytes, std::memory_order_relaxed);
}

// --- Answers that are not the engine's

void EngineLine::AnswerLater(std::function<void()> answer) {
  bool is_first = false;
  {
    const MutexLock lock(mutex_);
    is_first = answers_.empty();
    answers_.push_back(std::move(answer));
  }
  if (!is_first) return;
  runtime_.RunAt(runtime_.Now(), [self = shared_from_this()] { self->GiveAnswers(); });
}

void EngineLine::GiveAnswers() {
  std::vector<std::function<void()>> answers;
  {
    const MutexLock lock(mutex_);
    answers.swap(answers_);
    ++uses_;  // the destructor waits for them
  }
  for (const auto& answer : answers) answer();
  answers.clear();
  const MutexLock lock(mutex_);
  if (--uses_ == 0) unused_.WakeAll();
}

// `when` comes before what is armed.
void EngineLine::ArmLocked(Time when) {
  armed_ = when;
  runtime_.RunAt(when, [weak = weak_from_this(), when] {
    if (const auto self = weak.lock()) self->Expire(when);
  });
}

void EngineLine::Expire(Time armed) {
  const Time now = runtime_.Now();
  std::vector<AskedOfEngine> expired;
  {
    const MutexLock lock(mutex_);
    if (armed_ != armed) return;
    armed_.reset();
    const auto first = std::stable_partition(waiting_.begin(), waiting_.end(),
                                             [&](auto& each) { return each.terms.deadline > now; });
    std::move(first, waiting_.end(), std::back_inserter(expired));
    waiting_.erase(first, waiting_.end());
  }
  const Status late = Status(ETIMEDOUT, "it could not be asked in time").OfDrive(options_.name);
  for (AskedOfEngine& each : expired) {
    options_.times->timeouts.fetch_add(1, std::memory_order_relaxed);
    AnswerLater([done = std::move(each.done), late] { done(PutAndRead(late)); });
  }
  Pump();  // arms for those that are left
}

// --- Reached, judged, lost

void EngineLine::OnReached(const std::string& store) {
  std::deque<AskedOfEngine> left;
  uint64_t reached = 0;
  Status why;
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kStopped || (state_ == State::kUp && store_ == store)) return;
    if (state_ == State::kUp) left = FallLocked(Fail(EHOSTUNREACH, "it is another store by now"));
    why = away_;
    store_ = store;
    reached = ++reached_;
  }
  for (AskedOfEngine& each : left) each.done(PutAndRead(why));
  CheckIdentity(reached);
}

void EngineLine::OnLost(const Status& why) {
  std::deque<AskedOfEngine> left;
  Status away;
  bool is_news = false;
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kStopped) return;
    left = FallLocked(why);
    away = away_;
    is_news = IsNewsLocked(away);
  }
  if (is_news) Log(LogLevel::kWarn, "drive is away", {{"drive", options_.name}, {"why", why}});
  for (AskedOfEngine& each : left) each.done(PutAndRead(away));
}

std::deque<AskedOfEngine> EngineLine::FallLocked(const Status& why) {
  ++reached_;
  state_ = State::kDown;
  away_ = Status(EHOSTUNREACH, why.WithoutDriveName()).OfDrive(options_.name);
  return std::exchange(waiting_, {});
}

// Once for each reason, however long it lasts.
bool EngineLine::IsNewsLocked(const Status& away) {
  std::string why = away.WithoutDriveName();
  if (why == logged_failure_) return false;
  logged_failure_ = std::move(why);
  return true;
}

void EngineLine::CheckIdentity(uint64_t reached) {
  if (!options_.check_identity) return Accept(reached);
  std::unique_ptr<Use> engine;
  {
    const MutexLock lock(mutex_);
    if (reached_ == reached) engine = UseLocked();
  }
  if (engine == nullptr) return;
  EngineBatch batch;
  batch.reads = {options_.identity_key};
  (*engine)->Do(std::move(batch), runtime_.Now() + options_.check_timeout,
                [self = shared_from_this(), reached](Result<EngineAnswer> answer) {
                  Result<Record> record = Fail(EHOSTUNREACH, "it gives no answer to a read");
                  if (!answer) record = tl::unexpected(answer.error());
                  if (answer && answer->reads.size() == 1) record = std::move(answer->reads[0]);
                  self->OnIdentity(reached, CheckedRecord(std::move(record)));
                });
}

void EngineLine::OnIdentity(uint64_t reached, Result<Record> record) {
  {
    const MutexLock lock(mutex_);
    if (reached_ != reached || state_ == State::kStopped) return;
  }
  const int code = record ? 0 : record.error().code();
  if (code == ETIMEDOUT || code == EHOSTUNREACH) return Refuse(reached, record.error());
  DriveInfo info;
  info.serial_number = Hex(AsBytes(store()));
  const Status right = options_.check_identity(Named(std::move(record)), info);
  right.ok() ? Accept(reached) : Refuse(reached, right);
}

void EngineLine::Accept(uint64_t reached) {
  {
    const MutexLock lock(mutex_);
    if (reached_ != reached || state_ == State::kStopped) return;
    state_ = State::kUp;
    away_ = {};
    logged_failure_.clear();
  }
  Log(LogLevel::kInfo, "drive is up", {{"drive", options_.name}});
  Pump();
}

void EngineLine::Refuse(uint64_t reached, const Status& why) {
  std::deque<AskedOfEngine> left;
  Status away;
  bool is_news = false;
  uint64_t next = 0;
  {
    const MutexLock lock(mutex_);
    if (reached_ != reached || state_ == State::kStopped) return;
    left = FallLocked(why);
    away = away_;
    is_news = IsNewsLocked(away);
    next = reached_;
  }
  if (is_news) Log(LogLevel::kWarn, "drive is refused", {{"drive", options_.name}, {"why", why}});
  for (AskedOfEngine& each : left) each.done(PutAndRead(away));
  runtime_.RunAt(runtime_.Now() + options_.check_again, [weak = weak_from_this(), next] {
    if (const auto self = weak.lock()) self->CheckIdentity(next);
  });
}

}  // namespace pinstripe
