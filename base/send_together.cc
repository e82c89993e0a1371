#include "base/send_together.h"

#include <algorithm>
#include <utility>

namespace pinstripe {
namespace {

thread_local SendTogether* innermost = nullptr;

}  // namespace

SendTogether::SendTogether() : outer_(std::exchange(innermost, this)) {}

SendTogether::~SendTogether() {
  innermost = outer_;
  for (const auto& sender : senders_) {
    if (!Defers(sender)) sender->SendWaiting();
  }
}

void SendTogether::SendBeforeWaiting() {
  // Who is told, and asks for more, does so at once.
  SendTogether* const all = std::exchange(innermost, nullptr);
  for (SendTogether* each = all; each != nullptr; each = each->outer_) {
    for (const auto& sender : std::exchange(each->senders_, {})) sender->SendWaiting();
  }
  innermost = all;
}

bool SendTogether::Defers(const std::shared_ptr<Sender>& sender) {
  if (innermost == nullptr) return false;
  auto& senders = innermost->senders_;
  if (std::ranges::find(senders, sender) == senders.end()) senders.push_back(sender);
  return true;
}

}  // namespace pinstripe
