#include "tests/kinetic/fake_device.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cassert>
#include <system_error>
#include <utility>

#include "kinetic/frame.h"
#include "kinetic/message.h"

namespace pinstripe {
namespace {

struct SessionEnded {};

int Checked(int result) {
  if (result < 0) throw std::system_error(errno, std::generic_category());
  return result;
}

FileDescriptor Bound(std::string* address) {
  FileDescriptor socket(Checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof name;
  Checked(bind(socket.get(), reinterpret_cast<sockaddr*>(&name), length));
  Checked(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length));
  *address = fmt::format("127.0.0.1:{}", ntohs(name.sin_port));
  return socket;
}

}  // namespace

void FakeDevice::Session::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) throw SessionEnded();
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string FakeDevice::Session::Read(size_t size) {
  std::string bytes(size, '\0');
  for (size_t have = 0; have < size;) {
    const ssize_t got = recv(socket_, bytes.data() + have, size - have, 0);
    if (got <= 0) throw SessionEnded();
    have += static_cast<size_t>(got);
  }
  return bytes;
}

void FakeDevice::Session::WaitForEnd() {
  for (;;) Read(1);
}

void FakeDevice::Session::Greet(const kinetic::GetLog::Limits& limits) {
  kinetic::Command command;
  command.mutable_header()->set_clusterversion(0);
  command.mutable_header()->set_connectionid(kConnectionId);
  *command.mutable_body()->mutable_getlog()->mutable_limits() = limits;
  command.mutable_status()->set_code(kinetic::Status::SUCCESS);
  Send(UnsignedFrame(Unsigned::kUnsolicited, command));
}

void FakeDevice::Session::Handshake(bool range_get, const kinetic::GetLog::Limits& limits) {
  Greet(limits);
  const Request request = Next();
  assert(request.command.body().getlog().device().name() == kCapabilitiesLog);
  if (range_get) {
    Answer(request, nullptr, "something_newer 3\nrange_get 1\nversion_part 1\nrooms 1\n");
  } else {
    Answer(request, kinetic::Status::NOT_FOUND);
  }
}

FakeDevice::Request FakeDevice::Session::Next() {
  Request request;
  request.frame = Read(kFrameHeaderBytes);
  const auto header = DecodeFrameHeader(AsBytes(request.frame).first<kFrameHeaderBytes>());
  assert(header);
  const std::string bytes = Read(header->message_bytes);
  request.value = Read(header->value_bytes);
  request.frame += bytes + request.value;
  kinetic::Message message;
  [[maybe_unused]] const bool good =
      ParseMessage(AsBytes(bytes), &message).ok() && ParseCommand(message, &request.command).ok();
  assert(good);
  request.authentic = Authentic(message, HmacKey(kKey));
  return request;
}

bool FakeDevice::Session::NextWithin(int milliseconds, Request* request) {
  pollfd waiting{.fd = socket_, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, milliseconds) <= 0) return false;
  *request = Next();
  return true;
}

namespace {

kinetic::Command AnswerTo(const FakeDevice::Request& request) {
  kinetic::Command answer;
  const kinetic::Header& asked = request.command.header();
  answer.mutable_header()->set_connectionid(asked.connectionid());
  answer.mutable_header()->set_acksequence(asked.sequence());
  answer.mutable_header()->set_messagetype(
      static_cast<kinetic::Header::MessageType>(asked.messagetype() - 1));
  answer.mutable_status()->set_code(kinetic::Status::SUCCESS);
  return answer;
}

}  // namespace

void FakeDevice::Session::Answer(const Request& request, kinetic::Status::Code code) {
  kinetic::Command answer = AnswerTo(request);
  answer.mutable_status()->set_code(code);
  Send(SignedFrame(answer, kIdentity, HmacKey(kKey), 0));
}

void FakeDevice::Session::Answer(const Request& request,
                                 const std::function<void(kinetic::Body*)>& fill,
                                 std::string_view value) {
  kinetic::Command answer = AnswerTo(request);
  if (fill) fill(answer.mutable_body());
  Send(SignedFrame(answer, kIdentity, HmacKey(kKey), value.size()));
  Send(value);
}

void FakeDevice::Session::AnswerEntry(const Request& request, std::string_view version,
                                      std::string_view value) {
  Answer(
      request,
      [&](kinetic::Body* body) {
        body->mutable_keyvalue()->set_key(request.command.body().keyvalue().key());
        body->mutable_keyvalue()->set_dbversion(std::string(version));
        body->mutable_keyvalue()->set_tag("tag.");
        body->mutable_keyvalue()->set_algorithm(4);
      },
      value);
}

std::string FakeDevice::Session::AnswerFrame(const Request& request, std::string_view value,
                                             std::string_view key) {
  return SignedFrame(AnswerTo(request), kIdentity, HmacKey(key), value.size()).append(value);
}

FakeDevice::FakeDevice(Script script) : script_(std::move(script)), listener_(Bound(&address_)) {
  Checked(listen(listener_.get(), 16));
  thread_ = std::thread([this] { Accept(); });
}

FakeDevice::~FakeDevice() { Stop(); }

void FakeDevice::Stop() {
  if (!thread_.joinable()) return;
  shutdown(listener_.get(), SHUT_RDWR);  // ends accept()
  thread_.join();
  const std::lock_guard lock(mutex_);
  for (Connection& each : connections_) {
    shutdown(each.socket.get(), SHUT_RDWR);
    each.thread.join();
  }
}

void FakeDevice::Accept() {
  for (int number = 0;; ++number) {
    FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    const int fd = socket.get();
    const int no_delay = 1;
    Checked(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay));
    const std::lock_guard lock(mutex_);
    connections_.push_back({std::move(socket), std::thread([this, fd, number] {
                              Session session(fd, number);
                              try {
                                script_(session);
                              } catch (const SessionEnded&) {
                                // The script was waiting for more.
                              }
                              shutdown(fd, SHUT_RDWR);
                            })});
  }
}

std::string DeadAddress() {
  std::string address;
  const FileDescriptor socket = Bound(&address);
  return address;
}

}  // namespace pinstripe
