#include "daemon/resp_session.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "daemon/slow_log.h"
#include "kinetic/key_text.h"
#include "kinetic/kinetic.pb.h"
#include "store/gate.h"

namespace pinstripe {
namespace {

using kinetic::Header;

constexpr int kReadsAtOnce = 16;  // of one socket before the others get their turn

// Commands that are parsed before the first of them is executed. A read may bring millions.
constexpr size_t kMostParsed = 1024;

// Commands of one connection that the loop executes before the others get their turn, and how long
// a worker is at those of one.
constexpr size_t kMostAtOnce = 128;
constexpr Duration kMostByWorker = std::chrono::milliseconds(2);

// Answers that the peer has not taken, beyond which no command is executed for it. Some clients
// read none until all they have to say is said.
constexpr size_t kMostUnsent = 64 << 20;
constexpr size_t kMostUnsentInNeed = 1 << 20;  // where the daemon has too much under way

// A request that is larger is received when there is room for it in the budget of the daemon.
constexpr size_t kMostWithoutRoom = 64 << 10;

constexpr size_t kMostPutsOfOne = 64;  // that go together, of one connection

// That of a command which has one, for people.
std::string KeyOf(const RespRequest& request) {
  return KeyText(std::string(kRespPrefix).append(request.text(1).substr(0, kMaxRespKeyBytes)));
}

const RespCommand* GetCommand() {
  static const RespCommand* const command = FindRespCommand("get");
  return command;
}

const RespCommand* SetCommand() {
  static const RespCommand* const command = FindRespCommand("set");
  return command;
}

// As what a command is counted among those that Kinetic clients send.
Header::MessageType TypeOf(const RespCommand& command) {
  if (!command.Has(RespCommand::kChanges)) return Header::GET;
  return command.name.ends_with("del") || command.name == "unlink" ? Header::DELETE : Header::PUT;
}

}  // namespace

RespSession::RespSession(IoLoop& loop, Shared shared, std::shared_ptr<RespPuts> puts,
                         std::unique_ptr<Places::Place> place, FileDescriptor socket,
                         std::unique_ptr<TlsStream> tls,
                         std::function<void(std::shared_ptr<Connection>)> closed)
    : loop_(loop),
      shared_(shared),
      device_(shared.device),
      puts_(std::move(puts)),
      place_(std::move(place)),
      socket_(std::move(socket)),
      tls_(std::move(tls)),
      closed_(std::move(closed)),
      timer_(loop, [this] { shaking_hands_ ? Close() : CheckProgress(); }) {}

RespSession::~RespSession() { shared_.budgets.values.Subtract(counted_unsent_); }

void RespSession::Start() {
  client_.caller.tls = tls_ != nullptr;
  client_.caller.gone = &gone_;
  while (client_.number == 0) {
    client_.number = static_cast<int64_t>(loop_.runtime().Random() >> 1);
  }
  watch_id_ = loop_.Add(socket_.get(), EPOLLIN, shared_from_this());
  const Time now = loop_.runtime().Now();
  client_.known = std::make_shared<ConnectedClient>(PeerText(socket_.get()), tls_ != nullptr,
                                                    client_.number, now);
  client_.Introduce();
  device_.service().clients().Add(client_.known);
  place_->OnEnd([weak = weak_from_this(), &loop = loop_] {
    loop.Post([weak] {
      if (const auto self = weak.lock()) self->Close();
    });
  });
  if (tls_ == nullptr) return;
  shaking_hands_ = true;
  timer_.Arm(now + shared_.options.handshake_timeout);
}

void RespSession::Close() {
  if (gone_.exchange(true)) return;
  if (client_.known != nullptr) device_.service().clients().Remove(client_.known);
  timer_.Cancel();
  shared_.budgets.values.Forget(this);
  room_.Return();
  if (tls_ != nullptr) tls_->SayGoodbye();
  shutdown(socket_.get(), SHUT_RDWR);
  loop_.Remove(watch_id_, socket_.get());
  closed_(shared_from_this());
}

void RespSession::ShakeHands(uint32_t epoll_events) {
  if (epoll_events & (EPOLLERR | EPOLLHUP)) return Close();
  const Result<TlsStream::Step> step = tls_->Handshake();
  if (!step.has_value()) {
    Log(LogLevel::kInfo, "TLS handshake failed",
        {{"drive", device_.service().path()}, {"why", step.error()}});
    return Close();
  }
  if (*step == TlsStream::Step::kDone) {
    shaking_hands_ = false;
    timer_.Cancel();
    return Watch();
  }
  const uint32_t events = *step == TlsStream::Step::kWantsWrite ? EPOLLOUT : EPOLLIN;
  if (events != std::exchange(watched_, events)) {
    loop_.Change(watch_id_, socket_.get(), events);
  }
}

void RespSession::OnReady(uint32_t epoll_events) {
  if (shaking_hands_) return ShakeHands(epoll_events);
  if (epoll_events & (EPOLLERR | EPOLLHUP)) return Close();
  if (epoll_events & EPOLLOUT) blocked_ = false;
  const bool was_busy = busy_;
  at_once_ = 0;
  Advance();
  const bool readable = (epoll_events & EPOLLIN) || tls_ != nullptr;
  for (int reads = 0; readable && reads < kReadsAtOnce && at_once_ < kMostAtOnce && WantsMore();
       ++reads) {
    const Result<bool> more = Receive();
    if (!more.has_value()) return Close();
    if (!*more) break;
  }
  Watch(was_busy);
}

// One read, and what it completed. False: there is nothing more to read now.
Result<bool> RespSession::Receive() {
  iovec space[2];
  const int spaces = reader_.Space(space);
  const size_t place = space[0].iov_len + (spaces > 1 ? space[1].iov_len : 0);
  const ssize_t got =
      tls_ != nullptr ? tls_->Read(space, spaces) : readv(socket_.get(), space, spaces);
  if (got < 0) {
    if (errno == EINTR) return true;
    if (errno == EAGAIN) return false;
    return Fail(EHOSTUNREACH, "{}", ErrnoText(errno));
  }
  if (got == 0 && replies_.unsent_bytes() > 0) {
    ends_ = true;
    return false;
  }
  if (got == 0) return Fail(EHOSTUNREACH, "the client closed the connection");
  reader_.Filled(static_cast<size_t>(got));
  Parse();
  Advance();
  TakeRoom();
  return static_cast<size_t>(got) == place;
}

// Only the next one of a stranger: what comes behind it may be more than he could send.
void RespSession::Parse() {
  since_ = loop_.runtime().Now();
  unparsed_ = false;
  while (broken_.empty() && !unparsed_) {
    Result<std::optional<RespRequest>> next = reader_.Next();
    if (!next.has_value()) {
      broken_ = fmt::format("ERR {}", next.error().message());
    } else if (*next) {
      ++commands_;
      requests_.push_back(**std::move(next));
      unparsed_ = !is_known_ || requests_.size() >= kMostParsed;
    } else {
      return;
    }
  }
}

// When all that was parsed is executed. True: there is more to execute.
bool RespSession::TakeNext() {
  requests_.clear();
  next_ = 0;
  if (unparsed_ && !client_.quits) Parse();
  if (HasNext()) return true;
  if (!broken_.empty() && !ends_ && !client_.quits) replies_.Error(broken_);
  if (!broken_.empty() || client_.quits) ends_ = true;
  return false;
}

// Executes what came, sends the answers, and goes on with what came behind it, as far as that can
// be done now.
void RespSession::Advance() {
  while (!busy_ && !gone_) {
    if (HasNext() && !IsFull()) {
      if (at_once_ >= kMostAtOnce) {
        if (MustFlush()) return FlushFirst();
        Send();
        return GoOnLater();
      }
      const size_t before = next_;
      ExecuteAtOnce();
      if (!busy_ && !gone_ && next_ == before) HandOver();
      continue;
    }
    if (!HasNext() && TakeNext()) continue;
    if (MustFlush()) return FlushFirst();
    Send();
    if (!HasNext() || IsFull()) return;
  }
}

// When the others had their turn.
void RespSession::GoOnLater() {
  if (std::exchange(later_posted_, true)) return;
  loop_.Post([self = shared_from_this()] {
    self->later_posted_ = false;
    self->at_once_ = 0;
    if (self->gone_) return;
    self->Advance();
    self->Watch();
  });
}

bool RespSession::IsFull() const {
  const size_t unsent = replies_.unsent_bytes();
  return unsent >= kMostUnsent ||
         (unsent >= kMostUnsentInNeed && shared_.budgets.values.exhausted());
}

// Identities may have changed since he said who he is, and the device may have been erased.
void RespSession::Admit() {
  DeviceSecurity::IdentityPtr& identity = client_.caller.identity;
  if (identity == nullptr) return;
  const DeviceSecurity& security = device_.service().security();
  DeviceSecurity::IdentityPtr now = security.Find(identity->id);
  if (now == identity) return;
  const bool is_same = now != nullptr && now->rights.key == identity->rights.key &&
                       now->erasures == identity->erasures;
  identity = is_same ? std::move(now) : nullptr;
}

void RespSession::NoteLogin() {
  if (is_known_ || client_.caller.identity == nullptr) return;
  is_known_ = true;
  reader_.SetLimits(RespReader::kOfClients);
  place_->Welcome();
}

// From the next request on, until one has to wait.
void RespSession::ExecuteAtOnce() {
  const Gate::QuickVisit visit(device_.service().inside().executing);
  const RespTurns::Quick turn(device_.turns());
  if (!visit.inside() || !turn.inside()) return;
  Admit();
  while (HasNext() && !IsFull() && at_once_ < kMostAtOnce) {
    ++at_once_;
    if (!ExecuteNextAtOnce()) return;
  }
}

// False: it was not, as it has to wait, or others are waited for now.
bool RespSession::ExecuteNextAtOnce() {
  const RespRequest& request = requests_[next_];
  const bool may_be_quick = client_.caller.identity != nullptr && !client_.queue &&
                            !device_.service().security().locked();
  if (may_be_quick && IsPlainGet(request)) {
    Result<std::optional<RespDevice::Entry>> entry =
        device_.GetAtOnce(client_.caller, request.text(1));
    if (!entry.has_value() || !CheckText(*entry).ok()) return false;
    const size_t bytes = *entry ? (*entry)->value.size() : 0;
    *entry ? replies_.Value(std::move((*entry)->value)) : replies_.Null();
    Note(GetCommand(), request, bytes, {});
    ++next_;
    return true;
  }
  if (may_be_quick && IsPlainSet(request)) {
    PutAtOnce();
    return false;
  }
  RespCall call{device_, client_, request, replies_};
  const RespCommand* const command = FindRespCommand(request.text(0));
  if (command == nullptr && IsOfBrowser(request)) {
    GiveUp("a browser was made to send this");
    return false;
  }
  const bool is_queued = command != nullptr && client_.queue && !command->Has(RespCommand::kNow);
  const bool is_quick = is_queued || (command != nullptr && command->Has(RespCommand::kQuick));
  if (!is_quick && RefusalOf(command, call).empty()) return false;
  (void)ExecuteResp(command, call);  // that of none of these is the device's
  NoteLogin();
  ++next_;
  return true;
}

// With the puts of others. False: it may not be, of which a worker tells.
bool RespSession::PutAtOnce() {
  std::vector<Engine::Change> puts;
  while (puts.size() < kMostPutsOfOne && next_ + puts.size() < requests_.size()) {
    const RespRequest& request = requests_[next_ + puts.size()];
    if (!IsPlainSet(request)) break;
    Result<Engine::Change> put = device_.ChangeOf(
        client_.caller, request.text(1),
        RespDevice::Value{.type = RespDevice::Type::kText, .bytes = request.words[2]});
    if (!put.has_value()) break;
    puts.push_back(*std::move(put));
  }
  if (puts.empty()) return false;
  busy_ = true;
  puts_->Add(client_.caller.identity, std::move(puts),
             [self = shared_from_this()](std::span<const Status> made) { self->OnPut(made); });
  return true;
}

void RespSession::OnPut(std::span<const Status> made) {
  busy_ = false;
  at_once_ = 0;
  for (const Status& each : made) {
    const RespRequest& request = requests_[next_++];
    each.ok() ? replies_.Simple("OK") : replies_.Failure(each);
    client_.changed |= each.ok();
    Note(SetCommand(), request, request.words[2].size(), each);
  }
  if (gone_) return;
  Advance();
  Watch();
}

void RespSession::HandOver() {
  busy_ = true;
  const RespRequest& next = requests_[next_];
  const RespTurns::Kind turn = TurnOf(FindRespCommand(next.text(0)), next);
  const auto start = [self = shared_from_this(), turn] { self->StartWorker(turn); };
  if (device_.turns().Enter(turn, start)) start();
}

// One that may take long goes to threads where it holds up only its like. Any thread.
void RespSession::StartWorker(RespTurns::Kind turn) {
  const ServerThreads& threads = shared_.threads;
  Workers& workers = turn == RespTurns::Kind::kNone ? threads.listings : threads.resp;
  workers.Add([self = shared_from_this(), turn] {
    self->ExecuteWaiting(turn);
    self->device_.turns().Leave(turn);
    self->loop_.Post([self] { self->AfterWaiting(); });
  });
}

// A worker's. Those that need the same turn, for a moment.
void RespSession::ExecuteWaiting(RespTurns::Kind turn) {
  const Time begun = loop_.runtime().Now();
  device_.service().statistics().waits().Add(begun - since_);
  const bool goes_through_many = turn == RespTurns::Kind::kNone;
  while (HasNext() && !IsFull() && !gone_) {
    const RespRequest& request = requests_[next_];
    const RespCommand* const command = FindRespCommand(request.text(0));
    if (TurnOf(command, request) != turn) return;
    RespCall call{device_, client_, request, replies_};
    Status done;
    if (goes_through_many) {
      Admit();
      done = ExecuteResp(command, call);
    } else {
      const Gate::Visit visit(device_.service().inside().executing);
      Admit();
      done = ExecuteResp(command, call);
    }
    CountUnsent();
    Note(command, request, 0, done);
    ++next_;
    if (goes_through_many || loop_.runtime().Now() - begun >= kMostByWorker) return;
  }
}

void RespSession::AfterWaiting() {
  busy_ = false;
  at_once_ = 0;
  if (gone_) return;
  NoteLogin();
  Advance();
  Watch();
}

// Before the answers go: what they tell of must be safe from power loss. When it cannot be made so,
// nobody knows what is there, and no answer would be true.
void RespSession::FlushFirst() {
  busy_ = true;
  shared_.device_wide.flushes->Add([self = shared_from_this()](const Status& flushed) {
    self->loop_.Post([self, flushed] {
      self->busy_ = false;
      self->at_once_ = 0;
      self->client_.changed = false;
      if (self->gone_) return;
      if (!flushed.ok()) return self->GiveUp(flushed.message());
      self->Advance();
      self->Watch();
    });
  });
}

// Counts what was executed, as if a Kinetic client had asked for it.
void RespSession::Note(const RespCommand* command, const RespRequest& request, size_t value_bytes,
                       const Status& done) {
  device_.NoteCommands(1);
  const Time ended = loop_.runtime().Now();
  const Duration took = ended - std::exchange(since_, ended);
  if (command == nullptr || command->first_key == 0 || !command->Takes(request.size())) return;
  if (!done.ok()) NoteFailure(*command, request, done);
  const Header::MessageType type = TypeOf(*command);
  KineticService& service = device_.service();
  service.statistics().Add(type, done.ok() ? value_bytes : 0, took);
  client_.known->Count(value_bytes, type == Header::PUT);
  if (!service.slow().IsSlow(took)) return;
  const std::string key = KeyOf(request);
  Log(LogLevel::kWarn, "slow request",
      {{"drive", service.path()},
       {"client", client_.known->address()},
       {"type", command->name},
       {"record", key},
       {"took_ms", std::chrono::duration_cast<std::chrono::milliseconds>(took).count()}});
  service.slow().Add({.connection = static_cast<uint64_t>(client_.number),
                      .sequence = 0,
                      .type = type,
                      .bytes = value_bytes,
                      .record = key,
                      .took = took,
                      .store = took,
                      .status = kinetic::Status::SUCCESS},
                     client_.known, ended);
}

// Where the device itself failed.
void RespSession::NoteFailure(const RespCommand& command, const RespRequest& request,
                              const Status& why) {
  const bool is_full = why.code() == ENOSPC;
  if (!is_full && why.code() != EIO && why.code() != EBADMSG) return;
  device_.service().events().Add(loop_.runtime().WallClock(), LogLevel::kWarn,
                                 is_full ? "drive is full" : "request failed",
                                 {{"drive", device_.service().path()},
                                  {"type", command.name},
                                  {"record", KeyOf(request)},
                                  {"why", why}});
}

// Sends until nothing is left or the socket is full.
void RespSession::Send() {
  while (replies_.unsent_bytes() > 0 && !blocked_ && !gone_) {
    std::array<iovec, RespWriter::kMostParts> parts;
    const size_t count = replies_.NextParts(parts);
    const ssize_t sent = Write(parts.data(), count);
    if (sent >= 0) {
      replies_.Sent(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      blocked_ = true;
    } else if (errno != EINTR) {
      Close();
    }
  }
  CountUnsent();
  if (ends_ && replies_.unsent_bytes() == 0) Close();
}

ssize_t RespSession::Write(iovec* parts, size_t count) {
  if (tls_ != nullptr) return tls_->Write(parts, static_cast<int>(count));
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void RespSession::CountUnsent() {
  const size_t now = replies_.unsent_bytes();
  ValueBudget& budget = shared_.budgets.values;
  if (now > counted_unsent_) budget.Add(now - counted_unsent_);
  if (now < counted_unsent_) budget.Subtract(counted_unsent_ - now);
  counted_unsent_ = now;
}

// For a large request that has begun, and for more of it. While it waits nothing is read.
void RespSession::TakeRoom() {
  if (gone_ || waits_for_room_) return;
  const size_t wanted = reader_.announced();
  if (wanted <= kMostWithoutRoom || room_.bytes() >= wanted) return;
  room_.Return();  // nobody waits for room while he has some
  waits_for_room_ = true;
  room_ = shared_.budgets.values.TakeOrWait(
      this, wanted,
      [weak = weak_from_this(), &loop = loop_](std::shared_ptr<ValueBudget::Share> room) {
        loop.Post([weak, room = std::move(room)] {
          const auto self = weak.lock();
          if (self == nullptr || self->gone_) return;
          self->waits_for_room_ = false;
          self->room_ = std::move(*room);
          self->seen_begun_ = false;  // until now it was us who did not read
          self->OnReady(EPOLLIN);
        });
      });
  if (room_.bytes() > 0) waits_for_room_ = false;
}

bool RespSession::WantsMore() const {
  return !gone_ && !busy_ && !ends_ && !waits_for_room_ && next_ == requests_.size() && !IsFull();
}

// Tells the loop what is waited for. `look_away`: it has told of what cannot be read now.
void RespSession::Watch(bool look_away) {
  if (gone_) return;
  if (!busy_ && reader_.announced() <= kMostWithoutRoom) room_.Return();
  if (!busy_ && next_ == requests_.size()) reader_.Rest();
  uint32_t events = 0;
  if (WantsMore()) events |= EPOLLIN;
  if (blocked_) events |= EPOLLOUT;
  if (blocked_ || !reader_.idle()) WatchProgress();
  if ((events & EPOLLIN) && tls_ != nullptr) {
    if (tls_->read_wants_write()) events |= EPOLLOUT;
    // What TLS has already taken from the socket, epoll does not tell.
    if (tls_->may_have_more() && !std::exchange(read_posted_, true)) {
      loop_.Post([self = shared_from_this()] {
        self->read_posted_ = false;
        if (!self->gone_) self->OnReady(EPOLLIN);
      });
    }
  }
  // A put of this round is made in a moment, so that to look away costs more than to be told.
  if (busy_ && !look_away && events == 0 && watched_ == EPOLLIN) return;
  if (events == watched_) return;
  watched_ = events;
  loop_.Change(watch_id_, socket_.get(), events);
}

// Somebody who sends a part of a request and no more, or does not take its answers, holds room that
// others may want.
void RespSession::WatchProgress() {
  if (std::exchange(watching_, true)) return;
  seen_begun_ = !reader_.idle();
  seen_commands_ = commands_;
  seen_sent_ = replies_.sent_bytes();
  timer_.Arm(loop_.runtime().Now() + shared_.options.frame_timeout);
}

void RespSession::CheckProgress() {
  watching_ = false;
  ValueBudget& values = shared_.budgets.values;
  const bool is_room_wanted = values.is_wanted() || values.exhausted();
  const bool takes_none = blocked_ && replies_.sent_bytes() == seen_sent_;
  const bool is_same = seen_begun_ && !reader_.idle() && commands_ == seen_commands_;
  if (takes_none && is_room_wanted) {
    return GiveUp("answers were not taken, and their room is wanted");
  }
  if (is_same && WantsMore()) return GiveUp("a command was begun and not completed in time");
  if (blocked_ || !reader_.idle()) WatchProgress();
}

void RespSession::GiveUp(std::string_view why) {
  device_.service().events().Add(loop_.runtime().WallClock(), LogLevel::kWarn,
                                 "connection given up",
                                 {{"client", client_.known->address()}, {"why", why}});
  Close();
}

}  // namespace pinstripe
