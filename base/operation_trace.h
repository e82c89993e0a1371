// OperationTrace: on which operation of a host (a read, a close) a thread is at work, and what that
// waits for. Whoever begins an operation has one of these until its end; whoever waits on the way
// says so:
//
//   const OperationTrace trace;
//   ...
//     const OperationTrace::Waiting waiting(runtime, OperationTrace::Wait::kMemory);
//   ...
//   trace.waited(OperationTrace::Wait::kMemory)
//
// What is asked of drives carries CurrentId(), so that it can be found again when the operation
// took long. An operation often waits for what another one has asked: a close for the blocks that
// writes have sent. It remembers these others, as far as they kept it waiting for long.
//
// Used by one thread. Costs no lock and no memory, and a clock is read only by who waits.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/runtime.h"

namespace pinstripe {

class OperationTrace {
 public:
  enum class Wait : uint8_t {
    kMemory,  // for room in the budget
    kDrives,  // for answers
    kTurn,    // for another operation, on the same file for instance
  };
  static constexpr size_t kWaits = 3;
  static constexpr size_t kMostOthers = 8;
  // A wait, or a request, that is worth remembering.
  static constexpr Duration kLong = std::chrono::milliseconds(20);

  // One that begins within another one is not a part of that.
  OperationTrace();
  ~OperationTrace();
  OperationTrace(const OperationTrace&) = delete;
  OperationTrace& operator=(const OperationTrace&) = delete;

  // Of the operation on which this thread is at work; 0: it is at work on none.
  static uint64_t CurrentId();

  uint64_t id() const { return id_; }  // never 0, and another one for each of this process
  Duration waited(Wait kind) const { return waited_[static_cast<size_t>(kind)]; }
  // Its own id, and those of the last others that kept it waiting for long.
  std::vector<uint64_t> Ids() const;

  // The thread waits for as long as this is there, for what the operation `asked_by` has asked; 0:
  // for no other's. Of waits within one another only the outermost counts.
  class Waiting {
   public:
    Waiting(Runtime& runtime, Wait kind, uint64_t asked_by = 0);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Runtime& runtime_;
    OperationTrace* const trace_;  // null: nobody wants to know
    const Wait kind_;
    const uint64_t asked_by_;
    bool is_outermost_ = false;
    Time start_{};
  };

 private:
  void Remember(uint64_t other);

  OperationTrace* const outer_;
  const uint64_t id_;
  std::array<Duration, kWaits> waited_{};
  std::array<uint64_t, kMostOthers> others_{};
  size_t next_other_ = 0;
  int depth_ = 0;  // of waits
};

}  // namespace pinstripe
