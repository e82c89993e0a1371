#include "base/operation_trace.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace pinstripe {
namespace {

thread_local OperationTrace* current = nullptr;

// Without a word to other threads: each has the numbers that begin with its own.
uint64_t NextId() {
  constexpr int kBitsOfThread = 40;
  static std::atomic<uint64_t> threads = 0;
  thread_local uint64_t last = (threads.fetch_add(1, std::memory_order_relaxed) + 1)
                               << kBitsOfThread;
  return ++last;
}

}  // namespace

OperationTrace::OperationTrace() : outer_(std::exchange(current, this)), id_(NextId()) {}

OperationTrace::~OperationTrace() { current = outer_; }

uint64_t OperationTrace::CurrentId() { return current == nullptr ? 0 : current->id_; }

std::vector<uint64_t> OperationTrace::Ids() const {
  std::vector<uint64_t> ids = {id_};
  std::ranges::copy_if(others_, std::back_inserter(ids), [](uint64_t other) { return other != 0; });
  return ids;
}

void OperationTrace::Remember(uint64_t other) {
  if (other == 0 || other == id_ || std::ranges::find(others_, other) != others_.end()) return;
  others_[next_other_] = other;
  next_other_ = (next_other_ + 1) % kMostOthers;
}

OperationTrace::Waiting::Waiting(Runtime& runtime, Wait kind, uint64_t asked_by)
    : runtime_(runtime), trace_(current), kind_(kind), asked_by_(asked_by) {
  if (trace_ == nullptr) return;
  is_outermost_ = trace_->depth_++ == 0;
  start_ = runtime_.Now();
}

OperationTrace::Waiting::~Waiting() {
  if (trace_ == nullptr) return;
  --trace_->depth_;
  const Duration took = runtime_.Now() - start_;
  if (is_outermost_) trace_->waited_[static_cast<size_t>(kind_)] += took;
  if (took >= kLong) trace_->Remember(asked_by_);
}

}  // namespace pinstripe
