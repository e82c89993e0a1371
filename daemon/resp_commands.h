// The commands of the Redis protocol that a device knows: their names, and what each does. docs/
// protocol.md, "The Redis protocol", lists them for users.
//
//   resp_commands.cc           the table; commands about the connection and the server
//   resp_text_commands.cc      commands on values that are texts, and on keys
//   resp_hash_commands.cc      commands on values that are hashes
//   resp_listing_commands.cc   commands that list keys
//   resp_transactions.cc       MULTI, EXEC and what belongs to them

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/batch.h"
#include "daemon/clients.h"
#include "daemon/resp_device.h"
#include "daemon/resp_reply.h"
#include "daemon/resp_request.h"

namespace pinstripe {

// Bytes that a connection has the device keep for it. All of a device have as much as batches of
// Kinetic clients (batch.h), and share that with them.
class RespKept {
 public:
  explicit RespKept(BatchBudget& budget) : budget_(&budget) {}
  ~RespKept() { budget_->RemoveBytes(bytes_); }
  RespKept(const RespKept&) = delete;
  RespKept& operator=(const RespKept&) = delete;

  // False: there is no room for so many more.
  bool Add(size_t bytes) {
    const bool added = budget_->AddBytes(bytes);
    if (added) bytes_ += bytes;
    return added;
  }
  size_t bytes() const { return bytes_; }

 private:
  BatchBudget* const budget_;
  size_t bytes_ = 0;
};

// One connection, as its commands see it.
struct RespClient {
  RespCaller caller;
  int64_t number = 0;
  std::string name;  // these three have a bounded length
  std::string library;
  std::string library_version;
  int refused_logins = 0;
  std::shared_ptr<ConnectedClient> known;  // to others; null in tests
  bool quits = false;                      // it ends when the answers are sent
  // Of a transaction that was begun and not executed yet.
  struct Queue {
    explicit Queue(BatchBudget& budget) : kept(budget) {}
    RespKept kept;
    std::vector<RespRequest> requests;
    bool spoilt = false;  // one of them could not be
  };
  std::unique_ptr<Queue> queue;
  struct Watched {
    explicit Watched(BatchBudget& budget) : kept(budget) {}
    RespKept kept;
    std::map<std::string, std::string> versions;  // of keys, after a "="; empty: there was none
  };
  std::unique_ptr<Watched> watched;
  bool changed = false;  // something, since this was last set to false

  // What it says of itself, for those who ask the device who uses it.
  void Introduce() const;
};

// A command that is being executed.
struct RespCall {
  RespDevice& device;
  RespClient& client;
  const RespRequest& request;
  RespWriter& reply;

  size_t words() const { return request.size(); }
  std::string_view text(size_t i) const { return request.text(i); }
  const SharedBytes& word(size_t i) const { return request.words[i]; }
  const RespCaller& caller() const { return client.caller; }
  // Whether word `i` is this one, which is written in capitals, in whatever letters.
  bool Is(size_t i, std::string_view word) const;
  // EINVAL: word `i` is none.
  Result<int64_t> Number(size_t i) const;
};

struct RespCommand {
  // kAlways: also by those who have not said who they are. kQuick: it never waits.
  // kAlone: while nobody executes another one. kNow: in a transaction, too, it is executed at once.
  // kOutside: it cannot be a part of a transaction. kLong: it may take long, as it goes through
  // many keys; it is executed beside all others, of which each may come between two of its keys.
  // kAloneIfMany: alone, where it has more than one key.
  enum Flag : uint8_t {
    kAlways = 1,
    kQuick = 2,
    kChanges = 4,
    kAlone = 8,
    kNow = 16,
    kOutside = 32,
    kLong = 64,
    kAloneIfMany = 128
  };

  std::string_view name;  // in small letters
  // How many words it has, with its name; below 0: so many or more.
  int arity = 0;
  uint8_t flags = 0;
  // Which of them are keys: the first, the last (below 0: from the end), and every how many.
  int first_key = 0;
  int last_key = 0;
  int step = 0;
  // Answers, or fails, having answered nothing.
  Status (*run)(RespCall& call) = nullptr;

  bool Has(Flag flag) const { return (flags & flag) != 0; }
  bool Takes(size_t words) const {
    return arity < 0 ? words >= static_cast<size_t>(-arity) : words == static_cast<size_t>(arity);
  }
};

std::span<const RespCommand> RespCommands();

// Null: there is none of this name.
const RespCommand* FindRespCommand(std::string_view name);

// Executes a command, and answers. `command` is that of its name, or null. The failure is one that
// was answered.
Status ExecuteResp(const RespCommand* command, RespCall& call);

// Whose turn it needs to be to execute the command. `command` may be null.
RespTurns::Kind TurnOf(const RespCommand* command, const RespRequest& request);

// What Redis says to who has not said who he is, to an unknown command, and so on. Empty: the
// command may be executed. `command` may be null.
std::string RefusalOf(const RespCommand* command, const RespCall& call);

// "SET key value" and no more: several of them can be made together.
bool IsPlainSet(const RespRequest& request);
// "GET key".
bool IsPlainGet(const RespRequest& request);
// What a browser sends, which somebody's page has made come here.
bool IsOfBrowser(const RespRequest& request);

// For the tables of the other files:
Status CheckPattern(std::string_view pattern);  // EINVAL: too long, and so slow to match
Failed SyntaxError();
Failed WrongType();
// The text that is there; EINVAL where it is something else.
Status CheckText(const std::optional<RespDevice::Entry>& there);
std::span<const RespCommand> RespTextCommands();
std::span<const RespCommand> RespHashCommands();
std::span<const RespCommand> RespListingCommands();
std::span<const RespCommand> RespTransactionCommands();

// Keeps a command that may be executed for the transaction that was begun.
void QueueResp(const RespCommand& command, RespCall& call);

}  // namespace pinstripe
