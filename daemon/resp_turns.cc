#include "daemon/resp_turns.h"

#include <cassert>
#include <future>
#include <memory>
#include <utility>

namespace pinstripe {

// Who waits to be alone waits for those who are inside, and not for any who come after him.
bool RespTurns::MayEnter(Kind kind) const {
  if (kind == Kind::kAlone) return !alone_ && beside_ == 0;
  return !alone_ && waiting_alone_.empty();
}

bool RespTurns::Enter(Kind kind, Task granted) {
  if (kind == Kind::kNone) return true;
  const MutexLock lock(mutex_);
  if (!MayEnter(kind)) {
    kind == Kind::kAlone ? waiting_alone_.push_back(std::move(granted))
                         : waiting_beside_.push_back(std::move(granted));
    return false;
  }
  if (kind == Kind::kAlone) {
    alone_ = true;
  } else {
    ++beside_;
  }
  return true;
}

void RespTurns::EnterAndWait(Kind kind) {
  const auto granted = std::make_shared<std::promise<void>>();
  if (Enter(kind, [granted] { granted->set_value(); })) return;
  granted->get_future().wait();
}

bool RespTurns::EnterAtOnce() {
  const MutexLock lock(mutex_);
  if (!MayEnter(Kind::kBeside)) return false;
  ++beside_;
  return true;
}

void RespTurns::Leave(Kind kind) {
  if (kind == Kind::kNone) return;
  std::vector<Task> granted;
  {
    const MutexLock lock(mutex_);
    if (kind == Kind::kAlone) {
      assert(alone_);
      alone_ = false;
      granted.swap(waiting_beside_);
      beside_ += granted.size();
    } else {
      assert(beside_ > 0);
      --beside_;
    }
    if (beside_ == 0 && !alone_ && !waiting_alone_.empty()) {
      alone_ = true;
      granted.push_back(std::move(waiting_alone_.front()));
      waiting_alone_.pop_front();
    }
  }
  for (const Task& each : granted) each();
}

}  // namespace pinstripe
