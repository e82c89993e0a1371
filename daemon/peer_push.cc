#include "daemon/peer_push.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/try.h"
#include "kinetic/connection.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "kinetic/operation.h"
#include "kinetic/tls.h"

namespace pinstripe {
namespace {

using kinetic::P2POperation;
using Code = kinetic::Status;

constexpr int kAtOnce = 16;
constexpr size_t kBytesAtOnce = 16 << 20;
constexpr size_t kMaxSentence = 160;  // of a status: many of them go into one answer

void SetShortStatus(const Status& status, kinetic::Status* answer) {
  SetStatus(status, answer);
  if (!status.ok())
    answer->set_statusmessage(std::string(status.message().substr(0, kMaxSentence)));
}

struct Extent {
  int depth = 0;
  int operations = 0;
};

Extent ExtentOf(const P2POperation& push, int depth) {
  Extent all{depth, push.operation_size()};
  // Deeper is refused anyway, and looked at no further.
  if (depth > kMaxPushDepth) return all;
  for (const P2POperation::Operation& each : push.operation()) {
    if (!each.has_p2pop()) continue;
    const Extent inner = ExtentOf(each.p2pop(), depth + 1);
    all.depth = std::max(all.depth, inner.depth);
    all.operations += inner.operations;
  }
  return all;
}

Status CheckPeer(const P2POperation& push) {
  const P2POperation::Peer& peer = push.peer();
  if (peer.hostname().empty() || peer.hostname().size() > 255) {
    return Fail(EINVAL, "a peer needs a name or an address of up to 255 bytes");
  }
  if (peer.port() == 0 || peer.port() > 65535)
    return Fail(EINVAL, "no port {} of a peer", peer.port());
  for (const P2POperation::Operation& each : push.operation()) {
    if (each.has_p2pop()) TRY(CheckPeer(each.p2pop()));
  }
  return {};
}

}  // namespace

Status PeerPush::Check(const P2POperation& push) {
  if (push.ByteSizeLong() > kMaxPushBytes) {
    return Fail(EINVAL, "a push of {} bytes; the limit is {}", push.ByteSizeLong(), kMaxPushBytes);
  }
  const Extent extent = ExtentOf(push, 1);
  if (extent.depth > kMaxPushDepth) {
    return Fail(EINVAL, "pushes within pushes, more than {} deep", kMaxPushDepth);
  }
  if (extent.operations > kMaxPushOperations) {
    return Fail(EINVAL, "{} operations in a push; the limit is {}", extent.operations,
                kMaxPushOperations);
  }
  return CheckPeer(push);
}

// What the connection has told, for the thread that works.
struct PeerPush::Arrivals {
  struct Arrival {
    int index;
    bool nested;
    Status status;
    std::unique_ptr<P2POperation> answer;  // of a nested push
  };

  void Add(Arrival arrival) {
    {
      const MutexLock lock(mutex);
      waiting.push_back(std::move(arrival));
    }
    signal->Set();
  }

  std::shared_ptr<Signal> signal;  // set before anything is asked
  Mutex mutex;
  std::deque<Arrival> waiting GUARDED_BY(mutex);
};

namespace {

using Arrived = std::function<void(Status, std::unique_ptr<P2POperation>)>;

// A put with everything that a record has, other than a drive's Put(): its algorithm, too.
class CopyOperation final : public KineticOperation {
 public:
  CopyOperation(const P2POperation::Operation& asked, StoredRecord record, Time deadline,
                Arrived done)
      : KineticOperation(kinetic::Header::PUT, Kind::kWrite, deadline),
        asked_(asked),
        record_(std::move(record)),
        done_(std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    kinetic::KeyValue* entry = body->mutable_keyvalue();
    entry->set_key(asked_.has_newkey() ? asked_.newkey() : asked_.key());
    entry->set_newversion(record_.head.version);
    entry->set_tag(record_.head.tag);
    if (record_.head.algorithm) entry->set_algorithm(*record_.head.algorithm);
    if (asked_.has_version() && !asked_.force()) {
      entry->set_dbversion(asked_.version());
    } else {
      entry->set_force(true);
    }
    entry->set_synchronization(kinetic::KeyValue::WRITETHROUGH);
  }
  SharedBytes value() const override { return record_.value; }
  void Finish(Result<KineticAnswer> answer) override {
    std::exchange(done_, nullptr)(answer.has_value() ? Status() : answer.error(), nullptr);
  }

 private:
  const P2POperation::Operation& asked_;
  const StoredRecord record_;
  Arrived done_;
};

class NestedPushOperation final : public KineticOperation {
 public:
  NestedPushOperation(const P2POperation& push, Time deadline, Arrived done)
      : KineticOperation(kinetic::Header::PEER2PEERPUSH, Kind::kWrite, deadline),
        push_(push),
        done_(std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    *body->mutable_p2poperation() = push_;
  }
  void Finish(Result<KineticAnswer> answer) override {
    const Arrived done = std::exchange(done_, nullptr);
    if (!answer.has_value()) return done(answer.error(), nullptr);
    auto pushed = std::make_unique<P2POperation>();
    pushed->Swap(answer->body->mutable_p2poperation());
    done({}, std::move(pushed));
  }

 private:
  const P2POperation& push_;
  Arrived done_;
};

}  // namespace

// A connection to the peer, or an attempt at each of its addresses.
class PeerPush::Link final : public KineticConnection::Owner,
                             public std::enable_shared_from_this<Link> {
 public:
  Link(KineticIo& io, const P2POperation::Peer& peer, const Asked& asked)
      : io_(io), loop_(io.NextLoop()), host_{peer.hostname(), std::to_string(peer.port())} {
    options_ = std::make_shared<KineticConnection::Options>(
        KineticConnection::Options{.drive = fmt::format("{} port {}", host_.host, host_.port),
                                   .identity = asked.identity,
                                   .key = asked.key,
                                   .bound = false});  // other people's records have any tags
    // Devices have certificates of their own making: what proves a peer is its signature.
    if (peer.tls()) tls_ = TlsClient::Create(/*authorities=*/"");
  }

  void Start(std::shared_ptr<Signal> signal) {
    signal_ = std::move(signal);
    if (!tls_.has_value()) return Become(State::kFailed, tls_.error());
    options_->tls = *tls_;
    io_.Resolve(host_, loop_, [self = shared_from_this()](auto found) {
      if (self->stopped_) return;
      if (!found.has_value()) return self->Become(State::kFailed, found.error());
      self->left_ = *std::move(found);
      self->TryNext(Fail(EHOSTUNREACH, "it has no address"));
    });
  }

  // Waits for the loop. What is outstanding is answered before.
  void Stop() {
    loop_.PostAndWait([this] {
      stopped_ = true;
      if (connection_) connection_->Close(Fail(EHOSTUNREACH, "the push has ended"));
      connection_.reset();
    });
  }

  // None: not known yet.
  std::optional<Status> Opened() {
    const MutexLock lock(mutex_);
    if (state_ == State::kConnecting) return std::nullopt;
    return state_ == State::kOpen ? Status() : failure_;
  }

  void Submit(KineticOperationPtr operation) {
    loop_.Post([self = shared_from_this(), operation = std::move(operation)] {
      if (self->connection_) return self->connection_->Submit(operation);
      operation->Finish(Fail(EHOSTUNREACH, "{}: the connection is lost", self->options_->drive));
    });
  }

  void OnGreeting() override { Become(State::kOpen, {}); }
  void OnLost(const Status& why) override {
    connection_.reset();
    const bool greeted = Opened().has_value();
    if (!greeted) TryNext(why);
  }

 private:
  enum class State { kConnecting, kOpen, kFailed };

  void TryNext(Status failure) {
    while (!left_.empty()) {
      const SocketAddress address = left_.front();
      left_.erase(left_.begin());
      auto connection = KineticConnection::Start(loop_, host_.host, address, options_, *this);
      if (connection.has_value()) {
        connection_ = *std::move(connection);
        return;
      }
      failure = connection.error();
    }
    Become(State::kFailed, failure);
  }

  void Become(State state, const Status& failure) {
    {
      const MutexLock lock(mutex_);
      state_ = state;
      failure_ = failure;
    }
    signal_->Set();
  }

  KineticIo& io_;
  IoLoop& loop_;
  const HostAndPort host_;
  std::shared_ptr<KineticConnection::Options> options_;  // constant once it is used
  Result<std::shared_ptr<const TlsClient>> tls_{nullptr};
  std::shared_ptr<Signal> signal_;

  // Used by the loop's thread alone:
  std::vector<SocketAddress> left_;
  std::shared_ptr<KineticConnection> connection_;
  bool stopped_ = false;

  Mutex mutex_;
  State state_ GUARDED_BY(mutex_) = State::kConnecting;
  Status failure_ GUARDED_BY(mutex_);
};

PeerPush::PeerPush(Runtime& runtime, KineticIo& io, Engine& engine, Asked asked,
                   const P2POperation& request, kinetic::Command* answer)
    : runtime_(runtime),
      engine_(engine),
      asked_(std::move(asked)),
      request_(request),
      answer_(answer),
      link_(std::make_shared<Link>(io, request.peer(), asked_)),
      arrivals_(std::make_shared<Arrivals>()) {}

PeerPush::~PeerPush() { link_->Stop(); }

bool PeerPush::Work(Time, Cancellation& cancellation) {
  arrivals_->signal = cancellation.signal();
  link_->Start(cancellation.signal());
  const Status connected = Connect(cancellation);
  if (!connected.ok()) {
    kinetic::Status* status = answer_->mutable_status();
    SetShortStatus(connected, status);
    if (connected.code() == EHOSTUNREACH) status->set_code(Code::REMOTE_CONNECTION_ERROR);
    return true;
  }
  PushAll(cancellation);
  return true;
}

Status PeerPush::Connect(Cancellation& cancellation) {
  const Time give_up = std::min(asked_.expiry, runtime_.Now() + kConnectTime);
  while (true) {
    if (const auto opened = link_->Opened()) {
      if (opened->ok()) return {};
      return Fail(EHOSTUNREACH, "the peer cannot be reached: {}", opened->message());
    }
    if (cancellation.ended() || runtime_.Now() >= give_up) {
      return Fail(EHOSTUNREACH, "the peer did not answer in time");
    }
    cancellation.signal()->WaitUntil(give_up);
  }
}

void PeerPush::PushAll(Cancellation& cancellation) {
  P2POperation* pushed = answer_->mutable_body()->mutable_p2poperation();
  for (const P2POperation::Operation& each : request_.operation()) {
    P2POperation::Operation* operation = pushed->add_operation();
    operation->set_key(each.key());
    if (each.has_version()) operation->set_version(each.version());
    if (each.has_force()) operation->set_force(each.force());
    if (each.has_newkey()) operation->set_newkey(each.newkey());
    operation->mutable_status()->set_code(Code::NOT_ATTEMPTED);
  }
  value_bytes_.resize(static_cast<size_t>(request_.operation_size()));
  int next = 0;
  const auto ended = [&] { return cancellation.ended() || runtime_.Now() >= asked_.expiry; };
  while (!ended()) {
    while (next < request_.operation_size() && under_way_ < kAtOnce &&
           bytes_under_way_ < kBytesAtOnce && !ended()) {
      Start(next++);
    }
    std::deque<Arrivals::Arrival> arrived;
    {
      const MutexLock lock(arrivals_->mutex);
      arrived.swap(arrivals_->waiting);
    }
    for (Arrivals::Arrival& each : arrived) {
      if (each.answer) {
        pushed->mutable_operation(each.index)->mutable_p2pop()->Swap(each.answer.get());
      }
      Arrive(each.index, each.nested, each.status);
    }
    if (under_way_ == 0 && next == request_.operation_size()) return SumUp(/*expired=*/false);
    if (arrived.empty()) cancellation.signal()->WaitUntil(asked_.expiry);
  }
  SumUp(/*expired=*/true);
}

void PeerPush::Start(int index) {
  const P2POperation::Operation& asked = request_.operation(index);
  const Status may = asked_.may_read(asked.key());
  if (!may.ok()) return Settle(index, may);
  Result<StoredRecord> record = engine_.Get(asked.key());
  if (!record.has_value()) return Settle(index, record.error());
  ++under_way_;
  value_bytes_[static_cast<size_t>(index)] = record->value.size();
  bytes_under_way_ += record->value.size();
  const auto done = [arrivals = arrivals_, index](Status status, auto) {
    arrivals->Add({index, /*nested=*/false, std::move(status), nullptr});
  };
  // Until it has its answer.
  answer_->mutable_body()
      ->mutable_p2poperation()
      ->mutable_operation(index)
      ->mutable_status()
      ->set_code(Code::EXPIRED);
  link_->Submit(std::make_shared<CopyOperation>(asked, *std::move(record), asked_.expiry, done));
}

void PeerPush::Arrive(int index, bool nested, const Status& status) {
  --under_way_;
  bytes_under_way_ -= std::exchange(value_bytes_[static_cast<size_t>(index)], 0);
  if (!status.ok() || nested || !request_.operation(index).has_p2pop()) {
    return Settle(index, status);
  }
  StartNested(index);
}

void PeerPush::StartNested(int index) {
  ++under_way_;
  const auto done = [arrivals = arrivals_, index](Status status,
                                                  std::unique_ptr<P2POperation> answer) {
    arrivals->Add({index, /*nested=*/true, std::move(status), std::move(answer)});
  };
  link_->Submit(std::make_shared<NestedPushOperation>(request_.operation(index).p2pop(),
                                                      asked_.expiry, done));
}

void PeerPush::Settle(int index, const Status& status) {
  P2POperation::Operation* operation =
      answer_->mutable_body()->mutable_p2poperation()->mutable_operation(index);
  SetShortStatus(status, operation->mutable_status());
  if (status.code() == EHOSTUNREACH) {
    operation->mutable_status()->set_code(Code::REMOTE_CONNECTION_ERROR);
  }
  if (status.ok() && operation->has_p2pop() && !operation->p2pop().allchildoperationssucceeded()) {
    operation->mutable_status()->set_code(Code::NESTED_OPERATION_ERRORS);
  }
}

void PeerPush::SumUp(bool expired) {
  P2POperation* pushed = answer_->mutable_body()->mutable_p2poperation();
  bool all = true;
  for (P2POperation::Operation& each : *pushed->mutable_operation()) {
    all = all && each.status().code() == Code::SUCCESS;
    // A peer may have said anything at all about a nested push.
    if (each.p2pop().ByteSizeLong() > kMaxPushBytes) each.clear_p2pop();
  }
  pushed->set_allchildoperationssucceeded(all);
  if (pushed->ByteSizeLong() > kMaxMessageBytes - 4096) {
    for (P2POperation::Operation& each : *pushed->mutable_operation()) each.clear_p2pop();
  }
  SetShortStatus(expired ? Fail(ETIMEDOUT, "the push was not finished in time") : Status(),
                 answer_->mutable_status());
}

}  // namespace pinstripe
