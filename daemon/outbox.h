// Outbox: what one connection has to send and its peer has not taken yet, in order. Bytes leave it
// from the front, as many at a time as the socket takes.
//
// Not thread-safe: its session's mutex guards it. What NextPieces() shows may be read without that
// until Consume(), while others Add().

#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "base/bytes.h"
#include "daemon/device_security.h"
#include "kinetic/kinetic.pb.h"

namespace pinstripe {

// One answer, or a word of the daemon's own.
struct Outgoing {
  std::string head;
  SharedBytes value;
  size_t request_bytes = 0;  // what the request it answers counted for
  size_t answers = 0;        // so many requests, as they were counted; 0: a word of our own
  bool last = false;         // the connection ends after it
  size_t size() const { return head.size() + value.size(); }
};

// An answer with its signature, to what was counted as so many requests. Without an identity: to a
// PIN operation.
Outgoing AnswerOf(const kinetic::Command& answer, const DeviceSecurity::Identity* identity,
                  SharedBytes value, size_t request_bytes, size_t requests = 1);

class Outbox {
 public:
  static constexpr size_t kSendAtOnce = 64;
  using Parts = std::array<iovec, 2 * kSendAtOnce>;

  void Add(Outgoing outgoing);

  // What is to be sent next: how many of `parts` are filled.
  size_t NextPieces(Parts& parts) const;

  // What was sent wholly, now that `bytes` more were.
  struct Sent {
    size_t bytes = 0;     // of it and of the requests that it answered
    size_t requests = 0;  // that it answered
    bool last = false;    // the last words are out
  };
  Sent Consume(size_t bytes);

  bool empty() const { return waiting_.empty(); }
  size_t unsent_bytes() const { return unsent_bytes_; }  // of all that is not sent wholly
  uint64_t sent_bytes() const { return sent_bytes_; }    // so far

 private:
  void CheckInvariants() const;

  std::deque<Outgoing> waiting_;
  size_t sent_of_first_ = 0;  // bytes of waiting_.front()
  uint64_t sent_bytes_ = 0;
  size_t unsent_bytes_ = 0;
};

}  // namespace pinstripe
