// Transactions: commands that are kept until EXEC, and executed then while nobody executes another
// one. Their changes are made in one step at the end. A transaction that has watched keys is
// executed only if nobody has changed them since.

#include <utility>

#include "base/try.h"
#include "daemon/resp_commands.h"

namespace pinstripe {
namespace {

constexpr size_t kMostQueued = 10'000;
constexpr size_t kMostQueuedBytes = 16 << 20;  // of their words
constexpr size_t kMostWatched = 1000;
constexpr size_t kAround = 100;                  // what a word or a version takes beyond its bytes
constexpr size_t kMostExecutedBytes = 64 << 20;  // of answers and changes of one

BatchBudget& BudgetOf(const RespCall& call) { return call.device.kept(); }

Status Begin(RespCall& call) {
  if (call.client.queue != nullptr) return Fail(EINVAL, "MULTI calls can not be nested");
  call.client.queue = std::make_unique<RespClient::Queue>(BudgetOf(call));
  call.reply.Simple("OK");
  return {};
}

Status Discard(RespCall& call) {
  if (call.client.queue == nullptr) return Fail(EINVAL, "DISCARD without MULTI");
  call.client.queue.reset();
  call.client.watched.reset();
  call.reply.Simple("OK");
  return {};
}

Result<std::string> VersionOf(const RespCall& call, std::string_view key) {
  const auto there = TRY(call.device.Head(call.caller(), key));
  return there ? "=" + there->version : std::string();
}

Status Watch(RespCall& call) {
  if (call.client.queue != nullptr) return Fail(EINVAL, "WATCH inside MULTI is not allowed");
  if (call.client.watched == nullptr) {
    call.client.watched = std::make_unique<RespClient::Watched>(BudgetOf(call));
  }
  RespClient::Watched& watched = *call.client.watched;
  for (size_t i = 1; i < call.words(); ++i) {
    if (watched.versions.contains(std::string(call.text(i)))) continue;  // the first look counts
    std::string version = TRY(VersionOf(call, call.text(i)));
    const size_t bytes = call.text(i).size() + version.size() + kAround;
    if (watched.versions.size() >= kMostWatched || !watched.kept.Add(bytes)) {
      return Fail(ENOBUFS, "too many keys are watched");
    }
    watched.versions.emplace(call.text(i), std::move(version));
  }
  call.reply.Simple("OK");
  return {};
}

Status Unwatch(RespCall& call) {
  call.client.watched.reset();
  call.reply.Simple("OK");
  return {};
}

// Whether all keys are as they were.
Result<bool> AreSame(const RespCall& call, const RespClient::Watched& watched) {
  for (const auto& [key, version] : watched.versions) {
    if (TRY(VersionOf(call, key)) != version) return false;
  }
  return true;
}

Status Execute(RespCall& call) {
  if (call.client.queue == nullptr) return Fail(EINVAL, "EXEC without MULTI");
  const auto queue = std::exchange(call.client.queue, nullptr);
  const auto watched = std::exchange(call.client.watched, nullptr);
  if (queue->spoilt) {
    call.reply.Error("EXECABORT Transaction discarded because of previous errors.");
    return {};
  }
  if (watched != nullptr && !TRY(AreSame(call, *watched))) {
    call.reply.NullList();
    return {};
  }
  RespCaller::Staged staged;
  RespWriter answers;
  answers.SetVersion(call.reply.version());
  call.client.caller.staged = &staged;
  bool is_too_much = false;
  const auto is_gone = [&] { return call.caller().gone != nullptr && *call.caller().gone; };
  for (size_t i = 0; i < queue->requests.size() && !is_too_much && !is_gone(); ++i) {
    RespCall each{call.device, call.client, queue->requests[i], answers};
    // Each failure is answered, and those behind it are executed all the same.
    (void)ExecuteResp(FindRespCommand(each.text(0)), each);
    is_too_much = answers.unsent_bytes() + staged.bytes > kMostExecutedBytes;
  }
  call.client.caller.staged = nullptr;
  if (is_gone()) return Fail(ECANCELED, "the client has gone");
  if (is_too_much) {
    return Fail(EMSGSIZE, "this transaction has more than {} bytes of answers and changes",
                kMostExecutedBytes);
  }
  if (!staged.changes.empty()) {
    TRY(call.device.MakeAll(std::move(staged)));
    call.client.changed = true;
  }
  call.reply.List(queue->requests.size());
  call.reply.Append(std::move(answers));
  return {};
}

// Its words share memory with much that came with them.
RespRequest CopyOf(const RespRequest& request) {
  RespRequest copy;
  for (const SharedBytes& word : request.words) {
    copy.words.emplace_back(std::string(word.text()));
  }
  return copy;
}

constexpr uint8_t kAtOnce = RespCommand::kNow | RespCommand::kQuick;

constexpr RespCommand kTransactionCommands[] = {
    {"discard", 1, kAtOnce, 0, 0, 0, Discard},
    {"exec", 1, RespCommand::kNow | RespCommand::kAlone, 0, 0, 0, Execute},
    {"multi", 1, kAtOnce, 0, 0, 0, Begin},
    {"unwatch", 1, RespCommand::kQuick, 0, 0, 0, Unwatch},
    {"watch", -2, RespCommand::kNow, 1, -1, 1, Watch},
};

}  // namespace

std::span<const RespCommand> RespTransactionCommands() { return kTransactionCommands; }

void QueueResp(const RespCommand& command, RespCall& call) {
  RespClient::Queue& queue = *call.client.queue;
  if (command.Has(RespCommand::kOutside)) {
    queue.spoilt = true;
    return call.reply.Error(
        fmt::format("ERR '{}' cannot be a part of a transaction", command.name));
  }
  size_t bytes = 0;
  for (const SharedBytes& word : call.request.words) bytes += word.size() + kAround;
  const bool has_room = queue.requests.size() < kMostQueued &&
                        queue.kept.bytes() + bytes <= kMostQueuedBytes && queue.kept.Add(bytes);
  if (!has_room) {
    queue.spoilt = true;
    return call.reply.Error(
        "ERR there is no room for more of this transaction, or of all that have begun");
  }
  queue.requests.push_back(CopyOf(call.request));
  call.reply.Simple("QUEUED");
}

}  // namespace pinstripe
