#include "kinetic/connection.h"

#include <sys/uio.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "kinetic/get_operation.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "kinetic/put_operation.h"
#include "kinetic/shared_connections.h"
#include "kinetic/together.h"

namespace pinstripe {
namespace {

using Kind = KineticOperation::Kind;

constexpr size_t kBatch = SendQueue::kAtOnce;  // operations encoded at a time
constexpr int kBatchesForOthers = 8;  // that a submitting thread sends before the loop takes over
constexpr int kReadsAtOnce = 16;      // before the loop looks after other connections
constexpr Duration kBusyDelay = std::chrono::milliseconds(20);
constexpr int kMostAllowances = 4;  // of an operation, while other answers come
constexpr Duration kLongestAllowance = std::chrono::minutes(10);
constexpr Duration kBeforeRaisingAgain = std::chrono::seconds(1);
constexpr uint32_t kEvents = EPOLLIN | EPOLLRDHUP;

uint32_t Limit(bool given, uint32_t limit, uint32_t ours) {
  return given && limit > 0 ? std::min(limit, ours) : ours;
}

}  // namespace

struct KineticConnection::Scratch {
  kinetic::Message message;
  kinetic::Command command;
};

// An answer that is not believed yet.
struct KineticConnection::Unconfirmed {
  KineticOperationPtr operation;
  Status status;
  kinetic::Body body;
  Buffer value;
};

Result<std::shared_ptr<KineticConnection>> KineticConnection::Start(
    IoLoop& loop, const std::string& host, const SocketAddress& address,
    std::shared_ptr<const Options> options, Owner& owner, SharedConnections* shared) {
  if (shared == nullptr) {
    DriveSocket socket = TRY(DriveSocket::Connect(address, host, options->tls.get()));
    auto connection =
        std::make_shared<KineticConnection>(loop, std::move(socket), std::move(options), owner);
    connection->socket_.Watch(loop, EPOLLOUT, connection);
    return connection;
  }
  auto connection = std::make_shared<KineticConnection>(loop, DriveSocket(), options, owner);
  const std::weak_ptr<KineticConnection> weak = connection;
  shared->Connect({.address = address,
                   .host = host,
                   .tls = options->tls,
                   .drive = options->drive,
                   .asker = weak,
                   .done = [weak](Result<DriveSocket> socket) {
                     if (const auto self = weak.lock()) self->OnSocket(std::move(socket));
                   }});
  return connection;
}

KineticConnection::KineticConnection(IoLoop& loop, DriveSocket socket,
                                     std::shared_ptr<const Options> options, Owner& owner)
    : loop_(loop),
      socket_(std::move(socket)),
      options_(std::move(options)),
      owner_(owner),
      timer_(loop, [this] { OnTimer(); }),
      received_(std::make_unique<Scratch>()),
      encoded_(std::make_unique<Scratch>()),
      last_sequence_(loop.runtime().Random() >> 2) {}  // 2^62 more fit into a signed number

KineticConnection::~KineticConnection() = default;

void KineticConnection::SetCapabilities(DriveCapabilities capabilities) {
  capabilities_ = capabilities;
}

void KineticConnection::SetIdentity(std::string key, RecordHead head) {
  identity_key_ = std::move(key);
  identity_head_ = std::move(head);
}

// --- Submitting and sending

void KineticConnection::Submit(KineticOperationPtr operation) {
  if (Status can = operation->CheckCapabilities(capabilities_); !can.ok()) {
    loop_.Post([operation = std::move(operation), why = can.OfDrive(options_->drive)] {
      operation->Finish(tl::unexpected(why));
    });
    return;
  }
  const Time deadline = operation->deadline();
  // Answers that ask for more are followed by one call for all that they asked.
  const bool from_answer = loop_.on_loop_thread() && receiving_;
  const bool held = !from_answer && SendTogether::Defers(shared_from_this());
  bool rearm = false;
  {
    const MutexLock lock(mutex_);
    if (closed_) {
      loop_.Post([operation = std::move(operation), why = closed_status_] {
        operation->Finish(tl::unexpected(why));
      });
      return;
    }
    if (deadline < wake_) {
      wake_ = deadline;
      rearm = true;
    }
    if (held) {
      held_.push_back({std::this_thread::get_id(), std::move(operation)});
    } else {
      waiting(operation->kind()).push_back(std::move(operation));
    }
  }
  if (rearm) loop_.Post([self = shared_from_this()] { self->ArmTimer(); });
  if (!from_answer && !held) Pump();
}

// What this thread has held back goes out in one piece: nobody has sent a part of it meanwhile.
void KineticConnection::SendWaiting() {
  {
    const MutexLock lock(mutex_);
    std::erase_if(held_, [&, thread = std::this_thread::get_id()](Held& each) {
      mutex_.AssertHeld();
      if (each.thread != thread) return false;
      const Kind kind = each.operation->kind();
      waiting(kind).push_back(std::move(each.operation));
      return true;
    });
  }
  Pump();
}

// Sends what may be sent, unless somebody is doing that already.
void KineticConnection::Pump() {
  {
    const MutexLock lock(mutex_);
    if (sending_) return;
    sending_ = true;
  }
  SendAll();
}

// With sending_ set by the caller; when it returns, it has been cleared or passed on.
void KineticConnection::SendAll() {
  for (int batches = 0;; ++batches) {
    std::vector<Numbered> batch;
    {
      const MutexLock lock(mutex_);
      if (closed_) {
        sending_ = false;
        return;
      }
      if (batches == kBatchesForOthers && !loop_.on_loop_thread()) {
        return loop_.Post([self = shared_from_this()] { self->SendAll(); });
      }
      batch = TakeBatch();
      if (batch.empty() && outgoing_.empty()) {
        sending_ = false;
        return;
      }
    }
    for (const Numbered& each : batch) outgoing_.Add(Encode(each));
    const SendQueue::Written written = outgoing_.WriteTo(socket_);
    if (written == SendQueue::Written::kFailed) {
      // The receiving side finds the end, after what the peer had still to say, and ends it all.
      socket_.Shut();
      const MutexLock lock(mutex_);
      sending_ = false;
      return;
    }
    if (written == SendQueue::Written::kAll) continue;
    {
      const MutexLock lock(mutex_);
      blocked_ = true;
    }
    return socket_.Change(kEvents | EPOLLOUT);
  }
}

// Operations that the device's limits allow now, numbered, oldest first of each kind.
std::vector<KineticConnection::Numbered> KineticConnection::TakeBatch() {
  std::vector<Numbered> batch;
  const Time now = loop_.runtime().Now();
  for (const Kind kind : {Kind::kRead, Kind::kWrite}) {
    const uint32_t limit = limits_[static_cast<int>(kind)];
    while (!waiting(kind).empty() && batch.size() < kBatch) {
      const uint32_t room = limit - std::min(limit, in_flight(kind));
      if (room == 0) break;
      KineticOperationPtr operation = TakeNext(waiting(kind), capabilities_, room);
      const uint32_t places = PlacesOf(*operation);
      in_flight(kind) += places;
      const uint64_t sequence = ++last_sequence_;
      const Time deadline = operation->deadline();
      const Duration allowance = std::min(deadline - now, kLongestAllowance);
      const Time latest = now + kMostAllowances * allowance;
      sent_.emplace(sequence, Sent{operation, kind, deadline, allowance, now, latest, places});
      batch.push_back({sequence, std::move(operation)});
    }
  }
  return batch;
}

SendQueue::Message KineticConnection::Encode(const Numbered& numbered) {
  const KineticOperation& operation = *numbered.operation;
  kinetic::Command& command = encoded_->command;
  command.Clear();
  kinetic::Header* header = command.mutable_header();
  header->set_clusterversion(operation.terms().cluster_version.value_or(cluster_version_));
  header->set_connectionid(connection_id_);
  if (options_->bound) header->set_bound(true);
  if (capabilities_.unerased) header->set_unerased(true);
  header->set_sequence(numbered.sequence);
  header->set_messagetype(static_cast<kinetic::Header::MessageType>(operation.message_type()));
  operation.Describe(capabilities_, command.mutable_body());
  SharedBytes value = operation.value();
  std::string head = SignedFrame(command, options_->identity, options_->key, value.size());
  return {std::move(head), std::move(value)};
}

// --- Receiving

void KineticConnection::OnReady(uint32_t epoll_events) {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kConnecting) return GoOnConnecting();
  const bool tls_may_read = socket_.read_wants_write();
  if (epoll_events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) || tls_may_read) Receive();
  if (!(epoll_events & EPOLLOUT) || phase_ == Phase::kClosed) return;
  {
    const MutexLock lock(mutex_);
    if (!std::exchange(blocked_, false)) return;
  }
  socket_.Change(kEvents);
  SendAll();
}

void KineticConnection::OnSocket(Result<DriveSocket> socket) {
  if (phase_ == Phase::kClosed) return;
  if (!socket) return Lose(socket.error());
  socket_ = *std::move(socket);
  socket_.Watch(loop_, EPOLLOUT, shared_from_this());
  if (socket_.is_ready()) GoOnConnecting();
}

void KineticConnection::GoOnConnecting() {
  const Result<TlsStream::Step> step = socket_.GoOn(options_->drive);
  if (!step) return Lose(step.error());
  switch (*step) {
    case TlsStream::Step::kWantsRead: return socket_.Change(kEvents);
    case TlsStream::Step::kWantsWrite: return socket_.Change(EPOLLOUT);
    case TlsStream::Step::kDone: break;
  }
  phase_ = Phase::kGreeting;
  socket_.Change(kEvents);
  // The greeting may have come with the peer's last word of the handshake.
  if (socket_.reads_ahead()) Receive();
}

void KineticConnection::Receive() {
  bool more = true;
  receiving_ = true;
  for (int reads = 0; more && reads < kReadsAtOnce; ++reads) {
    const Status status = ReceiveSome(&more);
    if (phase_ == Phase::kClosed) return;
    if (!status.ok()) return Lose(status);
  }
  receiving_ = false;
  // What TLS has already taken from the socket, epoll does not tell.
  if (more && socket_.reads_ahead()) {
    loop_.Post([self = shared_from_this()] { self->OnReady(EPOLLIN); });
  }
  Pump();  // answers have made room for what waits
}

// One read, and the frames that it completed. `more`: there may be something left to read.
Status KineticConnection::ReceiveSome(bool* more) {
  iovec space[2];
  const int spaces = reader_.Space(space);
  const size_t room = space[0].iov_len + (spaces > 1 ? space[1].iov_len : 0);
  const ssize_t got = socket_.Read(space, spaces);
  if (got < 0) {
    *more = errno == EINTR;
    if (errno == EINTR || errno == EAGAIN) return {};
    return Fail(EHOSTUNREACH, "{}", ErrnoText(errno));
  }
  if (got == 0) return Fail(EHOSTUNREACH, "the drive closed the connection");
  *more = static_cast<size_t>(got) == room || socket_.may_have_more();
  reader_.Filled(static_cast<size_t>(got));
  last_received_ = loop_.runtime().Now();
  while (std::optional<Frame> frame = TRY(reader_.Next())) {
    TRY(HandleFrame(*std::move(frame)));
    if (phase_ == Phase::kClosed) return {};
  }
  return {};
}

Status KineticConnection::HandleFrame(Frame frame) {
  if (frame.value_dropped) {
    return Fail(EBADMSG, "it sent a value of {} bytes; the limit is {}", frame.value_bytes,
                kMaxValueBytes);
  }
  TRY(ParseMessage(frame.message, &received_->message));
  TRY(ParseCommand(received_->message, &received_->command));
  if (phase_ == Phase::kGreeting) return HandleGreeting();
  return HandleAnswer(std::move(frame));
}

Status KineticConnection::HandleGreeting() {
  if (received_->message.authtype() != kinetic::Message::UNSOLICITEDSTATUS) {
    return Fail(EBADMSG, "it began with something else than a greeting");
  }
  const kinetic::Command& command = received_->command;
  if (command.has_status()) TRY(StatusOfAnswer(command.status()));
  const kinetic::GetLog::Limits& limits = command.body().getlog().limits();
  if (limits.has_maxkeyrangecount() && limits.maxkeyrangecount() < kMaxRangeKeys) {
    return Fail(ENOTSUP, "it lists at most {} keys at a time; {} are needed",
                limits.maxkeyrangecount(), kMaxRangeKeys);
  }
  connection_id_ = command.header().connectionid();
  if (connection_id_ == 0) return Fail(EBADMSG, "its greeting does not number the connection");
  cluster_version_ = command.header().clusterversion();
  limits_[static_cast<int>(Kind::kRead)] =
      Limit(limits.has_maxoutstandingreadrequests(), limits.maxoutstandingreadrequests(),
            options_->max_in_flight);
  limits_[static_cast<int>(Kind::kWrite)] =
      Limit(limits.has_maxoutstandingwriterequests(), limits.maxoutstandingwriterequests(),
            options_->max_in_flight);
  phase_ = Phase::kOpen;
  owner_.OnGreeting();
  return {};
}

Status KineticConnection::CheckSignature() const {
  const kinetic::Message& message = received_->message;
  const kinetic::Status& status = received_->command.status();
  if (message.authtype() == kinetic::Message::UNSOLICITEDSTATUS) {
    const Status last_words = StatusOfAnswer(status);
    if (!last_words.ok()) return Status(EHOSTUNREACH, std::string(last_words.message()));
    return Fail(EHOSTUNREACH, "it ended the connection without saying why");
  }
  // Whether it is signed or not: without a common key nothing else can be said.
  if (status.code() == kinetic::Status::HMAC_FAILURE) return StatusOfAnswer(status);
  if (message.hmacauth().identity() != options_->identity || !Authentic(message, options_->key)) {
    return Fail(EBADMSG, "its answer is not signed with our key");
  }
  return {};
}

// A device that knows nothing of it may leave the number out.
Status KineticConnection::CheckConnection(int64_t id) const {
  if (id == connection_id_ || (id == 0 && !capabilities_.bound)) return {};
  return Fail(EBADMSG,
              "it answered on connection {:x} with what was said on connection {:x}; does somebody "
              "between us and the drive repeat it?",
              connection_id_, id);
}

Status KineticConnection::HandleAnswer(Frame frame) {
  TRY(CheckSignature());
  kinetic::Command& command = received_->command;
  const kinetic::Header& header = command.header();
  TRY(CheckConnection(header.connectionid()));
  if (!header.has_acksequence()) return Fail(EBADMSG, "it answered without saying what");
  Sent sent;
  {
    const MutexLock lock(mutex_);
    const auto found = sent_.find(header.acksequence());
    if (found == sent_.end()) return Fail(EBADMSG, "it answered what nobody had asked");
    sent = std::move(found->second);
    sent_.erase(found);
    in_flight(sent.kind) -= sent.places;
  }
  if (!sent.operation) return {};
  NoteWaited(header.acksequence(), sent, last_received_, /*answered=*/true);
  KineticOperation& operation = *sent.operation;
  if (header.messagetype() != operation.message_type() - 1) {
    const Status why = Fail(EBADMSG, "it answered a request of type {} with one of type {}",
                            operation.message_type(), static_cast<int>(header.messagetype()));
    FailAll({sent.operation}, Away(why));
    return why;
  }
  if (command.status().code() == kinetic::Status::SERVICE_BUSY) {
    RetryLater(std::move(sent.operation));
    return {};
  }
  if (command.status().code() == kinetic::Status::VERSION_FAILURE) {
    if (header.has_clusterversion()) cluster_version_ = header.clusterversion();
    HandleOtherVersion(std::move(sent.operation));
    return {};
  }
  const Status status = StatusOfAnswer(command.status());
  Count(sent, status, frame.value.size());
  if (command.status().code() == kinetic::Status::CONNECTION_TERMINATED) {
    const Status why(EHOSTUNREACH, std::string(status.message()));
    FailAll({sent.operation}, Away(why));
    return why;
  }
  if (!capabilities_.unerased && !identity_key_.empty() && operation.MayBeOfEmptied(status)) {
    FinishWhenConfirmed(std::move(sent.operation), status, std::move(frame.value));
    return {};
  }
  if (!status.ok()) {
    operation.Finish(tl::unexpected(status.OfDrive(options_->drive)));
  } else {
    operation.Finish(KineticAnswer{.body = command.mutable_body(),
                                   .value = std::move(frame.value),
                                   .capabilities = capabilities_,
                                   .drive = options_->drive});
  }
  return {};
}

void KineticConnection::Count(const Sent& sent, const Status& status, size_t value_bytes) const {
  const std::span<const KineticOperationPtr> parts = sent.operation->parts();
  if (parts.empty()) return CountOne(sent, *sent.operation, status, value_bytes);
  if (parts[0]->small_get() != nullptr) return CountGets(sent, status);
  const kinetic::Puts& told = received_->command.body().puts();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Status put = status.ok() ? StatusOfPut(told, i, parts.size()) : status;
    CountOne(sent, *parts[i], put, 0);
    if (put.ok() && parts[i]->then_get() != nullptr && capabilities_.then_gets) {
      options_->times->reads.Add(last_received_ - sent.when);
      const size_t bytes = told.records(static_cast<int>(i)).read().valuebytes();
      options_->times->read_bytes.fetch_add(std::min(bytes, kMostThenGetBytes),
                                            std::memory_order_relaxed);
    }
  }
}

void KineticConnection::CountGets(const Sent& sent, const Status& status) const {
  const std::span<const KineticOperationPtr> parts = sent.operation->parts();
  const kinetic::Gets& told = received_->command.body().gets();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Status get = status.ok() ? StatusOfGet(told, i, parts.size()) : status;
    // There was no room for it: it goes alone, and counts then.
    if (status.ok() && told.reads_size() == static_cast<int>(parts.size()) &&
        told.reads(static_cast<int>(i)).status().code() == kinetic::Status::SERVICE_BUSY) {
      continue;
    }
    const size_t bytes = get.ok() ? told.reads(static_cast<int>(i)).valuebytes() : 0;
    CountOne(sent, *parts[i], get, std::min(bytes, kMostGetBytes));
  }
}

void KineticConnection::CountOne(const Sent& sent, const KineticOperation& operation,
                                 const Status& status, size_t value_bytes) const {
  DriveTimes& times = *options_->times;
  const bool reads = sent.kind == Kind::kRead;
  (reads ? times.reads : times.writes).Add(last_received_ - sent.when);
  // That something is not there, or another version is, is an answer like others.
  if (!status.ok() && status.code() != ENOENT && status.code() != ESTALE &&
      status.code() != ECANCELED) {
    times.failures.fetch_add(1, std::memory_order_relaxed);
  }
  if (!status.ok()) return;
  (reads ? times.read_bytes : times.written_bytes)
      .fetch_add(reads ? value_bytes : operation.value().size(), std::memory_order_relaxed);
}

void KineticConnection::NoteWaited(uint64_t sequence, const Sent& sent, Time until,
                                   bool answered) const {
  const Duration took = until - sent.when;
  if (took < OperationTrace::kLong) return;
  ForEachPart(*sent.operation, [&](const KineticOperation& each) {
    if (each.asked_by() == 0) return;
    options_->waited->Note(each.asked_by(), {.connection = static_cast<uint64_t>(connection_id_),
                                             .sequence = sequence,
                                             .type = sent.operation->message_type(),
                                             .took = took,
                                             .answered = answered});
  });
}

void KineticConnection::AddUnanswered(std::span<const uint64_t> operations,
                                      std::vector<WaitedRequest>* unanswered) {
  const Time now = loop_.runtime().Now();
  const MutexLock lock(mutex_);
  for (const auto& [sequence, sent] : sent_) {
    if (!sent.operation) continue;
    bool asked = false;
    ForEachPart(*sent.operation, [&](const KineticOperation& each) {
      asked = asked || std::ranges::find(operations, each.asked_by()) != operations.end();
    });
    if (!asked) continue;
    unanswered->push_back({.connection = static_cast<uint64_t>(connection_id_),
                           .sequence = sequence,
                           .type = sent.operation->message_type(),
                           .took = now - sent.when,
                           .answered = false});
  }
}

// Asks only now, since only what is asked after the answer says what the device was at that time.
void KineticConnection::FinishWhenConfirmed(KineticOperationPtr operation, const Status& status,
                                            Buffer value) {
  const Terms terms(operation->deadline());
  auto answer = std::make_shared<Unconfirmed>();
  answer->operation = std::move(operation);
  answer->status = status;
  answer->body.Swap(received_->command.mutable_body());
  answer->value = std::move(value);
  Submit(NewHeadOfIdentity(identity_key_, terms,
                           [self = shared_from_this(), answer](const Result<RecordHead>& identity) {
                             self->Confirm(*answer, identity);
                           }));
}

void KineticConnection::Confirm(Unconfirmed& answer, const Result<RecordHead>& identity) {
  KineticOperation& operation = *answer.operation;
  const int code = identity.has_value() ? 0 : identity.error().code();
  const bool is_the_same = identity.has_value() && identity->version == identity_head_.version &&
                           identity->tag == identity_head_.tag;
  if (is_the_same && answer.status.ok()) {
    operation.Finish(KineticAnswer{.body = &answer.body,
                                   .value = std::move(answer.value),
                                   .capabilities = capabilities_,
                                   .drive = options_->drive});
  } else if (is_the_same) {
    operation.Finish(tl::unexpected(answer.status.OfDrive(options_->drive)));
  } else if (code != 0 && code != ENOENT) {
    operation.Finish(tl::unexpected(identity.error()));
  } else {
    const Status why = Fail(EHOSTUNREACH, "it was erased or replaced while we were connected");
    Lose(why);  // first: who hears of it sends nothing more on this connection
    FailAll({answer.operation}, Away(why));
  }
}

void KineticConnection::RetryLater(KineticOperationPtr operation) {
  Runtime& runtime = loop_.runtime();
  const Duration jitter(runtime.Random() % kBusyDelay.count());
  const Time when = std::min(runtime.Now() + kBusyDelay + jitter, operation->deadline());
  {
    const MutexLock lock(mutex_);
    delayed_.push_back({when, std::move(operation)});
    wake_ = std::min(wake_, when);
  }
  ArmTimer();
}

// The device refused an operation because of its cluster version, and executed nothing of it.
void KineticConnection::HandleOtherVersion(KineticOperationPtr operation) {
  const std::optional<int64_t> wanted = operation->terms().cluster_version;
  if (!wanted.has_value()) return RetryLater(std::move(operation));  // under what it has now
  if (cluster_version_ > *wanted || operation->message_type() == kinetic::Header::SETUP) {
    return operation->Finish(Fail(EREMCHG, "{}: it has cluster version {}, the request {}",
                                  options_->drive, cluster_version_.load(), *wanted));
  }
  if (!cannot_raise_.ok() && loop_.runtime().Now() < ask_to_raise_again_) {
    return operation->Finish(
        Fail(EHOSTUNREACH, "{}: it has cluster version {} and cannot be brought to {}: {}",
             options_->drive, cluster_version_.load(), *wanted, cannot_raise_.message()));
  }
  RaiseVersion(*wanted);
  RetryLater(std::move(operation));
}

// Requires the version that the device has, so that whatever others do meanwhile it is never
// lowered.
void KineticConnection::RaiseVersion(int64_t version) {
  if (raising_to_.has_value() && *raising_to_ >= version) return;
  raising_to_ = version;
  const Terms terms(loop_.runtime().Now() + options_->patience, cluster_version_.load());
  Submit(NewSetClusterVersion(
      version, terms, [weak = weak_from_this(), version](const Status& status) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        // A later one may have been asked for meanwhile.
        if (self->raising_to_ == version) self->raising_to_.reset();
        if (status.ok()) {
          if (self->cluster_version_ < version) self->cluster_version_ = version;
          self->cannot_raise_ = {};
        } else if (status.code() == EACCES || status.code() == EINVAL || status.code() == ENOTSUP) {
          self->cannot_raise_ = status;
          self->ask_to_raise_again_ = self->loop_.runtime().Now() + kBeforeRaisingAgain;
        }
      }));
}

// --- Deadlines

void KineticConnection::ArmTimer() {
  const MutexLock lock(mutex_);
  if (!closed_ && wake_ != Time::max()) timer_.Arm(wake_);
}

// Looks through everything that is outstanding. That happens about once per deadline, not once per
// operation, because wake_ is left alone when an operation is answered.
void KineticConnection::OnTimer() {
  const Time now = loop_.runtime().Now();
  std::vector<KineticOperationPtr> expired;
  bool dead = false;
  {
    const MutexLock lock(mutex_);
    Time next = Time::max();
    const auto expire = [&](KineticOperationPtr& operation, Time when) {
      if (when > now) {
        next = std::min(next, when);
        return false;
      }
      if (operation->deadline() <= now) expired.push_back(std::move(operation));
      return true;
    };
    for (auto& queue : waiting_) {
      std::erase_if(queue, [&](auto& each) { return expire(each, each->deadline()); });
    }
    std::erase_if(held_,
                  [&](Held& each) { return expire(each.operation, each.operation->deadline()); });
    std::erase_if(delayed_, [&](Delayed& each) {
      mutex_.AssertHeld();
      if (!expire(each.operation, each.when)) return false;
      if (!each.operation) return true;
      auto& queue = waiting(each.operation->kind());
      // Those that went together go as the places in the limits allow now, one by one if need be.
      const std::span<const KineticOperationPtr> parts = each.operation->parts();
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        KineticOperationPtr again = *part;
        if (expire(again, again->deadline())) continue;
        queue.push_front(std::move(again));
      }
      if (!parts.empty()) return true;
      next = std::min(next, each.operation->deadline());
      queue.push_front(std::move(each.operation));
      return true;
    });
    for (auto& [sequence, each] : sent_) {
      // As long as something comes from the device it is slow, and not silent.
      if (each.operation && each.deadline <= now) {
        each.deadline =
            std::max(each.deadline, std::min(last_received_ + each.allowance, each.latest));
      }
      // Once it has timed out, its place in the limits is taken until the answer comes.
      if (each.operation && each.deadline <= now) NoteWaited(sequence, each, now, false);
      if (each.operation) expire(each.operation, each.deadline);
      if (each.operation) continue;
      const Time patience_ends = each.deadline + options_->patience;
      dead = dead || patience_ends <= now;
      next = std::min(next, patience_ends);
    }
    wake_ = next;
  }
  ArmTimer();
  const auto self = shared_from_this();  // who hears of one may let go of the connection
  for (KineticOperationPtr& each : expired) {
    options_->times->timeouts.fetch_add(PlacesOf(*each), std::memory_order_relaxed);
    each->Finish(tl::unexpected(Status(ETIMEDOUT, "no answer in time").OfDrive(options_->drive)));
  }
  if (phase_ == Phase::kClosed) return;
  if (dead) return Lose(Fail(EHOSTUNREACH, "it accepts requests but does not answer them"));
  Pump();
}

// --- The end

void KineticConnection::Lose(const Status& why) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  const Status status = Away(why);
  std::vector<KineticOperationPtr> operations = Shut(status);
  owner_.OnLost(why);
  FailAll(std::move(operations), status);
}

bool KineticConnection::IsIdle() {
  const MutexLock lock(mutex_);
  const auto is_empty = [](const auto& queue) { return queue.empty(); };
  return sent_.empty() && held_.empty() && delayed_.empty() && !sending_ && !blocked_ &&
         std::ranges::all_of(waiting_, is_empty);
}

void KineticConnection::Close(const Status& why) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  const Status status = Away(why);
  FailAll(Shut(status), status);
}

Status KineticConnection::Away(const Status& why) const {
  return Status(EHOSTUNREACH, std::string(why.message())).OfDrive(options_->drive);
}

// Whoever is sending still has the socket: it is shut down here, and closed when nobody uses it.
std::vector<KineticOperationPtr> KineticConnection::Shut(const Status& status) {
  phase_ = Phase::kClosed;
  timer_.Cancel();
  socket_.Unwatch();
  socket_.End();
  std::vector<KineticOperationPtr> operations;
  const MutexLock lock(mutex_);
  closed_ = true;
  closed_status_ = status;
  const Time now = loop_.runtime().Now();
  for (auto& [sequence, sent] : sent_) {
    if (!sent.operation) continue;
    NoteWaited(sequence, sent, now, /*answered=*/false);
    operations.push_back(std::move(sent.operation));
  }
  for (Held& each : held_) operations.push_back(std::move(each.operation));
  for (Delayed& each : delayed_) operations.push_back(std::move(each.operation));
  for (auto& queue : waiting_) {
    for (KineticOperationPtr& each : queue) operations.push_back(std::move(each));
    queue.clear();
  }
  sent_.clear();
  held_.clear();
  delayed_.clear();
  return operations;
}

void KineticConnection::FailAll(std::vector<KineticOperationPtr> operations, const Status& status) {
  for (KineticOperationPtr& each : operations) each->Finish(tl::unexpected(status));
}

}  // namespace pinstripe
