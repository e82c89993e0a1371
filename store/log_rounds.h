// LogRounds: makes the changes of a LogStore durable, in rounds that it shares with the other
// stores of its file system (commit_group.h). The log comes before the index, whose mark says up to
// where every entry survives power loss.
//
// Thread-safe, but for joining and leaving.

#pragma once

#include <memory>

#include "base/status.h"
#include "store/commit_group.h"
#include "store/directory.h"
#include "store/log_index.h"
#include "store/log_ledger.h"
#include "store/segment_files.h"
#include "store/store_health.h"

namespace pinstripe {

class LogRounds final : private CommitGroup::Member {
 public:
  struct Parts {
    StoreDirectory& directory;
    LogIndex& index;
    SegmentFiles& files;
    LogLedger& ledger;
    StoreHealth& health;
  };
  // All outlive it.
  explicit LogRounds(Parts parts) : parts_(parts) {}
  ~LogRounds() override { Leave(); }

  // Before anything is written: what the file system loses the group hears of from now on.
  void Join(std::shared_ptr<CommitGroup> group);
  void Leave();
  bool has_joined() const { return group_ != nullptr; }

  // As Store::Flush().
  Status Flush();

 private:
  bool HasChanges() override;
  void BeginRound() override;
  Status SyncRound() override;
  Status HandOverRound() override;
  Status EndRound(Status synced) override;
  void LoseFaith(const Status& failure) override;
  Status MarkDurable(LogLocation mark, bool sync);

  const Parts parts_;
  std::shared_ptr<CommitGroup> group_;

  // The round that is under way; of the thread that runs it.
  LogLedger::Round round_;
  uint64_t sequence_ = 0;  // of the index, up to where that round takes it
};

}  // namespace pinstripe
