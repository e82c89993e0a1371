#include "daemon/clients.h"

#include <utility>

#include "base/utf8.h"

namespace pinstripe {
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
