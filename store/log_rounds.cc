#include "store/log_rounds.h"

#include <utility>

#include "base/try.h"

namespace pinstripe {

void LogRounds::Join(std::shared_ptr<CommitGroup> group) {
  group_ = std::move(group);
  group_->Join(*this);
}

void LogRounds::Leave() {
  if (group_ == nullptr) return;
  group_->Leave(*this);
  group_ = nullptr;
}

Status LogRounds::Flush() {
  TRY(parts_.health.failure());
  TRY(group_->Flush(*this));
  return parts_.health.failure();  // others of the group may have found out something meanwhile
}

bool LogRounds::HasChanges() { return parts_.health.failure().ok() && parts_.ledger.HasChanges(); }

void LogRounds::BeginRound() { round_ = parts_.ledger.BeginRound(); }

// The log before the index: what the mark says of the log must be true whenever it can be read.
Status LogRounds::SyncRound() {
  for (const auto& [segment, held] : round_.segments) TRY(parts_.files.Sync(segment, held));
  return MarkDurable(round_.durable, /*sync=*/true);
}

// The index may get to the disk before the log does, so the mark may only say what is true already.
Status LogRounds::HandOverRound() { return MarkDurable(round_.durable_before, /*sync=*/false); }

// What entries below the mark have replaced need not be kept any more. Those beyond it would be
// verified at opening.
Status LogRounds::MarkDurable(LogLocation mark, bool sync) {
  IndexBatch batch;
  batch.SetDurable(mark);
  for (const LogLocation each : parts_.ledger.TakeReplacingBelow(mark)) batch.DeletePrevious(each);
  sequence_ = parts_.index.sequence();
  return parts_.index.WriteMark(batch, sync);
}

void LogRounds::LoseFaith(const Status& failure) {
  if (parts_.health.failure().ok()) (void)parts_.health.BreakOn(failure);
}

Status LogRounds::EndRound(Status synced) {
  round_.segments.clear();
  if (synced.ok()) synced = parts_.directory.WriteMark(sequence_);
  if (!synced.ok()) return parts_.health.BreakOn(synced);
  parts_.ledger.EndRound(round_);
  return {};
}

}  // namespace pinstripe
