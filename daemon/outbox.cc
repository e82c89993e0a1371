#include "daemon/outbox.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "kinetic/message.h"

namespace pinstripe {

using kinetic::Command;

Outgoing AnswerOf(const Command& answer, const DeviceSecurity::Identity* identity,
                  SharedBytes value, size_t request_bytes, size_t requests) {
  std::string head = identity == nullptr
                         ? UnsignedFrame(Unsigned::kPinAnswer, answer)
                         : SignedFrame(answer, identity->id, identity->key, value.size());
  return {std::move(head), std::move(value), request_bytes, requests};
}

void Outbox::Add(Outgoing outgoing) {
  unsent_bytes_ += outgoing.size();
  waiting_.push_back(std::move(outgoing));
  CheckInvariants();
}

// The entries stay where they are (a deque's do) until Consume().
size_t Outbox::NextPieces(Parts& parts) const {
  size_t count = 0;
  size_t skip = sent_of_first_;
  const auto add = [&](Bytes bytes) {
    const size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    bytes = bytes.subspan(skipped);
    if (!bytes.empty()) parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  for (size_t i = 0; i < std::min(waiting_.size(), kSendAtOnce); ++i) {
    add(AsBytes(waiting_[i].head));
    add(waiting_[i].value);
  }
  return count;
}

Outbox::Sent Outbox::Consume(size_t bytes) {
  Sent sent;
  sent_of_first_ += bytes;
  sent_bytes_ += bytes;
  while (!waiting_.empty() && sent_of_first_ >= waiting_.front().size()) {
    const Outgoing& first = waiting_.front();
    sent_of_first_ -= first.size();
    unsent_bytes_ -= first.size();
    sent.bytes += first.size() + first.request_bytes;
    sent.requests += first.answers;
    sent.last = first.last;
    waiting_.pop_front();
    if (sent.last) break;
  }
  CheckInvariants();
  return sent;
}

void Outbox::CheckInvariants() const {
  assert(waiting_.empty() ? sent_of_first_ == 0 && unsent_bytes_ == 0
                          : unsent_bytes_ >= waiting_.front().size());
}

}  // namespace pinstripe
