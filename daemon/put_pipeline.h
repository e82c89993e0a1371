// PutPipeline: the PUTs of one connection on their way from the frame to the answer, and the PUTSs,
// each of which is several of them with one answer. Those that one read has brought are executed
// together, and so are those that came while the ones before were executed. A few small ones the
// loop makes itself, where it need not wait; all others go to a worker, and so do reads after puts
// for which the loop would have to wait. Those that must be durable wait for a flush before they
// are answered.
//
// A part of its Session, whose counters and outbox it uses. Add(), Hand() and UsedOrNew() are the
// loop thread's; the rest runs on workers and flushers. Its mutex is not held while another is
// taken.

#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "daemon/kinetic_service.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "store/workers.h"

namespace pinstripe {

class Session;

class PutPipeline {
 public:
  explicit PutPipeline(Session& session) : session_(session) {}

  // One more PUT that was read.
  void Add(const KineticService::Caller& caller, const std::shared_ptr<kinetic::Command>& request,
           Frame frame);

  // Executes what was added, here and now or by a worker.
  void Hand();

  // A command whose strings have room already, where there is one.
  std::shared_ptr<kinetic::Command> UsedOrNew();

 private:
  struct PendingPut {
    std::shared_ptr<kinetic::Command> request;
    KineticService::Caller caller;
    SharedBytes value;
    size_t bytes = 0;  // of the value, also when that is gone
    size_t puts = 1;   // that it counts for
    Time received{};
    Time expiry{};
    Time begun{};  // since when it was executed
    Time made{};   // and until when, if it had to become durable then
    bool after_flush = false;
    SharedBytes read;       // what goes with the answer
    bool reusable = false;  // the request
    std::shared_ptr<kinetic::Command> answer;
  };
  using PendingPuts = std::vector<PendingPut>;

  // How many requests they count for.
  static size_t CountPuts(const PendingPuts& puts);
  bool MakePutsAtOnce(size_t bytes);
  void MakeWaitingPuts();
  void MakePuts(const std::shared_ptr<PendingPuts>& puts);
  void ReadAfterPuts(const std::shared_ptr<PendingPuts>& puts);
  void SendAfterFlush(const std::shared_ptr<PendingPuts>& puts);
  void SendPuts(PendingPuts& puts, bool after_flush);
  void CheckInvariants() const REQUIRES(mutex_);

  Session& session_;

  // Of the loop thread:
  PendingPuts puts_;                                     // since the last read
  std::vector<std::shared_ptr<kinetic::Command>> used_;  // nobody's: to be filled again
  int puts_priority_ = Workers::kNormal;

  Mutex mutex_;
  // Small ones are made, for which the next ones of their priority wait.
  bool making_puts_ GUARDED_BY(mutex_) = false;
  int making_priority_ GUARDED_BY(mutex_) = Workers::kNormal;
  PendingPuts waiting_puts_ GUARDED_BY(mutex_);
  size_t waiting_bytes_ GUARDED_BY(mutex_) = 0;  // of their values
  // By workers, for the loop.
  std::vector<std::shared_ptr<kinetic::Command>> given_back_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
