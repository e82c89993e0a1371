#include "daemon/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <map>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "daemon/resp_puts.h"
#include "daemon/resp_session.h"
#include "daemon/session.h"
#include "daemon/trunk_session.h"
#include "kinetic/frame.h"
#include "kinetic/io_loop.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "store/background.h"
#include "store/workers.h"

namespace pinstripe {
namespace {

using kinetic::Command;

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

std::string WordsToDecline(const Status& why) {
  Command last;
  last.mutable_status()->set_code(kinetic::Status::SERVICE_BUSY);
  last.mutable_status()->set_statusmessage(std::string(why.message()));
  return UnsignedFrame(Unsigned::kUnsolicited, last);
}

// To one connection too many. It has not said anything yet, so it hears this.
void Decline(int socket, const std::string& words) {
  // When it does not fit, the end of the connection says enough.
  [[maybe_unused]] const ssize_t sent =
      send(socket, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// What serves a device to clients of the Redis protocol, whichever port they came through.
struct RespParts {
  RespParts(Runtime& runtime, KineticService& service, bool write_through)
      : device(runtime, service, write_through) {}

  RespDevice device;
  std::vector<std::shared_ptr<RespPuts>> puts;  // of each loop
};

}  // namespace

class Server::Impl {
 public:
  Impl(Runtime& runtime, Options options)
      : runtime_(runtime),
        options_(options),
        places_(options.places),
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
    resp_workers_ = std::make_unique<Workers>(runtime, "pin-resp", options.workers);
    listings_ = std::make_unique<Workers>(runtime, "pin-list", options.scanners);
    threads_.emplace(
        ServerThreads{*workers_, *resp_workers_, *listings_, *scans_, *pushes_, *peers_});
  }

  ~Impl() {
    loops_[0]->PostAndWait([this] {
      const MutexLock lock(mutex_);
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
    peers_.reset();  // pushes were its only users
    // What sessions have posted before they were closed has been handed on now.
    for (const auto& loop : loops_) loop->PostAndWait([] {});
    listings_.reset();
    resp_workers_.reset();
    workers_.reset();   // may still add flushes
    flushers_.reset();  // may still post to the loops
    loops_.clear();
  }

  Result<uint16_t> Listen(const std::string& host, uint16_t port, KineticService& service,
                          std::shared_ptr<const TlsServer> tls) {
    FileDescriptor socket = TRY(Bind(host, port));
    const uint16_t bound = TRY(PortOf(socket.get()));
    tls == nullptr ? service.SetPort(bound) : service.SetTlsPort(bound);
    Listen(service, std::move(socket), {host, bound}, std::move(tls), /*resp=*/nullptr);
    return bound;
  }

  Result<uint16_t> ListenResp(const std::string& host, uint16_t port, KineticService& service,
                              Resp how, std::shared_ptr<const TlsServer> tls) {
    FileDescriptor socket = TRY(Bind(host, port));
    const uint16_t bound = TRY(PortOf(socket.get()));
    std::unique_ptr<RespParts>& parts = resp_[&service];
    if (parts == nullptr) {
      parts = std::make_unique<RespParts>(runtime_, service, how.write_through);
      for (const auto& loop : loops_) {
        parts->puts.push_back(std::make_shared<RespPuts>(*loop, *resp_workers_, parts->device,
                                                         SharedBy(service)->no_puts_at_once,
                                                         options_.long_put));
      }
    }
    Listen(service, std::move(socket), {host, bound}, std::move(tls), parts.get());
    return bound;
  }

  Load CountLoad() {
    return {.value_bytes = budgets_.values.used(),
            .most_value_bytes = budgets_.values.limit(),
            .waiting = budgets_.values.waiting() + budgets_.of_strangers.waiting(),
            .connections = places_.Open(),
            .most_connections = places_.limits().connections};
  }

 private:
  const std::shared_ptr<SharedByDevice>& SharedBy(KineticService& service) {
    std::shared_ptr<SharedByDevice>& shared = shared_[&service];
    if (shared == nullptr) shared = std::make_shared<SharedByDevice>(runtime_, *flushers_, service);
    return shared;
  }

  struct Endpoint {
    std::string host;  // as it was named
    uint16_t port;
  };

  void Listen(KineticService& service, FileDescriptor socket, Endpoint at,
              std::shared_ptr<const TlsServer> tls, RespParts* resp) {
    service.ServedSince(runtime_.Now());
    auto listener = std::make_shared<Listener>(*this, service, std::move(socket), std::move(at),
                                               std::move(tls), SharedBy(service), resp);
    {
      const MutexLock lock(mutex_);
      listeners_.push_back(listener);
    }
    loops_[0]->PostAndWait([&] { listener->Start(); });
  }

  // A descriptor to give up for that of somebody who is to be sent away. Null: there is none left.
  static FileDescriptor Spare() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  class Listener final : public IoLoop::Handler, public std::enable_shared_from_this<Listener> {
   public:
    // `resp`: for clients of that protocol; null: for those of Kinetic.
    Listener(Impl& server, KineticService& service, FileDescriptor socket, Endpoint at,
             std::shared_ptr<const TlsServer> tls, std::shared_ptr<SharedByDevice> shared,
             RespParts* resp)
        : server_(server),
          service_(service),
          socket_(std::move(socket)),
          host_(std::move(at.host)),
          port_(at.port),
          tls_(std::move(tls)),
          shared_(std::move(shared)),
          resp_(resp),
          again_(*server.loops_[0],
                 [this] { server_.loops_[0]->Change(watch_id_, socket_.get(), EPOLLIN); }) {}

    void Start() { watch_id_ = server_.loops_[0]->Add(socket_.get(), EPOLLIN, shared_from_this()); }
    void Stop() {
      again_.Cancel();
      server_.loops_[0]->Remove(watch_id_, socket_.get());
    }

    uint16_t port() const { return port_; }

    // What comes through this one reaches that one's device by the same right: anybody could have
    // connected to it there, and would have been shown the same certificate.
    bool SharesWith(const Listener& other) const {
      return resp_ == nullptr && other.resp_ == nullptr && host_ == other.host_ &&
             tls_ == other.tls_;
    }

    // A channel of a connection that has come through one that shares with this.
    void AdmitChannel(size_t i, std::shared_ptr<Channel> channel,
                      const std::shared_ptr<Places::Place>& carrier) {
      Result<std::unique_ptr<Places::Place>> place =
          server_.places_.Take(&service_, carrier->address(), carrier);
      if (!place.has_value()) return NoteRefused(place.error());
      const auto session = std::make_shared<Session>(
          *server_.loops_[i], *server_.threads_, server_.budgets_, shared_, service_,
          *std::move(place), DriveSocket(std::move(channel)), Session::Sharing(), server_.options_,
          server_.ClosedOf(i));
      server_.sessions_[i].insert(session);
      session->Start();
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

    void Tell(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
      service_.events().Add(server_.loops_[0]->runtime().WallClock(), level, event, fields);
    }

    // The socket stays ready as long as somebody waits for it, so it is left alone for a moment;
    // who has waited longest is sent away, as somebody who knows it can try another time.
    void CannotAccept(int error) {
      const MutexLock lock(mutex_);
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
             {{"port", port_},
              {"why", ErrnoText(error)},
              {"do", short_of_descriptors ? "raise the limit of descriptors (LimitNOFILE)"
                                          : "see to the machine's memory"}});
      }
      server_.loops_[0]->Change(watch_id_, socket_.get(), 0);
      again_.Arm(now + server_.options_.accept_pause);
    }

    // Of any loop's thread.
    void NoteRefused(const Status& why) {
      const MutexLock lock(mutex_);
      ++refused_;
      const Time now = server_.loops_[0]->runtime().Now();
      if (now >= quiet_until_) {
        quiet_until_ = now + kQuiet;
        Tell(LogLevel::kWarn, "connections refused: too many",
             {{"port", port_}, {"why", why}, {"refused", std::exchange(refused_, 0)}});
      }
    }

    void Refuse(int client, const Status& why) {
      NoteRefused(why);
      if (tls_ != nullptr) return;
      Decline(client,
              resp_ == nullptr ? WordsToDecline(why) : fmt::format("-ERR {}\r\n", why.message()));
    }

    void Admit(FileDescriptor client, const std::string& address) {
      Result<std::unique_ptr<Places::Place>> place = server_.places_.Take(&service_, address);
      if (!place.has_value()) return Refuse(client.get(), place.error());
      std::unique_ptr<TlsStream> stream;
      if (tls_ != nullptr) {
        Result<std::unique_ptr<TlsStream>> accepted = tls_->Accept(client.get());
        if (!accepted.has_value()) {
          Tell(LogLevel::kError, "cannot accept a connection",
               {{"port", port_}, {"why", accepted.error()}});
          return;
        }
        stream = *std::move(accepted);
      }
      const size_t i = server_.next_loop_++ % server_.loops_.size();
      auto session = NewSession(i, *std::move(place), std::move(client), std::move(stream));
      server_.loops_[i]->Post([&server = server_, i, session = std::move(session)] {
        server.sessions_[i].insert(session);
        session->Start();
      });
    }

    std::shared_ptr<Connection> NewSession(size_t i, std::unique_ptr<Places::Place> place,
                                           FileDescriptor client,
                                           std::unique_ptr<TlsStream> stream) {
      IoLoop& loop = *server_.loops_[i];
      const auto closed = server_.ClosedOf(i);
      if (resp_ == nullptr) {
        return std::make_shared<Session>(loop, *server_.threads_, server_.budgets_, shared_,
                                         service_, std::move(place),
                                         DriveSocket(std::move(client), std::move(stream)),
                                         SharingOf(i), server_.options_, closed);
      }
      const RespSession::Shared shared{*server_.threads_, server_.budgets_, *shared_, resp_->device,
                                       server_.options_};
      return std::make_shared<RespSession>(loop, shared, resp_->puts[i], std::move(place),
                                           std::move(client), std::move(stream), closed);
    }

    // As long as there are others to share with.
    Session::Sharing SharingOf(size_t i) {
      Session::Sharing sharing;
      sharing.ports = server_.PortsSharedWith(*this);
      if (sharing.ports.size() < 2) return {};
      sharing.begin = [&server = server_, i, self = shared_from_this()](
                          DriveSocket socket, std::unique_ptr<Places::Place> place,
                          Buffer received) {
        server.BeginTrunk(i, self, std::move(socket), std::move(place), std::move(received));
      };
      return sharing;
    }

    Impl& server_;
    KineticService& service_;
    const FileDescriptor socket_;
    const std::string host_;
    const uint16_t port_;
    const std::shared_ptr<const TlsServer> tls_;  // null: a plain port
    const std::shared_ptr<SharedByDevice> shared_;
    RespParts* const resp_;
    IoLoop::Timer again_;  // when accepting has failed
    uint64_t watch_id_ = 0;
    Mutex mutex_;
    Time quiet_until_ GUARDED_BY(mutex_){};    // nothing is told of who was refused
    uint64_t refused_ GUARDED_BY(mutex_) = 0;  // and not told of
  };

  // What a connection of this loop does in the end.
  std::function<void(std::shared_ptr<Connection>)> ClosedOf(size_t i) {
    return [this, i](const std::shared_ptr<Connection>& self) { sessions_[i].erase(self); };
  }

  std::vector<uint16_t> PortsSharedWith(const Listener& listener) {
    std::vector<uint16_t> ports;
    const MutexLock lock(mutex_);
    for (const auto& each : listeners_) {
      if (each->SharesWith(listener)) ports.push_back(each->port());
    }
    return ports;
  }

  // What was a connection to the listener's device carries channels to all that share with it. Loop
  // thread.
  void BeginTrunk(size_t i, const std::shared_ptr<Listener>& through, DriveSocket socket,
                  std::unique_ptr<Places::Place> place, Buffer received) {
    place->Carry();
    const auto opened = [this, i, through](std::shared_ptr<Channel> channel, uint32_t port,
                                           const std::shared_ptr<Places::Place>& carrier) {
      std::shared_ptr<Listener> to;
      {
        const MutexLock lock(mutex_);
        for (const auto& each : listeners_) {
          if (each->port() == port && each->SharesWith(*through)) to = each;
        }
      }
      if (to != nullptr) to->AdmitChannel(i, std::move(channel), carrier);
    };
    const auto trunk = std::make_shared<TrunkSession>(
        *loops_[i], std::move(socket), std::move(place), std::move(received),
        TrunkSession::Limits{.patience = options_.handshake_timeout,
                             // Twice: of those that are made again the former ones may not be gone.
                             .most_channels = 2 * PortsSharedWith(*through).size()},
        opened, ClosedOf(i));
    sessions_[i].insert(trunk);
    trunk->Start();
  }

  Runtime& runtime_;
  const Options options_;
  Places places_;          // outlives the sessions, which workers may have until they end
  ServerBudgets budgets_;  // likewise
  FileDescriptor spare_;   // of the first loop's thread
  std::vector<std::unique_ptr<IoLoop>> loops_;
  std::vector<std::set<std::shared_ptr<Connection>>> sessions_;  // of each loop, on its thread
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Workers> flushers_;
  std::unique_ptr<Workers> resp_workers_;
  std::unique_ptr<Workers> listings_;
  std::unique_ptr<Background> scans_;
  std::unique_ptr<Background> pushes_;
  std::unique_ptr<KineticIo> peers_;
  std::optional<ServerThreads> threads_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Listener>> listeners_ GUARDED_BY(mutex_);
  std::map<KineticService*, std::shared_ptr<SharedByDevice>> shared_;
  std::map<KineticService*, std::unique_ptr<RespParts>> resp_;
  size_t next_loop_ = 0;  // of the first loop's thread
};

Server::Server(Runtime& runtime, Options options)
    : impl_(std::make_unique<Impl>(runtime, options)) {}

Server::~Server() = default;

Server::Load Server::CountLoad() { return impl_->CountLoad(); }

Result<uint16_t> Server::Listen(const std::string& host, uint16_t port, KineticService& service,
                                std::shared_ptr<const TlsServer> tls) {
  return impl_->Listen(host, port, service, std::move(tls));
}

Result<uint16_t> Server::ListenResp(const std::string& host, uint16_t port, KineticService& service,
                                    Resp how, std::shared_ptr<const TlsServer> tls) {
  return impl_->ListenResp(host, port, service, how, std::move(tls));
}

}  // namespace pinstripe
