// The way to the servers of a store: what a connection string says, one server at a time.
//
// libpq would try the servers of a string one after the other, but waits for one that is silent
// until the kernel gives up, and for a name until a resolver answers. So we try them ourselves.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "engines/options.h"

namespace pinstripe {

using PgParameters = std::vector<std::pair<std::string, std::string>>;

// One of the servers.
struct PgServer {
  std::string name;     // "db1:5432", for messages
  std::string host;     // empty: as libpq has it
  std::string address;  // that the string gives; else `host` is looked up
  std::string port;     // empty: as libpq has it

  // A path of a socket, or libpq's own choice.
  bool needs_lookup() const {
    return address.empty() && !host.empty() && host[0] != '/' && host[0] != '@';
  }
};

struct PgWay {
  PgParameters parameters;  // of all servers
  std::vector<PgServer> servers;

  // What libpq gets to connect to one of them, at this address if it has one.
  PgParameters To(const PgServer& server, const std::string& address) const;
};

// EINVAL: the string is none.
Result<PgWay> ParsePgWay(const EngineOptions& options);

// Wakes a thread that polls. Thread-safe.
class PgWake {
 public:
  PgWake();
  void Set() const;
  void Clear() const;
  int fd() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
};

// A question to the resolver, which a thread of its own asks: nobody knows how long that takes.
class PgLookup {
 public:
  static std::shared_ptr<PgLookup> Start(Runtime& runtime, const std::string& host,
                                         std::shared_ptr<const PgWake> wake);

  bool is_done() const;
  Result<std::vector<std::string>> Take();  // when done: numbers, at least one

 private:
  mutable Mutex mutex_;
  bool done_ GUARDED_BY(mutex_) = false;
  Result<std::vector<std::string>> addresses_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
