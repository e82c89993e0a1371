#include "engines/postgres/postgres_engine.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/try.h"
#include "drive/limits.h"
#include "engines/engine_checks.h"
#include "engines/postgres/connection.h"
#include "engines/postgres/dial.h"
#include "engines/postgres/requests.h"
#include "engines/postgres/server_facts.h"
#include "engines/postgres/servers_look.h"
#include "engines/postgres/sql.h"
#include "engines/postgres/way.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using RequestPtr = std::shared_ptr<PgRequest>;

constexpr size_t kConnections = 4;  // at most; one while requests come one by one
constexpr size_t kIdBytes = 16;
constexpr Duration kStalled = 500ms;  // silent for that long, others are asked rather

class PostgresEngine final : public NameEngine {
 public:
  PostgresEngine(Runtime& runtime, EngineOptions options);
  ~PostgresEngine() override;

  void Start(Listener& listener) override;
  void StopTelling() override;
  void Do(EngineBatch batch, Terms terms, Callback<EngineAnswer> done) override;
  void List(EngineRange range, Terms terms, Callback<RangeRecords> done) override;
  void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) override;
  void LookAt(Terms terms, Callback<EngineState> done) override;

 private:
  // A place for a connection, which is made again when it is lost.
  struct Slot {
    std::unique_ptr<PgDial> dial;              // until the server has greeted us
    std::unique_ptr<PgConnection> connection;  // from then on
    size_t server = 0;                         // that is dialled or connected
    Time open_until{};                         // while it is not up yet
    Time next{};                               // when to try again
    Time dialled_at{};
    Duration backoff{};
    Time up_since{};
    bool is_up = false;
  };
  // The store that is asked.
  struct Reached {
    std::string store;
    PgOrigin origin;
    size_t server = 0;
  };

  // What comes from other threads.
  void Submit(const Status& valid, std::function<RequestPtr(const std::string& store)> make,
              std::function<void(const Status&)> fail) EXCLUDES(mutex_);

  // All that follows is for the engine's thread.
  void Run();
  void TakeSubmitted();
  void Poll();
  Time NextTime() const;
  void RunTimers(Time now);

  void GoOnWith(Slot& slot);
  void Dial(Slot& slot);
  void OnGreeted(Slot& slot);
  void OnUp(Slot& slot);
  void OnFailed(Slot& slot, const Status& why);
  void OnLostConnection(Slot& slot);
  void Drop(Slot& slot, const Status& why);
  void LoseAll(const Status& why);
  void BecomeLost(const Status& why);
  bool AnyUp() const;
  bool WantsMore() const;
  bool IsMakingMore(Time now) const;
  Status Summary() const;
  Status Named(const Status& why) const { return why.OfDrive(options_.name); }

  void Enqueue(RequestPtr request);
  void AnswerFailure(const RequestPtr& request, const Status& why);
  void SendWaiting();
  Slot* SlotFor(const PgRequest& request);
  void OnDone(PgDone done);
  void OnVerdict(const RequestPtr& request, std::vector<PgRows> rows);
  void AskAgain(const RequestPtr& request);

  void BeginLook(const std::shared_ptr<PgServersLook>& look);
  void GoOnWith(PgServersLook& look);

  void Tell(const std::function<void(Listener&)>& what) EXCLUDES(mutex_);

  Runtime& runtime_;
  const EngineOptions options_;
  const PgSql sql_;
  const Result<PgWay> parsed_;
  const PgWay way_;  // none, where it cannot be parsed
  const std::shared_ptr<PgWake> wake_ = std::make_shared<PgWake>();
  const std::shared_ptr<Signal> ended_;
  const PgDial::Context context_;

  Mutex mutex_;
  Condition told_;
  Listener* listener_ GUARDED_BY(mutex_) = nullptr;
  bool telling_ GUARDED_BY(mutex_) = false;
  bool started_ GUARDED_BY(mutex_) = false;
  bool ending_ GUARDED_BY(mutex_) = false;
  std::string store_ GUARDED_BY(mutex_);  // empty: not reached, for this reason
  Status away_ GUARDED_BY(mutex_) = Fail(EHOSTUNREACH, "not connected yet");
  std::vector<Task> submitted_ GUARDED_BY(mutex_);

  // Of the engine's thread:
  std::array<Slot, kConnections> slots_;
  std::optional<Reached> reached_;
  PgOrigin highest_;   // of the servers that were reached
  bool runs_ = false;  // Start() was called
  size_t next_server_ = 0;
  size_t failed_servers_ = 0;                        // one after the other
  std::map<size_t, Status> why_not_;                 // of each server
  std::string lost_message_;                         // that was told last
  std::deque<RequestPtr> waiting_;                   // for room on a connection
  std::optional<Time> busy_at_;                      // several requests were under way, last
  std::set<std::pair<Time, RequestPtr>> deadlines_;  // of those that are not answered
  std::vector<std::shared_ptr<PgServersLook>> looks_;
};

PostgresEngine::PostgresEngine(Runtime& runtime, EngineOptions options)
    : runtime_(runtime),
      options_(std::move(options)),
      sql_(options_.cluster),
      parsed_(ParsePgWay(options_)),
      way_(parsed_.value_or(PgWay())),
      ended_(runtime.NewSignal()),
      context_{.runtime = runtime_,
               .sql = sql_,
               .way = way_,
               .wake = wake_,
               .timeout = options_.connect_timeout} {
  runtime_.Spawn("postgres", [this, ended = ended_] {
    Run();
    ended->Set();
  });
}

PostgresEngine::~PostgresEngine() {
  StopTelling();
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  wake_->Set();
  ended_->WaitUntil(Time::max());
}

// --- What comes from other threads

void PostgresEngine::Start(Listener& listener) {
  {
    const MutexLock lock(mutex_);
    listener_ = &listener;
    started_ = true;
  }
  wake_->Set();
}

void PostgresEngine::StopTelling() {
  const MutexLock lock(mutex_);
  listener_ = nullptr;
  while (telling_) told_.Wait(lock);
}

// A request is made on the thread of whoever asks, of all that it has.
void PostgresEngine::Submit(const Status& valid,
                            std::function<RequestPtr(const std::string& store)> make,
                            std::function<void(const Status&)> fail) {
  Status why = valid;
  std::string store;
  if (why.ok()) {
    const MutexLock lock(mutex_);
    store = store_;
    if (store.empty()) why = away_;
  }
  RequestPtr request = why.ok() ? make(store) : nullptr;
  Task task;
  if (request == nullptr) {
    task = [this, why, fail = std::move(fail)] { fail(Named(why)); };
  } else {
    task = [this, store, request = std::move(request)] {
      if (!reached_ || reached_->store != store) {
        return request->AnswerFailure(Named(Fail(EHOSTUNREACH, "it was lost")));
      }
      Enqueue(request);
    };
  }
  bool is_first = false;
  {
    const MutexLock lock(mutex_);
    is_first = submitted_.empty();
    submitted_.push_back(std::move(task));
  }
  if (is_first) wake_->Set();
}

void PostgresEngine::Do(EngineBatch batch, Terms terms, Callback<EngineAnswer> done) {
  const auto shared = std::make_shared<Callback<EngineAnswer>>(std::move(done));
  Submit(
      CheckBatch(batch),
      [&](const std::string& store) {
        return NewBatchRequest(sql_, store, std::move(batch), terms,
                               [shared](auto answer) { (*shared)(std::move(answer)); });
      },
      [shared](const Status& why) { (*shared)(tl::unexpected(why)); });
}

void PostgresEngine::List(EngineRange range, Terms terms, Callback<RangeRecords> done) {
  const auto shared = std::make_shared<Callback<RangeRecords>>(std::move(done));
  Submit(
      CheckRange(range.first, range.last, "a list of records", range.max, kMaxRangeRecords),
      [&](const std::string& store) {
        return NewListRequest(store, std::move(range), terms,
                              [shared](auto answer) { (*shared)(std::move(answer)); });
      },
      [shared](const Status& why) { (*shared)(tl::unexpected(why)); });
}

void PostgresEngine::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  const auto shared = std::make_shared<StatusCallback>(std::move(done));
  Submit(
      {},
      [&](const std::string& store) {
        return NewVersionRequest(store, version, terms,
                                 [shared](const Status& status) { (*shared)(status); });
      },
      [shared](const Status& why) { (*shared)(why); });
}

void PostgresEngine::LookAt(Terms terms, Callback<EngineState> done) {
  auto look =
      std::make_shared<PgServersLook>(PgServersLook{.terms = terms, .done = std::move(done)});
  {
    const MutexLock lock(mutex_);
    submitted_.push_back([this, look] { BeginLook(look); });
  }
  wake_->Set();
}

// --- The engine's thread

void PostgresEngine::Run() {
  for (;;) {
    TakeSubmitted();
    bool starts = false;
    {
      const MutexLock lock(mutex_);
      if (ending_ && submitted_.empty()) break;
      starts = std::exchange(started_, false);
    }
    if (starts) {
      runs_ = true;
      if (!parsed_) BecomeLost(parsed_.error());
    }
    SendWaiting();
    Poll();
    RunTimers(runtime_.Now());
    for (Slot& slot : slots_) GoOnWith(slot);
    for (const std::shared_ptr<PgServersLook>& look : looks_) GoOnWith(*look);
    std::erase_if(looks_, [](const auto& look) { return look->done == nullptr; });
  }
  const Status ends = Fail(EHOSTUNREACH, "it is not asked any more");
  LoseAll(ends);
  for (const std::shared_ptr<PgServersLook>& look : looks_) {
    if (const auto done = std::exchange(look->done, nullptr)) {
      done(tl::unexpected(Named(ends)));
    }
  }
}

void PostgresEngine::TakeSubmitted() {
  std::vector<Task> tasks;
  {
    const MutexLock lock(mutex_);
    tasks.swap(submitted_);
  }
  for (Task& task : tasks) {
    task();
    task = nullptr;  // what it captured goes before the next one runs
  }
}

void PostgresEngine::Poll() {
  std::vector<pollfd> polled = {{.fd = wake_->fd(), .events = POLLIN, .revents = 0}};
  std::vector<PgConnection*> connections = {nullptr};
  const auto add = [&](PgConnection* connection) {
    if (connection == nullptr || connection->fd() < 0) return;
    polled.push_back({.fd = connection->fd(), .events = connection->events(), .revents = 0});
    connections.push_back(connection);
  };
  for (const Slot& slot : slots_) {
    add(slot.connection.get());
    if (slot.dial != nullptr) add(slot.dial->connection());
  }
  for (const std::shared_ptr<PgServersLook>& look : looks_) {
    for (const std::unique_ptr<PgDial>& dial : look->dials) {
      if (dial != nullptr) add(dial->connection());
    }
  }
  int wait = -1;
  if (const Time next = NextTime(); next != Time::max()) {
    // Rounded up, so that it does not wake just before something is due.
    const Duration left = std::clamp<Duration>(next - runtime_.Now(), Duration(), 60s);
    wait = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  }
  {
    const MutexLock lock(mutex_);
    if (!submitted_.empty() || ending_ || started_) wait = 0;
  }
  if (poll(polled.data(), polled.size(), wait) <= 0) return;
  if (polled[0].revents != 0) wake_->Clear();
  for (size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents != 0) connections[i]->OnReady(polled[i].revents);
  }
}

// When something is to be done though nothing comes.
Time PostgresEngine::NextTime() const {
  Time next = deadlines_.empty() ? Time::max() : deadlines_.begin()->first;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.dial != nullptr) {
      next = std::min(next, slot.dial->give_up_at());
    } else if (slot.connection == nullptr) {
      if (runs_ && parsed_ && (i == 0 || (reached_ && WantsMore()))) {
        next = std::min(next, slot.next);
      }
    } else if (!slot.is_up) {
      next = std::min(next, slot.open_until);
    } else if (const auto& patience = slot.connection->patience()) {
      next = std::min(next, patience->time());
    }
  }
  const bool has_more =
      std::any_of(slots_.begin() + 1, slots_.end(), [](const Slot& slot) { return slot.is_up; });
  if (has_more && WantsMore() && options_.idle_timeout > Duration()) {
    next = std::min(next, *busy_at_ + options_.idle_timeout);
  }
  const Time now = runtime_.Now();
  for (const Slot& slot : slots_) {  // what waits for a further connection waits no longer
    const Time until = slot.dialled_at + kStalled;
    if (!waiting_.empty() && !slot.is_up && until > now) next = std::min(next, until);
  }
  for (const std::shared_ptr<PgServersLook>& look : looks_) {
    next = std::min(next, look->terms.deadline);
    for (const std::unique_ptr<PgDial>& dial : look->dials) {
      if (dial != nullptr) next = std::min(next, dial->give_up_at());
    }
  }
  return next;
}

void PostgresEngine::RunTimers(Time now) {
  bool any = false;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const RequestPtr request = deadlines_.begin()->second;
    AnswerFailure(request, Fail(ETIMEDOUT, "no answer in time"));
    deadlines_.erase({request->terms().deadline, request});
    any = true;
  }
  if (any) std::erase_if(waiting_, [](const RequestPtr& each) { return each->is_answered(); });
  for (const std::shared_ptr<PgServersLook>& look : looks_) {
    if (look->terms.deadline <= now && look->done != nullptr) {
      std::exchange(look->done,
                    nullptr)(tl::unexpected(Named(Fail(ETIMEDOUT, "no answer in time"))));
    }
  }
}

// --- Connections

void PostgresEngine::GoOnWith(Slot& slot) {
  const bool is_first = &slot == slots_.data();
  if (slot.connection == nullptr && slot.dial == nullptr) {
    if (runs_ && parsed_ && (is_first || (reached_ && WantsMore())) && slot.next <= runtime_.Now())
      Dial(slot);
    if (slot.dial == nullptr) return;
  }
  if (slot.dial != nullptr) {
    switch (slot.dial->GoOn()) {
      case PgDial::Outcome::kGoesOn: return;
      case PgDial::Outcome::kGreeted: return OnGreeted(slot);
      case PgDial::Outcome::kFailed: {
        const Status why = slot.dial->failure();
        slot.dial.reset();
        return OnFailed(slot, why);
      }
    }
  }
  for (PgDone& done : slot.connection->TakeDone()) OnDone(std::move(done));
  if (slot.connection == nullptr) return;  // an answer said that the store is another one
  PgConnection& connection = *slot.connection;
  if (connection.patience() && connection.patience()->has_passed()) {
    connection.GiveUp(Fail(EHOSTUNREACH, "it does not answer"));
  }
  if (!slot.is_up && connection.stage() != PgConnection::Stage::kLost &&
      slot.open_until <= runtime_.Now()) {
    connection.GiveUp(Fail(EHOSTUNREACH, "it does not answer"));
  }
  if (connection.stage() == PgConnection::Stage::kLost) return OnLostConnection(slot);
  if (!slot.is_up && connection.stage() == PgConnection::Stage::kUp) OnUp(slot);
  if (!is_first && slot.is_up && !WantsMore() && slots_.front().is_up &&
      slot.connection->in_flight() == 0) {
    Drop(slot, Fail(EHOSTUNREACH, "it is not needed any more"));
  }
}

// The first connection is tried with one server after the other; the others go where it is.
void PostgresEngine::Dial(Slot& slot) {
  slot.server = reached_ ? reached_->server : next_server_ % way_.servers.size();
  slot.dial = std::make_unique<PgDial>(context_, way_.servers[slot.server]);
  slot.dialled_at = runtime_.Now();
}

void PostgresEngine::OnGreeted(Slot& slot) {
  const std::unique_ptr<PgDial> dial = std::move(slot.dial);
  const PgFacts& facts = dial->connection()->facts();
  const PgOrigin origin = OriginOf(facts);
  Status fits = CheckPgServer(facts);
  if (fits.ok() && origin.system == highest_.system && origin.timeline < highest_.timeline) {
    fits = Fail(EHOSTUNREACH,
                "another server has taken its place (its timeline is {}, the other's {}): make it "
                "a standby, or stop it",
                origin.timeline, highest_.timeline);
  }
  if (!fits.ok()) return OnFailed(slot, fits);
  std::string id(kIdBytes, '\0');
  for (char& each : id) each = static_cast<char>(runtime_.Random());
  slot.connection = dial->TakeConnection();
  slot.open_until = runtime_.Now() + std::max<Duration>(options_.connect_timeout, 25s);
  slot.connection->Open(std::move(id));
}

void PostgresEngine::OnUp(Slot& slot) {
  const Reached here{.store = slot.connection->store(),
                     .origin = OriginOf(slot.connection->facts()),
                     .server = slot.server};
  if (reached_ && (reached_->store != here.store || reached_->origin != here.origin)) {
    // Taken out of its place, as the others are dropped.
    std::unique_ptr<PgConnection> kept = std::move(slot.connection);
    const Status why = Fail(EHOSTUNREACH, "{} has taken its place", way_.servers[here.server].name);
    LoseAll(why);
    BecomeLost(why);
    slot.connection = std::move(kept);
  }
  slot.is_up = true;
  slot.up_since = runtime_.Now();
  slot.backoff = {};
  if (reached_) return;
  reached_ = here;
  highest_ = here.origin;
  why_not_.clear();
  failed_servers_ = 0;
  lost_message_.clear();
  next_server_ = here.server;
  {
    const MutexLock lock(mutex_);
    store_ = here.store;
  }
  for (Slot& each : slots_) each.next = {};
  Tell([&](Listener& listener) { listener.OnReached(here.store); });
}

// An attempt came to nothing.
void PostgresEngine::OnFailed(Slot& slot, const Status& why) {
  slot.connection.reset();
  slot.is_up = false;
  why_not_[slot.server] = why;
  const Time now = runtime_.Now();
  if (!reached_ && ++failed_servers_ % way_.servers.size() != 0) {
    ++next_server_;
    slot.next = now;
    return;
  }
  slot.backoff = std::clamp(slot.backoff * 2, options_.least_backoff, options_.most_backoff);
  slot.next = now + slot.backoff;
  if (reached_) return;
  ++next_server_;
  BecomeLost(Summary());
}

void PostgresEngine::OnLostConnection(Slot& slot) {
  const Status why = slot.connection->failure();
  const bool was_up = slot.is_up;
  Drop(slot, why);
  if (!was_up) return OnFailed(slot, why);
  if (reached_ && !AnyUp()) {
    LoseAll(why);
    BecomeLost(Status(why.code() == EACCES ? EACCES : EHOSTUNREACH,
                      fmt::format("{}: {}", way_.servers[slot.server].name, why.message())));
  }
  // Mostly a server that went: it comes again, or another one takes its place. One that takes us
  // and then throws us out is not to be asked all the time.
  const Time now = runtime_.Now();
  slot.next = now < slot.up_since + options_.most_backoff ? now + options_.least_backoff : now;
}

void PostgresEngine::Drop(Slot& slot, const Status& why) {
  slot.dial.reset();
  slot.is_up = false;
  const std::unique_ptr<PgConnection> gone = std::move(slot.connection);
  if (gone == nullptr) return;
  const Status lost(EHOSTUNREACH, std::string(why.message()));
  // What is answered by the time that it goes has been done.
  for (PgDone& done : gone->TakeDone()) OnDone(std::move(done));
  for (const RequestPtr& request : gone->TakeInFlight()) AnswerFailure(request, lost);
}

// Every connection, and what waits for one.
void PostgresEngine::LoseAll(const Status& why) {
  reached_.reset();
  {
    const MutexLock lock(mutex_);
    store_.clear();
    away_ = why;
  }
  for (Slot& slot : slots_) {
    Drop(slot, why);
    slot.next = runtime_.Now();
  }
  const Status lost(EHOSTUNREACH, std::string(why.message()));
  for (const RequestPtr& request : std::exchange(waiting_, {})) AnswerFailure(request, lost);
}

void PostgresEngine::BecomeLost(const Status& why) {
  {
    const MutexLock lock(mutex_);
    away_ = why;
  }
  if (lost_message_ == why.message()) return;
  lost_message_ = why.message();
  Tell([&](Listener& listener) { listener.OnLost(Named(why)); });
}

bool PostgresEngine::AnyUp() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) { return slot.is_up; });
}

// Than one connection.
bool PostgresEngine::WantsMore() const {
  if (!busy_at_) return false;
  return options_.idle_timeout == Duration() || runtime_.Now() < *busy_at_ + options_.idle_timeout;
}

// Whether a further connection may be there in a moment. One that has failed before is not counted
// on.
bool PostgresEngine::IsMakingMore(Time now) const {
  const auto is_coming = [now](const Slot& slot) {
    if (slot.is_up) return false;
    const bool is_begun = slot.dial != nullptr || slot.connection != nullptr;
    return slot.backoff == Duration() &&
           (is_begun ? now < slot.dialled_at + kStalled : slot.next <= now);
  };
  return reached_ && std::any_of(slots_.begin() + 1, slots_.end(), is_coming);
}

// Why no server will do, of each of them.
Status PostgresEngine::Summary() const {
  int code = EHOSTUNREACH;
  std::string text;
  for (const auto& [server, why] : why_not_) {
    if (why.code() == EACCES) code = EACCES;
    if (!text.empty()) text += "; ";
    text += fmt::format("{}: {}", way_.servers[server].name, why.message());
  }
  return Status(code, std::move(text));
}

// --- Requests

void PostgresEngine::Enqueue(RequestPtr request) {
  deadlines_.insert({request->terms().deadline, request});
  waiting_.push_back(std::move(request));
}

void PostgresEngine::AnswerFailure(const RequestPtr& request, const Status& why) {
  if (request->is_answered()) return;
  deadlines_.erase({request->terms().deadline, request});
  request->AnswerFailure(Named(why));
}

void PostgresEngine::SendWaiting() {
  const Time now = runtime_.Now();
  while (!waiting_.empty()) {
    const RequestPtr request = waiting_.front();
    if (request->is_answered()) {
      waiting_.pop_front();
      continue;
    }
    if (request->terms().deadline <= now) {
      waiting_.pop_front();
      AnswerFailure(request, Fail(ETIMEDOUT, "no answer in time"));
      continue;
    }
    Slot* const slot = SlotFor(*request);
    const bool is_busy = slot == nullptr || slot->connection->in_flight() > 0;
    if (is_busy) busy_at_ = now;
    // What is sent behind a change waits as long as that does, which may be for a lock.
    if (slot == nullptr || (is_busy && IsMakingMore(now))) return;
    waiting_.pop_front();
    slot->connection->Send(request);
  }
}

// The one with the fewest requests, of those that answer.
PostgresEngine::Slot* PostgresEngine::SlotFor(const PgRequest& request) {
  const Time now = runtime_.Now();
  Slot* best = nullptr;
  std::pair<bool, size_t> least;
  for (Slot& slot : slots_) {
    if (!slot.is_up || slot.connection->stage() != PgConnection::Stage::kUp ||
        !slot.connection->HasRoomFor(request)) {
      continue;
    }
    const bool stalls =
        slot.connection->in_flight() > 0 && slot.connection->silent_since() + kStalled < now;
    const std::pair<bool, size_t> load = {stalls, slot.connection->in_flight()};
    if (best != nullptr && load >= least) continue;
    best = &slot;
    least = load;
  }
  return best;
}

void PostgresEngine::OnDone(PgDone done) {
  const RequestPtr& request = done.request;
  if (!done.error) return OnVerdict(request, std::move(done.rows));
  switch (MeaningOf(done.error->state)) {
    case PgMeaning::kAgain: return AskAgain(request);
    case PgMeaning::kOther: {
      const Status why = Fail(EHOSTUNREACH, "what Pinstripe made there is gone: {}",
                              StatusOf(*done.error).message());
      AnswerFailure(request, why);
      if (reached_) {
        LoseAll(why);
        BecomeLost(why);
      }
      return;
    }
    case PgMeaning::kLost:
    case PgMeaning::kFailed: return AnswerFailure(request, StatusOf(*done.error));
  }
}

// Of which nothing was done.
void PostgresEngine::AskAgain(const RequestPtr& request) {
  if (request->is_answered()) return;
  if (!reached_) return AnswerFailure(request, Fail(EHOSTUNREACH, "it was lost"));
  waiting_.push_back(request);
}

void PostgresEngine::OnVerdict(const RequestPtr& request, std::vector<PgRows> rows) {
  const Result<PgVerdict> verdict = VerdictOf(rows);
  Status why;
  if (!verdict) {
    why = verdict.error();
  } else {
    switch (verdict->word) {
      case PgWord::kOk:
        if (request->is_answered()) return;
        deadlines_.erase({request->terms().deadline, request});
        request->Answer(std::move(rows));
        return;
      case PgWord::kLater:
        why = Fail(EREMCHG, "it has cluster version {}", verdict->version);
        break;
      case PgWord::kEarlier:
        if (request->is_answered()) return;
        if (request->raises() || !reached_) {
          why = Fail(EHOSTUNREACH, "its cluster version was lowered meanwhile");
          break;
        }
        request->Raise(reached_->store);
        return AskAgain(request);
      case PgWord::kGone: why = Fail(EHOSTUNREACH, "it is another store, or was emptied"); break;
      case PgWord::kUnsafe:
        why = Fail(EHOSTUNREACH,
                   "it was set to lose what it confirms: set 'fsync = on' and "
                   "'full_page_writes = on'");
        break;
    }
  }
  AnswerFailure(request, why);
  if (why.code() == EREMCHG || !reached_) return;
  LoseAll(why);
  BecomeLost(why);
}

// --- Looking at all servers

void PostgresEngine::BeginLook(const std::shared_ptr<PgServersLook>& look) {
  looks_.push_back(look);
  if (!parsed_) {
    std::exchange(look->done, nullptr)(tl::unexpected(Named(parsed_.error())));
    return;
  }
  if (reached_) {
    const std::weak_ptr<PgServersLook> weak = look;
    Enqueue(NewLookRequest(reached_->store, look->terms, [weak](Result<PgLook> found) {
      if (const auto asked = weak.lock()) asked->primary = std::move(found);
    }));
  } else {
    const MutexLock lock(mutex_);
    look->primary = tl::unexpected(away_);
  }
  for (size_t i = 0; i < way_.servers.size(); ++i) {
    if (reached_ && reached_->server == i) continue;
    look->dials.push_back(std::make_unique<PgDial>(context_, way_.servers[i]));
  }
}

void PostgresEngine::GoOnWith(PgServersLook& look) {
  if (!look.GoOn()) return;
  std::optional<EngineMember> asked;
  if (reached_) {
    const std::string& name = way_.servers[reached_->server].name;
    asked = EngineMember{.name = name, .address = name, .is_up = true, .is_leader = true};
    for (const Slot& slot : slots_) {
      if (slot.is_up && !slot.connection->address().empty()) {
        asked->address = slot.connection->address();
      }
    }
  }
  std::exchange(look.done, nullptr)(look.Finish(std::move(asked)));
}

// --- The listener

void PostgresEngine::Tell(const std::function<void(Listener&)>& what) {
  Listener* listener = nullptr;
  {
    const MutexLock lock(mutex_);
    listener = listener_;
    telling_ = listener != nullptr;
  }
  if (listener == nullptr) return;
  what(*listener);
  const MutexLock lock(mutex_);
  telling_ = false;
  told_.WakeAll();
}

}  // namespace

std::unique_ptr<NameEngine> NewPostgresEngine(Runtime& runtime, EngineOptions options) {
  return std::make_unique<PostgresEngine>(runtime, std::move(options));
}

}  // namespace pinstripe
