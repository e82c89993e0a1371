// RedisConnection: one TCP connection to a server of the Redis protocol. It connects, sends
// commands, many at a time, matches the replies, which come in the order of the commands, and
// watches deadlines. Once lost it stays lost; RedisDrive makes another one.
//
// All happens on the loop's thread; Submit() may be called on any. Answers and failures are
// delivered there, and never inside Submit().
//
// A command times out as one of KineticConnection does (kinetic/connection.h): when nothing at all
// came for as long as it was given, or four times that has passed.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/runtime.h"
#include "base/status.h"
#include "drive/drive.h"
#include "kinetic/drive_socket.h"
#include "kinetic/io.h"
#include "kinetic/io_loop.h"
#include "kinetic/send_queue.h"
#include "redis/reply.h"
#include "redis/scripts.h"

namespace pinstripe {

// A command and who waits for its reply. Each is answered once.
class RedisOperation {
 public:
  enum class Kind { kRead, kWrite };
  using Done = std::function<void(Result<RedisReply>)>;

  RedisOperation(Kind kind, Time deadline, Done done)
      : kind_(kind), deadline_(deadline), done_(std::move(done)) {}

  // A script to run with these keys and, after the store's id, the words as arguments. By its sum,
  // unless the server does not know it.
  std::optional<RedisScript> script;
  std::vector<std::string> keys;
  std::vector<std::string> words;  // of the command, where there is no script
  bool sends_text = false;
  bool is_secret = false;  // an error that answers it may repeat its words, and is not told
  // Executed right after it on the same connection, each answered by itself.
  std::vector<std::shared_ptr<RedisOperation>> followers;
  std::weak_ptr<RedisOperation> leader;  // that it follows, once they are on their way
  bool goes_again = false;               // with that
  // Bytes that come before those of one of the words, as a part of it.
  SharedBytes value;
  size_t value_word = 0;

  Kind kind() const { return kind_; }
  Time deadline() const { return deadline_; }
  void Finish(Result<RedisReply> reply) {
    // Left only where it was never sent, so that it failed.
    for (const auto& each : std::exchange(followers, {})) {
      each->Finish(tl::unexpected(reply ? Status(EIO, "not sent") : reply.error()));
    }
    std::exchange(done_, {})(std::move(reply));
  }

 private:
  const Kind kind_;
  const Time deadline_;
  Done done_;
};

class RedisConnection final : public IoLoop::Handler,
                              public std::enable_shared_from_this<RedisConnection> {
 public:
  using OperationPtr = std::shared_ptr<RedisOperation>;

  // As KineticConnection::Owner.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnGreeting() = 0;  // commands can be submitted
    virtual void OnLost(const Status& why) = 0;
  };

  struct Options {
    std::string drive;                     // for messages
    std::shared_ptr<const TlsClient> tls;  // null: without TLS
    size_t max_in_flight = 128;
    Duration patience = std::chrono::seconds(30);
    std::shared_ptr<DriveTimes> times = std::make_shared<DriveTimes>();
  };

  // Starts connecting to `address`, which is one of `host`. Loop thread. `owner` outlives the
  // connection's Close().
  static Result<std::shared_ptr<RedisConnection>> Start(IoLoop& loop, const std::string& host,
                                                        const SocketAddress& address,
                                                        std::shared_ptr<const Options> options,
                                                        Owner& owner);
  RedisConnection(IoLoop& loop, DriveSocket socket, std::shared_ptr<const Options> options,
                  Owner& owner);
  ~RedisConnection() override;

  // Any thread, after OnGreeting(). EHOSTUNREACH once the connection is lost.
  void Submit(OperationPtr operation);

  // The sum of a script, as the server has told it. Loop thread, before scripts are submitted.
  void Know(RedisScript script, std::string sum);

  // The store's id, which all scripts but kConnect begin with. Likewise.
  void SetStore(std::string id) { store_ = std::move(id); }

  // Nothing is waiting to be sent, or unanswered. Loop thread.
  bool IsIdle() const { return waiting_.empty() && sent_.empty(); }

  // As if it was lost. Loop thread.
  void GiveUp(const Status& why) { Lose(why); }

  // Fails what is outstanding with EHOSTUNREACH and `why`. The owner is not told. Loop thread.
  void Close(const Status& why);

  void OnReady(uint32_t epoll_events) override;

 private:
  struct Sent {
    OperationPtr operation;  // null once it has timed out: its answer is awaited, and ignored
    Time deadline;
    Duration allowance;
    Time when;
    Time latest;
  };
  enum class Phase { kConnecting, kOpen, kClosed };

  void GoOnConnecting();
  void Open();

  void Take(OperationPtr operation);
  void Pump();
  SendQueue::Message Encode(const RedisOperation& operation) const;

  void Receive();
  Status ReceiveSome(bool* more);
  Status HandleReply(RedisReply reply);
  void Count(const Sent& sent, const RedisReply& reply) const;

  void ArmTimer();
  void OnTimer();

  void Lose(const Status& why);
  Status Away(const Status& why) const;
  std::vector<OperationPtr> Shut(const Status& status);

  IoLoop& loop_;
  DriveSocket socket_;
  const std::shared_ptr<const Options> options_;
  Owner& owner_;
  uint64_t watch_id_ = 0;

  // Used by the loop's thread alone:
  Phase phase_ = Phase::kConnecting;
  Status closed_status_;  // for operations that come after
  std::array<std::string, kRedisScripts.size()> sums_;
  std::string store_;
  RedisReader reader_;
  Buffer received_;
  Time last_received_{};
  std::deque<OperationPtr> waiting_;
  std::deque<Sent> sent_;  // in their order
  SendQueue outgoing_;
  bool blocked_ = false;    // until the socket can take more
  bool receiving_ = false;  // sends in the end
  Time wake_ = Time::max();
  IoLoop::Timer timer_;
};

}  // namespace pinstripe
