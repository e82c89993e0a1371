// SessionGate: which requests of one connection go on to be executed, which are refused, and which
// end the connection. It checks what the protocol says of each request before its content counts,
// in this order: its authentication, its header, its signature, its connection, its sequence, the
// erasures, the cluster version and the lock of the device, its priority. A PIN has no signature,
// and is not asked for erasures, version and lock.
//
// It does no I/O and knows no sockets: it remembers what was said before, and judges what is said
// now. A request whose signature is wrong changes nothing in it, for anybody could have sent it.
//
// Of the connection's loop thread.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/device_security.h"
#include "kinetic/kinetic.pb.h"

namespace pinstripe {

class SessionGate {
 public:
  // A request, as far as the gate looks at it.
  struct Asked {
    const kinetic::Header* header = nullptr;  // null: it has none
    std::optional<kinetic::Message::AuthType> authentication;
    bool tls = false;
    const DeviceSecurity::Identity* identity = nullptr;  // that it names; null: there is none
    bool authentic = false;                              // that identity has signed it
  };

  // The device, at this moment.
  struct Device {
    uint64_t erasures = 0;
    int64_t cluster_version = 0;
    bool locked = false;
  };

  struct Verdict {
    enum Kind {
      kPass,
      kRefuse,  // answered with `code` and `why`; the connection goes on
      kEnd,     // the connection ends because of `why`
    };
    Kind kind = kPass;
    kinetic::Status::Code code = kinetic::Status::SUCCESS;
    std::string why;
    // The batches that are open are not for the device that it is now.
    bool drop_batches = false;
  };

  // Before the first request. `connection_id` is not 0; the device had been erased so many times
  // when it greeted its client.
  void Begin(int64_t connection_id, uint64_t erasures);

  Verdict Judge(const Asked& asked, const Device& device);

  int64_t connection_id() const { return connection_id_; }
  // No request had a right signature yet. A PIN is none.
  bool is_stranger() const { return is_stranger_; }

 private:
  // Everything but the batches.
  Verdict JudgeRequest(const Asked& asked, const Device& device);
  // Only for those who have proved who they are: signed refusals of requests that others have made
  // up would be believed by whoever waits for the answer to a true one.
  Verdict JudgeTurn(const kinetic::Header& header, bool pin);
  bool IsForThisConnection(const kinetic::Header& header, bool pin);
  // The workers take no other: also a PIN's, of which nobody has checked anything yet.
  static Verdict JudgePriority(const kinetic::Header& header);
  void CheckInvariants() const;

  int64_t connection_id_ = 0;
  bool bound_ = false;  // its requests say that they are of this connection, and only of it
  bool any_sequence_ = false;
  uint64_t last_sequence_ = 0;
  bool is_stranger_ = true;
  // How often the device had been erased when it greeted its client, and when the batches began.
  uint64_t greeted_erasures_ = 0;
  uint64_t batches_erasures_ = 0;
};

}  // namespace pinstripe
