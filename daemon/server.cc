#include "daemon/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "daemon/batch.h"
#include "daemon/value_budget.h"
#include "kinetic/frame.h"
#include "kinetic/io_loop.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "store/background.h"
#include "store/workers.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;

// Of one connection, under way: requests that were read and not answered, and bytes of their values
// and of answers that the peer has not taken. Beyond either, nothing more is read from it.
constexpr size_t kMaxRequestsUnderWay = 128;
constexpr size_t kMaxBytesUnderWay = 32 << 20;
constexpr size_t kMaxNewcomerBytesUnderWay = 64 << 10;  // before the first right signature

constexpr int kReadsAtOnce = 16;               // of one socket before the others get their turn
constexpr size_t kMostMessageKept = 16 << 10;  // of a connection, for the room in it
constexpr size_t kAnswersAtOnce = 128;         // by the loop, likewise
constexpr size_t kSendAtOnce = 64;
constexpr size_t kSmallPutsBytes = 64 << 10;    // values of puts that wait for those before them
constexpr size_t kMostPutsWaiting = 512 << 10;  // bytes of such values
constexpr size_t kMostPutsAtOnce = 4;           // by the loop
constexpr Duration kRestFromPuts = std::chrono::milliseconds(100);  // of the loop, after a long one
constexpr size_t kMostRequestReused = 512;  // bytes of a message whose memory is used again
constexpr size_t kMostReused = 64;          // requests and answers, of a connection

// Answers that the peer has not taken, beyond which nothing more is read for it: they are sent
// while they are in a processor's cache.
constexpr size_t kMostUnsent = 1 << 20;

// A frame that is larger is received when there is room for it in the budget of the daemon.
constexpr size_t kMostFrameWithoutRoom = 64 << 10;

// Answers of one device that wait to be durable. One flush serves all that came before it; while it
// runs the next ones gather. Flushes have threads of their own, so that a slow disk holds up only
// itself.
class Flushes : public std::enable_shared_from_this<Flushes> {
 public:
  Flushes(Workers& workers, KineticService& service) : workers_(workers), service_(service) {}

  void Add(std::function<void(const Status&)> done) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(done));
      if (std::exchange(running_, true)) return;
    }
    workers_.Add([self = shared_from_this()] { self->Run(); });
  }

 private:
  void Run() {
    std::vector<std::function<void(const Status&)>> served;
    {
      const std::lock_guard lock(mutex_);
      served.swap(waiting_);
    }
    const Status status = service_.Flush();
    for (const auto& done : served) done(status);
    {
      const std::lock_guard lock(mutex_);
      running_ = !waiting_.empty();
      if (!running_) return;
    }
    workers_.Add([self = shared_from_this()] { self->Run(); });  // after other devices' turns
  }

  Workers& workers_;
  KineticService& service_;
  std::mutex mutex_;
  std::vector<std::function<void(const Status&)>> waiting_;  // guarded by mutex_
  bool running_ = false;                                     // guarded by mutex_
};

// What the connections of a device have in common, whichever port they came through.
struct Shared {
  explicit Shared(Workers& flushers, KineticService& service)
      : flushes(std::make_shared<Flushes>(flushers, service)) {}

  const std::shared_ptr<Flushes> flushes;
  std::atomic<Time> no_puts_at_once{};  // by loops until then, since they took long
};

// What all sessions of a server use. Long operations have threads of their own, those that wait for
// peers others than those that wait for the disk.
struct Threads {
  Workers& workers;
  Background& scans;
  Background& pushes;
  KineticIo& peers;
};

// Of values, for all sessions of a server. What strangers receive has a small budget of its own, so
// that they never hold up those who have signed.
struct Budgets {
  explicit Budgets(uint64_t limit) : values(limit), of_strangers(limit / 8) {}
  ValueBudget values;
  ValueBudget of_strangers;
};

// One client's connection to one device.
class Session final : public IoLoop::Handler, public std::enable_shared_from_this<Session> {
 public:
  // `tls`: of the socket; null without.
  Session(IoLoop& loop, const Threads& threads, Budgets& budgets, std::shared_ptr<Shared> shared,
          KineticService& service, std::unique_ptr<Places::Place> place, FileDescriptor socket,
          std::unique_ptr<TlsStream> tls, const Server::Options& options,
          std::function<void(std::shared_ptr<Session>)> closed)
      : loop_(loop),
        threads_(threads),
        budgets_(budgets),
        shared_(std::move(shared)),
        service_(service),
        place_(std::move(place)),
        socket_(std::move(socket)),
        tls_(std::move(tls)),
        options_(options),
        timer_(loop, [this] { shaking_hands_ ? Close() : CheckHalfFrame(); }),
        unsent_timer_(loop, [this] { CheckUnsent(); }),
        closed_(std::move(closed)),
        batches_(service.batch_budget()) {}

  // What it has under way then, nobody will take any more.
  ~Session() override { budgets_.values.Subtract(bytes_under_way_); }

  // Loop thread.
  void Start() {
    // By chance, and so never the same again: what was said on one connection is worth nothing on
    // another. 0 is none.
    while (connection_id_ == 0) {
      connection_id_ = static_cast<int64_t>(loop_.runtime().Random() >> 1);
    }
    watch_id_ = loop_.Add(socket_.get(), EPOLLIN, shared_from_this());
    const Time now = loop_.runtime().Now();
    place_->OnEnd([weak = weak_from_this(), &loop = loop_] {
      loop.Post([weak] {
        if (const auto self = weak.lock()) self->Close();
      });
    });
    if (tls_ == nullptr) return Greet();
    shaking_hands_ = true;
    timer_.Arm(now + options_.handshake_timeout);
  }

  // Loop thread. What is still being executed finishes, and its answer is dropped.
  void Close() {
    std::deque<HandedPtr> dropped;
    {
      const std::lock_guard lock(mutex_);
      // What is going out right now is still being read by its sender: it goes with the session.
      if (std::exchange(gone_, true)) return;
      dropped.swap(held_back_);
    }
    timer_.Cancel();
    unsent_timer_.Cancel();
    for (ValueBudget* budget : {&budgets_.values, &budgets_.of_strangers}) budget->Forget(this);
    frame_room_.Return();
    batches_.Clear();
    for (const auto& operation : long_operations_) {
      if (const auto cancellation = operation.lock()) cancellation->Cancel();
    }
    if (tls_ != nullptr) tls_->SayGoodbye();
    shutdown(socket_.get(), SHUT_RDWR);
    loop_.Remove(watch_id_, socket_.get());
    closed_(shared_from_this());
  }

  const KineticService& service() const { return service_; }

  void OnReady(uint32_t epoll_events) override {
    if (shaking_hands_) return ShakeHands(epoll_events);
    if (epoll_events & EPOLLOUT) {
      std::unique_lock lock(mutex_);
      if (std::exchange(blocked_, false)) Flush(lock);
    }
    if (epoll_events & (EPOLLERR | EPOLLHUP)) return Close();
    const bool readable = (epoll_events & EPOLLIN) || tls_ != nullptr;
    at_once_ = 0;
    for (int reads = 0;
         readable && reads < kReadsAtOnce && at_once_ < kAnswersAtOnce && WantsMore(); ++reads) {
      const Result<bool> more = Receive();
      if (!more.has_value()) return GiveUp(more.error());
      if (!*more) break;
    }
    NoteHalfFrame();
    reader_.Rest();
    Watch();
  }

 private:
  struct Outgoing {
    std::string head;
    SharedBytes value;
    size_t request_bytes = 0;  // what the request it answers counted for
    bool answers = false;      // a request; else a word of our own
    bool last = false;         // the connection ends after it
    size_t size() const { return head.size() + value.size(); }
  };

  void Greet() {
    greeted_erasures_ = batches_erasures_ = service_.security().erasures();
    Command greeting = service_.Greeting();
    greeting.mutable_header()->set_connectionid(connection_id_);
    Send(UnsignedFrame(Unsigned::kUnsolicited, greeting));
  }

  void ShakeHands(uint32_t epoll_events) {
    if (epoll_events & (EPOLLERR | EPOLLHUP)) return Close();
    const Result<TlsStream::Step> step = tls_->Handshake();
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
      loop_.Change(watch_id_, socket_.get(), events);
    }
  }

  // Somebody who sends a frame bit by bit, or a part of one and no more, would hold what it has
  // sent for ever. The timer is left alone when the frame is complete, since the next one is often
  // begun by then.
  void NoteHalfFrame() {
    if (reader_.idle() || half_frame_ == frames_) return;
    half_frame_ = frames_;
    half_since_ = loop_.runtime().Now();
    if (!std::exchange(watching_frames_, true)) timer_.Arm(half_since_ + options_.frame_timeout);
  }

  void CheckHalfFrame() {
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

  // The first request with a right signature.
  void Welcome() {
    place_->Welcome();
    is_stranger_ = false;
    const std::lock_guard lock(mutex_);
    is_known_ = true;
  }

  // One read, and the frames it completed. False: there is nothing more to read now.
  Result<bool> Receive() {
    iovec space[2];
    const int spaces = reader_.Space(space);
    const size_t room = space[0].iov_len + (spaces > 1 ? space[1].iov_len : 0);
    const ssize_t got =
        tls_ != nullptr ? tls_->Read(space, spaces) : readv(socket_.get(), space, spaces);
    if (got < 0) {
      if (errno == EINTR) return true;
      if (errno == EAGAIN) return false;
      return Fail(EHOSTUNREACH, "{}", ErrnoText(errno));
    }
    if (got == 0) return Fail(EHOSTUNREACH, "the client closed the connection");
    reader_.Filled(static_cast<size_t>(got));
    const Status handled = HandleAll();
    if (handled.ok()) TakeRoomForFrame();
    // Before the words with which a broken stream ends.
    HandPuts();
    SendReady();
    TRY(handled);
    return static_cast<size_t>(got) == room;
  }

  Status HandleAll() {
    while (std::optional<Frame> frame = TRY(reader_.Next())) {
      ++frames_;
      TRY(Handle(*std::move(frame)));
    }
    return {};
  }

  // For the frame that has begun. What was complete before counts as under way by now. While it
  // waits nothing is read.
  void TakeRoomForFrame() {
    if (frame_with_room_ != frames_) {  // it is complete
      frame_room_.Return();
      frame_with_room_ = UINT64_MAX;
    }
    const size_t wanted = reader_.announced();
    if (wanted <= kMostFrameWithoutRoom || frame_with_room_ == frames_) return;
    frame_with_room_ = frames_;
    ValueBudget& budget = is_stranger_ ? budgets_.of_strangers : budgets_.values;
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

  void GoOnWith(ValueBudget::Share room) {
    {
      const std::lock_guard lock(mutex_);
      if (gone_) return;
    }
    waits_for_room_ = false;
    frame_room_ = std::move(room);
    OnReady(EPOLLIN);
  }

  // Checks what can be checked without the engine, in the protocol's order, and hands on the rest.
  // A failure ends the connection.
  Status Handle(Frame frame) {
    const bool large = frame.message.size() > kMostMessageKept;
    kinetic::Message large_message;
    kinetic::Message& message = large ? large_message : message_;
    TRY(ParseMessage(frame.message, &message));
    const std::shared_ptr<Command> request = large ? std::make_shared<Command>() : SmallRequest();
    TRY(ParseCommand(message, request.get()));
    const bool pin = message.authtype() == kinetic::Message::PINAUTH;
    // Without an authentication at all there is still something to say to a request without a
    // header.
    if (!pin && message.authtype() != kinetic::Message::HMACAUTH && message.has_authtype()) {
      return Fail(EBADMSG, "a request with an authentication of type {}",
                  static_cast<int>(message.authtype()));
    }
    const DeviceSecurity& security = service_.security();
    // Batches from before an erase are not for the device that it is now.
    const uint64_t erasures = security.erasures();
    if (std::exchange(batches_erasures_, erasures) != erasures) batches_.Clear();
    const auto identity = pin ? nullptr : security.Find(message.hmacauth().identity());
    const auto refuse = [&](kinetic::Status::Code code, std::string_view why) {
      Command answer = AnswerTo(*request);
      answer.mutable_status()->set_code(code);
      answer.mutable_status()->set_statusmessage(std::string(why));
      if (code == kinetic::Status::VERSION_FAILURE) {
        answer.mutable_header()->set_clusterversion(security.cluster_version());
      }
      Send(pin                   ? UnsignedFrame(Unsigned::kPinAnswer, answer)
           : identity == nullptr ? UnsignedFrame(Unsigned::kUnknownIdentity, answer)
                                 : SignedFrame(answer, identity->id, identity->key, 0));
      return Status();
    };
    if (!request->has_header()) return refuse(kinetic::Status::HEADER_REQUIRED, "no header");
    const Header& header = request->header();
    // Only for those who have proved who they are: signed refusals of requests that others have
    // made up would be believed by whoever waits for the answer to a true one.
    const auto is_out_of_turn = [&]() -> Result<bool> {
      TRY(CheckConnection(header, pin));
      if (!any_sequence_ || header.sequence() > last_sequence_) {
        any_sequence_ = true;
        last_sequence_ = header.sequence();
        return false;
      }
      // It may be the true one once more, and its first answer still be on its way.
      if (bound_)
        return Fail(EBADMSG, "request {} came after request {}", header.sequence(), last_sequence_);
      TRY(refuse(kinetic::Status::INVALID_REQUEST,
                 fmt::format("Invalid Sequence Id: {}", header.sequence())));
      return true;
    };
    if (pin && tls_ == nullptr) {
      return refuse(kinetic::Status::INVALID_REQUEST, "TLS channel is required for Pin operation");
    }
    if (pin && header.messagetype() != Header::PINOP) {
      return refuse(kinetic::Status::INVALID_REQUEST, "a PIN is for PIN operations only");
    }
    if (pin) {
      if (TRY(is_out_of_turn())) return {};
      Hand(request, nullptr, frame.value.size(),
           [this, request, pin = message.pinauth().pin()](Command* answer) {
             service_.ExecutePin(*request, pin, answer);
             return KineticService::Outcome();
           });
      return {};
    }
    if (identity == nullptr) return refuse(kinetic::Status::HMAC_FAILURE, "unknown identity");
    if (!Authentic(message, identity->key)) {
      return refuse(kinetic::Status::HMAC_FAILURE, "HMAC did not compare");
    }
    if (TRY(is_out_of_turn())) return {};
    if (is_stranger_) Welcome();
    if (header.unerased() && identity->erasures != greeted_erasures_) {
      return refuse(kinetic::Status::CONNECTION_TERMINATED,
                    "the device was erased since it greeted this connection");
    }
    const int64_t cluster_version = security.cluster_version();
    if (header.clusterversion() != cluster_version) {
      return refuse(kinetic::Status::VERSION_FAILURE,
                    fmt::format("this device has cluster version {}, the request {}",
                                cluster_version, header.clusterversion()));
    }
    if (security.locked()) {
      batches_.Clear();
      return refuse(kinetic::Status::DEVICE_LOCKED, "the device is locked");
    }
    if (header.has_priority() &&
        (header.priority() < Workers::kLowest || header.priority() > Workers::kHighest)) {
      return refuse(kinetic::Status::INVALID_REQUEST,
                    fmt::format("unknown priority {}", header.priority()));
    }
    if (header.priority() > identity->acl.max_priority) {
      return refuse(kinetic::Status::NOT_AUTHORIZED,
                    fmt::format("permission denied: priority {}, and {} is this identity's highest",
                                header.priority(), identity->acl.max_priority));
    }
    const KineticService::Caller caller{.identity = identity,
                                        .tls = tls_ != nullptr,
                                        .cluster_version = cluster_version,
                                        .unerased = header.unerased()};
    if (TRY(AddToBatch(caller, *request, frame))) return {};
    if (frame.value_dropped) return RefuseLongValue(*request, *identity, frame);
    const size_t bytes = frame.value.size();
    switch (header.messagetype()) {
      case Header::GET:
        if (AnswerAtOnce(caller, *request, bytes)) return {};
        break;
      case Header::PUT: AddPut(caller, request, std::move(frame)); return {};
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

  // Whether the request was made for this connection. Who says nothing of connections may have what
  // it said elsewhere repeated here; nobody else, and nobody who has said otherwise before. A PIN
  // binds nothing.
  Status CheckConnection(const Header& header, bool pin) {
    bound_ = bound_ || (header.bound() && !pin);
    const int64_t id = header.connectionid();
    if (id == 0 && !bound_) return {};
    if (id == connection_id_ && (pin || header.bound() == bound_)) return {};
    return Fail(EBADMSG,
                "a request of connection {:x} on connection {:x}; does somebody repeat it?", id,
                connection_id_);
  }

  // What any other PUT that fails is answered.
  Status RefuseLongValue(const Command& request, const DeviceSecurity::Identity& identity,
                         const Frame& frame) {
    Command answer = AnswerTo(request);
    if (request.header().messagetype() == Header::PUT) answer.mutable_body()->mutable_keyvalue();
    KineticService::SetFailure(LongValue(frame), &answer);
    Send(SignedFrame(answer, identity.id, identity.key, 0));
    return {};
  }

  static Status LongValue(const Frame& frame) {
    return Fail(EINVAL, "a value of {} bytes; the limit is {}", frame.value_bytes, kMaxValueBytes);
  }

  static std::string NoBatch(uint32_t id) { return fmt::format("batch {} is not open", id); }

  // Requests of a batch have no answers of their own, so that there is none to refuse them with.
  static Status BrokenBatch(std::string_view why) { return Fail(EPROTO, "{}", why); }

  // True: it is a part of a batch, and done with for now. Number 0 without such a batch is what a
  // client may say that has none.
  Result<bool> AddToBatch(const KineticService::Caller& caller, const Command& request,
                          Frame& frame) {
    const Header& header = request.header();
    const bool change =
        header.messagetype() == Header::PUT || header.messagetype() == Header::DELETE;
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
  const std::shared_ptr<Command>& SmallRequest() {
    if (request_ == nullptr || request_.use_count() > 1) request_ = UsedOrNew();
    return request_;
  }

  std::shared_ptr<Command> UsedOrNew() {
    if (used_.empty()) return std::make_shared<Command>();
    std::shared_ptr<Command> command = std::move(used_.back());
    used_.pop_back();
    return command;
  }

  // Here and now, where nobody has to be waited for: that costs less than to hand it over. False:
  // it was not.
  bool AnswerAtOnce(const KineticService::Caller& caller, const Command& request, size_t bytes) {
    const Time received = loop_.runtime().Now();
    StartAnswer(request, &answer_);
    std::optional<KineticService::Outcome> outcome =
        service_.ExecuteAtOnce(caller, request, &answer_);
    if (!outcome) return false;
    Note(Header::GET, bytes + outcome->value.size(), received, answer_);
    ready_.push_back(AnswerOf(answer_, caller.identity.get(), std::move(outcome->value), 0));
    return true;
  }

  // What was answered at once goes out together.
  void SendReady() {
    if (ready_.empty()) return;
    at_once_ += ready_.size();
    {
      const std::lock_guard lock(mutex_);
      requests_under_way_ += ready_.size();
    }
    SendAll(ready_);
    ready_.clear();
  }

  // A PUT, which is executed together with the others that one read has brought, and that came
  // while the ones before were executed.
  struct PendingPut {
    std::shared_ptr<Command> request;
    KineticService::Caller caller;
    SharedBytes value;
    size_t bytes = 0;  // of the value, also when that is gone
    Time received{};
    Time expiry{};
    bool after_flush = false;
    bool reusable = false;  // the request
    std::shared_ptr<Command> answer;
  };
  using PendingPuts = std::vector<PendingPut>;

  void AddPut(const KineticService::Caller& caller, const std::shared_ptr<Command>& request,
              Frame frame) {
    const int priority = PriorityOf(request->header());
    if (priority != puts_priority_) HandPuts();
    puts_priority_ = priority;
    PendingPut& put = puts_.emplace_back();
    put.request = request;
    put.caller = caller;
    put.answer = UsedOrNew();
    put.reusable = frame.message.size() <= kMostRequestReused;
    put.bytes = frame.value.size();
    put.value = SharedBytes(std::move(frame.value));
    put.received = loop_.runtime().Now();
    put.expiry = ExpiryOf(request->header());
  }

  // A few small ones while nobody else wants anything, as AnswerAtOnce(): to hand over a single one
  // costs more than to make it. Many are left to a worker, beside whom the next ones can be read.
  // False: they were not made.
  bool MakePutsAtOnce(size_t bytes) {
    if (puts_.size() > kMostPutsAtOnce || bytes > kMaxBytesAtOnce || loop_.others_wait()) {
      return false;
    }
    const Time begin = loop_.runtime().Now();
    if (begin < shared_->no_puts_at_once.load(std::memory_order_relaxed)) return false;
    {
      const std::lock_guard lock(mutex_);
      if (making_puts_) return false;
    }
    std::vector<KineticService::PutRequest> requests;
    requests.reserve(puts_.size());
    for (const PendingPut& put : puts_) {
      StartAnswer(*put.request, put.answer.get());
      requests.push_back({put.caller, put.request.get(), put.value, put.answer.get()});
    }
    const std::optional<std::vector<bool>> after_flush = service_.ExecutePutsAtOnce(requests);
    const Time end = loop_.runtime().Now();
    if (end - begin > options_.long_put) shared_->no_puts_at_once = end + kRestFromPuts;
    if (!after_flush) return false;
    const auto flushed = std::make_shared<PendingPuts>();
    for (size_t i = 0; i < puts_.size(); ++i) {
      PendingPut& put = puts_[i];
      put.value = {};
      put.after_flush = (*after_flush)[i];
      if (put.after_flush) {
        flushed->push_back(std::move(put));
        continue;
      }
      Note(Header::PUT, put.bytes, put.received, *put.answer);
      ready_.push_back(AnswerOf(*put.answer, put.caller.identity.get(), {}, 0));
      if (used_.size() >= kMostReused) continue;
      if (put.reusable) used_.push_back(std::move(put.request));
      used_.push_back(std::move(put.answer));
    }
    puts_.clear();
    if (flushed->empty()) return true;
    {
      const std::lock_guard lock(mutex_);
      requests_under_way_ += flushed->size();
      for (const PendingPut& put : *flushed) AddUnderWay(put.bytes);
    }
    SendAfterFlush(flushed);
    return true;
  }

  // To a worker. Small ones wait for those before them, for together they cost less, and nobody has
  // to be woken for them.
  void HandPuts() {
    if (puts_.empty()) return;
    size_t bytes = 0;
    for (const PendingPut& put : puts_) bytes += put.bytes;
    if (MakePutsAtOnce(bytes)) return;
    bool next_wait = false;
    {
      const std::lock_guard lock(mutex_);
      requests_under_way_ += puts_.size();
      AddUnderWay(bytes);
      if (used_.empty()) used_.swap(given_back_);
      const bool small = bytes <= kSmallPutsBytes;
      if (small && making_puts_ && puts_priority_ == making_priority_ &&
          waiting_bytes_ + bytes <= kMostPutsWaiting) {
        std::move(puts_.begin(), puts_.end(), std::back_inserter(waiting_puts_));
        puts_.clear();
        waiting_bytes_ += bytes;
        return;
      }
      if (small && !making_puts_) {
        next_wait = making_puts_ = true;
        making_priority_ = puts_priority_;
      }
    }
    const auto puts = std::make_shared<PendingPuts>(std::exchange(puts_, {}));
    threads_.workers.Add(
        [self = shared_from_this(), puts, next_wait] {
          self->MakePuts(puts);
          if (next_wait) self->MakeWaitingPuts();
        },
        puts_priority_);
  }

  // Of a worker, like the next.
  void MakeWaitingPuts() {
    const auto puts = std::make_shared<PendingPuts>();
    int priority = 0;
    {
      const std::lock_guard lock(mutex_);
      making_puts_ = !waiting_puts_.empty();
      if (!making_puts_) return;
      puts->swap(waiting_puts_);
      waiting_bytes_ = 0;
      priority = making_priority_;
    }
    threads_.workers.AddLast(
        [self = shared_from_this(), puts] {
          self->MakePuts(puts);
          self->MakeWaitingPuts();
        },
        priority);
  }

  void MakePuts(const std::shared_ptr<PendingPuts>& puts) {
    std::vector<KineticService::PutRequest> requests;
    std::vector<PendingPut*> executed;
    requests.reserve(puts->size());
    executed.reserve(puts->size());
    const Time now = loop_.runtime().Now();
    for (PendingPut& put : *puts) {
      StartAnswer(*put.request, put.answer.get());
      if (now >= put.expiry) {
        KineticService::SetFailure(TooLate(), put.answer.get());
        continue;
      }
      requests.push_back({put.caller, put.request.get(), std::move(put.value), put.answer.get()});
      executed.push_back(&put);
    }
    const std::vector<bool> after_flush = service_.ExecutePuts(requests);
    requests.clear();  // the values are not needed any more
    bool any_later = false;
    for (size_t i = 0; i < executed.size(); ++i) {
      executed[i]->after_flush = after_flush[i];
      any_later = any_later || after_flush[i];
    }
    SendPuts(*puts, /*after_flush=*/false);
    if (any_later) SendAfterFlush(puts);
  }

  // Those that wait for one.
  void SendAfterFlush(const std::shared_ptr<PendingPuts>& puts) {
    shared_->flushes->Add([self = shared_from_this(), puts](const Status& flushed) {
      for (PendingPut& put : *puts) {
        if (put.after_flush && !flushed.ok()) {
          KineticService::SetFailure(flushed, put.answer.get());
        }
      }
      self->SendPuts(*puts, /*after_flush=*/true);
    });
  }

  // Answers those that wait for a flush, or those that do not, and gives back what they used.
  void SendPuts(PendingPuts& puts, bool after_flush) {
    std::vector<Outgoing> answers;
    answers.reserve(puts.size());
    for (const PendingPut& put : puts) {
      if (put.after_flush != after_flush) continue;
      Note(Header::PUT, put.bytes, put.received, *put.answer);
      answers.push_back(AnswerOf(*put.answer, put.caller.identity.get(), {}, put.bytes));
    }
    SendAll(answers);
    const std::lock_guard lock(mutex_);
    for (PendingPut& put : puts) {
      if (put.after_flush != after_flush) continue;
      if (given_back_.size() >= kMostReused) break;
      if (put.reusable) given_back_.push_back(std::move(put.request));
      given_back_.push_back(std::move(put.answer));
    }
  }

  using Execute = std::function<KineticService::Outcome(Command* answer)>;

  // A request that was read and is not executed yet.
  struct Handed {
    std::shared_ptr<Command> request;
    DeviceSecurity::IdentityPtr identity;
    size_t bytes = 0;  // of its value
    Time received{};
    Time expiry{};
    Execute execute;
  };
  using HandedPtr = std::shared_ptr<Handed>;

  // Lets a worker execute the request, whose value has `bytes`.
  void Hand(std::shared_ptr<Command> request, DeviceSecurity::IdentityPtr identity, size_t bytes,
            Execute execute) {
    {
      const std::lock_guard lock(mutex_);
      ++requests_under_way_;
      AddUnderWay(bytes);
    }
    const auto handed = std::make_shared<Handed>();
    handed->received = loop_.runtime().Now();
    handed->expiry = ExpiryOf(request->header());
    handed->request = std::move(request);
    handed->identity = std::move(identity);
    handed->bytes = bytes;
    handed->execute = std::move(execute);
    Enqueue(handed);
  }

  void Enqueue(const HandedPtr& handed) {
    threads_.workers.Add(
        [self = shared_from_this(), handed] {
          if (!self->HoldBack(handed)) self->Do(*handed);
        },
        PriorityOf(handed->request->header()));
  }

  // While the peer does not take the answers that there are, no more values are read for it: they
  // would only leave the cache again, and take memory.
  bool HoldBack(const HandedPtr& handed) {
    if (!ReadsValues(handed->request->header().messagetype())) return false;
    const std::lock_guard lock(mutex_);
    if (gone_ || unsent_bytes_ < kMostUnsent) return false;
    held_back_.push_back(handed);
    return true;
  }

  static bool ReadsValues(Header::MessageType type) {
    switch (type) {
      case Header::GET:
      case Header::GETNEXT:
      case Header::GETPREVIOUS:
      case Header::GETKEYRANGE: return true;
      default: return false;
    }
  }

  void Do(const Handed& handed) {
    auto answer = std::make_shared<Command>(AnswerTo(*handed.request));
    KineticService::Outcome outcome;
    if (handed.expiry != Time::max() && loop_.runtime().Now() >= handed.expiry) {
      KineticService::SetFailure(TooLate(), answer.get());
    } else {
      outcome = handed.execute(answer.get());
    }
    const int type = handed.request->header().messagetype();
    const size_t bytes = handed.bytes;
    if (!outcome.after_flush) {
      Note(type, bytes + outcome.value.size(), handed.received, *answer);
      Answer(*answer, handed.identity.get(), std::move(outcome.value), bytes);
      return;
    }
    shared_->flushes->Add([self = shared_from_this(), answer, identity = handed.identity, bytes,
                           type, received = handed.received](const Status& flushed) {
      if (!flushed.ok()) KineticService::SetFailure(flushed, answer.get());
      self->Note(type, bytes, received, *answer);
      self->Answer(*answer, identity.get(), {}, bytes);
    });
  }

  static Status TooLate() { return Fail(EBUSY, "its time ran out before its turn came"); }

  // Lets it be done beside the other requests.
  void StartLong(std::shared_ptr<Command> request, const KineticService::Caller& caller,
                 size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      ++requests_under_way_;
      AddUnderWay(bytes);
    }
    Runtime& runtime = loop_.runtime();
    const Header& header = request->header();
    const Time received = runtime.Now();
    Time expiry = ExpiryOf(header);
    const Duration longest = KineticService::LongestTime(*request);
    if (expiry == Time::max() && longest != Duration::max()) expiry = received + longest;
    auto answer = std::make_shared<Command>(AnswerTo(*request));
    const auto done = [self = shared_from_this(), request, answer, identity = caller.identity,
                       bytes, received] {
      self->Note(request->header().messagetype(), 0, received, *answer);
      self->Answer(*answer, identity.get(), {}, bytes);
    };
    auto operation =
        service_.Start(runtime, threads_.peers, caller, *request, expiry, answer.get());
    if (!operation.has_value()) {
      KineticService::SetFailure(operation.error(), answer.get());
      return done();
    }
    Background::Job job{.done = done,
                        .late = [answer] { KineticService::SetFailure(TooLate(), answer.get()); },
                        .operation = *std::move(operation),
                        .cancellation = std::make_shared<Cancellation>(runtime),
                        .priority = PriorityOf(header),
                        .expiry = expiry};
    if (header.has_timequanta()) {
      const auto most = static_cast<uint64_t>(Background::kQuantum / std::chrono::milliseconds(1));
      job.quantum = std::chrono::milliseconds(std::min<uint64_t>(header.timequanta(), most));
    }
    std::erase_if(long_operations_, [](const auto& each) { return each.expired(); });
    long_operations_.push_back(job.cancellation);
    const bool push = header.messagetype() == Header::PEER2PEERPUSH;
    (push ? threads_.pushes : threads_.scans).Start(std::move(job));
  }

  static int PriorityOf(const Header& header) {
    return header.has_priority() ? header.priority() : Workers::kNormal;
  }

  // Counts what was done, and tells where the device itself failed.
  void Note(int type, size_t value_bytes, Time received, const Command& answer) {
    const kinetic::Status& status = answer.status();
    const bool moved = status.code() == kinetic::Status::SUCCESS;
    service_.statistics().Add(type, moved ? value_bytes : 0, loop_.runtime().Now() - received);
    switch (status.code()) {
      case kinetic::Status::INTERNAL_ERROR:
      case kinetic::Status::PERM_DATA_ERROR:
      case kinetic::Status::NO_SPACE:
        Tell(LogLevel::kWarn, "request failed",
             {{"port", service_.port()},
              {"type", type},
              {"status", StatusCodeName(status.code())},
              {"why", status.statusmessage()}});
        break;
      default: break;
    }
  }

  void Tell(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
    service_.events().Add(loop_.runtime().WallClock(), level, event, fields);
  }

  // When a request need not be executed any more.
  Time ExpiryOf(const Header& header) const {
    constexpr auto kLongest = std::chrono::hours(24 * 365);
    const std::chrono::milliseconds most = kLongest;
    if (header.timeout() == 0 || header.timeout() >= static_cast<uint64_t>(most.count())) {
      return Time::max();
    }
    return loop_.runtime().Now() + std::chrono::milliseconds(header.timeout());
  }

  // Without an identity: to a PIN operation.
  static Outgoing AnswerOf(const Command& answer, const DeviceSecurity::Identity* identity,
                           SharedBytes value, size_t request_bytes) {
    std::string head = identity == nullptr
                           ? UnsignedFrame(Unsigned::kPinAnswer, answer)
                           : SignedFrame(answer, identity->id, identity->key, value.size());
    return {std::move(head), std::move(value), request_bytes, /*answers=*/true};
  }

  void Answer(const Command& answer, const DeviceSecurity::Identity* identity, SharedBytes value,
              size_t request_bytes) {
    std::array<Outgoing, 1> out = {AnswerOf(answer, identity, std::move(value), request_bytes)};
    SendAll(out);
  }

  Command AnswerTo(const Command& request) const {
    Command answer;
    StartAnswer(request, &answer);
    return answer;
  }

  void StartAnswer(const Command& request, Command* started) const {
    Command& answer = *started;
    answer.Clear();
    Header* header = answer.mutable_header();
    header->set_connectionid(connection_id_);
    header->set_acksequence(request.header().sequence());
    if (request.header().has_messagetype()) {
      const int type = request.header().messagetype() - 1;
      if (kinetic::Header::MessageType_IsValid(type)) {
        header->set_messagetype(static_cast<Header::MessageType>(type));
      }
    }
  }

  // The stream cannot be followed any more: says why, where that may help, and ends it.
  void GiveUp(const Status& why) {
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

  // Any thread, like the next.
  void Send(std::string frame, bool last = false) {
    std::array<Outgoing, 1> out = {Outgoing{.head = std::move(frame), .last = last}};
    SendAll(out);
  }

  void SendAll(std::span<Outgoing> out) {
    std::unique_lock lock(mutex_);
    if (gone_ || out.empty()) return;
    for (Outgoing& each : out) {
      AddUnderWay(each.size());
      unsent_bytes_ += each.size();
      outgoing_.push_back(std::move(each));
    }
    if (blocked_ || sending_) return;  // whoever waits or sends takes it along
    Flush(lock);
  }

  // Sends until nothing is left or the socket is full. One thread at a time.
  void Flush(std::unique_lock<std::mutex>& lock) {
    sending_ = true;
    bool ended = false;
    while (!gone_ && !outgoing_.empty() && !blocked_) {
      std::array<iovec, 2 * kSendAtOnce> parts;
      const size_t count = Gather(parts);
      lock.unlock();
      const ssize_t sent = Write(parts.data(), count);
      const int error = errno;
      lock.lock();
      if (sent >= 0) {
        ended = Consume(static_cast<size_t>(sent)) || ended;
      } else if (error == EAGAIN) {
        blocked_ = true;
      } else if (error != EINTR) {
        ended = true;
      }
      if (ended) break;
    }
    sending_ = false;
    const bool watch = blocked_ || (paused_ && !IsFull());
    const std::vector<HandedPtr> next = TakeHeldBack();
    lock.unlock();
    for (const HandedPtr& handed : next) Enqueue(handed);
    // The loop's thread looks after the rest, for nobody else may touch what it reads.
    if (ended) {
      loop_.Post([self = shared_from_this()] { self->Close(); });
    } else if (watch) {
      loop_.Post([self = shared_from_this()] { self->Watch(); });
    }
  }

  ssize_t Write(iovec* parts, size_t count) {
    if (tls_ != nullptr) return tls_->Write(parts, static_cast<int>(count));
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    return sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // With mutex_ held. The entries stay where they are (a deque's do) until Consume().
  size_t Gather(std::array<iovec, 2 * kSendAtOnce>& parts) const {
    size_t count = 0;
    size_t skip = sent_of_first_;
    const auto add = [&](Bytes bytes) {
      const size_t skipped = std::min(skip, bytes.size());
      skip -= skipped;
      bytes = bytes.subspan(skipped);
      if (!bytes.empty()) parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    };
    for (size_t i = 0; i < std::min(outgoing_.size(), kSendAtOnce); ++i) {
      add(AsBytes(outgoing_[i].head));
      add(outgoing_[i].value);
    }
    return count;
  }

  // What need not be held back any more: all when the peer waits for answers, else one. With mutex_
  // held.
  std::vector<HandedPtr> TakeHeldBack() {
    if (unsent_bytes_ >= kMostUnsent || held_back_.empty()) return {};
    const auto end = outgoing_.empty() ? held_back_.end() : held_back_.begin() + 1;
    std::vector<HandedPtr> taken(held_back_.begin(), end);
    held_back_.erase(held_back_.begin(), end);
    return taken;
  }

  // With mutex_ held. True: the last words are out.
  bool Consume(size_t bytes) {
    if (gone_) return false;
    sent_of_first_ += bytes;
    sent_bytes_ += bytes;
    while (!outgoing_.empty() && sent_of_first_ >= outgoing_.front().size()) {
      const Outgoing& first = outgoing_.front();
      sent_of_first_ -= first.size();
      const size_t done = first.size() + first.request_bytes;
      bytes_under_way_ -= done;
      budgets_.values.Subtract(done);
      unsent_bytes_ -= first.size();
      if (first.answers) --requests_under_way_;
      const bool last = first.last;
      outgoing_.pop_front();
      if (last) return true;
    }
    return false;
  }

  // With mutex_ held, like the next.
  void AddUnderWay(size_t bytes) {
    bytes_under_way_ += bytes;
    budgets_.values.Add(bytes);
  }

  // Where the daemon has too much under way, one request of each connection after the other.
  bool IsFull() const {
    const size_t most = is_known_ ? kMaxBytesUnderWay : kMaxNewcomerBytesUnderWay;
    return requests_under_way_ >= kMaxRequestsUnderWay || bytes_under_way_ >= most ||
           (bytes_under_way_ > 0 && budgets_.values.exhausted());
  }

  bool WantsMore() {
    const std::lock_guard lock(mutex_);
    return !gone_ && !giving_up_ && !waits_for_room_ && !IsFull();
  }

  // Somebody who does not take its answers holds room that others may want. Loop thread, like the
  // next ones.
  void WatchUnsent() {
    if (std::exchange(watching_unsent_, true)) return;
    {
      const std::lock_guard lock(mutex_);
      unsent_since_ = sent_bytes_;
    }
    unsent_timer_.Arm(loop_.runtime().Now() + options_.frame_timeout);
  }

  void CheckUnsent() {
    watching_unsent_ = false;
    bool blocked = false;
    bool moves = false;
    {
      const std::lock_guard lock(mutex_);
      blocked = blocked_;
      moves = sent_bytes_ != unsent_since_;
    }
    if (!blocked) return;
    if (!moves && (budgets_.values.is_wanted() || budgets_.values.exhausted())) {
      Tell(
          LogLevel::kWarn, "connection given up",
          {{"port", service_.port()}, {"why", "answers were not taken, and their room is wanted"}});
      return Close();
    }
    WatchUnsent();
  }

  // Tells the loop what is waited for.
  void Watch() {
    uint32_t events = 0;
    {
      const std::lock_guard lock(mutex_);
      if (gone_) return;
      paused_ = IsFull();
      if (!giving_up_ && !paused_ && !waits_for_room_) events |= EPOLLIN;
      if (blocked_) events |= EPOLLOUT;
    }
    if (events & EPOLLOUT) WatchUnsent();
    if ((events & EPOLLIN) && tls_ != nullptr) {
      if (tls_->read_wants_write()) events |= EPOLLOUT;
      // What TLS has already taken from the socket, epoll does not tell.
      if (tls_->may_have_more() && !std::exchange(read_posted_, true)) {
        loop_.Post([self = shared_from_this()] {
          self->read_posted_ = false;
          self->OnReady(EPOLLIN);
        });
      }
    }
    if (events == watched_) return;
    watched_ = events;
    loop_.Change(watch_id_, socket_.get(), events);
  }

  IoLoop& loop_;
  const Threads& threads_;
  Budgets& budgets_;
  const std::shared_ptr<Shared> shared_;  // of the device
  KineticService& service_;
  const std::unique_ptr<Places::Place> place_;  // until the socket is closed
  const FileDescriptor socket_;
  const std::unique_ptr<TlsStream> tls_;  // null: without
  const Server::Options& options_;
  IoLoop::Timer timer_;         // of the handshake, then of frames
  IoLoop::Timer unsent_timer_;  // of answers that the peer does not take
  const std::function<void(std::shared_ptr<Session>)> closed_;

  // Of the loop thread:
  FrameReader reader_;
  ValueBudget::Share frame_room_;          // of the frame that is being read, where it is large
  uint64_t frame_with_room_ = UINT64_MAX;  // frames_ when that was asked for
  bool waits_for_room_ = false;            // in a budget
  bool watching_unsent_ = false;           // the timer is armed
  uint64_t unsent_since_ = 0;              // sent_bytes_ then
  OpenBatches batches_;
  std::vector<std::weak_ptr<Cancellation>> long_operations_;
  int64_t connection_id_ = 0;
  uint64_t watch_id_ = 0;
  bool bound_ = false;  // its requests say that they are of this connection, and only of it
  bool any_sequence_ = false;
  uint64_t last_sequence_ = 0;
  // How often the device had been erased when it greeted its client, and when the batches began.
  uint64_t greeted_erasures_ = 0;
  uint64_t batches_erasures_ = 0;
  bool giving_up_ = false;
  bool shaking_hands_ = false;
  bool read_posted_ = false;
  bool is_stranger_ = true;           // no request had a right signature yet
  uint64_t frames_ = 0;               // that were read to their end
  uint64_t half_frame_ = UINT64_MAX;  // frames_ when a half one was last found
  Time half_since_{};                 // and when that was
  bool watching_frames_ = false;      // the timer is armed
  uint32_t watched_ = EPOLLIN;
  kinetic::Message message_;          // the last one, like the next; small
  std::shared_ptr<Command> request_;  // perhaps a worker's, too
  Command answer_;
  std::vector<Outgoing> ready_;                 // answers, since the last read
  size_t at_once_ = 0;                          // how many there were, since the socket was ready
  PendingPuts puts_;                            // since the last read
  std::vector<std::shared_ptr<Command>> used_;  // nobody's: to be filled again
  int puts_priority_ = Workers::kNormal;

  std::mutex mutex_;
  std::deque<Outgoing> outgoing_;  // guarded by mutex_, like all below
  size_t sent_of_first_ = 0;       // bytes of outgoing_.front()
  size_t requests_under_way_ = 0;
  size_t bytes_under_way_ = 0;  // which the budget of the daemon knows
  uint64_t sent_bytes_ = 0;     // so far
  size_t unsent_bytes_ = 0;     // in outgoing_
  std::deque<HandedPtr> held_back_;
  bool sending_ = false;  // a thread is in Flush()
  bool blocked_ = false;  // the socket is full; the loop waits for it
  bool paused_ =
      false;  // the loop does not read until IsFull() ends; whoever ends it tells the loop
  bool is_known_ = false;  // a request of it had a right signature
  bool gone_ = false;
  bool making_puts_ = false;  // small ones, for which the next ones of their priority wait
  int making_priority_ = Workers::kNormal;
  PendingPuts waiting_puts_;
  size_t waiting_bytes_ = 0;                          // of their values
  std::vector<std::shared_ptr<Command>> given_back_;  // by workers, for the loop
};

Result<FileDescriptor> Bind(const std::string& host, uint16_t port) {
  sockaddr_in address4{};
  sockaddr_in6 address6{};
  const sockaddr* address = nullptr;
  socklen_t length = 0;
  if (inet_pton(AF_INET, host.c_str(), &address4.sin_addr) == 1) {
    address4.sin_family = AF_INET;
    address4.sin_port = htons(port);
    address = reinterpret_cast<const sockaddr*>(&address4);
    length = sizeof address4;
  } else if (inet_pton(AF_INET6, host.c_str(), &address6.sin6_addr) == 1) {
    address6.sin6_family = AF_INET6;
    address6.sin6_port = htons(port);
    address = reinterpret_cast<const sockaddr*>(&address6);
    length = sizeof address6;
  } else {
    return Fail(EINVAL, "'{}' is not an address to listen at, like 0.0.0.0 or ::1", host);
  }
  FileDescriptor socket(
      ::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return Fail(errno, "no socket: {}", ErrnoText(errno));
  const int yes = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(socket.get(), address, length) != 0 || listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    return Fail(error, "cannot listen at {} port {}: {}{}", host, port, ErrnoText(error),
                error == EADDRINUSE ? "; does another process serve it?" : "");
  }
  return socket;
}

Result<uint16_t> PortOf(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Fail(errno, "cannot tell the port: {}", ErrnoText(errno));
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// To one connection too many. It has not said anything yet, so it hears this.
void Decline(int socket, const Status& why) {
  Command last;
  last.mutable_status()->set_code(kinetic::Status::SERVICE_BUSY);
  last.mutable_status()->set_statusmessage(std::string(why.message()));
  const std::string frame = UnsignedFrame(Unsigned::kUnsolicited, last);
  // When it does not fit, the end of the connection says enough.
  [[maybe_unused]] const ssize_t sent =
      send(socket, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

class Server::Impl {
 public:
  Impl(Runtime& runtime, Options options)
      : options_(options),
        places_(LimitsOf(options)),
        budgets_(options.value_bytes),
        spare_(Spare()) {
    for (int i = 0; i < options.loops; ++i) {
      loops_.push_back(std::make_unique<IoLoop>(runtime, fmt::format("pin-serve-{}", i)));
      sessions_.emplace_back();
    }
    workers_ = std::make_unique<Workers>(runtime, "pin-work", options.workers);
    flushers_ = std::make_unique<Workers>(runtime, "pin-flush", options.flushers);
    scans_ = std::make_unique<Background>(runtime, "pin-scan", options.scanners);
    pushes_ = std::make_unique<Background>(runtime, "pin-push", options.pushers);
    peers_ = std::make_unique<KineticIo>(runtime);
    threads_.emplace(Threads{*workers_, *scans_, *pushes_, *peers_});
  }

  ~Impl() {
    loops_[0]->PostAndWait([this] {
      for (auto& listener : listeners_) listener->Stop();
    });
    for (size_t i = 0; i < loops_.size(); ++i) {
      loops_[i]->PostAndWait([this, i] {
        const auto sessions = sessions_[i];  // closing one takes it out of the set
        for (const auto& session : sessions) session->Close();
      });
    }
    pushes_.reset();
    scans_.reset();
    peers_.reset();     // pushes were its only users
    workers_.reset();   // may still add flushes
    flushers_.reset();  // may still post to the loops
    loops_.clear();
  }

  Result<uint16_t> Listen(const std::string& host, uint16_t port, KineticService& service,
                          std::shared_ptr<const TlsServer> tls) {
    FileDescriptor socket = TRY(Bind(host, port));
    const uint16_t bound = TRY(PortOf(socket.get()));
    tls == nullptr ? service.SetPort(bound) : service.SetTlsPort(bound);
    std::shared_ptr<Shared>& shared = shared_[&service];
    if (shared == nullptr) shared = std::make_shared<Shared>(*flushers_, service);
    auto listener =
        std::make_shared<Listener>(*this, service, std::move(socket), std::move(tls), shared);
    listeners_.push_back(listener);
    loops_[0]->PostAndWait([&] { listener->Start(); });
    return bound;
  }

 private:
  static Places::Limits LimitsOf(const Options& options) {
    Places::Limits limits = options.places;
    limits.per_device = kMaxConnections;
    return limits;
  }

  // A descriptor to give up for that of somebody who is to be sent away. Null: there is none left.
  static FileDescriptor Spare() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  class Listener final : public IoLoop::Handler, public std::enable_shared_from_this<Listener> {
   public:
    Listener(Impl& server, KineticService& service, FileDescriptor socket,
             std::shared_ptr<const TlsServer> tls, std::shared_ptr<Shared> shared)
        : server_(server),
          service_(service),
          socket_(std::move(socket)),
          tls_(std::move(tls)),
          shared_(std::move(shared)),
          again_(*server.loops_[0],
                 [this] { server_.loops_[0]->Change(watch_id_, socket_.get(), EPOLLIN); }) {}

    void Start() { watch_id_ = server_.loops_[0]->Add(socket_.get(), EPOLLIN, shared_from_this()); }
    void Stop() {
      again_.Cancel();
      server_.loops_[0]->Remove(watch_id_, socket_.get());
    }

    // A few at a time: those that give way for them are closed in between.
    void OnReady(uint32_t) override {
      for (int i = 0; i < kAcceptedAtOnce; ++i) {
        sockaddr_storage peer{};
        socklen_t length = sizeof peer;
        FileDescriptor client(accept4(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                                      SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (client.get() < 0) {
          if (errno == EINTR || errno == ECONNABORTED) continue;
          if (errno != EAGAIN) CannotAccept(errno);
          return;
        }
        const int yes = 1;
        setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        Admit(std::move(client), Places::AddressOf(peer));
      }
    }

   private:
    static constexpr int kAcceptedAtOnce = 16;
    static constexpr Duration kQuiet = std::chrono::seconds(10);

    uint16_t Port() const { return tls_ == nullptr ? service_.port() : service_.tls_port(); }

    void Tell(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
      service_.events().Add(server_.loops_[0]->runtime().WallClock(), level, event, fields);
    }

    // The socket stays ready as long as somebody waits for it, so it is left alone for a moment;
    // who has waited longest is sent away, as somebody who knows it can try another time.
    void CannotAccept(int error) {
      const Time now = server_.loops_[0]->runtime().Now();
      const bool short_of_descriptors = error == EMFILE || error == ENFILE;
      if (short_of_descriptors && server_.spare_.get() >= 0) {
        server_.spare_ = FileDescriptor();
        const FileDescriptor client(
            accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      }
      if (server_.spare_.get() < 0) server_.spare_ = Spare();
      if (now >= quiet_until_) {
        quiet_until_ = now + kQuiet;
        Tell(LogLevel::kError, "cannot accept connections",
             {{"port", Port()},
              {"why", ErrnoText(error)},
              {"do", short_of_descriptors ? "raise the limit of descriptors (LimitNOFILE)"
                                          : "see to the machine's memory"}});
      }
      server_.loops_[0]->Change(watch_id_, socket_.get(), 0);
      again_.Arm(now + server_.options_.accept_pause);
    }

    void Refuse(int client, const Status& why) {
      ++refused_;
      const Time now = server_.loops_[0]->runtime().Now();
      if (now >= quiet_until_) {
        quiet_until_ = now + kQuiet;
        Tell(LogLevel::kWarn, "connections refused: too many",
             {{"port", Port()}, {"why", why}, {"refused", std::exchange(refused_, 0)}});
      }
      if (tls_ == nullptr) Decline(client, why);
    }

    void Admit(FileDescriptor client, const std::string& address) {
      Result<std::unique_ptr<Places::Place>> place = server_.places_.Take(&service_, address);
      if (!place.has_value()) return Refuse(client.get(), place.error());
      std::unique_ptr<TlsStream> stream;
      if (tls_ != nullptr) {
        Result<std::unique_ptr<TlsStream>> accepted = tls_->Accept(client.get());
        if (!accepted.has_value()) {
          Tell(LogLevel::kError, "cannot accept a connection",
               {{"port", Port()}, {"why", accepted.error()}});
          return;
        }
        stream = *std::move(accepted);
      }
      const size_t i = server_.next_loop_++ % server_.loops_.size();
      IoLoop& loop = *server_.loops_[i];
      auto session = std::make_shared<Session>(
          loop, *server_.threads_, server_.budgets_, shared_, service_, *std::move(place),
          std::move(client), std::move(stream), server_.options_,
          [&server = server_, i](const std::shared_ptr<Session>& self) {
            server.sessions_[i].erase(self);
          });
      loop.Post([&server = server_, i, session = std::move(session)] {
        server.sessions_[i].insert(session);
        session->Start();
      });
    }

    Impl& server_;
    KineticService& service_;
    const FileDescriptor socket_;
    const std::shared_ptr<const TlsServer> tls_;  // null: a plain port
    const std::shared_ptr<Shared> shared_;
    IoLoop::Timer again_;  // when accepting has failed
    uint64_t watch_id_ = 0;
    Time quiet_until_{};    // nothing is told of who was refused
    uint64_t refused_ = 0;  // and not told of
  };

  const Options options_;
  Places places_;         // outlives the sessions, which workers may have until they end
  Budgets budgets_;       // likewise
  FileDescriptor spare_;  // of the first loop's thread
  std::vector<std::unique_ptr<IoLoop>> loops_;
  std::vector<std::set<std::shared_ptr<Session>>> sessions_;  // of each loop, on its thread
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Workers> flushers_;
  std::unique_ptr<Background> scans_;
  std::unique_ptr<Background> pushes_;
  std::unique_ptr<KineticIo> peers_;
  std::optional<Threads> threads_;
  std::vector<std::shared_ptr<Listener>> listeners_;
  std::map<KineticService*, std::shared_ptr<Shared>> shared_;
  size_t next_loop_ = 0;  // of the first loop's thread
};

Server::Server(Runtime& runtime, Options options)
    : impl_(std::make_unique<Impl>(runtime, options)) {}

Server::~Server() = default;

Result<uint16_t> Server::Listen(const std::string& host, uint16_t port, KineticService& service,
                                std::shared_ptr<const TlsServer> tls) {
  return impl_->Listen(host, port, service, std::move(tls));
}

}  // namespace pinstripe
