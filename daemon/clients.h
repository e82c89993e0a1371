// Clients: who is connected to a device, and what each has done. What a client says of itself
// (docs/protocol.md, "Our extension: who uses a drive") is believed by nobody: it is cut to a
// bounded length, and made printable.
//
// Thread-safe. To count costs no lock.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"

namespace pinstripe {

// Whom a socket is connected to: "10.0.0.7:51234". Empty: nobody.
std::string PeerText(int socket);

class ConnectedClient {
 public:
  static constexpr size_t kMostProgramBytes = 64;
  static constexpr size_t kMostVersionBytes = 32;
  static constexpr size_t kMostHostBytes = 64;
  static constexpr size_t kMostDetailBytes = 128;

  // What it says of itself.
  struct Introduction {
    std::string program;
    std::string version;
    std::string host;
    std::string detail;
    uint32_t process = 0;
  };

  // Of a connection from `address` with this number.
  ConnectedClient(std::string address, bool tls, int64_t connection, Time since)
      : address_(std::move(address)), tls_(tls), connection_(connection), since_(since) {}

  const std::string& address() const { return address_; }
  bool tls() const { return tls_; }
  int64_t connection() const { return connection_; }
  Time since() const { return since_; }

  void Count(uint64_t value_bytes, bool written) {
    requests_.fetch_add(1, std::memory_order_relaxed);
    (written ? written_ : read_).fetch_add(value_bytes, std::memory_order_relaxed);
  }
  uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  uint64_t bytes_read() const { return read_.load(std::memory_order_relaxed); }
  uint64_t bytes_written() const { return written_.load(std::memory_order_relaxed); }

  // Whose key has signed; the last one counts. 0: none yet.
  void SignedBy(int64_t identity) {
    if (identity_.load(std::memory_order_relaxed) != identity) identity_ = identity;
  }
  std::optional<int64_t> identity() const {
    const int64_t identity = identity_;
    return identity == 0 ? std::nullopt : std::optional(identity);
  }

  void Introduce(Introduction introduction);
  Introduction introduction() const;

 private:
  const std::string address_;
  const bool tls_;
  const int64_t connection_;
  const Time since_;
  std::atomic<uint64_t> requests_ = 0;
  std::atomic<uint64_t> read_ = 0;
  std::atomic<uint64_t> written_ = 0;
  std::atomic<int64_t> identity_ = 0;
  mutable Mutex mutex_;
  Introduction introduction_ GUARDED_BY(mutex_);
};

class Clients {
 public:
  void Add(std::shared_ptr<ConnectedClient> client);
  void Remove(const std::shared_ptr<ConnectedClient>& client);

  size_t Count() const;
  std::vector<std::shared_ptr<ConnectedClient>> All() const;  // in the order in which they came

 private:
  struct Earlier {
    bool operator()(const std::shared_ptr<ConnectedClient>& a,
                    const std::shared_ptr<ConnectedClient>& b) const {
      return a->since() != b->since() ? a->since() < b->since() : a < b;
    }
  };
  mutable Mutex mutex_;
  std::set<std::shared_ptr<ConnectedClient>, Earlier> all_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
