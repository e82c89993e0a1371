// A client that says to a device exactly what a test wants, and hears all that it says.

#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/coding.h"
#include "kinetic/frame.h"
#include "kinetic/io_loop.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sanitized.h"

namespace pinstripe {

// Whether both ends of so many connections can be in this process, when its limit is raised.
inline testing::AssertionResult CanHaveConnections(size_t connections) {
  const rlim_t wanted = 2 * connections + 100;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return testing::AssertionSuccess();
  rlimit raised{wanted, std::max(wanted, limit.rlim_max)};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "this test needs " << wanted << " file descriptors, and may have " << limit.rlim_max
         << ": raise the hard limit (ulimit -Hn, or nofile in /etc/security/limits.conf)";
}

// A blocking connection to a device. Nothing it reads may take longer than ten seconds, or a minute
// under a sanitizer.
class WireClient {
 public:
  explicit WireClient(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval patience{.tv_sec = kSanitized ? 60 : 10, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const int yes = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  virtual ~WireClient() = default;
  WireClient(WireClient&&) = default;

  // False when the server hung up.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = SendSome(bytes);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Fewer than asked for: the server hung up.
  std::string Receive(size_t count) {
    std::string bytes(count, '\0');
    size_t got = 0;
    while (got < count) {
      const ssize_t part = ReceiveSome(bytes.data() + got, count - got);
      if (part <= 0) break;
      got += static_cast<size_t>(part);
    }
    bytes.resize(got);
    return bytes;
  }

  // The next frame as it came; empty when the server hung up.
  std::string ReceiveFrame() {
    const std::string header = Receive(kFrameHeaderBytes);
    if (header.size() < kFrameHeaderBytes) return {};
    Reader reader(header);
    reader.U8();
    const uint32_t message = reader.U32();
    const uint32_t value = reader.U32();
    return header + Receive(message + value);
  }

  struct Answer {
    kinetic::Message message;
    kinetic::Command command;
    std::string value;
    int code() const { return command.status().code(); }
  };
  Answer ReceiveAnswer() {
    const std::string frame = ReceiveFrame();
    Answer answer;
    if (frame.empty()) {
      ADD_FAILURE() << "the server hung up";
      return answer;
    }
    Reader reader(frame);
    reader.U8();
    const uint32_t message_bytes = reader.U32();
    reader.U32();
    EXPECT_OK(ParseMessage(AsBytes(reader.Raw(message_bytes)), &answer.message));
    EXPECT_OK(ParseCommand(answer.message, &answer.command));
    answer.value = reader.Rest();
    return answer;
  }

  // A signed request with the next sequence number.
  bool Request(kinetic::Header::MessageType type,
               const std::function<void(kinetic::Body*)>& fill = nullptr,
               std::string_view value = {}, std::string_view key = "asdfasdf") {
    kinetic::Command command;
    command.mutable_header()->set_messagetype(type);
    if (fill) fill(command.mutable_body());
    return SendCommand(std::move(command), value, key);
  }
  bool SendCommand(kinetic::Command command, std::string_view value = {},
                   std::string_view key = "asdfasdf") {
    command.mutable_header()->set_sequence(++sequence_);
    return Send(SignedFrame(command, identity_, HmacKey(key), value.size())) && Send(value);
  }
  // A request that a PIN authorises instead of a signature.
  bool PinRequest(std::string_view pin, kinetic::PinOperation::Type type,
                  kinetic::Header::MessageType message_type = kinetic::Header::PINOP,
                  const std::function<void(kinetic::Header*)>& edit = {}) {
    kinetic::Command command;
    command.mutable_header()->set_sequence(++sequence_);
    command.mutable_header()->set_messagetype(message_type);
    command.mutable_body()->mutable_pinop()->set_pinoptype(type);
    if (edit) edit(command.mutable_header());
    kinetic::Message message;
    message.set_authtype(kinetic::Message::PINAUTH);
    message.mutable_pinauth()->set_pin(std::string(pin));
    command.SerializeToString(message.mutable_commandbytes());
    const std::string bytes = message.SerializeAsString();
    const auto header = EncodeFrameHeader({static_cast<uint32_t>(bytes.size()), 0});
    return Send(std::string(AsText(header)) + bytes);
  }
  uint64_t last_sequence() const { return sequence_; }

  // Who asks from now on.
  void SetIdentity(int64_t identity) { identity_ = identity; }

  // True when the server closed the connection (after whatever it had to say).
  bool SeesTheEnd() {
    while (!ReceiveFrame().empty()) {
    }
    char byte;
    return ReceiveSome(&byte, 1) == 0 || errno == ECONNRESET;
  }

 protected:
  int socket() const { return socket_.get(); }
  virtual ssize_t SendSome(std::string_view bytes) {
    return send(socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  virtual ssize_t ReceiveSome(char* bytes, size_t size) { return recv(socket(), bytes, size, 0); }

 private:
  FileDescriptor socket_;
  uint64_t sequence_ = 0;
  int64_t identity_ = 1;
};

}  // namespace pinstripe
