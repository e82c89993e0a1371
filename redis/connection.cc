#include "redis/connection.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/try.h"
#include "redis/server_check.h"

namespace pinstripe {
namespace {

constexpr int kReadsAtOnce = 16;  // before the loop looks after other connections
constexpr size_t kReadBytes = 256 << 10;
constexpr int kMostAllowances = 4;  // of an operation, while other answers come
constexpr Duration kLongestAllowance = std::chrono::minutes(10);
constexpr uint32_t kEvents = EPOLLIN | EPOLLRDHUP;

std::string_view FirstWord(const RedisReply& reply) {
  const SharedBytes* word = reply.TextAt(0);
  return word == nullptr ? std::string_view() : word->text();
}

Status StatusOfError(const RedisOperation& operation, const RedisReply& reply) {
  const Status status = StatusOfRedisError(reply.text());
  if (!operation.is_secret) return status;
  return Fail(EACCES, "it refuses user and password, or wants none ({})",
              StatusOfRedisError(reply.text().substr(0, reply.text().find(' '))).message());
}

// A reply after which nothing more is to be asked on this connection. Success: there is none such.
Status WhyUnusable(const RedisOperation& operation, const RedisReply& reply) {
  if (operation.script && FirstWord(reply) == "gone") {
    return Fail(EHOSTUNREACH, "it was emptied or replaced while we were connected");
  }
  if (reply.kind != RedisReply::Kind::kError) return {};
  const Status status = StatusOfError(operation, reply);
  return status.code() == EHOSTUNREACH || status.code() == EACCES ? status : Status();
}

}  // namespace

Result<std::shared_ptr<RedisConnection>> RedisConnection::Start(
    IoLoop& loop, const std::string& host, const SocketAddress& address,
    std::shared_ptr<const Options> options, Owner& owner) {
  DriveSocket socket = TRY(DriveSocket::Connect(address, host, options->tls.get()));
  const int fd = socket.fd();
  auto connection =
      std::make_shared<RedisConnection>(loop, std::move(socket), std::move(options), owner);
  connection->watch_id_ = loop.Add(fd, EPOLLOUT, connection);
  return connection;
}

RedisConnection::RedisConnection(IoLoop& loop, DriveSocket socket,
                                 std::shared_ptr<const Options> options, Owner& owner)
    : loop_(loop),
      socket_(std::move(socket)),
      options_(std::move(options)),
      owner_(owner),
      received_(kReadBytes),
      timer_(loop, [this] { OnTimer(); }) {}

RedisConnection::~RedisConnection() = default;

void RedisConnection::Know(RedisScript script, std::string sum) {
  sums_[static_cast<size_t>(script)] = std::move(sum);
}

// --- Sending

void RedisConnection::Submit(OperationPtr operation) {
  loop_.Post([self = shared_from_this(), operation = std::move(operation)]() mutable {
    self->Take(std::move(operation));
  });
}

void RedisConnection::Take(OperationPtr operation) {
  std::vector<OperationPtr> all = std::move(operation->followers);
  for (const OperationPtr& each : all) each->leader = operation;
  all.insert(all.begin(), std::move(operation));
  for (OperationPtr& each : all) {
    if (phase_ == Phase::kClosed) {
      each->Finish(tl::unexpected(closed_status_));
      continue;
    }
    wake_ = std::min(wake_, each->deadline());
    waiting_.push_back(std::move(each));
  }
  ArmTimer();
  if (!receiving_) Pump();
}

// Sends what may be sent.
void RedisConnection::Pump() {
  const Time now = loop_.runtime().Now();
  while (phase_ == Phase::kOpen && !blocked_) {
    while (!waiting_.empty() && sent_.size() < options_->max_in_flight &&
           outgoing_.size() < SendQueue::kAtOnce) {
      OperationPtr operation = std::move(waiting_.front());
      waiting_.pop_front();
      outgoing_.Add(Encode(*operation));
      const Duration allowance =
          std::clamp(operation->deadline() - now, Duration(), kLongestAllowance);
      sent_.push_back(
          {operation, operation->deadline(), allowance, now, now + kMostAllowances * allowance});
    }
    if (outgoing_.empty()) return;
    switch (outgoing_.WriteTo(socket_)) {
      case SendQueue::Written::kAll: break;
      case SendQueue::Written::kBlocked:
        blocked_ = true;
        return loop_.Change(watch_id_, socket_.fd(), kEvents | EPOLLOUT);
      case SendQueue::Written::kFailed:
        // The receiving side finds the end, after what the peer had still to say, and ends it all.
        return socket_.Shut();
    }
  }
}

SendQueue::Message RedisConnection::Encode(const RedisOperation& operation) const {
  SendQueue::Message outgoing;
  const bool has_store = operation.script && *operation.script != RedisScript::kConnect;
  const size_t words = operation.words.size() + (operation.script ? 3 + operation.keys.size() : 0) +
                       (has_store ? 1 : 0);
  std::string* out = &outgoing.head;
  *out = fmt::format("*{}\r\n", words);
  const auto add = [&](std::string_view word) {
    fmt::format_to(std::back_inserter(*out), "${}\r\n", word.size());
    out->append(word).append("\r\n");
  };
  if (operation.script) {
    const std::string& sum = sums_[static_cast<size_t>(*operation.script)];
    const bool by_text = operation.sends_text || sum.empty();
    add(by_text ? "EVAL" : "EVALSHA");
    add(by_text ? TextOf(*operation.script) : sum);
    add(std::to_string(operation.keys.size()));
    for (const std::string& key : operation.keys) add(key);
  }
  if (has_store) add(store_);
  for (size_t i = 0; i < operation.words.size(); ++i) {
    const std::string& word = operation.words[i];
    if (operation.value.empty() || i != operation.value_word) {
      add(word);
      continue;
    }
    fmt::format_to(std::back_inserter(*out), "${}\r\n", operation.value.size() + word.size());
    outgoing.value = operation.value;
    out = &outgoing.rest;
    out->append(word).append("\r\n");
  }
  return outgoing;
}

// --- Receiving

void RedisConnection::OnReady(uint32_t epoll_events) {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kConnecting) return GoOnConnecting();
  const bool tls_may_read = socket_.read_wants_write();
  if (epoll_events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) || tls_may_read) Receive();
  if (!(epoll_events & EPOLLOUT) || phase_ == Phase::kClosed || !blocked_) return;
  blocked_ = false;
  loop_.Change(watch_id_, socket_.fd(), kEvents);
  Pump();
}

void RedisConnection::GoOnConnecting() {
  const Result<TlsStream::Step> step = socket_.GoOn(options_->drive);
  if (!step) return Lose(step.error());
  switch (*step) {
    case TlsStream::Step::kWantsRead: return loop_.Change(watch_id_, socket_.fd(), kEvents);
    case TlsStream::Step::kWantsWrite: return loop_.Change(watch_id_, socket_.fd(), EPOLLOUT);
    case TlsStream::Step::kDone: return Open();
  }
}

void RedisConnection::Open() {
  phase_ = Phase::kOpen;
  loop_.Change(watch_id_, socket_.fd(), kEvents);
  owner_.OnGreeting();
}

void RedisConnection::Receive() {
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
  Pump();  // replies have made room for what waits
}

// One read, and the replies that it completed. `more`: there may be something left to read.
Status RedisConnection::ReceiveSome(bool* more) {
  const iovec space{received_.data(), received_.size()};
  const ssize_t got = socket_.Read(&space, 1);
  if (got < 0) {
    *more = errno == EINTR;
    if (errno == EINTR || errno == EAGAIN) return {};
    return Fail(EHOSTUNREACH, "{}", ErrnoText(errno));
  }
  if (got == 0) return Fail(EHOSTUNREACH, "it closed the connection");
  *more = static_cast<size_t>(got) == received_.size();
  last_received_ = loop_.runtime().Now();
  TRY(reader_.Feed(received_.bytes().first(static_cast<size_t>(got))));
  while (std::optional<RedisReply> reply = TRY(reader_.Next())) {
    TRY(HandleReply(*std::move(reply)));
    if (phase_ == Phase::kClosed) return {};
  }
  return {};
}

Status RedisConnection::HandleReply(RedisReply reply) {
  if (sent_.empty()) return Fail(EBADMSG, "it answered what nobody had asked");
  const Sent sent = std::move(sent_.front());
  sent_.pop_front();
  if (sent.operation == nullptr) return {};
  RedisOperation& operation = *sent.operation;
  const bool is_error = reply.kind == RedisReply::Kind::kError;
  if (is_error && operation.script && !operation.sends_text &&
      reply.text().starts_with("NOSCRIPT")) {
    operation.sends_text = true;  // it has run nothing of it, and learns it with this
    waiting_.push_front(sent.operation);
    return {};
  }
  const OperationPtr leader = operation.leader.lock();
  if (leader && leader->sends_text && !operation.goes_again) {
    // What it follows goes once more, so it has told what was before that.
    operation.goes_again = true;
    auto place = std::ranges::find(waiting_, leader);
    place = place == waiting_.end() ? waiting_.begin() : place + 1;
    while (place != waiting_.end() && (*place)->goes_again) ++place;
    waiting_.insert(place, sent.operation);
    return {};
  }
  Count(sent, reply);
  if (const Status why = WhyUnusable(operation, reply); !why.ok()) {
    Lose(why);  // first: who hears of it sends nothing more on this connection
    operation.Finish(tl::unexpected(why.OfDrive(options_->drive)));
    return {};
  }
  if (is_error) {
    const Status status = StatusOfError(operation, reply);
    operation.Finish(tl::unexpected(status.OfDrive(options_->drive)));
  } else {
    operation.Finish(std::move(reply));
  }
  return {};
}

void RedisConnection::Count(const Sent& sent, const RedisReply& reply) const {
  DriveTimes& times = *options_->times;
  const bool reads = sent.operation->kind() == RedisOperation::Kind::kRead;
  (reads ? times.reads : times.writes).Add(last_received_ - sent.when);
  if (reply.kind == RedisReply::Kind::kError || FirstWord(reply) == "damaged") {
    times.failures.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const SharedBytes* value = reply.TextAt(1);
  const size_t read = value == nullptr ? 0 : value->size();
  (reads ? times.read_bytes : times.written_bytes)
      .fetch_add(reads ? read : sent.operation->value.size(), std::memory_order_relaxed);
}

// --- Deadlines

void RedisConnection::ArmTimer() {
  if (phase_ != Phase::kClosed && wake_ != Time::max()) timer_.Arm(wake_);
}

// Looks through everything that is outstanding, about once per deadline.
void RedisConnection::OnTimer() {
  const Time now = loop_.runtime().Now();
  std::vector<OperationPtr> expired;
  Time next = Time::max();
  const auto expire = [&](OperationPtr& operation, Time when) {
    if (when > now) {
      next = std::min(next, when);
      return false;
    }
    expired.push_back(std::exchange(operation, nullptr));
    return true;
  };
  std::erase_if(waiting_, [&](OperationPtr& each) { return expire(each, each->deadline()); });
  bool dead = false;
  for (Sent& each : sent_) {
    // As long as something comes from the server it is slow, and not silent.
    if (each.operation && each.deadline <= now) {
      each.deadline =
          std::max(each.deadline, std::min(last_received_ + each.allowance, each.latest));
    }
    if (each.operation) expire(each.operation, each.deadline);
    if (each.operation) continue;
    const Time patience_ends = each.deadline + options_->patience;
    dead = dead || patience_ends <= now;
    next = std::min(next, patience_ends);
  }
  wake_ = next;
  ArmTimer();
  const auto self = shared_from_this();  // who hears of one may let go of the connection
  for (const OperationPtr& each : expired) {
    options_->times->timeouts.fetch_add(1, std::memory_order_relaxed);
    each->Finish(tl::unexpected(Status(ETIMEDOUT, "no answer in time").OfDrive(options_->drive)));
  }
  if (dead) Lose(Fail(EHOSTUNREACH, "it accepts commands but does not answer them"));
}

// --- The end

void RedisConnection::Lose(const Status& why) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  const Status status = Away(why);
  const std::vector<OperationPtr> operations = Shut(status);
  owner_.OnLost(why);
  for (const OperationPtr& each : operations) each->Finish(tl::unexpected(status));
}

void RedisConnection::Close(const Status& why) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  const Status status = Away(why);
  for (const OperationPtr& each : Shut(status)) each->Finish(tl::unexpected(status));
}

Status RedisConnection::Away(const Status& why) const {
  return Status(EHOSTUNREACH, std::string(why.message())).OfDrive(options_->drive);
}

std::vector<RedisConnection::OperationPtr> RedisConnection::Shut(const Status& status) {
  phase_ = Phase::kClosed;
  closed_status_ = status;
  timer_.Cancel();
  loop_.Remove(watch_id_, socket_.fd());
  socket_.End();
  std::vector<OperationPtr> operations;
  for (Sent& each : sent_) {
    if (each.operation) operations.push_back(std::move(each.operation));
  }
  for (OperationPtr& each : waiting_) operations.push_back(std::move(each));
  sent_.clear();
  waiting_.clear();
  outgoing_.Clear();
  return operations;
}

}  // namespace pinstripe
