// PeerPush: copies records from this device to another one (PEER2PEERPUSH), as a client of it with
// the requester's identity and key. Version, tag and algorithm go along.
//
// An operation may hold a push of its own, which the peer is asked for once the record is there: so
// a record goes on from device to device. The connection is made for one push and has its own
// threads (KineticIo); the thread that works waits for it.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "daemon/engine.h"
#include "kinetic/hmac.h"
#include "kinetic/io.h"
#include "store/long_operation.h"

namespace pinstripe {

namespace kinetic {
class Command;
class P2POperation;
}  // namespace kinetic

// The limits of one request, with all pushes that are within it.
inline constexpr int kMaxPushDepth = 8;
inline constexpr int kMaxPushOperations = 1000;
inline constexpr size_t kMaxPushBytes = 768 << 10;  // as a message; its answer must fit, too

class PeerPush final : public LongOperation {
 public:
  static constexpr Duration kLongest =
      std::chrono::seconds(60);  // without a time of the requester's
  static constexpr Duration kConnectTime = std::chrono::seconds(5);

  struct Asked {
    int64_t identity = 0;
    HmacKey key;
    Time expiry;
    // Whether the requester may read this record of ours.
    std::function<Status(std::string_view key)> may_read;
  };

  // EINVAL: what is asked is not valid.
  static Status Check(const kinetic::P2POperation& operations);

  // All outlive it. `request` was checked; fills `answer`.
  PeerPush(Runtime& runtime, KineticIo& io, Engine& engine, Asked asked,
           const kinetic::P2POperation& request, kinetic::Command* answer);
  ~PeerPush() override;

  // To its end: waits for the peer.
  bool Work(Time until, Cancellation& cancellation) override;

 private:
  class Link;
  struct Arrivals;

  Status Connect(Cancellation& cancellation);
  void PushAll(Cancellation& cancellation);
  void Start(int index);
  void Arrive(int index, bool nested, const Status& status);
  void StartNested(int index);
  void Settle(int index, const Status& status);
  void SumUp(bool expired);

  Runtime& runtime_;
  Engine& engine_;
  const Asked asked_;
  const kinetic::P2POperation& request_;
  kinetic::Command* const answer_;
  const std::shared_ptr<Link> link_;
  const std::shared_ptr<Arrivals> arrivals_;
  std::vector<size_t> value_bytes_;  // of the operations that are under way
  int under_way_ = 0;
  size_t bytes_under_way_ = 0;
};

}  // namespace pinstripe
