// Session, second part: requests that are handed over, their answers, and what waits for the
// socket.

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "daemon/put_entry.h"
#include "daemon/session.h"
#include "kinetic/key_text.h"

namespace pinstripe {

using kinetic::Command;
using kinetic::Header;

namespace {

// Of one connection, under way: requests that were read and not answered, and bytes of their values
// and of answers that the peer has not taken. Beyond either, nothing more is read from it.
constexpr size_t kMaxRequestsUnderWay = 128;
constexpr size_t kMaxBytesUnderWay = 32 << 20;
constexpr size_t kMaxNewcomerBytesUnderWay = 64 << 10;  // before the first right signature

// Answers that the peer has not taken, beyond which nothing more is read for it: they are sent
// while they are in a processor's cache.
constexpr size_t kMostUnsent = 1 << 20;

bool ReadsValues(Header::MessageType type) {
  switch (type) {
    case Header::GET:
    case Header::GETS:
    case Header::GETNEXT:
    case Header::GETPREVIOUS:
    case Header::GETKEYRANGE: return true;
    default: return false;
  }
}

}  // namespace

Status TooLate() { return Fail(EBUSY, "its time ran out before its turn came"); }

int PriorityOf(const Header& header) {
  return header.has_priority() ? header.priority() : Workers::kNormal;
}

// Lets a worker execute the request, whose value has `bytes`.
void Session::Hand(std::shared_ptr<Command> request, DeviceSecurity::IdentityPtr identity,
                   size_t bytes, Execute execute) {
  CountUnderWay(1, bytes);
  const auto handed = std::make_shared<Handed>();
  handed->received = loop_.runtime().Now();
  handed->expiry = ExpiryOf(request->header());
  handed->request = std::move(request);
  handed->identity = std::move(identity);
  handed->bytes = bytes;
  handed->execute = std::move(execute);
  Enqueue(handed);
}

void Session::Enqueue(const HandedPtr& handed) {
  threads_.workers.Add(
      [self = shared_from_this(), handed] {
        if (!self->HoldBack(handed)) self->Do(*handed);
      },
      PriorityOf(handed->request->header()));
}

// While the peer does not take the answers that there are, no more values are read for it: they
// would only leave the cache again, and take memory.
bool Session::HoldBack(const HandedPtr& handed) {
  if (!ReadsValues(handed->request->header().messagetype())) return false;
  const MutexLock lock(mutex_);
  const bool was_held = handed->held_since != Time();
  if (gone_ || outbox_.unsent_bytes() < kMostUnsent) {
    if (was_held) handed->held = loop_.runtime().Now() - handed->held_since;
    return false;
  }
  if (!was_held) handed->held_since = loop_.runtime().Now();
  held_back_.push_back(handed);
  return true;
}

void Session::Do(const Handed& handed) {
  auto answer = std::make_shared<Command>(AnswerTo(*handed.request));
  KineticService::Outcome outcome;
  const Time now = loop_.runtime().Now();
  service_.statistics().waits().Add(now - handed.received);
  if (handed.expiry != Time::max() && now >= handed.expiry) {
    KineticService::SetFailure(TooLate(), answer.get());
  } else {
    outcome = handed.execute(answer.get());
  }
  const size_t bytes = handed.bytes;
  Progress progress{.received = handed.received, .begun = now, .held = handed.held};
  if (!outcome.after_flush) {
    Note(*handed.request, bytes + outcome.value.size(), progress, *answer);
    Answer(*answer, handed.identity.get(), std::move(outcome.value), bytes);
    return;
  }
  progress.made = loop_.runtime().Now();
  shared_->flushes->Add([self = shared_from_this(), answer, identity = handed.identity, bytes,
                         request = handed.request, progress](const Status& flushed) {
    if (!flushed.ok()) KineticService::SetFailure(flushed, answer.get());
    self->Note(*request, bytes, progress, *answer);
    self->Answer(*answer, identity.get(), {}, bytes);
  });
}

// Lets it be done beside the other requests.
void Session::StartLong(std::shared_ptr<Command> request, const KineticService::Caller& caller,
                        size_t bytes) {
  CountUnderWay(1, bytes);
  Runtime& runtime = loop_.runtime();
  const Header& header = request->header();
  const Time received = runtime.Now();
  Time expiry = ExpiryOf(header);
  const Duration longest = KineticService::LongestTime(*request);
  if (expiry == Time::max() && longest != Duration::max()) expiry = received + longest;
  auto answer = std::make_shared<Command>(AnswerTo(*request));
  const auto done = [self = shared_from_this(), request, answer, identity = caller.identity, bytes,
                     received] {
    self->Note(*request, 0, {.received = received, .begun = received, .takes_long = true}, *answer);
    self->Answer(*answer, identity.get(), {}, bytes);
  };
  auto operation = service_.Start(runtime, threads_.peers, caller, *request, expiry, answer.get());
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

// Counts what was done, and tells where the device itself failed.
void Session::Note(const Command& request, size_t value_bytes, const Progress& progress,
                   const Command& answer) {
  const Header::MessageType type = request.header().messagetype();
  const Time ended = loop_.runtime().Now();
  const Duration took = ended - progress.received;
  if (type == Header::PUTS) {
    NoteEach(request, answer, took);
  } else if (type == Header::GETS) {
    NoteEachGet(request, answer, took);
  } else {
    Count(type, value_bytes, took, request.body().keyvalue().key(), answer.status());
  }
  if (service_.slow().IsSlow(took)) NoteSlow(request, value_bytes, progress, answer, ended);
}

// Of puts in one message, and of the reads after them, each as if it had come alone.
void Session::NoteEach(const Command& request, const Command& answer, Duration took) {
  const kinetic::Puts& asked = request.body().puts();
  const kinetic::Puts& told = answer.body().puts();
  const size_t puts = CountPuts(request);
  for (int i = 0; i < static_cast<int>(puts); ++i) {
    // Without a word about each the whole was refused.
    const kinetic::Status& status =
        i < told.records_size() ? told.records(i).status() : answer.status();
    if (i < asked.records_size()) {
      const kinetic::Puts::Record& put = asked.records(i);
      Count(Header::PUT, put.valuebytes(), took, put.keyvalue().key(), status);
    } else {
      Count(Header::PUT, 0, took, "", status);
    }
    if (i >= told.records_size() || !told.records(i).has_read()) continue;
    const kinetic::Puts::Read& read = told.records(i).read();
    Count(Header::GET, read.valuebytes(), took, asked.records(i).thenget(), read.status());
  }
}

void Session::NoteEachGet(const Command& request, const Command& answer, Duration took) {
  const auto& keys = request.body().gets().keys();
  const auto& told = answer.body().gets().reads();
  if (told.empty()) return Count(Header::GET, 0, took, "", answer.status());  // refused as a whole
  for (int i = 0; i < told.size(); ++i) {
    Count(Header::GET, told[i].valuebytes(), took, keys[i], told[i].status());
  }
}

void Session::Count(int type, size_t value_bytes, Duration took, std::string_view key,
                    const kinetic::Status& status) {
  const bool moved = status.code() == kinetic::Status::SUCCESS;
  service_.statistics().Add(type, moved ? value_bytes : 0, took);
  if (!moved) service_.statistics().AddFailure(status.code());
  client_->Count(moved ? value_bytes : 0, /*written=*/type == Header::PUT);
  switch (status.code()) {
    case kinetic::Status::INTERNAL_ERROR:
    case kinetic::Status::PERM_DATA_ERROR:
      Tell(LogLevel::kWarn, "request failed",
           {{"drive", service_.path()},
            {"port", service_.port()},
            {"type", Header::MessageType_Name(static_cast<Header::MessageType>(type))},
            {"record", KeyText(key)},
            {"status", StatusCodeName(status.code())},
            {"why", status.statusmessage()}});
      break;
    // Whatever the record is.
    case kinetic::Status::NO_SPACE:
      Tell(
          LogLevel::kWarn, "drive is full",
          {{"drive", service_.path()}, {"port", service_.port()}, {"why", status.statusmessage()}});
      break;
    default: break;
  }
}

// Scans and pushes take as long as they have to do, and are no news.
void Session::NoteSlow(const Command& request, size_t value_bytes, const Progress& progress,
                       const Command& answer, Time ended) {
  if (progress.takes_long) return;
  const Time made = progress.made == Time() ? ended : progress.made;
  SlowRequest slow{.connection = static_cast<uint64_t>(connection_id_),
                   .sequence = request.header().sequence(),
                   .type = request.header().messagetype(),
                   .bytes = value_bytes,
                   .took = ended - progress.received,
                   .queue = progress.begun - progress.received - progress.held,
                   .held = progress.held,
                   .store = made - progress.begun,
                   .sync = ended - made,
                   .status = answer.status().code()};
  const kinetic::Puts& puts = request.body().puts();
  const bool several = slow.type == Header::PUTS && puts.records_size() > 0;
  const auto& gets = request.body().gets().keys();
  const bool reads_several = slow.type == Header::GETS && !gets.empty();
  const std::string& key = several         ? puts.records(0).keyvalue().key()
                           : reads_several ? gets[0]
                                           : request.body().keyvalue().key();
  if (!key.empty()) slow.record = KeyText(key);
  // One that has failed tells more than that the message was understood.
  for (const kinetic::Puts::Record& record : answer.body().puts().records()) {
    if (several && slow.status == kinetic::Status::SUCCESS) slow.status = record.status().code();
  }
  for (const kinetic::Puts::Read& read : answer.body().gets().reads()) {
    const bool told = read.status().code() == kinetic::Status::NOT_FOUND;
    if (slow.status == kinetic::Status::SUCCESS && !told) slow.status = read.status().code();
  }
  if (several) slow.record += fmt::format(" and {} more", puts.records_size() - 1);
  if (reads_several) slow.record += fmt::format(" and {} more", gets.size() - 1);
  const auto milliseconds = [](Duration time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  Log(LogLevel::kWarn, "slow request",
      {{"drive", service_.path()},
       {"port", service_.port()},
       {"client", client_->address()},
       {"type", RequestWord(slow.type)},
       {"record", slow.record},
       {"took_ms", milliseconds(slow.took)},
       {"queue_ms", milliseconds(slow.queue)},
       {"held_ms", milliseconds(slow.held)},
       {"store_ms", milliseconds(slow.store)},
       {"sync_ms", milliseconds(slow.sync)}});
  service_.slow().Add(std::move(slow), client_, ended);
}

void Session::Tell(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  service_.events().Add(loop_.runtime().WallClock(), level, event, fields);
}

// When a request need not be executed any more.
Time Session::ExpiryOf(const Header& header) const {
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  const std::chrono::milliseconds most = kLongest;
  if (header.timeout() == 0 || header.timeout() >= static_cast<uint64_t>(most.count())) {
    return Time::max();
  }
  return loop_.runtime().Now() + std::chrono::milliseconds(header.timeout());
}

void Session::StartAnswer(const Command& request, Command* started) const {
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

Command Session::AnswerTo(const Command& request) const {
  Command answer;
  StartAnswer(request, &answer);
  return answer;
}

void Session::Answer(const Command& answer, const DeviceSecurity::Identity* identity,
                     SharedBytes value, size_t request_bytes) {
  std::array<Outgoing, 1> out = {AnswerOf(answer, identity, std::move(value), request_bytes)};
  SendAll(out);
}

// Any thread, like the next.
void Session::Send(std::string frame, bool last) {
  std::array<Outgoing, 1> out = {Outgoing{.head = std::move(frame), .last = last}};
  SendAll(out);
}

void Session::SendAll(std::span<Outgoing> out) {
  mutex_.Lock();
  if (gone_ || out.empty()) return mutex_.Unlock();
  for (Outgoing& each : out) {
    AddUnderWay(each.size());
    outbox_.Add(std::move(each));
  }
  CheckInvariants();
  if (blocked_ || sending_) return mutex_.Unlock();  // whoever waits or sends takes it along
  SendWaiting();
}

// Sends until nothing is left or the socket is full. One thread at a time, with mutex_ held, which
// it gives back.
void Session::SendWaiting() {
  sending_ = true;
  bool ended = false;
  while (!gone_ && !outbox_.empty() && !blocked_) {
    Outbox::Parts parts;
    const size_t count = outbox_.NextPieces(parts);
    mutex_.Unlock();
    const ssize_t sent = socket_.Write(parts.data(), static_cast<int>(count));
    const int error = errno;
    mutex_.Lock();
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
  CheckInvariants();
  mutex_.Unlock();
  for (const HandedPtr& handed : next) Enqueue(handed);
  // The loop's thread looks after the rest, for nobody else may touch what it reads.
  if (ended) {
    loop_.Post([self = shared_from_this()] { self->Close(); });
  } else if (watch) {
    loop_.Post([self = shared_from_this()] { self->Watch(); });
  }
}

// True: the last words are out.
bool Session::Consume(size_t bytes) {
  if (gone_) return false;
  const Outbox::Sent sent = outbox_.Consume(bytes);
  assert(sent.bytes <= bytes_under_way_ && sent.requests <= requests_under_way_);
  bytes_under_way_ -= sent.bytes;
  if (sent.bytes > 0) budgets_.values.Subtract(sent.bytes);
  requests_under_way_ -= sent.requests;
  CheckInvariants();
  return sent.last;
}

// What need not be held back any more: all when the peer waits for answers, else one.
std::vector<Session::HandedPtr> Session::TakeHeldBack() {
  if (outbox_.unsent_bytes() >= kMostUnsent || held_back_.empty()) return {};
  const auto end = outbox_.empty() ? held_back_.end() : held_back_.begin() + 1;
  std::vector<HandedPtr> taken(held_back_.begin(), end);
  held_back_.erase(held_back_.begin(), end);
  return taken;
}

void Session::AddUnderWay(size_t bytes) {
  bytes_under_way_ += bytes;
  budgets_.values.Add(bytes);
}

// Where the daemon has too much under way, one request of each connection after the other.
bool Session::IsFull() const {
  const size_t most = is_known_ ? kMaxBytesUnderWay : kMaxNewcomerBytesUnderWay;
  return requests_under_way_ >= kMaxRequestsUnderWay || bytes_under_way_ >= most ||
         (bytes_under_way_ > 0 && budgets_.values.exhausted());
}

void Session::CountUnderWay(size_t requests, size_t bytes) {
  const MutexLock lock(mutex_);
  requests_under_way_ += requests;
  AddUnderWay(bytes);
  CheckInvariants();
}

void Session::CheckInvariants() const {
  // Each answer that is held or sent belongs to something that counts.
  assert(bytes_under_way_ >= outbox_.unsent_bytes());
  assert(requests_under_way_ >= held_back_.size());
  // The loop waits for room in the socket only for something to put there.
  assert(!blocked_ || gone_ || !outbox_.empty());
  // Requests are held back only while answers are in their way, whose sender will look again.
  assert(gone_ || sending_ || held_back_.empty() || !outbox_.empty());
}

}  // namespace pinstripe
