// Session: one client's connection to one device, from its greeting to its end. It reads frames as
// long as it has room for more, lets the gate judge each request (session_gate.h), executes it or
// hands it over, and sends the answers in the order in which they are ready. server.h says what a
// connection may hold, and what ends it. kinetic/frame.h says how long a message may be.
//
// A connection may become a trunk before anything else was said on it, and then carries sessions
// with several devices (trunk_session.h).
//
//   session.cc        the connection's life; reading frames; what becomes of a request
//   session_send.cc   requests that are handed over, their answers, and what waits for the socket
//   put_pipeline.h    PUTs, which are executed together
//   outbox.h          what the peer has not taken yet
//   session_gate.h    which requests go on, which are refused, which end the connection
//
// Its loop's thread reads. Workers, flushers and the loop send: one at a time, and whoever comes
// meanwhile leaves what it has to that one.

#pragma once

#include <sys/epoll.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "daemon/batch.h"
#include "daemon/clients.h"
#include "daemon/kinetic_service.h"
#include "daemon/outbox.h"
#include "daemon/places.h"
#include "daemon/put_pipeline.h"
#include "daemon/server.h"
#include "daemon/session_gate.h"
#include "daemon/shared_by_sessions.h"
#include "kinetic/drive_socket.h"
#include "kinetic/frame.h"
#include "kinetic/io_loop.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "store/workers.h"

namespace pinstripe {

// Among those of its connection's device.
int PriorityOf(const kinetic::Header& header);

// Why a request is not executed any more.
Status TooLate();

class Session final : public Connection, public std::enable_shared_from_this<Session> {
 public:
  // How a connection becomes one that several devices share. Called on the loop's thread.
  struct Sharing {
    // Those that do, by their ports, for the greeting.
    std::vector<uint16_t> ports;
    // `received`: what has come of it already. Empty: it may not.
    std::function<void(DriveSocket socket, std::unique_ptr<Places::Place> place, Buffer received)>
        begin;
  };

  // `closed` is called once, on the loop's thread.
  Session(IoLoop& loop, const ServerThreads& threads, ServerBudgets& budgets,
          std::shared_ptr<SharedByDevice> shared, KineticService& service,
          std::unique_ptr<Places::Place> place, DriveSocket socket, Sharing sharing,
          const Server::Options& options, std::function<void(std::shared_ptr<Connection>)> closed);
  ~Session() override;

  // Loop thread, like the next ones.
  void Start() override;

  // What is still being executed finishes, and its answer is dropped.
  void Close() override;

  void OnReady(uint32_t epoll_events) override;

 private:
  friend class PutPipeline;

  using Execute = std::function<KineticService::Outcome(kinetic::Command* answer)>;

  // A request that was read and is not executed yet.
  struct Handed {
    std::shared_ptr<kinetic::Command> request;
    DeviceSecurity::IdentityPtr identity;
    size_t bytes = 0;  // of its value
    Time received{};
    Time expiry{};
    Execute execute;
    Time held_since{};  // HoldBack()
    Duration held{};    // for so long, until its turn came again
  };
  using HandedPtr = std::shared_ptr<Handed>;

  // Where the time of a request went, until now.
  struct Progress {
    Time received{};
    Time begun{};             // since when it was executed
    Time made{};              // and until when, where it had to become durable then; else nothing
    Duration held{};          // before it began, as the peer did not take answers
    bool takes_long = false;  // by its nature
  };

  // Reading, on the loop's thread (session.cc):
  void Greet();
  bool BecomesTrunk();
  void ShakeHands(uint32_t epoll_events);
  void NoteHalfFrame();
  void CheckHalfFrame();
  Result<bool> Receive();
  Status HandleAll();
  void TakeRoomForFrame();
  void GoOnWith(ValueBudget::Share room);
  Status Handle(Frame frame);
  void Hear(const DeviceSecurity::Identity& identity, const kinetic::GetLog& said);
  Status HandleAdmitted(const KineticService::Caller& caller,
                        const std::shared_ptr<kinetic::Command>& request, Frame frame);
  Result<bool> AddToBatch(const KineticService::Caller& caller, const kinetic::Command& request,
                          Frame& frame);
  const std::shared_ptr<kinetic::Command>& SmallRequest();
  bool AnswerAtOnce(const KineticService::Caller& caller, const kinetic::Command& request,
                    size_t bytes);
  void SendReady();
  void Watch();
  void WatchUnsent();
  void CheckUnsent();
  void GiveUp(const Status& why);
  bool WantsMore();

  // Executing what was handed over (session_send.cc):
  void Hand(std::shared_ptr<kinetic::Command> request, DeviceSecurity::IdentityPtr identity,
            size_t bytes, Execute execute);
  void Enqueue(const HandedPtr& handed);
  bool HoldBack(const HandedPtr& handed);
  void Do(const Handed& handed);
  void StartLong(std::shared_ptr<kinetic::Command> request, const KineticService::Caller& caller,
                 size_t bytes);
  void Note(const kinetic::Command& request, size_t value_bytes, const Progress& progress,
            const kinetic::Command& answer);
  void NoteEach(const kinetic::Command& request, const kinetic::Command& answer, Duration took);
  void NoteEachGet(const kinetic::Command& request, const kinetic::Command& answer, Duration took);
  void Count(int type, size_t value_bytes, Duration took, std::string_view key,
             const kinetic::Status& status);
  void NoteSlow(const kinetic::Command& request, size_t value_bytes, const Progress& progress,
                const kinetic::Command& answer, Time ended);
  void Tell(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);
  Time ExpiryOf(const kinetic::Header& header) const;

  // Sending, on any thread (session_send.cc):
  void StartAnswer(const kinetic::Command& request, kinetic::Command* started) const;
  kinetic::Command AnswerTo(const kinetic::Command& request) const;
  void Answer(const kinetic::Command& answer, const DeviceSecurity::Identity* identity,
              SharedBytes value, size_t request_bytes);
  void Send(std::string frame, bool last = false);
  void SendAll(std::span<Outgoing> out) EXCLUDES(mutex_);
  void SendWaiting() RELEASE(mutex_);
  bool Consume(size_t bytes) REQUIRES(mutex_);
  std::vector<HandedPtr> TakeHeldBack() REQUIRES(mutex_);
  void CountUnderWay(size_t requests, size_t bytes) EXCLUDES(mutex_);
  void AddUnderWay(size_t bytes) REQUIRES(mutex_);
  bool IsFull() const REQUIRES(mutex_);
  // After each transition.
  void CheckInvariants() const REQUIRES(mutex_);

  IoLoop& loop_;
  const ServerThreads& threads_;
  ServerBudgets& budgets_;
  const std::shared_ptr<SharedByDevice> shared_;
  KineticService& service_;
  std::unique_ptr<Places::Place> place_;  // until the socket is closed
  DriveSocket socket_;
  const Sharing sharing_;
  const bool has_tls_;
  const Server::Options& options_;
  IoLoop::Timer timer_;         // of the handshake, then of frames
  IoLoop::Timer unsent_timer_;  // of answers that the peer does not take
  const std::function<void(std::shared_ptr<Connection>)> closed_;

  // Of the loop thread:
  FrameReader reader_;
  ValueBudget::Share frame_room_;          // of the frame that is being read, where it is large
  uint64_t frame_with_room_ = UINT64_MAX;  // frames_ when that was asked for
  bool waits_for_room_ = false;            // in a budget
  bool watching_unsent_ = false;           // the timer is armed
  uint64_t unsent_since_ = 0;              // what the outbox had sent then
  SessionGate gate_;
  OpenBatches batches_;
  std::vector<std::weak_ptr<Cancellation>> long_operations_;
  int64_t connection_id_ = 0;                // since Start()
  std::shared_ptr<ConnectedClient> client_;  // likewise
  bool giving_up_ = false;
  bool shaking_hands_ = false;
  bool read_posted_ = false;
  uint64_t frames_ = 0;               // that were read to their end
  uint64_t half_frame_ = UINT64_MAX;  // frames_ when a half one was last found
  Time half_since_{};                 // and when that was
  bool watching_frames_ = false;      // the timer is armed
  uint32_t watched_ = EPOLLIN;
  kinetic::Message message_;                   // the last one, like the next; small
  std::shared_ptr<kinetic::Command> request_;  // perhaps a worker's, too
  kinetic::Command answer_;
  std::vector<Outgoing> ready_;  // answers, since the last read
  size_t at_once_ = 0;           // how many there were, since the socket was ready

  PutPipeline puts_;

  Mutex mutex_;
  Outbox outbox_ GUARDED_BY(mutex_);
  size_t requests_under_way_ GUARDED_BY(mutex_) = 0;
  size_t bytes_under_way_ GUARDED_BY(mutex_) = 0;  // which the budget of the daemon knows
  std::deque<HandedPtr> held_back_ GUARDED_BY(mutex_);
  bool sending_ GUARDED_BY(mutex_) = false;  // a thread is in SendWaiting()
  bool blocked_ GUARDED_BY(mutex_) = false;  // the socket is full; the loop waits for it
  // The loop does not read until IsFull() ends; whoever ends it tells the loop.
  bool paused_ GUARDED_BY(mutex_) = false;
  bool is_known_ GUARDED_BY(mutex_) = false;  // a request of it had a right signature
  bool gone_ GUARDED_BY(mutex_) = false;
};

}  // namespace pinstripe
