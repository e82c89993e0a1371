#include "kinetic/send_queue.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace pinstripe {

void SendQueue::Clear() {
  messages_.clear();
  done_ = 0;
}

SendQueue::Written SendQueue::WriteTo(DriveSocket& socket) {
  while (!messages_.empty()) {
    std::array<iovec, 3 * kAtOnce> parts;
    size_t count = 0;
    size_t skip = done_;
    const auto add = [&](Bytes bytes) {
      const size_t skipped = std::min(skip, bytes.size());
      skip -= skipped;
      bytes = bytes.subspan(skipped);
      if (!bytes.empty()) parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    };
    for (size_t i = 0; i < std::min(messages_.size(), kAtOnce); ++i) {
      add(AsBytes(messages_[i].head));
      add(messages_[i].value);
      add(AsBytes(messages_[i].rest));
    }
    const ssize_t written = socket.Write(parts.data(), static_cast<int>(count));
    if (written >= 0) {
      Consume(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      return Written::kBlocked;
    } else if (errno != EINTR) {
      return Written::kFailed;
    }
  }
  return Written::kAll;
}

void SendQueue::Consume(size_t bytes) {
  done_ += bytes;
  while (!messages_.empty() && done_ >= messages_.front().size()) {
    done_ -= messages_.front().size();
    messages_.pop_front();
  }
}

}  // namespace pinstripe
