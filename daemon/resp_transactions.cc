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

Status Begin(RespCall& call) {
  if (call.client.queue) return Fail(EINVAL, "MULTI calls can not be nested");
  call.client.queue.emplace();
  call.reply.Simple("OK");
  return {};
}

Status Discard(RespCall& call) {
  if (!call.client.queue) return Fail(EINVAL, "DISCARD without MULTI");
  call.client.queue.reset();
  call.client.watched.clear();
  call.reply.Simple("OK");
  return {};
}

Result<std::string> VersionOf(const RespCall& call, std::string_view key) {
  const auto there = TRY(call.device.Head(call.caller(), key));
  return there ? there->version : std::string();
}

Status Watch(RespCall& call) {
  if (call.client.queue) return Fail(EINVAL, "WATCH inside MULTI is not allowed");
  for (size_t i = 1; i < call.words(); ++i) {
    if (call.client.watched.size() >= kMostWatched) {
      return Fail(EINVAL, "a connection can watch {} keys", kMostWatched);
    }
    std::string version = TRY(VersionOf(call, call.text(i)));
    call.client.watched.emplace(call.text(i), std::move(version));  // the first look counts
  }
  call.reply.Simple("OK");
  return {};
}

Status Unwatch(RespCall& call) {
  call.client.watched.clear();
  call.reply.Simple("OK");
  return {};
}

// Whether all keys are as they were.
Result<bool> AreSame(const RespCall& call, const std::map<std::string, std::string>& watched) {
  for (const auto& [key, version] : watched) {
    if (TRY(VersionOf(call, key)) != version) return false;
  }
  return true;
}

Status Execute(RespCall& call) {
  if (!call.client.queue) return Fail(EINVAL, "EXEC without MULTI");
  const RespClient::Queue queue = *std::exchange(call.client.queue, std::nullopt);
  const auto watched = std::exchange(call.client.watched, {});
  if (queue.spoilt) {
    call.reply.Error("EXECABORT Transaction discarded because of previous errors.");
    return {};
  }
  if (!TRY(AreSame(call, watched))) {
    call.reply.NullList();
    return {};
  }
  std::map<std::string, Engine::Change> staged;
  RespWriter answers;
  answers.SetVersion(call.reply.version());
  call.client.caller.staged = &staged;
  for (const RespRequest& request : queue.requests) {
    RespCall each{call.device, call.client, request, answers};
    // Each failure is answered, and those behind it are executed all the same.
    (void)ExecuteResp(FindRespCommand(request.text(0)), each);
  }
  call.client.caller.staged = nullptr;
  std::vector<Engine::Change> changes;
  for (auto& [record, change] : staged) changes.push_back(std::move(change));
  if (!changes.empty()) {
    TRY(call.device.Make(call.caller(), std::move(changes)));
    call.client.changed = true;
  }
  call.reply.List(queue.requests.size());
  call.reply.Append(std::move(answers));
  return {};
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
  size_t bytes = 0;
  for (const SharedBytes& word : call.request.words) bytes += word.size();
  const bool is_too_much =
      queue.requests.size() >= kMostQueued || queue.bytes + bytes > kMostQueuedBytes;
  if (command.Has(RespCommand::kOutside) || is_too_much) {
    queue.spoilt = true;
    call.reply.Error(is_too_much
                         ? fmt::format("ERR a transaction of more than {} commands or {} bytes",
                                       kMostQueued, kMostQueuedBytes)
                         : fmt::format("ERR '{}' cannot be a part of a transaction", command.name));
    return;
  }
  queue.requests.push_back(call.request);
  queue.bytes += bytes;
  call.reply.Simple("QUEUED");
}

}  // namespace pinstripe
