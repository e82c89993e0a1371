#include "daemon/slow_log.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "daemon/drive_use.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/slow_messages.h"

namespace pinstripe {
namespace {

using kinetic::GetLog;

uint64_t Microseconds(Duration time) {
  return static_cast<uint64_t>(
      std::max<int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count(), 0));
}

uint64_t Milliseconds(Duration time) { return Microseconds(time) / 1000; }

void Fill(const SlowRequest& request, GetLog::SlowRequest* filled) {
  filled->set_connection(request.connection);
  filled->set_sequence(request.sequence);
  filled->set_messagetype(request.type);
  filled->set_bytes(request.bytes);
  if (!request.record.empty()) filled->set_record(request.record);
  filled->set_microseconds(Microseconds(request.took));
  filled->set_queuemicroseconds(Microseconds(request.queue));
  filled->set_heldmicroseconds(Microseconds(request.held));
  filled->set_storemicroseconds(Microseconds(request.store));
  filled->set_syncmicroseconds(Microseconds(request.sync));
  filled->set_status(request.status);
}

template <typename Kept>
void KeepLast(std::deque<Kept>& all, Kept one, size_t most) {
  all.push_back(std::move(one));
  if (all.size() > most) all.pop_front();
}

}  // namespace

void SlowLog::Add(SlowRequest request, std::shared_ptr<const ConnectedClient> client, Time ended) {
  request.record = Printable(request.record, kMostRecordText);
  const MutexLock lock(mutex_);
  KeepLast(requests_, {std::move(request), std::move(client), ended}, kMostSlowRequests);
}

void SlowLog::Hear(const std::shared_ptr<const ConnectedClient>& client, const GetLog& said,
                   Time now) {
  const int count = std::min(said.slowoperations_size(), static_cast<int>(kMostToldOperations));
  for (int i = 0; i < count; ++i) {
    SlowOperation operation = SlowOperationOf(said.slowoperations(i));
    const Time ended = now - operation.ago;
    const MutexLock lock(mutex_);
    KeepLast(operations_, {std::move(operation), client, ended}, kMostSlowOperations);
  }
}

void SlowLog::Fill(Time now, GetLog* log) const {
  log->clear_slowrequests();  // who asks twice is told once: an answer has a bounded size
  log->clear_slowoperations();
  const MutexLock lock(mutex_);
  for (const Request& each : requests_) {
    GetLog::SlowRequest* filled = log->add_slowrequests();
    pinstripe::Fill(each.request, filled);
    filled->set_agomilliseconds(Milliseconds(now - each.ended));
    FillName(*each.client, filled->mutable_client());
  }
  for (const Operation& each : operations_) {
    GetLog::SlowOperation* filled = log->add_slowoperations();
    FillSlowOperation(each.operation, filled);
    filled->set_agomilliseconds(Milliseconds(now - each.ended));
    FillName(*each.client, filled->mutable_client());
  }
  log->set_slowmilliseconds(Milliseconds(after_));
}

}  // namespace pinstripe
