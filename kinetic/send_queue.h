// SendQueue: messages that wait to go out through a socket, several in one call, and from where
// their bytes lie. One thread at a time.

#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "kinetic/drive_socket.h"

namespace pinstripe {

class SendQueue {
 public:
  static constexpr size_t kAtOnce = 32;  // messages in one call

  struct Message {
    std::string head;
    SharedBytes value{};
    std::string rest{};  // after the value

    size_t size() const { return head.size() + value.size() + rest.size(); }
  };

  void Add(Message message) { messages_.push_back(std::move(message)); }
  bool empty() const { return messages_.empty(); }
  size_t size() const { return messages_.size(); }  // those that have not gone out wholly
  void Clear();

  // Sends what the socket takes. kFailed: it takes nothing any more.
  enum class Written { kAll, kBlocked, kFailed };
  Written WriteTo(DriveSocket& socket);

 private:
  void Consume(size_t bytes);

  std::deque<Message> messages_;
  size_t done_ = 0;  // bytes of the first one
};

}  // namespace pinstripe
