// RespSession: the connection of one client of the Redis protocol to a device, from its first byte
// to its end. Commands are executed one after the other, in the order in which they came, and
// answered in that order. What need not wait the loop executes itself, some commands of one
// connection before the others have theirs; plain SETs of all connections together (resp_puts.h).
// From the first command on that has to wait a worker executes what came, for a moment, and comes
// back later for the rest. Meanwhile nothing is read from this connection, so that its peer feels
// back-pressure. No thread waits for a turn (resp_turns.h).
//
// Somebody who has not said who he is can send little, and learns nothing (resp_request.h). As for
// other connections there are places (places.h), room for large values (value_budget.h), and times
// after which one is closed that holds room and stands still.
//
// The loop's thread, but for what a worker executes while busy_ is set: it alone uses requests,
// answers and client then.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "daemon/clients.h"
#include "daemon/places.h"
#include "daemon/resp_commands.h"
#include "daemon/resp_device.h"
#include "daemon/resp_puts.h"
#include "daemon/resp_reply.h"
#include "daemon/resp_request.h"
#include "daemon/server.h"
#include "daemon/shared_by_sessions.h"
#include "kinetic/io_loop.h"
#include "kinetic/tls.h"

namespace pinstripe {

class RespSession final : public Connection, public std::enable_shared_from_this<RespSession> {
 public:
  // What it has in common with others. All outlive it.
  struct Shared {
    const ServerThreads& threads;
    ServerBudgets& budgets;
    SharedByDevice& device_wide;
    RespDevice& device;
    const Server::Options& options;
  };

  // `tls`: of the socket; null without. `closed` is called once.
  RespSession(IoLoop& loop, Shared shared, std::shared_ptr<RespPuts> puts,
              std::unique_ptr<Places::Place> place, FileDescriptor socket,
              std::unique_ptr<TlsStream> tls,
              std::function<void(std::shared_ptr<Connection>)> closed);
  ~RespSession() override;

  void Start() override;
  void Close() override;
  void OnReady(uint32_t epoll_events) override;

 private:
  void ShakeHands(uint32_t epoll_events);
  Result<bool> Receive();
  void Parse();
  bool TakeNext();
  void Advance();
  void ExecuteAtOnce();
  bool ExecuteNextAtOnce();
  bool PutAtOnce();
  void OnPut(std::span<const Status> made);
  void GoOnLater();
  void HandOver();
  void StartWorker(RespTurns::Kind turn);
  void ExecuteWaiting(RespTurns::Kind turn);
  void AfterWaiting();
  // Whether answers tell of changes that have to be safe from power loss and are not yet.
  bool MustFlush() const { return device_.write_through() && client_.changed; }
  void FlushFirst();
  bool HasNext() const { return next_ < requests_.size() && !client_.quits; }
  bool IsFull() const;
  void Admit();
  void NoteLogin();
  void Note(const RespCommand* command, const RespRequest& request, size_t value_bytes,
            const Status& done);
  void NoteFailure(const RespCommand& command, const RespRequest& request, const Status& why);
  void Send();
  ssize_t Write(iovec* parts, size_t count);
  void CountUnsent();
  void TakeRoom();
  bool WantsMore() const;
  void Watch(bool look_away = false);
  void WatchProgress();
  void CheckProgress();
  void GiveUp(std::string_view why);

  IoLoop& loop_;
  const Shared shared_;
  RespDevice& device_;
  const std::shared_ptr<RespPuts> puts_;
  const std::unique_ptr<Places::Place> place_;  // until the socket is closed
  const FileDescriptor socket_;
  const std::unique_ptr<TlsStream> tls_;  // null: without
  const std::function<void(std::shared_ptr<Connection>)> closed_;
  IoLoop::Timer timer_;  // of the handshake, then of progress

  RespReader reader_{RespReader::kOfStrangers};
  std::vector<RespRequest> requests_;  // that came and were not all executed
  size_t next_ = 0;                    // of them
  Time since_{};                       // when they came, or the one before was executed
  size_t at_once_ = 0;                 // executed by the loop, since it was this one's turn
  RespWriter replies_;
  RespClient client_;
  bool unparsed_ = false;  // there may be more in the reader
  std::string broken_;     // what the stream ends with, after those requests; empty: it goes on
  bool busy_ = false;      // a worker, a put or a flush is waited for

  ValueBudget::Share room_;      // of the request that is being read, where it is large
  bool waits_for_room_ = false;  // in a budget
  size_t counted_unsent_ = 0;    // of answers, by the budget

  uint64_t watch_id_ = 0;
  uint32_t watched_ = EPOLLIN;
  bool shaking_hands_ = false;
  bool read_posted_ = false;
  bool blocked_ = false;  // the socket is full
  bool is_known_ = false;
  bool ends_ = false;  // when the answers are sent
  bool later_posted_ = false;
  std::atomic<bool> gone_ = false;
  uint64_t commands_ = 0;  // that came
  // When progress was last looked at:
  bool watching_ = false;    // the timer is armed for the next time
  bool seen_begun_ = false;  // a command
  uint64_t seen_commands_ = 0;
  uint64_t seen_sent_ = 0;
};

}  // namespace pinstripe
