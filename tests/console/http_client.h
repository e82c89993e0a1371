// A client that sends what it likes, to be seen what a server makes of it.

#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace pinstripe {

class HttpClient {
 public:
  // `from`: an address of this machine.
  explicit HttpClient(uint16_t port, const char* from = "127.0.0.1")
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    is_connected_ =
        bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = is_connected_ && connect(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                                             sizeof(address)) == 0;
  }

  bool is_connected() const { return is_connected_; }
  int fd() const { return socket_.get(); }

  // False: the server takes no more.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // False: the server has ended the connection, or says nothing for ten seconds.
  bool Receive() {
    pollfd one{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (poll(&one, 1, 10'000) <= 0) {
      timed_out_ = true;
      return false;
    }
    char bytes[16384];
    const ssize_t got = recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    received_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  std::string ReceiveUntil(std::string_view end) {
    while (received_.find(end) == received_.npos && Receive()) {
    }
    return received_;
  }
  // What was received before does not count.
  std::string ReceiveNext(std::string_view end) {
    received_.clear();
    return ReceiveUntil(end);
  }
  std::string ReceiveAll() {
    while (Receive()) {
    }
    return received_;
  }

  // One answer with a length; what is behind it stays.
  std::string ReceiveAnswer() {
    ReceiveUntil("\r\n\r\n");
    const size_t head = received_.find("\r\n\r\n");
    if (head == received_.npos) return std::exchange(received_, "");
    size_t length = 0;
    const size_t at = received_.find("Content-Length: ");
    if (at < head) length = std::stoul(received_.substr(at + 16));
    while (received_.size() < head + 4 + length && Receive()) {
    }
    std::string answer = received_.substr(0, head + 4 + length);
    received_.erase(0, head + 4 + length);
    return answer;
  }

  bool timed_out() const { return timed_out_; }

 private:
  FileDescriptor socket_;
  bool is_connected_ = false;
  bool timed_out_ = false;
  std::string received_;
};

inline std::string GetText(std::string_view path, std::string_view headers = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers);
}
inline std::string PostText(std::string_view path, std::string_view body,
                            std::string_view headers = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n{}\r\n{}",
      path, body.size(), headers, body);
}

inline std::string AskOnce(uint16_t port, std::string_view request) {
  HttpClient client(port);
  client.Send(request);
  return client.ReceiveAnswer();
}

// With some bytes changed, lost, added and said twice.
inline std::string Damaged(std::string request, std::mt19937_64& random) {
  for (int change = 0; change < 3; ++change) {
    if (request.empty()) request = "\n";
    const size_t at = random() % request.size();
    switch (random() % 4) {
      case 0: request[at] = static_cast<char>(random()); break;
      case 1: request.erase(at, random() % 20); break;
      case 2: request.insert(at, random() % 300, "\r\n%:=0"[random() % 6]); break;
      case 3: request.insert(at, request.substr(random() % request.size(), 40)); break;
    }
  }
  return request;
}

inline int StatusIn(std::string_view answer) {
  return answer.size() > 12 ? std::atoi(std::string(answer.substr(9, 3)).c_str()) : 0;
}
inline std::string BodyIn(std::string_view answer) {
  const size_t head = answer.find("\r\n\r\n");
  return head == answer.npos ? "" : std::string(answer.substr(head + 4));
}

}  // namespace pinstripe
