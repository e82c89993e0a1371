#include "daemon/session.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "base/try.h"
#include "kinetic/trunk.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;

constexpr int kReadsAtOnce = 16;               // of one socket before the others get their turn
constexpr size_t kMostMessageKept = 16 << 10;  // of a connection, for the room in it
constexpr size_t kAnswersAtOnce = 128;         // by the loop, likewise

// A frame that is larger is received when there is room for it in the budget of the daemon.
constexpr size_t kMostFrameWithoutRoom = 64 << 10;

Status LongValue(const Frame& frame) {
  return Fail(EINVAL, "a value of {} bytes; the limit is {}", frame.value_bytes, kMaxValueBytes);
}

std::string NoBatch(uint32_t id) { return fmt::format("batch {} is not open", id); }

// Requests of a batch have no answers of their own, so that there is none to refuse them with.
Status BrokenBatch(std::string_view why) { return Fail(EPROTO, "{}", why); }

}  // namespace

Session::Session(IoLoop& loop, const ServerThreads& threads, ServerBudgets& budgets,
                 std::shared_ptr<SharedByDevice> shared, KineticService& service,
                 std::unique_ptr<Places::Place> place, DriveSocket socket, Sharing sharing,
                 const Server::Options& options,
                 std::function<void(std::shared_ptr<Connection>)> closed)
    : loop_(loop),
      threads_(threads),
      budgets_(budgets),
      shared_(std::move(shared)),
      service_(service),
      place_(std::move(place)),
      socket_(std::move(socket)),
      sharing_(std::move(sharing)),
      has_tls_(socket_.has_tls()),
      options_(options),
      timer_(loop, [this] { shaking_hands_ ? Close() : CheckHalfFrame(); }),
      unsent_timer_(loop, [this] { CheckUnsent(); }),
      closed_(std::move(closed)),
      batches_(service.batch_budget()),
      puts_(*this) {}

// What it has under way then, nobody will take any more.
Session::~Session() { budgets_.values.Subtract(bytes_under_way_); }

// Loop thread.
void Session::Start() {
  // By chance, and so never the same again: what was said on one connection is worth nothing on
  // another. 0 is none.
  while (connection_id_ == 0) {
    connection_id_ = static_cast<int64_t>(loop_.runtime().Random() >> 1);
  }
  socket_.Watch(loop_, EPOLLIN, shared_from_this());
  const Time now = loop_.runtime().Now();
  client_ =
      std::make_shared<ConnectedClient>(PeerText(socket_.fd()), has_tls_, connection_id_, now);
  service_.clients().Add(client_);
  place_->OnEnd([weak = weak_from_this(), &loop = loop_] {
    loop.Post([weak] {
      if (const auto self = weak.lock()) self->Close();
    });
  });
  if (!socket_.reads_ahead()) return Greet();
  shaking_hands_ = true;
  timer_.Arm(now + options_.handshake_timeout);
}

// Loop thread. What is still being executed finishes, and its answer is dropped.
void Session::Close() {
  std::deque<HandedPtr> dropped;
  {
    const MutexLock lock(mutex_);
    // What is going out right now is still being read by its sender: it goes with the session.
    if (std::exchange(gone_, true)) return;
    dropped.swap(held_back_);
  }
  if (client_ != nullptr) service_.clients().Remove(client_);
  timer_.Cancel();
  unsent_timer_.Cancel();
  for (ValueBudget* budget : {&budgets_.values, &budgets_.of_strangers}) budget->Forget(this);
  frame_room_.Return();
  batches_.Clear();
  for (const auto& operation : long_operations_) {
    if (const auto cancellation = operation.lock()) cancellation->Cancel();
  }
  socket_.End();
  socket_.Unwatch();
  closed_(shared_from_this());
}

void Session::OnReady(uint32_t epoll_events) {
  if (shaking_hands_) return ShakeHands(epoll_events);
  if (epoll_events & EPOLLOUT) {
    mutex_.Lock();
    if (std::exchange(blocked_, false)) {
      SendWaiting();
    } else {
      mutex_.Unlock();
    }
  }
  if (epoll_events & (EPOLLERR | EPOLLHUP)) return Close();
  const bool readable = (epoll_events & EPOLLIN) || socket_.reads_ahead();
  at_once_ = 0;
  for (int reads = 0; readable && reads < kReadsAtOnce && at_once_ < kAnswersAtOnce && WantsMore();
       ++reads) {
    const Result<bool> more = Receive();
    if (!more.has_value()) return GiveUp(more.error());
    if (!*more) break;
  }
  NoteHalfFrame();
  reader_.Rest();
  Watch();
}

void Session::Greet() {
  gate_.Begin(connection_id_, service_.security().erasures());
  Command greeting = service_.Greeting();
  greeting.mutable_header()->set_connectionid(connection_id_);
  auto* ports = greeting.mutable_body()->mutable_getlog()->mutable_configuration();
  for (const uint16_t port : sharing_.ports) ports->add_sharedports(port);
  Send(UnsignedFrame(Unsigned::kUnsolicited, greeting));
}

void Session::ShakeHands(uint32_t epoll_events) {
  if (epoll_events & (EPOLLERR | EPOLLHUP)) return Close();
  const Result<TlsStream::Step> step = socket_.Accept();
  if (!step.has_value()) {
    Log(LogLevel::kInfo, "TLS handshake failed",
        {{"port", service_.tls_port()}, {"why", step.error()}});
    return Close();
  }
  if (*step == TlsStream::Step::kDone) {
    shaking_hands_ = false;
    timer_.Cancel();
    Greet();
    return Watch();
  }
  const uint32_t events = *step == TlsStream::Step::kWantsWrite ? EPOLLOUT : EPOLLIN;
  if (events != std::exchange(watched_, events)) {
    socket_.Change(events);
  }
}

// The first byte of a trunk is that of no frame. The greeting is out then: whoever says it has read
// that.
bool Session::BecomesTrunk() {
  if (sharing_.begin == nullptr || frames_ > 0 || reader_.first() != kTrunkBegins) return false;
  {
    const MutexLock lock(mutex_);
    if (!outbox_.empty() || sending_) return false;
    gone_ = true;
  }
  service_.clients().Remove(client_);
  timer_.Cancel();
  unsent_timer_.Cancel();
  socket_.Unwatch();
  sharing_.begin(std::move(socket_), std::move(place_), reader_.TakeStaged());
  closed_(shared_from_this());
  return true;
}

// Somebody who sends a frame bit by bit, or a part of one and no more, would hold what it has
// sent for ever. The timer is left alone when the frame is complete, since the next one is often
// begun by then.
void Session::NoteHalfFrame() {
  if (reader_.idle() || half_frame_ == frames_) return;
  half_frame_ = frames_;
  half_since_ = loop_.runtime().Now();
  if (!std::exchange(watching_frames_, true)) timer_.Arm(half_since_ + options_.frame_timeout);
}

void Session::CheckHalfFrame() {
  if (giving_up_) return Close();
  watching_frames_ = false;
  if (reader_.idle()) return;
  const Time now = loop_.runtime().Now();
  if (!WantsMore()) half_since_ = now;  // it is us who do not read
  if (now >= half_since_ + options_.frame_timeout) {
    Tell(LogLevel::kWarn, "connection given up",
         {{"port", service_.port()}, {"why", "a frame was begun and not completed in time"}});
    return Close();
  }
  watching_frames_ = true;
  timer_.Arm(half_since_ + options_.frame_timeout);
}

// One read, and the frames it completed. False: there is nothing more to read now.
Result<bool> Session::Receive() {
  iovec space[2];
  const int spaces = reader_.Space(space);
  const size_t room = space[0].iov_len + (spaces > 1 ? space[1].iov_len : 0);
  const ssize_t got = socket_.Read(space, spaces);
  if (got < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN) return false;
    return Fail(EHOSTUNREACH, "{}", ErrnoText(errno));
  }
  if (got == 0) return Fail(EHOSTUNREACH, "the client closed the connection");
  reader_.Filled(static_cast<size_t>(got));
  if (BecomesTrunk()) return false;
  const Status handled = HandleAll();
  if (handled.ok()) TakeRoomForFrame();
  // Before the words with which a broken stream ends.
  puts_.Hand();
  SendReady();
  TRY(handled);
  return static_cast<size_t>(got) == room;
}

Status Session::HandleAll() {
  while (std::optional<Frame> frame = TRY(reader_.Next())) {
    ++frames_;
    TRY(Handle(*std::move(frame)));
  }
  return {};
}

// For the frame that has begun. What was complete before counts as under way by now. While it
// waits nothing is read.
void Session::TakeRoomForFrame() {
  if (frame_with_room_ != frames_) {  // it is complete
    frame_room_.Return();
    frame_with_room_ = UINT64_MAX;
  }
  const size_t wanted = reader_.announced();
  if (wanted <= kMostFrameWithoutRoom || frame_with_room_ == frames_) return;
  frame_with_room_ = frames_;
  ValueBudget& budget = gate_.is_stranger() ? budgets_.of_strangers : budgets_.values;
  waits_for_room_ = true;
  frame_room_ = budget.TakeOrWait(
      this, wanted,
      [weak = weak_from_this(), &loop = loop_](std::shared_ptr<ValueBudget::Share> room) {
        loop.Post([weak, room = std::move(room)] {
          if (const auto self = weak.lock()) self->GoOnWith(std::move(*room));
        });
      });
  if (frame_room_.bytes() > 0) waits_for_room_ = false;
}

void Session::GoOnWith(ValueBudget::Share room) {
  {
    const MutexLock lock(mutex_);
    if (gone_) return;
  }
  waits_for_room_ = false;
  frame_room_ = std::move(room);
  half_since_ = loop_.runtime().Now();  // until now it was us who did not read
  OnReady(EPOLLIN);
}

// Lets the gate judge the request, and hands on what passes. A failure ends the connection.
Status Session::Handle(Frame frame) {
  const bool large = frame.message.size() > kMostMessageKept;
  kinetic::Message large_message;
  kinetic::Message& message = large ? large_message : message_;
  TRY(ParseMessage(frame.message, &message));
  const std::shared_ptr<Command> request = large ? std::make_shared<Command>() : SmallRequest();
  TRY(ParseCommand(message, request.get()));
  const DeviceSecurity& security = service_.security();
  const uint64_t erasures = security.erasures();
  const bool pin = message.authtype() == kinetic::Message::PINAUTH;
  const Header* header = request->has_header() ? &request->header() : nullptr;
  const auto identity = pin ? nullptr : security.Find(message.hmacauth().identity());
  const SessionGate::Asked asked{
      .header = header,
      .authentication = message.has_authtype() ? std::optional(message.authtype()) : std::nullopt,
      .tls = has_tls_,
      .identity = identity.get(),
      .authentic = header != nullptr && identity != nullptr && Authentic(message, identity->key)};
  const SessionGate::Device device{.erasures = erasures,
                                   .cluster_version = security.cluster_version(),
                                   .locked = security.locked()};
  const bool was_stranger = gate_.is_stranger();
  const SessionGate::Verdict verdict = gate_.Judge(asked, device);
  if (verdict.drop_batches) batches_.Clear();
  if (was_stranger && !gate_.is_stranger()) {
    place_->Welcome();
    socket_.Trust();
    const MutexLock lock(mutex_);
    is_known_ = true;
  }
  switch (verdict.kind) {
    case SessionGate::Verdict::kPass: break;
    case SessionGate::Verdict::kEnd: return Fail(EBADMSG, "{}", verdict.why);
    case SessionGate::Verdict::kRefuse: {
      Command answer = AnswerTo(*request);
      answer.mutable_status()->set_code(verdict.code);
      answer.mutable_status()->set_statusmessage(verdict.why);
      if (verdict.code == kinetic::Status::VERSION_FAILURE) {
        answer.mutable_header()->set_clusterversion(device.cluster_version);
      }
      Send(pin                   ? UnsignedFrame(Unsigned::kPinAnswer, answer)
           : identity == nullptr ? UnsignedFrame(Unsigned::kUnknownIdentity, answer)
                                 : SignedFrame(answer, identity->id, identity->key, 0));
      return {};
    }
  }
  if (pin) {
    Hand(request, nullptr, frame.value.size(),
         [this, request, pin = message.pinauth().pin()](Command* answer) {
           service_.ExecutePin(*request, pin, answer);
           return KineticService::Outcome();
         });
    return {};
  }
  client_->SignedBy(identity->id);
  const bool is_log = header->messagetype() == Header::GETLOG;
  if (is_log) Hear(*identity, request->body().getlog());
  const KineticService::Caller caller{.identity = identity,
                                      .tls = has_tls_,
                                      .cluster_version = device.cluster_version,
                                      .unerased = header->unerased(),
                                      .asked = is_log ? loop_.runtime().Now() : Time()};
  return HandleAdmitted(caller, request, std::move(frame));
}

// What a client says of itself, and what took long for it.
void Session::Hear(const DeviceSecurity::Identity& identity, const kinetic::GetLog& log) {
  if (log.has_client()) {
    const kinetic::GetLog::Client& said = log.client();
    client_->Introduce({.program = said.program(),
                        .version = said.version(),
                        .host = said.host(),
                        .detail = said.detail(),
                        .process = said.process()});
  }
  if (log.slowoperations_size() == 0) return;
  if (!MayDo(identity.rights, Permission::kGetLog, std::nullopt, has_tls_)) return;
  service_.slow().Hear(client_, log, loop_.runtime().Now());
}

// A request that the gate let pass.
Status Session::HandleAdmitted(const KineticService::Caller& caller,
                               const std::shared_ptr<Command>& request, Frame frame) {
  const DeviceSecurity::IdentityPtr& identity = caller.identity;
  const Header& header = request->header();
  if (TRY(AddToBatch(caller, *request, frame))) return {};
  if (frame.value_dropped) {  // what any other PUT that fails is answered
    Command answer = AnswerTo(*request);
    if (header.messagetype() == Header::PUT) answer.mutable_body()->mutable_keyvalue();
    KineticService::SetFailure(LongValue(frame), &answer);
    Send(SignedFrame(answer, identity->id, identity->key, 0));
    return {};
  }
  const size_t bytes = frame.value.size();
  switch (header.messagetype()) {
    case Header::GET:
    case Header::GETS:
      if (AnswerAtOnce(caller, *request, bytes)) return {};
      break;
    case Header::PUT:
    case Header::PUTS: puts_.Add(caller, request, std::move(frame)); return {};
    case Header::START_BATCH: {
      const Status started = batches_.Start(header.batchid());
      if (started.code() == EEXIST) return BrokenBatch(started.message());
      Hand(request, identity, bytes, [started](Command* answer) {
        answer->mutable_status()->set_code(kinetic::Status::SUCCESS);
        if (!started.ok()) KineticService::SetFailure(started, answer);
        return KineticService::Outcome();
      });
      return {};
    }
    case Header::ABORT_BATCH:
    case Header::END_BATCH: {
      const bool abort = header.messagetype() == Header::ABORT_BATCH;
      std::shared_ptr<Batch> batch = batches_.Take(header.batchid());
      if (batch == nullptr) return BrokenBatch(NoBatch(header.batchid()));
      Hand(request, identity, bytes,
           [this, caller, abort, batch = std::move(batch)](Command* answer) mutable {
             // What it held is free when the client hears of its end.
             const std::shared_ptr<Batch> ended = std::move(batch);
             if (!abort) return service_.EndBatch(caller, *ended, answer);
             answer->mutable_status()->set_code(kinetic::Status::SUCCESS);
             return KineticService::Outcome();
           });
      return {};
    }
    default: break;
  }
  if (KineticService::TakesLong(*request)) {
    StartLong(request, caller, bytes);
    return {};
  }
  const auto value = std::make_shared<Buffer>(std::move(frame.value));  // a Task must be copyable
  Hand(request, identity, bytes, [this, caller, request, value](Command* answer) {
    const Bytes look = *value;
    return service_.Execute(caller, *request, SharedBytes(value, look), answer);
  });
  return {};
}

// True: it is a part of a batch, and done with for now. Number 0 without such a batch is what a
// client may say that has none.
Result<bool> Session::AddToBatch(const KineticService::Caller& caller, const Command& request,
                                 Frame& frame) {
  const Header& header = request.header();
  const bool change = header.messagetype() == Header::PUT || header.messagetype() == Header::DELETE;
  if (!change || !header.has_batchid()) return false;
  Batch* batch = batches_.Find(header.batchid());
  if (batch == nullptr && header.batchid() == 0) return false;
  if (batch == nullptr) return Failed(BrokenBatch(NoBatch(header.batchid())));
  service_.statistics().Add(header.messagetype(), frame.value.size(), {});
  if (frame.value_dropped) {
    batch->Add(header.sequence(), Failed(LongValue(frame)));
  } else {
    batch->Add(header.sequence(),
               KineticService::ChangeOf(caller, request, std::move(frame.value)));
  }
  return true;
}

// That of the request before, where nobody needs it any more: its strings have room already.
const std::shared_ptr<Command>& Session::SmallRequest() {
  if (request_ == nullptr || request_.use_count() > 1) request_ = puts_.UsedOrNew();
  return request_;
}

// Here and now, where nobody has to be waited for: that costs less than to hand it over. False:
// it was not.
bool Session::AnswerAtOnce(const KineticService::Caller& caller, const Command& request,
                           size_t bytes) {
  const Time received = loop_.runtime().Now();
  StartAnswer(request, &answer_);
  std::optional<KineticService::Outcome> outcome =
      service_.ExecuteAtOnce(caller, request, &answer_);
  if (!outcome) return false;
  Note(request, bytes + outcome->value.size(), {.received = received, .begun = received}, answer_);
  ready_.push_back(AnswerOf(answer_, caller.identity.get(), std::move(outcome->value), 0));
  return true;
}

// What was answered at once goes out together.
void Session::SendReady() {
  if (ready_.empty()) return;
  at_once_ += ready_.size();
  size_t requests = 0;
  for (const Outgoing& answer : ready_) requests += answer.answers;
  CountUnderWay(requests, 0);
  SendAll(ready_);
  ready_.clear();
}

bool Session::WantsMore() {
  const MutexLock lock(mutex_);
  return !gone_ && !giving_up_ && !waits_for_room_ && !IsFull();
}

// Somebody who does not take its answers holds room that others may want. Loop thread, like the
// next ones.
void Session::WatchUnsent() {
  if (std::exchange(watching_unsent_, true)) return;
  {
    const MutexLock lock(mutex_);
    unsent_since_ = outbox_.sent_bytes();
  }
  unsent_timer_.Arm(loop_.runtime().Now() + options_.frame_timeout);
}

void Session::CheckUnsent() {
  watching_unsent_ = false;
  bool blocked = false;
  bool moves = false;
  {
    const MutexLock lock(mutex_);
    blocked = blocked_;
    moves = outbox_.sent_bytes() != unsent_since_;
  }
  if (!blocked) return;
  if (!moves && (budgets_.values.is_wanted() || budgets_.values.exhausted())) {
    Tell(LogLevel::kWarn, "connection given up",
         {{"port", service_.port()}, {"why", "answers were not taken, and their room is wanted"}});
    return Close();
  }
  WatchUnsent();
}

// Tells the loop what is waited for.
void Session::Watch() {
  uint32_t events = 0;
  {
    const MutexLock lock(mutex_);
    if (gone_) return;
    paused_ = IsFull();
    if (!giving_up_ && !paused_ && !waits_for_room_) events |= EPOLLIN;
    if (blocked_) events |= EPOLLOUT;
  }
  if (events & EPOLLOUT) WatchUnsent();
  if ((events & EPOLLIN) && socket_.reads_ahead()) {
    if (socket_.read_wants_write()) events |= EPOLLOUT;
    // What TLS has already taken from the socket, epoll does not tell.
    if (socket_.may_have_more() && !std::exchange(read_posted_, true)) {
      loop_.Post([self = shared_from_this()] {
        self->read_posted_ = false;
        self->OnReady(EPOLLIN);
      });
    }
  }
  if (events == watched_) return;
  watched_ = events;
  socket_.Change(events);
}

// The stream cannot be followed any more: says why, where that may help, and ends it.
void Session::GiveUp(const Status& why) {
  const bool broken_batch = why.code() == EPROTO;
  if (why.code() != EBADMSG && !broken_batch) return Close();
  Tell(LogLevel::kWarn, "connection given up", {{"port", service_.port()}, {"why", why}});
  Command last;
  last.mutable_status()->set_code(broken_batch ? kinetic::Status::INVALID_BATCH
                                               : kinetic::Status::INVALID_REQUEST);
  last.mutable_status()->set_statusmessage(std::string(why.message()));
  giving_up_ = true;
  timer_.Arm(loop_.runtime().Now() + options_.frame_timeout);  // who does not read never hears it
  Watch();
  Send(UnsignedFrame(Unsigned::kUnsolicited, last), /*last=*/true);
}

}  // namespace pinstripe
