#include "engines/etcd/link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

using etcdserverpb::TxnResponse;
using Fate = EtcdFailure::Fate;

// What changes nothing waits so long for a member before the next is asked, longer each time.
constexpr Duration kFirstTry = std::chrono::seconds(2);
constexpr Duration kBeat = std::chrono::seconds(2);
constexpr int kMostLogIns = 3;

Status OtherStore() {
  return Fail(EHOSTUNREACH, "etcd does not have the names that were there before: it was emptied");
}

}  // namespace

struct EtcdLink::Asked {
  explicit Asked(Question question_in) : question(std::move(question_in)) {}

  Question question;
  size_t endpoint = 0;
  std::string token;
  uint64_t etcd = 0;
  Time until;  // for this endpoint
  int tries = 0;
  Time since;          // when the first of all endpoints was asked
  size_t failed = 0;   // endpoints, since then
  bool spoke = false;  // one of them did
  int log_ins = 0;
  Duration pause{};
};

struct EtcdLink::Round {
  size_t left = 0;  // endpoints that have not failed
  bool over = false;
  Time deadline;
  Status why;  // the most telling one
  std::vector<int> log_ins;
};

EtcdLink::EtcdLink(Runtime& runtime, EngineOptions options)
    : runtime_(runtime),
      options_(std::move(options)),
      keys_(options_.cluster),
      why_(Fail(EHOSTUNREACH, "etcd has not been reached yet")),
      pause_(options_.least_backoff),
      client_(runtime, options_) {}

EtcdLink::~EtcdLink() { End(); }

void EtcdLink::Start(NameEngine::Listener& listener) {
  {
    const MutexLock lock(mutex_);
    listener_ = &listener;
  }
  client_.RunSoon([this] { Reach(); });
}

void EtcdLink::StopTelling() {
  const MutexLock lock(mutex_);
  listener_ = nullptr;
  while (telling_) told_.Wait(lock);
}

void EtcdLink::Tell(const std::function<void(NameEngine::Listener&)>& what) {
  MutexLock lock(mutex_);
  if (listener_ == nullptr) return;
  NameEngine::Listener& listener = *listener_;
  telling_ = true;
  lock.Unlock();
  what(listener);
  lock.Lock();
  telling_ = false;
  told_.WakeAll();
}

Result<std::string> EtcdLink::Reached() const {
  const MutexLock lock(mutex_);
  if (client_.IsEnding()) return Fail(EHOSTUNREACH, "the engine is being closed");
  if (!reached_) return Fail(EHOSTUNREACH, "{}", why_.message());
  return store_;
}

bool EtcdLink::IsOf(uint64_t etcd) const {
  const MutexLock lock(mutex_);
  return etcd_ == etcd;
}

std::string EtcdLink::token() const {
  const MutexLock lock(mutex_);
  return token_;
}

// --- Asking

void EtcdLink::Ask(Question question) {
  auto asked = std::make_shared<Asked>(std::move(question));
  asked->pause = options_.least_backoff;
  Send(asked);
}

void EtcdLink::Finish(const AskedPtr& asked, const Status& why) {
  TxnResponse none;
  asked->question.done(why, none);
}

void EtcdLink::Send(const AskedPtr& asked) {
  const Question& question = asked->question;
  const Time now = runtime_.Now();
  const Result<std::string> reached = Reached();
  Status why;
  if (!reached) {
    why = reached.error();
  } else if (*reached != question.store) {
    why = OtherStore();
  } else if (now >= question.deadline) {
    why = Fail(ETIMEDOUT, "etcd did not answer in time");
  }
  if (!why.ok()) return client_.RunSoon([asked, why] { Finish(asked, why); });
  {
    const MutexLock lock(mutex_);
    asked->endpoint = current_;
    asked->token = token_;
    asked->etcd = etcd_;
  }
  if (asked->failed == 0) asked->since = now;
  asked->until = question.deadline;
  if (!question.changes) {
    const Duration patience = kFirstTry * (1 << std::min(asked->tries, 10));
    asked->until = std::min(asked->until, now + patience);
  }
  ++asked->tries;
  client_.Txn({.endpoint = asked->endpoint, .token = asked->token, .deadline = asked->until},
              question.request, [this, asked](const grpc::Status& status, TxnResponse& answer) {
                OnAnswer(asked, status, answer);
              });
}

void EtcdLink::OnAnswer(const AskedPtr& asked, const grpc::Status& status, TxnResponse& answer) {
  if (status.ok()) {
    if (answer.header().cluster_id() != asked->etcd) {
      const Status why = Fail(EHOSTUNREACH, "{} belongs to another etcd than before",
                              client_.NameOf(asked->endpoint));
      if (IsOf(asked->etcd)) Lose(why);
      return Finish(asked, why);
    }
    {
      const MutexLock lock(mutex_);
      served_ = runtime_.Now();
    }
    return asked->question.done({}, answer);
  }
  if (client_.IsEnding()) {
    return Finish(asked, Fail(EHOSTUNREACH, "the engine is being closed"));
  }
  EtcdFailure failure = MeaningOfFailure(status.error_code(), status.error_message());
  failure.why = failure.why.Context(client_.NameOf(asked->endpoint));
  switch (failure.fate) {
    case Fate::kRefused: return Finish(asked, failure.why);
    case Fate::kToken: return LogInFor(asked, failure);
    case Fate::kNotDone: return TryNext(asked, failure);
    case Fate::kUnknown: break;
  }
  if (!asked->question.changes && failure.again) return TryNext(asked, failure);
  {
    // Others had better ask somebody else.
    const MutexLock lock(mutex_);
    if (current_ == asked->endpoint && failure.again) current_ = (current_ + 1) % client_.size();
  }
  if (!asked->question.changes || failure.why.code() == ETIMEDOUT) {
    return Finish(asked, failure.why);
  }
  Finish(asked, Fail(EHOSTUNREACH, "{}; what was asked may have been done", failure.why.message()));
}

void EtcdLink::TryNext(const AskedPtr& asked, const EtcdFailure& failure) {
  const Time now = runtime_.Now();
  bool serves = false;
  bool served = false;
  {
    const MutexLock lock(mutex_);
    if (current_ == asked->endpoint) current_ = (current_ + 1) % client_.size();
    serves = now - served_ < options_.connect_timeout;
    served = served_ > asked->since;
  }
  asked->spoke |= failure.spoke;
  if (now >= asked->question.deadline) return Finish(asked, failure.why);
  if (++asked->failed < client_.size()) return Send(asked);
  // Members that have no leader choose one soon, and one that has answered others meanwhile is not
  // away.
  if (served || (asked->spoke && serves)) {
    const Time when =
        now + std::exchange(asked->pause, std::min(2 * asked->pause, options_.most_backoff));
    asked->failed = 0;
    asked->spoke = false;
    if (when < asked->question.deadline) {
      return client_.RunAt(when, [this, asked] { Send(asked); });
    }
    return client_.RunAt(asked->question.deadline, [asked, why = failure.why] {
      Finish(asked, Fail(ETIMEDOUT, "{}", why.message()));
    });
  }
  const Status why = Fail(EHOSTUNREACH, "{}", failure.why.message());
  Lose(why);
  Finish(asked, why);
}

void EtcdLink::LogInFor(const AskedPtr& asked, const EtcdFailure& failure) {
  if (options_.user.empty() || ++asked->log_ins > kMostLogIns) return Finish(asked, failure.why);
  LogIn(asked->endpoint, asked->token, asked->question.deadline,
        [this, asked](const EtcdFailure* failure) {
          if (failure == nullptr) return Send(asked);
          if (failure->fate == Fate::kRefused) return Finish(asked, failure->why);
          TryNext(asked, *failure);
        });
}

// etcd takes its time to look at a password: all who need a new token wait for one.
void EtcdLink::LogIn(size_t endpoint, const std::string& used, Time deadline,
                     std::function<void(const EtcdFailure*)> done) {
  {
    MutexLock lock(mutex_);
    if (token_ != used) {
      lock.Unlock();
      return done(nullptr);
    }
    logging_in_.push_back(std::move(done));
    if (logging_in_.size() > 1) return;
  }
  const auto learn = [this, endpoint](const grpc::Status& status,
                                      etcdserverpb::AuthenticateResponse& answer) {
    // An etcd that asks nobody who he is takes no password either.
    const bool asks_nobody =
        status.error_message().find("authentication is not enabled") != std::string::npos;
    EtcdFailure failure;
    if (!status.ok() && !asks_nobody) {
      failure = MeaningOfFailure(status.error_code(), status.error_message());
      failure.why = failure.why.Context(client_.NameOf(endpoint));
      // Nothing else was asked.
      if (failure.fate == Fate::kUnknown || failure.fate == Fate::kToken) {
        failure.fate = Fate::kNotDone;
      }
    }
    std::vector<std::function<void(const EtcdFailure*)>> waiting;
    {
      const MutexLock lock(mutex_);
      if (status.ok()) token_ = answer.token();
      waiting.swap(logging_in_);
    }
    for (const auto& each : waiting) each(failure.why.ok() ? nullptr : &failure);
  };
  const Time soon = runtime_.Now() + options_.connect_timeout;
  client_.Authenticate({.endpoint = endpoint, .token = "", .deadline = std::min(deadline, soon)},
                       options_.user, options_.password, learn);
}

// --- Reaching

// All endpoints at once: the first that serves is asked from then on.
void EtcdLink::Reach() {
  if (client_.IsEnding()) return;
  const Status open = client_.Open();
  if (!open.ok()) return TryAgainLater(open);
  const auto round = std::make_shared<Round>();
  round->left = client_.size();
  round->deadline = runtime_.Now() + options_.connect_timeout;
  round->log_ins.resize(client_.size());
  for (size_t i = 0; i < client_.size(); ++i) Try(round, i);
}

void EtcdLink::Try(const RoundPtr& round, size_t endpoint) {
  if (round->over) return;
  client_.Txn({.endpoint = endpoint, .token = token(), .deadline = round->deadline},
              AskStore(keys_),
              [this, round, endpoint](const grpc::Status& status, TxnResponse& answer) {
                OnStore(round, endpoint, status, answer);
              });
}

void EtcdLink::OnStore(const RoundPtr& round, size_t endpoint, const grpc::Status& status,
                       TxnResponse& answer) {
  if (round->over || client_.IsEnding()) return;
  if (!status.ok()) {
    EtcdFailure failure = MeaningOfFailure(status.error_code(), status.error_message());
    const bool may_log_in = !options_.user.empty() && ++round->log_ins[endpoint] <= kMostLogIns;
    if (failure.fate != Fate::kToken || !may_log_in) return OnFailed(round, endpoint, failure);
    return LogIn(endpoint, token(), round->deadline,
                 [this, round, endpoint](const EtcdFailure* failure) {
                   if (failure == nullptr) return Try(round, endpoint);
                   OnFailed(round, endpoint, *failure);
                 });
  }
  const Result<std::optional<EtcdStore>> store =
      answer.succeeded() ? std::optional<EtcdStore>() : StoreIn(keys_, answer);
  if (!store) {
    return OnFailed(
        round, endpoint,
        {.spoke = true, .why = store.error().Context(fmt::format("the key {}", keys_.store()))});
  }
  if (!*store) return MakeStore(round, endpoint);
  Take(round, endpoint, answer.header().cluster_id(), (*store)->id);
}

void EtcdLink::MakeStore(const RoundPtr& round, size_t endpoint) {
  EtcdStore made{.id = std::string(kEtcdStoreIdBytes, '\0')};
  for (char& each : made.id) each = static_cast<char>(runtime_.Random());
  client_.Txn({.endpoint = endpoint, .token = token(), .deadline = round->deadline},
              AskToSetStore(keys_, nullptr, made),
              [this, round, endpoint, made](const grpc::Status& status, TxnResponse& answer) {
                if (status.ok() && answer.succeeded()) {
                  return Take(round, endpoint, answer.header().cluster_id(), made.id);
                }
                OnStore(round, endpoint, status, answer);
              });
}

void EtcdLink::Take(const RoundPtr& round, size_t endpoint, uint64_t etcd,
                    const std::string& store) {
  if (round->over) return;
  round->over = true;
  pause_ = options_.least_backoff;
  bool same_store = false;
  {
    const MutexLock lock(mutex_);
    same_store = store == store_ && etcd_ != 0 && etcd != etcd_;
    reached_ = true;
    store_ = store;
    etcd_ = etcd;
    current_ = endpoint;
    served_ = runtime_.Now();
    told_why_.clear();
  }
  if (same_store) {
    Log(LogLevel::kWarn, "etcd was restored from a backup: names may be older than they were",
        {{"engine", options_.name}});
  }
  Tell([&](NameEngine::Listener& listener) { listener.OnReached(store); });
  if (!std::exchange(beats_, true)) {
    client_.RunAt(runtime_.Now() + kBeat, [this] { Beat(); });
  }
}

void EtcdLink::OnFailed(const RoundPtr& round, size_t endpoint, const EtcdFailure& failure) {
  if (round->over) return;
  // What a member says tells more than that another one is away.
  const std::string_view name = client_.NameOf(endpoint);
  const bool has_name = failure.why.message().starts_with(name);
  if (round->why.ok() || failure.spoke) {
    round->why = has_name ? failure.why : failure.why.Context(name);
  }
  if (--round->left > 0) return;
  round->over = true;
  TryAgainLater(round->why);
}

void EtcdLink::TryAgainLater(const Status& why) {
  if (client_.IsEnding()) return;
  bool is_new = false;
  {
    const MutexLock lock(mutex_);
    why_ = why;
    is_new = told_why_ != why.message();
    told_why_ = why.message();
  }
  if (is_new) {
    Tell([&](NameEngine::Listener& listener) { listener.OnLost(why); });
  }
  const Time when =
      runtime_.Now() + std::exchange(pause_, std::min(2 * pause_, options_.most_backoff));
  client_.RunAt(when, [this] { Reach(); });
}

void EtcdLink::Lose(const Status& why) {
  {
    const MutexLock lock(mutex_);
    if (!reached_) return;
    reached_ = false;
    why_ = why;
    told_why_ = why.message();
  }
  Tell([&](NameEngine::Listener& listener) { listener.OnLost(why); });
  client_.RunAt(runtime_.Now() + options_.least_backoff, [this] { Reach(); });
}

// Notices that etcd is away, or was emptied, though nobody asks for anything.
void EtcdLink::Beat() {
  if (client_.IsEnding()) return;
  const Time now = runtime_.Now();
  const auto again = [this] {
    if (!client_.IsEnding()) client_.RunAt(runtime_.Now() + kBeat, [this] { Beat(); });
  };
  bool is_asked = false;
  {
    const MutexLock lock(mutex_);
    is_asked = now - served_ < kBeat;
  }
  const Result<std::string> store = Reached();
  if (!store || is_asked) return again();
  Ask({.request = AskStore(keys_),
       .deadline = now + 2 * options_.connect_timeout,
       .store = *store,
       .done = [this, again, store = *store](const Status& status, TxnResponse& answer) {
         if (!status.ok()) return again();
         MeetFence(answer, {.id = store}, {}, [again](const Status& /*told*/) { again(); });
       }});
}

void EtcdLink::MeetFence(const TxnResponse& answer, const EtcdFence& fence, Time deadline,
                         StatusCallback go_on) {
  const Result<std::optional<EtcdStore>> store = StoreIn(keys_, answer);
  if (!store) return go_on(store.error());
  if (!*store || (*store)->id != fence.id) {
    const Result<std::string> reached = Reached();
    if (reached && *reached == fence.id) Lose(OtherStore());
    return go_on(OtherStore());
  }
  const int64_t version = (*store)->version;
  if (!fence.version || version == *fence.version) return go_on({});
  if (version > *fence.version) {
    return go_on(Fail(EREMCHG, "it has cluster version {}", version));
  }
  // Whoever raises it twice raises it once: only from this version to that one.
  Ask({.request = AskToSetStore(keys_, &**store, {.id = fence.id, .version = *fence.version}),
       .deadline = deadline,
       .store = fence.id,
       .done = [this, fence, deadline, go_on](const Status& status, TxnResponse& answer) {
         if (!status.ok() || answer.succeeded()) return go_on(status);
         MeetFence(answer, fence, deadline, go_on);
       }});
}

}  // namespace pinstripe
