// KineticConnection: one TCP connection to a Kinetic device. It connects, takes the greeting,
// numbers, signs and sends operations, many at a time, checks and matches the answers, and watches
// deadlines. Once lost it stays lost; KineticDrive makes another one.
//
// Sending happens on the thread that submits, unless another one is sending at that moment: then
// that one takes ours along; or a SendTogether of this thread has it wait for others. What the
// socket does not take at once the loop's thread sends later. Small puts that wait at the same time
// for their turn go to a device that can in one message, where all or none of them must be durable
// and their deadlines are about the same; and so do small gets (together.h). Each is answered,
// counted and limited as if it had gone alone.
// Answers and failures are delivered on the loop's thread, without a lock.
//
// What was sent times out when nothing at all came for as long as it was given from when it was
// sent, or four times that has passed. So a device that is slow, as one on a starved machine, is
// waited for as long as it answers something.
//
// No answer is believed that is not signed, that is of another connection, that acknowledges
// nothing we asked, or that has another type: after such a one the rest of the stream is worthless,
// and the connection is given up. Requests are numbered from a number by chance, so that an answer
// to an earlier one of anybody's acknowledges nothing here.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/send_together.h"
#include "base/status.h"
#include "drive/drive.h"
#include "kinetic/drive_socket.h"
#include "kinetic/frame.h"
#include "kinetic/hmac.h"
#include "kinetic/io.h"
#include "kinetic/io_loop.h"
#include "kinetic/operation.h"
#include "kinetic/send_queue.h"
#include "kinetic/waited_requests.h"

namespace pinstripe {

class SharedConnections;

class KineticConnection final : public IoLoop::Handler,
                                public SendTogether::Sender,
                                public std::enable_shared_from_this<KineticConnection> {
 public:
  using OperationPtr = KineticOperationPtr;

  // The user of the connection, who is told on the loop's thread, and not any more after Close().
  class Owner {
   public:
    virtual ~Owner() = default;

    // The device has greeted: operations can be submitted.
    virtual void OnGreeting() = 0;

    // The connection is lost. The operations that were outstanding fail (EHOSTUNREACH) right after.
    virtual void OnLost(const Status& why) = 0;
  };

  struct Options {
    std::string drive;  // "drive 3 (127.0.0.1:8103)", for messages
    int64_t identity = 1;
    HmacKey key;
    std::shared_ptr<const TlsClient> tls;  // null: without TLS
    uint32_t max_in_flight = 128;          // reads, and writes, whatever more the device allows
    // Requests say that the tag of each value is its CRC32C (docs/protocol.md, "Whose words they
    // are").
    bool bound = true;
    // How long an answer may be missing after its operation timed out until the connection is taken
    // for dead.
    Duration patience = std::chrono::seconds(30);
    std::shared_ptr<DriveTimes> times = std::make_shared<DriveTimes>();           // counted here
    std::shared_ptr<WaitedRequests> waited = std::make_shared<WaitedRequests>();  // noted here
  };

  // Starts connecting to `address`, which is one of `host`, through `shared` where that is given.
  // Loop thread. `options` and `owner` outlive the connection's Close().
  static Result<std::shared_ptr<KineticConnection>> Start(IoLoop& loop, const std::string& host,
                                                          const SocketAddress& address,
                                                          std::shared_ptr<const Options> options,
                                                          Owner& owner,
                                                          SharedConnections* shared = nullptr);

  KineticConnection(IoLoop& loop, DriveSocket socket, std::shared_ptr<const Options> options,
                    Owner& owner);
  ~KineticConnection() override;

  // Any thread, after the greeting. Answered with EHOSTUNREACH when the connection is lost.
  void Submit(KineticOperationPtr operation);

  // What the device can do, once it has been asked. Loop thread, before other threads submit
  // anything.
  void SetCapabilities(DriveCapabilities capabilities);

  // The record that says which drive this is. Where the device cannot be asked to answer only if it
  // was not erased (DriveCapabilities::unerased), whatever an emptied device could have answered as
  // well is believed when this record was still the same after it; else the connection is lost. As
  // SetCapabilities().
  void SetIdentity(std::string key, RecordHead head);

  // Adds those requests of the operations that are unanswered. Any thread, after the greeting.
  void AddUnanswered(std::span<const uint64_t> operations, std::vector<WaitedRequest>* unanswered);

  // Nothing is waiting to be sent, or unanswered. Loop thread.
  bool IsIdle();

  // Fails what is outstanding with EHOSTUNREACH and `why`. The owner is not told. Loop thread.
  void Close(const Status& why);

  void OnReady(uint32_t epoll_events) override;
  void SendWaiting() override;

 private:
  struct Sent {
    KineticOperationPtr
        operation;  // null once it has timed out: its answer is awaited, and ignored
    KineticOperation::Kind kind;
    Time deadline;
    Duration allowance;  // from when it was sent
    Time when;           // and that
    Time latest;         // to which the deadline is put off at most
    uint32_t places;     // of the limit of its kind
  };
  struct Delayed {
    Time when;
    KineticOperationPtr operation;
  };
  struct Held {
    std::thread::id thread;
    KineticOperationPtr operation;
  };
  struct Numbered {
    uint64_t sequence;
    KineticOperationPtr operation;
  };
  enum class Phase { kConnecting, kGreeting, kOpen, kClosed };
  struct Scratch;  // protobuf messages, kept for their memory
  struct Unconfirmed;

  // Sending. Whoever sets sending_ owns outgoing_, and passes it on through blocked_.
  void Pump();
  void SendAll();
  std::vector<Numbered> TakeBatch() REQUIRES(mutex_);
  SendQueue::Message Encode(const Numbered& numbered);

  // Receiving; loop thread.
  void OnSocket(Result<DriveSocket> socket);
  void GoOnConnecting();
  void Receive();
  Status ReceiveSome(bool* more);
  Status HandleFrame(Frame frame);
  Status HandleGreeting();
  Status HandleAnswer(Frame frame);
  Status CheckSignature() const;
  Status CheckConnection(int64_t id) const;
  void Count(const Sent& sent, const Status& status, size_t value_bytes) const;
  void CountGets(const Sent& sent, const Status& status) const;
  void CountOne(const Sent& sent, const KineticOperation& operation, const Status& status,
                size_t value_bytes) const;
  // Remembers one of an operation, if it took long.
  void NoteWaited(uint64_t sequence, const Sent& sent, Time until, bool answered) const;
  void FinishWhenConfirmed(KineticOperationPtr operation, const Status& status, Buffer value);
  void Confirm(Unconfirmed& answer, const Result<RecordHead>& identity);
  void RetryLater(KineticOperationPtr operation);
  void HandleOtherVersion(KineticOperationPtr operation);
  void RaiseVersion(int64_t version);

  // Deadlines; loop thread.
  void OnTimer();
  void ArmTimer();

  // Ends the connection; loop thread.
  void Lose(const Status& why);
  Status Away(const Status& why) const;
  std::vector<KineticOperationPtr> Shut(const Status& status);
  static void FailAll(std::vector<KineticOperationPtr> operations, const Status& status);

  std::deque<KineticOperationPtr>& waiting(KineticOperation::Kind kind) REQUIRES(mutex_) {
    return waiting_[static_cast<int>(kind)];
  }
  uint32_t& in_flight(KineticOperation::Kind kind) REQUIRES(mutex_) {
    return in_flight_[static_cast<int>(kind)];
  }

  IoLoop& loop_;
  DriveSocket socket_;
  const std::shared_ptr<const Options> options_;
  Owner& owner_;

  // The device's cluster version, as it said last.
  std::atomic<int64_t> cluster_version_ = 0;

  // Used by the loop thread alone:
  Time last_received_{};               // when anything came
  std::optional<int64_t> raising_to_;  // the cluster version that the device was asked to take
  Status cannot_raise_;                // why it did not; it is asked again later
  Time ask_to_raise_again_{};
  Phase phase_ = Phase::kConnecting;
  bool receiving_ = false;  // in Receive(), which sends in the end
  FrameReader reader_;
  IoLoop::Timer timer_;
  std::unique_ptr<Scratch> received_;

  // Set on the loop's thread before other threads submit anything, then constant:
  int64_t connection_id_ = 0;  // as the device has greeted; not 0 then
  uint32_t limits_[KineticOperation::kKinds] = {};
  DriveCapabilities capabilities_;
  std::string identity_key_;  // empty: there is none
  RecordHead identity_head_;

  // Of whoever is sending:
  SendQueue outgoing_;
  std::unique_ptr<Scratch> encoded_;

  Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
  Status closed_status_ GUARDED_BY(mutex_);  // for operations that come after
  bool sending_ GUARDED_BY(mutex_) = false;
  // The loop goes on sending when the socket can take more.
  bool blocked_ GUARDED_BY(mutex_) = false;
  uint64_t last_sequence_ GUARDED_BY(mutex_);
  std::deque<KineticOperationPtr> waiting_[KineticOperation::kKinds] GUARDED_BY(mutex_);
  std::vector<Held> held_ GUARDED_BY(mutex_);                   // by a SendTogether of that thread
  std::vector<Delayed> delayed_ GUARDED_BY(mutex_);             // the drive was busy
  std::unordered_map<uint64_t, Sent> sent_ GUARDED_BY(mutex_);  // by sequence
  uint32_t in_flight_[KineticOperation::kKinds] GUARDED_BY(mutex_) = {};
  // Not later than anything the timer is needed for.
  Time wake_ GUARDED_BY(mutex_) = Time::max();
};

}  // namespace pinstripe
