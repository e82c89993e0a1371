#include "daemon/session_gate.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

#include "store/workers.h"

namespace pinstripe {
namespace {

using kinetic::Header;
using Verdict = SessionGate::Verdict;

Verdict Refuse(kinetic::Status::Code code, std::string why) {
  return {Verdict::kRefuse, code, std::move(why)};
}

Verdict End(std::string why) {
  return {Verdict::kEnd, kinetic::Status::INVALID_REQUEST, std::move(why)};
}

}  // namespace

void SessionGate::Begin(int64_t connection_id, uint64_t erasures) {
  connection_id_ = connection_id;
  greeted_erasures_ = batches_erasures_ = erasures;
  CheckInvariants();
}

Verdict SessionGate::Judge(const Asked& asked, const Device& device) {
  // Without an authentication at all there is still something to say to a request without a header.
  if (asked.authentication && asked.authentication != kinetic::Message::PINAUTH &&
      asked.authentication != kinetic::Message::HMACAUTH) {
    return End(fmt::format("a request with an authentication of type {}",
                           static_cast<int>(*asked.authentication)));
  }
  // Batches from before an erase are not for the device that it is now.
  const bool erased = std::exchange(batches_erasures_, device.erasures) != device.erasures;
  Verdict verdict = JudgeRequest(asked, device);
  if (erased) verdict.drop_batches = true;
  CheckInvariants();
  return verdict;
}

Verdict SessionGate::JudgeRequest(const Asked& asked, const Device& device) {
  const bool pin = asked.authentication == kinetic::Message::PINAUTH;
  if (asked.header == nullptr) return Refuse(kinetic::Status::HEADER_REQUIRED, "no header");
  const Header& header = *asked.header;
  if (pin && !asked.tls) {
    return Refuse(kinetic::Status::INVALID_REQUEST, "TLS channel is required for Pin operation");
  }
  if (pin && header.messagetype() != Header::PINOP) {
    return Refuse(kinetic::Status::INVALID_REQUEST, "a PIN is for PIN operations only");
  }
  if (pin) {
    Verdict turn = JudgeTurn(header, pin);
    return turn.kind == Verdict::kPass ? JudgePriority(header) : turn;
  }
  if (asked.identity == nullptr) return Refuse(kinetic::Status::HMAC_FAILURE, "unknown identity");
  if (!asked.authentic) return Refuse(kinetic::Status::HMAC_FAILURE, "HMAC did not compare");
  if (Verdict turn = JudgeTurn(header, pin); turn.kind != Verdict::kPass) return turn;
  is_stranger_ = false;
  if (header.unerased() && asked.identity->erasures != greeted_erasures_) {
    return Refuse(kinetic::Status::CONNECTION_TERMINATED,
                  "the device was erased since it greeted this connection");
  }
  if (header.clusterversion() != device.cluster_version) {
    return Refuse(kinetic::Status::VERSION_FAILURE,
                  fmt::format("this device has cluster version {}, the request {}",
                              device.cluster_version, header.clusterversion()));
  }
  if (device.locked) {
    Verdict refusal = Refuse(kinetic::Status::DEVICE_LOCKED, "the device is locked");
    refusal.drop_batches = true;
    return refusal;
  }
  if (Verdict known = JudgePriority(header); known.kind != Verdict::kPass) return known;
  const auto highest = asked.identity->rights.max_priority;
  if (header.priority() > highest) {
    return Refuse(kinetic::Status::NOT_AUTHORIZED,
                  fmt::format("permission denied: priority {}, and {} is this identity's highest",
                              static_cast<int>(header.priority()), highest));
  }
  return {};
}

Verdict SessionGate::JudgePriority(const Header& header) {
  if (!header.has_priority()) return {};
  if (header.priority() >= Workers::kLowest && header.priority() <= Workers::kHighest) return {};
  return Refuse(kinetic::Status::INVALID_REQUEST,
                fmt::format("unknown priority {}", static_cast<int>(header.priority())));
}

Verdict SessionGate::JudgeTurn(const Header& header, bool pin) {
  if (!IsForThisConnection(header, pin)) {
    return End(
        fmt::format("a request of connection {:x} on connection {:x}; does somebody repeat it?",
                    header.connectionid(), connection_id_));
  }
  if (!any_sequence_ || header.sequence() > last_sequence_) {
    any_sequence_ = true;
    last_sequence_ = header.sequence();
    return {};
  }
  // It may be the true one once more, and its first answer still be on its way.
  if (bound_) {
    return End(fmt::format("request {} came after request {}", header.sequence(), last_sequence_));
  }
  return Refuse(kinetic::Status::INVALID_REQUEST,
                fmt::format("Invalid Sequence Id: {}", header.sequence()));
}

// Who says nothing of connections may have what it said elsewhere repeated here; nobody else, and
// nobody who has said otherwise before. A PIN binds nothing.
bool SessionGate::IsForThisConnection(const Header& header, bool pin) {
  bound_ = bound_ || (header.bound() && !pin);
  const int64_t id = header.connectionid();
  if (id == 0 && !bound_) return true;
  return id == connection_id_ && (pin || header.bound() == bound_);
}

void SessionGate::CheckInvariants() const {
  assert(connection_id_ != 0);                   // Begin() comes first
  assert(any_sequence_ || last_sequence_ == 0);  // nothing has passed
  assert(is_stranger_ || any_sequence_);         // who has signed right had its turn
}

}  // namespace pinstripe
