// DriveLink: the way of a drive to what serves it: a connection, or attempts to get one.
//
// It connects at once, and again whenever the connection is lost: with a back-off, at each of its
// addresses in turn. What is asked before the first attempt has ended waits for its end. After that
// it fails at once while there is no connection.
//
// A connection that nobody uses is closed, and the link rests. It counts as up then: the next
// question has it connect again, and waits for that. Only a server that may have forgotten
// something meanwhile, or that cannot be reached any more, counts as lost.
//
// Whoever derives from it makes the connections (NewConnection()), and shakes hands when one is
// open (Connection::Owner::OnGreeting()): it ends with Up() or Refuse(). Everything but Submit()
// and the plain questions happens on the loop's thread.
//
// A Connection has an Owner, an OperationPtr with deadline() and Finish(failure), Submit(operation)
// and Close(why), as KineticConnection has them.

#pragma once

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "kinetic/io.h"
#include "kinetic/io_loop.h"

namespace pinstripe {

struct DriveLinkOptions {
  std::string name;                    // "drive 3"
  std::vector<std::string> addresses;  // at least one, as `parse` reads them
  Result<HostAndPort> (*parse)(std::string_view) = ParseDriveAddress;
  Duration connect_timeout{};
  Duration least_backoff{};
  Duration most_backoff{};
  // A connection is closed after it was not used for so long, and at the latest after twice that.
  // Zero: never.
  Duration idle_timeout{};
};

template <typename Connection>
class DriveLink : public Connection::Owner,
                  public std::enable_shared_from_this<DriveLink<Connection>> {
 public:
  using OperationPtr = typename Connection::OperationPtr;

  DriveLink(KineticIo& io, DriveLinkOptions options)
      : io_(io),
        loop_(io.NextLoop()),
        link_options_(std::move(options)),
        name_(fmt::format("{} ({})", link_options_.name, fmt::join(link_options_.addresses, ", "))),
        backoff_(link_options_.least_backoff),
        attempt_timer_(loop_, [this] { Attempt(); }),
        connect_timer_(loop_, [this] { OnConnectTimeout(); }),
        early_timer_(loop_, [this] { ExpireEarly(); }),
        idle_timer_(loop_, [this] { RestIfIdle(); }) {
    assert(!link_options_.addresses.empty());
  }

  void Start() {
    loop_.Post([self = this->shared_from_this()] { self->Attempt(); });
  }
  void Stop(std::string_view why);  // on the loop's thread

  // Any thread. `valid`: a failure is answered instead.
  void Submit(Status valid, OperationPtr operation);

  std::string_view name() const { return name_; }
  bool IsUp() const {
    const MutexLock lock(mutex_);
    return state_ == State::kUp || state_ == State::kResting || state_ == State::kWaking;
  }
  uint64_t CountLosses() const {
    const MutexLock lock(mutex_);
    return losses_;
  }
  // Why there is no connection; empty: there is one, or nobody knows yet.
  std::string WhyAway() const {
    const MutexLock lock(mutex_);
    return state_ == State::kDown || state_ == State::kStopped ? away_.WithoutDriveName() : "";
  }
  IoLoop& loop() { return loop_; }

  void OnLost(const Status& why) override;

 protected:
  virtual Result<std::shared_ptr<Connection>> NewConnection(const std::string& host,
                                                            const SocketAddress& address) = 0;
  // Ends the handshake with trying(): it serves from now on, or is given up. `start` names the
  // start of the server, and is another one for each; empty: it does not tell, and a connection to
  // it does not rest. `has_kept_all`: it says that it has forgotten nothing since last_start().
  void Up(std::string start, bool has_kept_all = false);
  void Refuse(const Status& why);
  const std::string& last_start() const { return start_; }
  // Whether it would go on, then, with the start that it was connected to when it began to rest.
  bool GoesOn(std::string_view start) const {
    const MutexLock lock(mutex_);
    return state_ == State::kWaking && !start.empty() && start == start_;
  }

  // Connected or connecting, and not up yet. What is asked during the handshake is answered also
  // when the connection is lost or refused: then this is another one, or null.
  const std::shared_ptr<Connection>& trying() const { return trying_; }
  Time try_deadline() const { return try_deadline_; }
  std::shared_ptr<Connection> connection() const {
    const MutexLock lock(mutex_);
    return connection_;
  }
  Runtime& runtime() { return loop_.runtime(); }
  KineticIo& io() { return io_; }

 private:
  enum class State { kStarting, kUp, kResting, kWaking, kDown, kStopped };

  // One attempt tries all addresses, beginning with the one that worked last, and all that the
  // resolver knows for each.
  void Attempt() {
    {
      const MutexLock lock(mutex_);
      if (state_ == State::kStopped) return;  // before it could wake
    }
    tried_ = 0;
    left_.clear();
    TryNext();
  }
  void TryNext();
  void TryAddress(const SocketAddress& address);
  void OnResolved(uint64_t attempt, Result<std::vector<SocketAddress>> found);
  void OnConnectTimeout() {
    using std::chrono::milliseconds;
    const auto limit = std::chrono::ceil<milliseconds>(link_options_.connect_timeout);
    Refuse(Fail(ETIMEDOUT, "no connection within {} ms", limit.count()));
  }
  void TriedInVain(const Status& why);
  void AttemptFailed();
  void ScheduleAttempt();
  void RestIfIdle();

  // Operations that wait for the end of the first attempt.
  void ArmEarlyTimer();
  void ExpireEarly();
  static void FinishEarly(std::vector<OperationPtr> operations, const Status& status) {
    for (OperationPtr& each : operations) each->Finish(tl::unexpected(status));
  }

  const std::string& address() const { return link_options_.addresses[current_]; }
  Status Away(std::string_view why) const {
    return Status(EHOSTUNREACH, std::string(why)).OfDrive(name_);
  }
  // Without the drive's name, which an answer begins with and Away() adds; with the address where
  // there are several.
  Status Reason(const Status& why) const {
    const Status reason(why.code(), why.WithoutDriveName());
    return link_options_.addresses.size() == 1 ? reason : reason.Context(address());
  }

  KineticIo& io_;
  IoLoop& loop_;
  const DriveLinkOptions link_options_;
  const std::string name_;

  // Used by the loop's thread alone:
  std::shared_ptr<Connection> trying_;
  uint64_t attempt_ = 0;             // tells a late answer of the resolver from the awaited
  size_t current_ = 0;               // the address that is tried, or that worked last
  size_t tried_ = 0;                 // addresses of this attempt
  std::string host_;                 // of the current address
  std::vector<SocketAddress> left_;  // more to try for the current address, last one first
  Status failure_;                   // the last one of this attempt
  std::string logged_failure_;
  Duration backoff_;
  Time up_since_{};
  Time try_deadline_{};
  IoLoop::Timer attempt_timer_;
  IoLoop::Timer connect_timer_;
  IoLoop::Timer early_timer_;
  IoLoop::Timer idle_timer_;
  std::string start_;       // of the server of the last connection that was up
  uint64_t used_then_ = 0;  // used_ when idle_timer_ was armed

  mutable Mutex mutex_;
  State state_ GUARDED_BY(mutex_) = State::kStarting;
  std::shared_ptr<Connection> connection_ GUARDED_BY(mutex_);  // set while up
  uint64_t losses_ GUARDED_BY(mutex_) = 0;                     // of connections that were up
  Status away_ GUARDED_BY(mutex_);                             // why, while down or stopped
  std::vector<OperationPtr> early_ GUARDED_BY(mutex_);         // while starting or waking
  uint64_t used_ GUARDED_BY(mutex_) = 0;                       // operations that came
};

template <typename Connection>
void DriveLink<Connection>::Stop(std::string_view text) {
  const Status why = Away(text);
  std::shared_ptr<Connection> connection;
  std::vector<OperationPtr> early;
  {
    const MutexLock lock(mutex_);
    state_ = State::kStopped;
    away_ = why;
    connection = std::exchange(connection_, nullptr);
    early.swap(early_);
  }
  ++attempt_;
  attempt_timer_.Cancel();
  connect_timer_.Cancel();
  early_timer_.Cancel();
  idle_timer_.Cancel();
  const Status reason = Fail(EHOSTUNREACH, "{}", text);
  if (trying_) std::exchange(trying_, nullptr)->Close(reason);
  if (connection) connection->Close(reason);
  FinishEarly(std::move(early), why);
}

template <typename Connection>
void DriveLink<Connection>::Submit(Status valid, OperationPtr operation) {
  std::shared_ptr<Connection> connection;
  if (valid.ok()) {
    const MutexLock lock(mutex_);
    ++used_;
    switch (state_) {
      case State::kResting:
        state_ = State::kWaking;
        Start();
        [[fallthrough]];
      case State::kStarting:
      case State::kWaking:
        early_.push_back(std::move(operation));
        loop_.Post([self = this->shared_from_this()] { self->ArmEarlyTimer(); });
        return;
      case State::kUp: connection = connection_; break;
      case State::kDown:
      case State::kStopped: valid = away_; break;
    }
  } else {
    valid = valid.OfDrive(name_);
  }
  if (connection) return connection->Submit(std::move(operation));
  loop_.Post([operation = std::move(operation), status = std::move(valid)] {
    operation->Finish(tl::unexpected(status));
  });
}

// The next address of the attempt; when there is none, it has failed.
template <typename Connection>
void DriveLink<Connection>::TryNext() {
  if (!left_.empty()) {
    const SocketAddress address = left_.back();
    left_.pop_back();
    return TryAddress(address);
  }
  if (tried_ == link_options_.addresses.size()) return AttemptFailed();
  if (tried_ > 0) current_ = (current_ + 1) % link_options_.addresses.size();
  ++tried_;
  ++attempt_;
  const Result<HostAndPort> host = link_options_.parse(address());
  if (!host) return TriedInVain(host.error());
  host_ = host->host;
  try_deadline_ = runtime().Now() + link_options_.connect_timeout;
  connect_timer_.Arm(try_deadline_);
  io_.Resolve(*host, loop_,
              [weak = this->weak_from_this(),
               attempt = attempt_](Result<std::vector<SocketAddress>> found) {
                if (const auto self = weak.lock()) self->OnResolved(attempt, std::move(found));
              });
}

template <typename Connection>
void DriveLink<Connection>::OnResolved(uint64_t attempt, Result<std::vector<SocketAddress>> found) {
  if (attempt != attempt_) return;  // it came too late: we went on, or stopped
  if (!found) return TriedInVain(found.error());
  left_ = *std::move(found);
  std::reverse(left_.begin(), left_.end());
  TryNext();
}

template <typename Connection>
void DriveLink<Connection>::TryAddress(const SocketAddress& address) {
  ++attempt_;
  try_deadline_ = runtime().Now() + link_options_.connect_timeout;
  connect_timer_.Arm(try_deadline_);
  auto connection = NewConnection(host_, address);
  if (!connection) return TriedInVain(connection.error());
  trying_ = *std::move(connection);
}

// Gives up the address that is being tried.
template <typename Connection>
void DriveLink<Connection>::Refuse(const Status& why) {
  if (const auto connection = std::exchange(trying_, nullptr)) connection->Close(why);
  TriedInVain(why);
}

template <typename Connection>
void DriveLink<Connection>::TriedInVain(const Status& why) {
  connect_timer_.Cancel();
  ++attempt_;
  failure_ = Reason(why);
  // Not from here: a list of addresses that all fail at once is not a deeper and deeper call.
  loop_.Post([weak = this->weak_from_this(), attempt = attempt_] {
    const auto self = weak.lock();
    if (self && self->attempt_ == attempt) self->TryNext();
  });
}

template <typename Connection>
void DriveLink<Connection>::Up(std::string start, bool has_kept_all) {
  connect_timer_.Cancel();
  up_since_ = runtime().Now();
  std::vector<OperationPtr> early;
  std::shared_ptr<Connection> connection = std::exchange(trying_, nullptr);
  const bool goes_on = GoesOn(start);
  bool has_rested = false;
  {
    const MutexLock lock(mutex_);
    has_rested = state_ == State::kWaking;
    if (has_rested && !goes_on && !has_kept_all) ++losses_;
    state_ = State::kUp;
    connection_ = connection;
    early.swap(early_);
    used_then_ = used_;
  }
  start_ = std::move(start);
  early_timer_.Cancel();
  logged_failure_.clear();
  if (link_options_.idle_timeout > Duration::zero() && !start_.empty()) {
    idle_timer_.Arm(up_since_ + link_options_.idle_timeout);
  }
  Log(has_rested ? LogLevel::kDebug : LogLevel::kInfo, "drive is up",
      {{"drive", name_}, {"address", address()}});
  for (OperationPtr& each : early) connection->Submit(std::move(each));
}

template <typename Connection>
void DriveLink<Connection>::RestIfIdle() {
  std::shared_ptr<Connection> connection;
  {
    const MutexLock lock(mutex_);
    if (state_ != State::kUp) return;
    const bool was_used = std::exchange(used_then_, used_) != used_;
    if (!was_used && connection_->IsIdle()) {
      state_ = State::kResting;
      connection = std::exchange(connection_, nullptr);
    }
  }
  if (connection == nullptr) {
    return idle_timer_.Arm(runtime().Now() + link_options_.idle_timeout);
  }
  connection->Close(Fail(EHOSTUNREACH, "the connection was not used, and was closed"));
  Log(LogLevel::kDebug, "drive is not connected until it is used", {{"drive", name_}});
}

template <typename Connection>
void DriveLink<Connection>::OnLost(const Status& why) {
  if (trying_) {
    trying_ = nullptr;
    return TriedInVain(why);
  }
  const Status reason = Reason(why);
  {
    const MutexLock lock(mutex_);
    state_ = State::kDown;
    ++losses_;
    away_ = Away(reason.message());
    connection_ = nullptr;
  }
  Log(LogLevel::kWarn, "drive lost", {{"drive", name_}, {"why", reason}});
  logged_failure_ = reason.message();
  // One that keeps hanging up is not asked again and again at once.
  if (runtime().Now() - up_since_ >= link_options_.most_backoff)
    backoff_ = link_options_.least_backoff;
  ScheduleAttempt();
}

template <typename Connection>
void DriveLink<Connection>::AttemptFailed() {
  const Status away = Away(failure_.message());
  std::vector<OperationPtr> early;
  {
    const MutexLock lock(mutex_);
    if (state_ == State::kWaking) ++losses_;
    state_ = State::kDown;
    away_ = away;
    early.swap(early_);
  }
  early_timer_.Cancel();
  if (logged_failure_ != failure_.message()) {  // once for each reason, however long it lasts
    logged_failure_ = failure_.message();
    Log(LogLevel::kWarn, "drive is away", {{"drive", name_}, {"why", failure_}});
  }
  ScheduleAttempt();
  FinishEarly(std::move(early), away);
}

template <typename Connection>
void DriveLink<Connection>::ScheduleAttempt() {
  const int64_t half = backoff_.count() / 2;
  const Duration delay(half + static_cast<int64_t>(runtime().Random() % (half + 1)));
  backoff_ = std::min(2 * backoff_, link_options_.most_backoff);
  attempt_timer_.Arm(runtime().Now() + delay);
}

template <typename Connection>
void DriveLink<Connection>::ArmEarlyTimer() {
  const MutexLock lock(mutex_);
  Time next = Time::max();
  for (const OperationPtr& each : early_) next = std::min(next, each->deadline());
  if (!early_.empty()) early_timer_.Arm(next);
}

template <typename Connection>
void DriveLink<Connection>::ExpireEarly() {
  const Time now = runtime().Now();
  std::vector<OperationPtr> expired;
  {
    const MutexLock lock(mutex_);
    const auto first = std::stable_partition(early_.begin(), early_.end(),
                                             [&](auto& each) { return each->deadline() > now; });
    std::move(first, early_.end(), std::back_inserter(expired));
    early_.erase(first, early_.end());
  }
  ArmEarlyTimer();
  FinishEarly(std::move(expired), Status(ETIMEDOUT, "not connected in time").OfDrive(name_));
}

// The link that a drive goes on with, and those that it was redirected from. Thread-safe.
template <typename Link>
class CurrentLink {
 public:
  explicit CurrentLink(std::shared_ptr<Link> first) : link_(std::move(first)) { link_->Start(); }

  // Not inside a callback of a drive.
  ~CurrentLink() {
    // Those before it have nothing under way, but may have been told to stop only just now.
    std::vector<std::shared_ptr<Link>> links = former_;
    links.push_back(link_);
    for (const auto& link : links) {
      link->loop().PostAndWait([&link] { link->Stop("the drive is being shut down"); });
    }
    // What was on its way to a connection by then is behind that, and fails there.
    for (const auto& link : links) link->loop().PostAndWait([] {});
  }
  CurrentLink(const CurrentLink&) = delete;
  CurrentLink& operator=(const CurrentLink&) = delete;

  std::shared_ptr<Link> get() const {
    const MutexLock lock(mutex_);
    return link_;
  }

  // `make` makes the next one from the one that is there.
  template <typename Make>
  void Replace(Make make) {
    std::shared_ptr<Link> former;
    {
      const MutexLock lock(mutex_);
      former = std::exchange(link_, make(*link_));
      former_.push_back(former);
      link_->Start();
    }
    // Its name may have been shown to somebody, so it stays.
    former->loop().Post([former] { former->Stop("the configuration has another address or key"); });
  }

  // Each link that was left counts once more.
  uint64_t CountLosses() const {
    const MutexLock lock(mutex_);
    uint64_t losses = link_->CountLosses();
    for (const auto& former : former_) losses += former->CountLosses() + 1;
    return losses;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<Link> link_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Link>> former_ GUARDED_BY(mutex_);  // stopped
};

}  // namespace pinstripe
