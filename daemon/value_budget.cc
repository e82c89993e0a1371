#include "daemon/value_budget.h"

#include <vector>

namespace pinstripe {

bool ValueBudget::TryToTake(uint64_t bytes) {
  uint64_t used = used_.load();
  do {
    if (used != 0 && (bytes > limit_ || used > limit_ - bytes)) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

ValueBudget::Share ValueBudget::TakeOrWait(const void* who, uint64_t bytes, Granted granted) {
  {
    const MutexLock lock(mutex_);
    if (waiting_.empty() && TryToTake(bytes)) return {this, bytes};
    waiting_.push_back({who, bytes, std::move(granted)});
    waiting_count_ = waiting_.size();
  }
  Subtract(0);  // what came back before it was known that somebody waits
  return {};
}

void ValueBudget::Forget(const void* who) {
  {
    const MutexLock lock(mutex_);
    std::erase_if(waiting_, [who](const Waiting& each) { return each.who == who; });
    waiting_count_ = waiting_.size();
  }
  Subtract(0);  // those behind it may fit
}

void ValueBudget::Subtract(uint64_t bytes) {
  used_.fetch_sub(bytes);
  if (waiting_count_.load() == 0) return;
  std::vector<Waiting> served;
  {
    const MutexLock lock(mutex_);
    while (!waiting_.empty() && TryToTake(waiting_.front().bytes)) {
      served.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    waiting_count_ = waiting_.size();
  }
  for (const Waiting& each : served) {
    each.granted(std::make_shared<Share>(Share(this, each.bytes)));
  }
}

}  // namespace pinstripe
