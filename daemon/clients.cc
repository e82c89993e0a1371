#include "daemon/clients.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "base/utf8.h"

namespace pinstripe {

std::string PeerText(int socket) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return "";
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (peer.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(peer);
    inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), ntohs(six.sin6_port));
  }
  const auto& four = reinterpret_cast<const sockaddr_in&>(peer);
  inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
  return fmt::format("{}:{}", text.data(), ntohs(four.sin_port));
}

void ConnectedClient::Introduce(Introduction introduction) {
  Introduction bounded{.program = Printable(introduction.program, kMostProgramBytes),
                       .version = Printable(introduction.version, kMostVersionBytes),
                       .host = Printable(introduction.host, kMostHostBytes),
                       .detail = Printable(introduction.detail, kMostDetailBytes),
                       .process = introduction.process};
  const MutexLock lock(mutex_);
  introduction_ = std::move(bounded);
}

ConnectedClient::Introduction ConnectedClient::introduction() const {
  const MutexLock lock(mutex_);
  return introduction_;
}

void Clients::Add(std::shared_ptr<ConnectedClient> client) {
  const MutexLock lock(mutex_);
  all_.insert(std::move(client));
}

void Clients::Remove(const std::shared_ptr<ConnectedClient>& client) {
  const MutexLock lock(mutex_);
  all_.erase(client);
}

size_t Clients::Count() const {
  const MutexLock lock(mutex_);
  return all_.size();
}

std::vector<std::shared_ptr<ConnectedClient>> Clients::All() const {
  const MutexLock lock(mutex_);
  return {all_.begin(), all_.end()};
}

}  // namespace pinstripe
