#include "kinetic/kinetic_drive.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "kinetic/connection.h"
#include "kinetic/covering_tag.h"
#include "kinetic/get_operation.h"
#include "kinetic/operation.h"
#include "kinetic/put_operation.h"

namespace pinstripe {
namespace {

constexpr size_t kMaxRangeBytes = kMaxRangeKeys * kMaxKeyBytes;
static_assert(kMaxRangeBytes < kMaxMessageBytes, "the longest answer to a range fits in a message");

std::string Joined(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, ", "));
}

Status CheckSize(std::string_view what, size_t size, size_t least, size_t most) {
  if (size >= least && size <= most) return {};
  return Fail(EINVAL, "{} of {} bytes; allowed are {} to {}", what, size, least, most);
}

Status CheckPut(const Drive::PutRequest& request) {
  TRY(CheckSize("a key", request.key.size(), 1, kMaxKeyBytes));
  TRY(CheckSize("a value", request.value.size(), 0, kMaxValueBytes));
  TRY(CheckSize("a version", request.version.size(), 0, kMaxVersionBytes));
  TRY(CheckSize("an expected version",
                request.expected.version() ? request.expected.version()->size() : 0, 0,
                kMaxVersionBytes));
  TRY(CheckSize("a tag", request.tag.size(), 0, kMaxTagBytes));
  if (!request.guard) return {};
  const Guard& guard = *request.guard;
  TRY(CheckSize("a guard's key", guard.key.size(), 1, kMaxKeyBytes));
  if (guard.key == request.key) {
    return Fail(EINVAL, "a record cannot be its own guard: say which version of it is expected");
  }
  if (!guard.expected.version()) return Fail(EINVAL, "a guard that may have any version");
  return CheckSize("a guard's version", guard.expected.version()->size(), 0, kMaxVersionBytes);
}

}  // namespace

// The drive's way to its device: a connection, or attempts to get one. Everything but Submit() and
// the plain questions happens on the loop's thread.
class KineticDrive::Link final : public KineticConnection::Owner,
                                 public std::enable_shared_from_this<Link> {
 public:
  Link(KineticIo& io, Options options);

  void Start();
  void Stop(std::string_view why);  // on the loop's thread

  // Any thread. `valid`: a failure is answered instead.
  void Submit(Status valid, KineticOperationPtr operation);

  const Options& options() const { return options_; }
  std::string_view name() const { return name_; }
  bool IsUp() const;
  uint64_t CountLosses() const;
  DriveCapabilities capabilities() const;
  std::vector<WaitedRequest> WaitedFor(std::span<const uint64_t> operations) const;
  IoLoop& loop() { return loop_; }

  void OnGreeting() override;
  void OnLost(const Status& why) override;

 private:
  enum class State { kStarting, kUp, kDown, kStopped };

  // One attempt tries all addresses, beginning with the one that worked last, and all that the
  // resolver knows for each.
  void Attempt();
  void TryNext();
  void TryAddress(const SocketAddress& address);
  void OnResolved(uint64_t attempt, Result<std::vector<SocketAddress>> found);
  void OnCapabilities(Result<DriveCapabilities> capabilities);
  void OnIdentity(Result<Record> record, const Result<DriveInfo>& info);
  void OnConnectTimeout();
  void Refuse(const Status& why);
  void TriedInVain(const Status& why);
  void AttemptFailed();
  void Up();
  void ScheduleAttempt();

  // Operations that wait for the end of the first attempt.
  void ArmEarlyTimer();
  void ExpireEarly();
  void FinishEarly(std::vector<KineticOperationPtr> operations, const Status& status);

  const std::string& address() const { return options_.addresses[current_]; }
  Runtime& runtime() { return loop_.runtime(); }
  Status Away(std::string_view why) const {
    return Status(EHOSTUNREACH, std::string(why)).OfDrive(name_);
  }
  Status Reason(const Status& why) const;

  KineticIo& io_;
  IoLoop& loop_;
  const Options options_;
  const std::string name_;
  const std::shared_ptr<const KineticConnection::Options> connection_options_;

  // Used by the loop's thread alone:
  std::shared_ptr<KineticConnection> trying_;  // connected or connecting, and not up yet
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

  mutable Mutex mutex_;
  State state_ GUARDED_BY(mutex_) = State::kStarting;
  std::shared_ptr<KineticConnection> connection_ GUARDED_BY(mutex_);  // set while up
  DriveCapabilities capabilities_ GUARDED_BY(mutex_);
  uint64_t losses_ GUARDED_BY(mutex_) = 0;                     // of connections that were up
  Status away_ GUARDED_BY(mutex_);                             // why, while down or stopped
  std::vector<KineticOperationPtr> early_ GUARDED_BY(mutex_);  // while starting
};

KineticDrive::Link::Link(KineticIo& io, Options options)
    : io_(io),
      loop_(io.NextLoop()),
      options_(std::move(options)),
      name_(fmt::format("{} ({})", options_.name, Joined(options_.addresses))),
      connection_options_(std::make_shared<KineticConnection::Options>(
          KineticConnection::Options{.drive = name_,
                                     .identity = options_.identity,
                                     .key = HmacKey(options_.key),
                                     .tls = options_.tls,
                                     .max_in_flight = options_.max_in_flight,
                                     .patience = options_.patience,
                                     .times = options_.times,
                                     .waited = options_.waited})),
      backoff_(options_.least_backoff),
      attempt_timer_(loop_, [this] { Attempt(); }),
      connect_timer_(loop_, [this] { OnConnectTimeout(); }),
      early_timer_(loop_, [this] { ExpireEarly(); }) {
  assert(!options_.addresses.empty() && options_.max_in_flight > 0);
}

void KineticDrive::Link::Start() {
  loop_.Post([self = shared_from_this()] { self->Attempt(); });
}

void KineticDrive::Link::Stop(std::string_view text) {
  const Status why = Away(text);
  std::shared_ptr<KineticConnection> connection;
  std::vector<KineticOperationPtr> early;
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
  const Status reason = Fail(EHOSTUNREACH, "{}", text);
  if (trying_) std::exchange(trying_, nullptr)->Close(reason);
  if (connection) connection->Close(reason);
  FinishEarly(std::move(early), why);
}

bool KineticDrive::Link::IsUp() const {
  const MutexLock lock(mutex_);
  return state_ == State::kUp;
}

uint64_t KineticDrive::Link::CountLosses() const {
  const MutexLock lock(mutex_);
  return losses_;
}

DriveCapabilities KineticDrive::Link::capabilities() const {
  const MutexLock lock(mutex_);
  return capabilities_;
}

// What was noted, and what is unanswered on the connection that there is now.
std::vector<WaitedRequest> KineticDrive::Link::WaitedFor(
    std::span<const uint64_t> operations) const {
  std::vector<WaitedRequest> requests = options_.waited->Of(operations);
  std::shared_ptr<KineticConnection> connection;
  {
    const MutexLock lock(mutex_);
    connection = connection_;
  }
  if (connection) connection->AddUnanswered(operations, &requests);
  return requests;
}

void KineticDrive::Link::Submit(Status valid, KineticOperationPtr operation) {
  std::shared_ptr<KineticConnection> connection;
  if (valid.ok()) {
    const MutexLock lock(mutex_);
    switch (state_) {
      case State::kStarting:
        early_.push_back(std::move(operation));
        loop_.Post([self = shared_from_this()] { self->ArmEarlyTimer(); });
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

// --- Connecting

void KineticDrive::Link::Attempt() {
  tried_ = 0;
  left_.clear();
  TryNext();
}

// The next address of the attempt; when there is none, it has failed.
void KineticDrive::Link::TryNext() {
  if (!left_.empty()) {
    const SocketAddress address = left_.back();
    left_.pop_back();
    return TryAddress(address);
  }
  if (tried_ == options_.addresses.size()) return AttemptFailed();
  if (tried_ > 0) current_ = (current_ + 1) % options_.addresses.size();
  ++tried_;
  ++attempt_;
  const Result<HostAndPort> host = ParseDriveAddress(address());
  if (!host) return TriedInVain(host.error());
  host_ = host->host;
  try_deadline_ = runtime().Now() + options_.connect_timeout;
  connect_timer_.Arm(try_deadline_);
  io_.Resolve(
      *host, loop_,
      [weak = weak_from_this(), attempt = attempt_](Result<std::vector<SocketAddress>> found) {
        if (const auto self = weak.lock()) self->OnResolved(attempt, std::move(found));
      });
}

void KineticDrive::Link::OnResolved(uint64_t attempt, Result<std::vector<SocketAddress>> found) {
  if (attempt != attempt_) return;  // it came too late: we went on, or stopped
  if (!found) return TriedInVain(found.error());
  left_ = *std::move(found);
  std::reverse(left_.begin(), left_.end());
  TryNext();
}

void KineticDrive::Link::TryAddress(const SocketAddress& address) {
  ++attempt_;
  try_deadline_ = runtime().Now() + options_.connect_timeout;
  connect_timer_.Arm(try_deadline_);
  auto connection = KineticConnection::Start(loop_, host_, address, connection_options_, *this);
  if (!connection) return TriedInVain(connection.error());
  trying_ = *std::move(connection);
}

// What is asked during the handshake is answered also when the connection is lost or refused;
// trying_ is another one then, or none.
void KineticDrive::Link::OnGreeting() {
  trying_->Submit(NewAskCapabilities(
      try_deadline_, [this, asked = trying_.get()](Result<DriveCapabilities> capabilities) {
        if (trying_.get() == asked) OnCapabilities(std::move(capabilities));
      }));
}

void KineticDrive::Link::OnCapabilities(Result<DriveCapabilities> capabilities) {
  if (!capabilities) return Refuse(capabilities.error());
  trying_->SetCapabilities(*capabilities);
  {
    const MutexLock lock(mutex_);
    capabilities_ = *capabilities;
  }
  if (const ProgramName program = ThisProgram(); capabilities->clients && !program.name.empty()) {
    trying_->Submit(NewIntroduction(program, try_deadline_, [](const Status&) {}));
  }
  if (!options_.check_identity) return Up();
  // Both at once; the answers come on this thread.
  auto info = std::make_shared<std::optional<Result<DriveInfo>>>();
  auto record = std::make_shared<std::optional<Result<Record>>>();
  const auto go_on = [this, asked = trying_.get(), info, record] {
    const bool is_complete = info->has_value() && record->has_value();
    if (is_complete && trying_.get() == asked) OnIdentity(std::move(**record), **info);
  };
  // The first answer may end the attempt.
  const std::shared_ptr<KineticConnection> trying = trying_;
  trying->Submit(NewGet(options_.identity_key, ValueRange(), try_deadline_,
                        [record, go_on](Result<Record> answer) {
                          *record = std::move(answer);
                          go_on();
                        }));
  trying->Submit(NewInfo(try_deadline_, [info, go_on](Result<DriveInfo> answer) {
    *info = std::move(answer);
    go_on();
  }));
}

void KineticDrive::Link::OnIdentity(Result<Record> record, const Result<DriveInfo>& info) {
  if (!record && record.error().code() == ETIMEDOUT) return Refuse(record.error());
  if (!info && info.error().code() == ETIMEDOUT) return Refuse(info.error());
  const Status right = options_.check_identity(record, info);
  if (!right.ok()) return Refuse(right);
  if (record) trying_->SetIdentity(options_.identity_key, {record->version, record->tag});
  Up();
}

void KineticDrive::Link::OnConnectTimeout() {
  Refuse(Fail(ETIMEDOUT, "no connection within {} ms",
              std::chrono::ceil<std::chrono::milliseconds>(options_.connect_timeout).count()));
}

// Gives up the address that is being tried.
void KineticDrive::Link::Refuse(const Status& why) {
  if (const auto connection = std::exchange(trying_, nullptr)) connection->Close(why);
  TriedInVain(why);
}

void KineticDrive::Link::TriedInVain(const Status& why) {
  connect_timer_.Cancel();
  ++attempt_;
  failure_ = Reason(why);
  // Not from here: a list of addresses that all fail at once is not a deeper and deeper call.
  loop_.Post([weak = weak_from_this(), attempt = attempt_] {
    const auto self = weak.lock();
    if (self && self->attempt_ == attempt) self->TryNext();
  });
}

// Without the drive's name, which an answer begins with and Away() adds; with the address where
// there are several.
Status KineticDrive::Link::Reason(const Status& why) const {
  const Status reason(why.code(), why.WithoutDriveName());
  return options_.addresses.size() == 1 ? reason : reason.Context(address());
}

void KineticDrive::Link::Up() {
  connect_timer_.Cancel();
  up_since_ = runtime().Now();
  std::vector<KineticOperationPtr> early;
  std::shared_ptr<KineticConnection> connection = std::exchange(trying_, nullptr);
  {
    const MutexLock lock(mutex_);
    state_ = State::kUp;
    connection_ = connection;
    early.swap(early_);
  }
  early_timer_.Cancel();
  logged_failure_.clear();
  Log(LogLevel::kInfo, "drive is up", {{"drive", name_}, {"address", address()}});
  for (KineticOperationPtr& each : early) connection->Submit(std::move(each));
}

// --- Being away

void KineticDrive::Link::OnLost(const Status& why) {
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
  if (runtime().Now() - up_since_ >= options_.most_backoff) backoff_ = options_.least_backoff;
  ScheduleAttempt();
}

void KineticDrive::Link::AttemptFailed() {
  const Status away = Away(failure_.message());
  std::vector<KineticOperationPtr> early;
  {
    const MutexLock lock(mutex_);
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

void KineticDrive::Link::ScheduleAttempt() {
  const int64_t half = backoff_.count() / 2;
  const Duration delay(half + static_cast<int64_t>(runtime().Random() % (half + 1)));
  backoff_ = std::min(2 * backoff_, options_.most_backoff);
  attempt_timer_.Arm(runtime().Now() + delay);
}

void KineticDrive::Link::ArmEarlyTimer() {
  const MutexLock lock(mutex_);
  Time next = Time::max();
  for (const KineticOperationPtr& each : early_) next = std::min(next, each->deadline());
  if (!early_.empty()) early_timer_.Arm(next);
}

void KineticDrive::Link::ExpireEarly() {
  const Time now = runtime().Now();
  std::vector<KineticOperationPtr> expired;
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

void KineticDrive::Link::FinishEarly(std::vector<KineticOperationPtr> operations,
                                     const Status& status) {
  for (KineticOperationPtr& each : operations) each->Finish(tl::unexpected(status));
}

// --- The drive

KineticDrive::KineticDrive(KineticIo& io, Options options)
    : io_(io), link_(std::make_shared<Link>(io, std::move(options))) {
  link_->Start();
}

KineticDrive::~KineticDrive() {
  // Those before it have nothing under way, but may have been told to stop only just now.
  std::vector<std::shared_ptr<Link>> links = former_;
  links.push_back(link_);
  for (const auto& link : links) {
    link->loop().PostAndWait([&link] { link->Stop("the drive is being shut down"); });
  }
}

void KineticDrive::Redirect(const Options& way) {
  std::shared_ptr<Link> former;
  {
    const MutexLock lock(mutex_);
    Options options = link_->options();
    options.addresses = way.addresses;
    options.identity = way.identity;
    options.key = way.key;
    options.tls = way.tls;
    former = std::exchange(link_, std::make_shared<Link>(io_, std::move(options)));
    former_.push_back(former);
    link_->Start();
  }
  former->loop().Post([former] { former->Stop("the configuration has another address or key"); });
}

std::shared_ptr<KineticDrive::Link> KineticDrive::link() const {
  const MutexLock lock(mutex_);
  return link_;
}

std::string_view KineticDrive::name() const { return link()->name(); }
DriveCapabilities KineticDrive::capabilities() const { return link()->capabilities(); }
const DriveTimes* KineticDrive::times() const { return link()->options().times.get(); }
bool KineticDrive::IsUp() const { return link()->IsUp(); }

std::vector<WaitedRequest> KineticDrive::WaitedFor(std::span<const uint64_t> operations) const {
  return link()->WaitedFor(operations);
}

void KineticDrive::Tell(std::vector<SlowOperation> operations, Terms terms) {
  const std::shared_ptr<Link> link = this->link();
  if (!link->capabilities().slow) return;
  link->Submit(Status(), NewTellSlow(operations, terms, [](const Status&) {}));
}

// Each link that was left counts once more.
uint64_t KineticDrive::CountLosses() const {
  const MutexLock lock(mutex_);
  uint64_t losses = link_->CountLosses();
  for (const auto& former : former_) losses += former->CountLosses() + 1;
  return losses;
}

void KineticDrive::Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) {
  Status valid = CheckSize("a key", key.size(), 1, kMaxKeyBytes);
  const std::shared_ptr<Link> link = this->link();
  if (!range.small || !range.whole() || !range.version.whole()) {
    return link->Submit(std::move(valid), NewGet(std::move(key), range, terms, std::move(done)));
  }
  const auto submit = [link](KineticOperationPtr operation) {
    link->Submit(Status(), std::move(operation));
  };
  link->Submit(std::move(valid), NewSmallGet(std::move(key), terms, submit, std::move(done)));
}

void KineticDrive::Head(std::string key, Terms terms, Callback<RecordHead> done) {
  Status valid = CheckSize("a key", key.size(), 1, kMaxKeyBytes);
  link()->Submit(std::move(valid), NewHead(std::move(key), terms, std::move(done)));
}

void KineticDrive::Put(PutRequest request, Terms terms, StatusCallback done) {
  Status valid = CheckPut(request);
  // Nothing else that is signed says what the value is.
  if (request.tag.empty() && !request.value.empty()) request.tag = CoveringTag(request.value);
  link()->Submit(std::move(valid), NewPut(std::move(request), terms, std::move(done)));
}

void KineticDrive::PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                              Callback<Record> read) {
  Status valid = CheckPut(request);
  if (valid.ok()) valid = CheckSize("a key", key.size(), 1, kMaxKeyBytes);
  if (request.tag.empty() && !request.value.empty()) request.tag = CoveringTag(request.value);
  const std::shared_ptr<Link> link = this->link();
  const auto submit = [link](KineticOperationPtr operation) {
    link->Submit(Status(), std::move(operation));
  };
  link->Submit(std::move(valid), NewPutThenGet(std::move(request), std::move(key), terms, submit,
                                               std::move(done), std::move(read)));
}

void KineticDrive::Delete(std::string key, Expected expected, Durability durability, Terms terms,
                          StatusCallback done) {
  Status valid = CheckSize("a key", key.size(), 1, kMaxKeyBytes);
  link()->Submit(std::move(valid), NewDelete(std::move(key), std::move(expected), durability, terms,
                                             std::move(done)));
}

void KineticDrive::Range(std::string first, std::string last, uint32_t max, bool reverse,
                         Terms terms, Callback<std::vector<std::string>> done) {
  Status valid = CheckSize("a first key", first.size(), 0, kMaxKeyBytes);
  if (valid.ok()) valid = CheckSize("a last key", last.size(), 0, kMaxKeyBytes);
  if (valid.ok() && (max < 1 || max > kMaxRangeKeys)) {
    valid = Fail(EINVAL, "a range of {} keys; allowed are 1 to {}", max, kMaxRangeKeys);
  }
  link()->Submit(std::move(valid),
                 NewRange(std::move(first), std::move(last), max, reverse, terms, std::move(done)));
}

void KineticDrive::ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                               uint32_t value_limit, Terms terms, Callback<RangeRecords> done) {
  Status valid = CheckSize("a first key", first.size(), 0, kMaxKeyBytes);
  if (valid.ok()) valid = CheckSize("a last key", last.size(), 0, kMaxKeyBytes);
  if (valid.ok() && (max < 1 || max > kMaxRangeRecords)) {
    valid = Fail(EINVAL, "a list of {} records; allowed are 1 to {}", max, kMaxRangeRecords);
  }
  const auto submit = [link = link()](KineticOperationPtr operation) {
    link->Submit(Status(), std::move(operation));
  };
  link()->Submit(std::move(valid), NewListRecords(std::move(first), std::move(last), max, reverse,
                                                  value_limit, terms, submit, std::move(done)));
}

void KineticDrive::Flush(Terms terms, StatusCallback done) {
  link()->Submit(Status(), NewFlush(terms, std::move(done)));
}

void KineticDrive::AskUse(Terms terms, Callback<DriveUse> done) {
  link()->Submit(Status(), NewAskUse(terms, std::move(done)));
}

void KineticDrive::AskSlow(Terms terms, Callback<DriveSlow> done) {
  link()->Submit(Status(), NewAskSlow(terms, std::move(done)));
}

void KineticDrive::Info(Terms terms, Callback<DriveInfo> done) {
  link()->Submit(Status(), NewInfo(terms, std::move(done)));
}

void KineticDrive::GetNeighbour(std::string key, bool previous, Terms terms,
                                Callback<KeyedRecord> done) {
  link()->Submit(Status(), NewGetNeighbour(std::move(key), previous, terms, std::move(done)));
}

void KineticDrive::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  link()->Submit(Status(), NewSetClusterVersion(version, terms, std::move(done)));
}

}  // namespace pinstripe
