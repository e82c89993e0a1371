#include "kinetic/shared_connections.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "kinetic/trunk.h"

namespace pinstripe {
namespace {

constexpr size_t kMostGreeting = 64 << 10;  // a longer one is not ours

uint32_t PortOf(const SocketAddress& address) {
  const auto& storage = address.storage;
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

// The ports that share connections, as a greeting tells. None: it tells of none, or is no greeting
// of ours; whoever reads it next finds out. Null: there is more to come.
std::optional<std::vector<uint32_t>> SharedPortsOf(Bytes received) {
  if (received.size() < kFrameHeaderBytes) return std::nullopt;
  const Result<FrameHeader> header = DecodeFrameHeader(received.first<kFrameHeaderBytes>());
  if (!header || header->value_bytes > 0) return std::vector<uint32_t>();
  const size_t size = kFrameHeaderBytes + header->message_bytes;
  if (size > kMostGreeting) return std::vector<uint32_t>();
  if (received.size() < size) return std::nullopt;
  kinetic::Message message;
  kinetic::Command greeting;
  const Bytes bytes = received.subspan(kFrameHeaderBytes, header->message_bytes);
  // Who says more than its greeting before it was asked is not one of ours.
  if (received.size() > size || !ParseMessage(bytes, &message).ok() ||
      !ParseCommand(message, &greeting).ok()) {
    return std::vector<uint32_t>();
  }
  const auto& ports = greeting.body().getlog().configuration().sharedports();
  return std::vector<uint32_t>(ports.begin(), ports.end());
}

}  // namespace

// One that connects, and waits for the greeting; and who waits for it.
class SharedConnections::Attempt final : public IoLoop::Handler,
                                         public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(SharedConnections& owner, std::string place, Wanted first)
      : owner_(owner),
        place(std::move(place)),
        first(std::move(first)),
        timer_(owner.loop_, [this] { OnTimer(); }) {}

  Status Start() {
    socket = TRY(DriveSocket::Connect(first.address, first.host, first.tls.get()));
    socket.Watch(owner_.loop_, EPOLLOUT, shared_from_this());
    timer_.Arm(owner_.loop_.runtime().Now() + kPatience);
    return {};
  }

  void End() {
    timer_.Cancel();
    socket.Unwatch();
  }

  bool is_waited_for() const { return is_waited_for_; }
  void StopWaiting() { is_waited_for_ = false; }

  void OnReady(uint32_t) override {
    const auto self = shared_from_this();
    if (!is_ready_) {
      const Result<TlsStream::Step> step = socket.GoOn(first.drive);
      if (!step) return owner_.GiveUp(*this, step.error());
      is_ready_ = *step == TlsStream::Step::kDone;
      socket.Change(*step == TlsStream::Step::kWantsWrite ? EPOLLOUT : EPOLLIN);
      if (!is_ready_) return;
    }
    Receive();
  }

 private:
  SharedConnections& owner_;

 public:
  const std::string place;
  Wanted first;
  std::vector<Wanted> others;
  DriveSocket socket;
  std::string received;

 private:
  void Receive() {
    while (received.size() <= kFrameHeaderBytes + kMostGreeting) {
      char bytes[4096];
      const iovec place{bytes, sizeof bytes};
      const ssize_t got = socket.Read(&place, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got < 0) return owner_.GiveUp(*this, Fail(EHOSTUNREACH, "{}", ErrnoText(errno)));
      if (got == 0) {
        return owner_.GiveUp(*this, Fail(EHOSTUNREACH, "the drive closed the connection"));
      }
      received.append(bytes, static_cast<size_t>(got));
      if (auto ports = SharedPortsOf(AsBytes(received))) {
        return owner_.OnGreeting(*this, *std::move(ports));
      }
    }
    owner_.OnGreeting(*this, {});
  }

  // A host that does not answer is not to hold up those that would.
  void OnTimer() {
    const auto self = shared_from_this();
    owner_.LetGo(*this);
    if (first.asker.expired()) {
      return owner_.GiveUp(*this, Fail(ETIMEDOUT, "nobody waits for it any more"));
    }
    timer_.Arm(owner_.loop_.runtime().Now() + kPatience);
  }

  bool is_ready_ = false;
  bool is_waited_for_ = true;  // by others that come
  IoLoop::Timer timer_;
};

SharedConnections::SharedConnections(IoLoop& loop) : loop_(loop) {}

SharedConnections::~SharedConnections() {
  for (const auto& attempt : attempts_) attempt->End();
  for (const Shared& shared : trunks_) shared.trunk->Close();
}

std::string SharedConnections::PlaceOf(const Wanted& wanted) {
  sockaddr_storage address = wanted.address.storage;
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
  }
  std::string place(reinterpret_cast<const char*>(&address), wanted.address.length);
  place += fmt::format(" {} ", wanted.host);
  return place + (wanted.tls == nullptr ? "plain" : "TLS " + wanted.tls->authorities());
}

void SharedConnections::Connect(Wanted wanted) {
  if (wanted.asker.expired()) return;
  if (Join(wanted)) return;
  const std::string place = PlaceOf(wanted);
  for (const auto& attempt : attempts_) {
    if (attempt->place != place || !attempt->is_waited_for()) continue;
    attempt->others.push_back(std::move(wanted));
    return;
  }
  auto attempt = std::make_shared<Attempt>(*this, place, std::move(wanted));
  if (const Status started = attempt->Start(); !started.ok()) {
    return Answer(std::move(attempt->first), tl::unexpected(started));
  }
  attempts_.push_back(std::move(attempt));
}

// True: a channel was opened for it.
bool SharedConnections::Join(const Wanted& wanted) {
  const std::string place = PlaceOf(wanted);
  const uint32_t port = PortOf(wanted.address);
  for (const Shared& shared : trunks_) {
    if (shared.place != place || shared.trunk->is_closed()) continue;
    if (std::ranges::find(shared.ports, port) == shared.ports.end()) continue;
    // As many as a daemon takes.
    if (shared.trunk->CountChannels() >= 2 * shared.ports.size()) continue;
    Answer(wanted, DriveSocket(shared.trunk->Open(port)));
    return true;
  }
  return false;
}

void SharedConnections::ConnectAlone(Wanted wanted) {
  if (wanted.asker.expired()) return;
  Result<DriveSocket> socket = DriveSocket::Connect(wanted.address, wanted.host, wanted.tls.get());
  Answer(std::move(wanted), std::move(socket));
}

void SharedConnections::Answer(Wanted wanted, Result<DriveSocket> socket) {
  auto answer = std::make_shared<Result<DriveSocket>>(std::move(socket));
  loop_.Post([done = std::move(wanted.done), answer] { done(std::move(*answer)); });
}

void SharedConnections::OnGreeting(Attempt& attempt, std::vector<uint32_t> ports) {
  const auto self = attempt.shared_from_this();
  std::erase(attempts_, self);
  attempt.End();
  std::vector<Wanted> others = std::move(attempt.others);
  const uint32_t port = PortOf(attempt.first.address);
  const bool is_shared = ports.size() > 1 && std::ranges::find(ports, port) != ports.end();
  if (!is_shared) {
    Buffer greeting(attempt.received.size());
    CopyBytes(greeting, AsBytes(attempt.received));
    attempt.socket.Unread(std::move(greeting));
    Answer(std::move(attempt.first), std::move(attempt.socket));
    for (Wanted& each : others) ConnectAlone(std::move(each));
    return;
  }
  auto known = std::make_shared<const Trunk*>(nullptr);
  auto trunk = Trunk::Start(loop_, std::move(attempt.socket),
                            {.opened = nullptr,
                             .emptied = [this, known] { Forget(*known); },
                             .lost = [this, known] { Forget(*known); }},
                            /*is_client=*/true);
  *known = trunk.get();
  Log(LogLevel::kDebug, "drives share a connection",
      {{"drive", attempt.first.drive}, {"ports", ports.size()}});
  trunks_.push_back({attempt.place, std::move(ports), trunk});
  Join(attempt.first);
  for (Wanted& each : others) Connect(std::move(each));  // another process of that host, perhaps
}

// The first one has failed, or is not wanted any more.
void SharedConnections::GiveUp(Attempt& attempt, const Status& why) {
  const auto self = attempt.shared_from_this();
  std::erase(attempts_, self);
  attempt.End();
  attempt.socket.Shut();
  Answer(std::move(attempt.first), tl::unexpected(why));
  // It may be the drive alone that is away: the next one is the first now.
  for (Wanted& each : std::exchange(attempt.others, {})) Connect(std::move(each));
}

// The others do not wait for it any more.
void SharedConnections::LetGo(Attempt& attempt) {
  std::vector<Wanted> others = std::exchange(attempt.others, {});
  attempt.StopWaiting();
  for (Wanted& each : others) ConnectAlone(std::move(each));
}

void SharedConnections::Forget(const Trunk* trunk) {
  const auto found =
      std::ranges::find(trunks_, trunk, [](const Shared& s) { return s.trunk.get(); });
  if (found == trunks_.end()) return;
  const std::shared_ptr<Trunk> ended = std::move(found->trunk);
  trunks_.erase(found);
  ended->Close();
}

}  // namespace pinstripe
