#include "tests/daemon/attacker.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <system_error>
#include <utility>

#include "base/coding.h"
#include "kinetic/frame.h"
#include "kinetic/message.h"

namespace pinstripe {
namespace {

int Checked(int result) {
  if (result < 0) throw std::system_error(errno, std::generic_category());
  return result;
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void SayAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // who has gone does not hear it
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

bool ReadAll(int socket, std::string* bytes, size_t count) {
  const size_t before = bytes->size();
  bytes->resize(before + count);
  for (size_t have = 0; have < count;) {
    const ssize_t got = recv(socket, bytes->data() + before + have, count - have, 0);
    if (got <= 0) return false;
    have += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

std::string Attacker::Heard::FrameWith(std::string_view other_value) const {
  const auto header = EncodeFrameHeader(
      {static_cast<uint32_t>(message.size()), static_cast<uint32_t>(other_value.size())});
  return std::string(AsText(header)).append(message).append(other_value);
}

void Attacker::Link::ToClient(std::string_view bytes) { SayAll(client_.get(), bytes); }
void Attacker::Link::ToDevice(std::string_view bytes) { SayAll(device_.get(), bytes); }

Attacker::Attacker(uint16_t device_port, Ways ways)
    : device_port_(device_port),
      ways_(std::move(ways)),
      listener_(Checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))) {
  sockaddr_in name = Loopback(0);
  socklen_t length = sizeof name;
  Checked(bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), length));
  Checked(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &length));
  Checked(listen(listener_.get(), 16));
  address_ = fmt::format("127.0.0.1:{}", ntohs(name.sin_port));
  thread_ = std::thread([this] { Accept(); });
}

Attacker::~Attacker() {
  shutdown(listener_.get(), SHUT_RDWR);  // ends accept()
  thread_.join();
  Cut();
  for (Link& link : links_) link.thread_.join();
}

void Attacker::Cut() {
  const std::lock_guard lock(links_mutex_);
  for (Link& link : links_) {
    shutdown(link.client_.get(), SHUT_RDWR);
    shutdown(link.device_.get(), SHUT_RDWR);
  }
}

void Attacker::Accept() {
  for (int number = 0;; ++number) {
    FileDescriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.get() < 0) return;
    FileDescriptor device(Checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    const sockaddr_in there = Loopback(device_port_);
    if (connect(device.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) {
      continue;
    }
    for (const int socket : {client.get(), device.get()}) {
      const int yes = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    const std::lock_guard lock(links_mutex_);
    Link& link = links_.emplace_back();
    link.number_ = number;
    link.client_ = std::move(client);
    link.device_ = std::move(device);
    link.thread_ = std::thread([this, &link] { Carry(link); });
  }
}

void Attacker::Carry(Link& link) {
  while (true) {
    pollfd ready[2] = {{link.client_.get(), POLLIN, 0}, {link.device_.get(), POLLIN, 0}};
    if (poll(ready, 2, -1) < 0 && errno != EINTR) break;
    if (ready[0].revents != 0 && !Hear(link.client_.get(), link, true)) break;
    if (ready[1].revents != 0 && !Hear(link.device_.get(), link, false)) break;
  }
  shutdown(link.client_.get(), SHUT_RDWR);
  shutdown(link.device_.get(), SHUT_RDWR);
}

bool Attacker::Hear(int socket, Link& link, bool from_client) {
  std::string frame;
  if (!ReadAll(socket, &frame, kFrameHeaderBytes)) return false;
  const auto header = DecodeFrameHeader(AsBytes(frame).first<kFrameHeaderBytes>());
  if (!header.has_value()) return false;
  if (!ReadAll(socket, &frame, header->message_bytes + header->value_bytes)) return false;
  Heard heard;
  if (!Parse(frame, &heard)) return false;
  const std::lock_guard lock(mutex_);
  const Handle& handle = from_client ? ways_.from_client : ways_.from_device;
  if (handle) {
    handle(link, heard);
  } else {
    from_client ? link.ToDevice(frame) : link.ToClient(frame);
  }
  return true;
}

bool Attacker::Parse(std::string_view frame, Heard* heard) {
  Reader reader(frame);
  reader.U8();
  const uint32_t message_bytes = reader.U32();
  reader.U32();
  heard->message = reader.Raw(message_bytes);
  heard->value = reader.Rest();
  kinetic::Message message;
  return reader.ok() && ParseMessage(AsBytes(heard->message), &message).ok() &&
         ParseCommand(message, &heard->command).ok();
}

}  // namespace pinstripe
