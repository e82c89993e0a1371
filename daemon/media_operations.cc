#include "daemon/media_operations.h"

#include <utility>

#include "base/try.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "store/tag_check.h"

namespace pinstripe {
namespace {

constexpr uint32_t kKeysAtOnce = 100;

}  // namespace

MediaScan::MediaScan(Runtime& runtime, Engine& engine, Asked asked, kinetic::Command* answer)
    : runtime_(runtime),
      engine_(engine),
      asked_(std::move(asked)),
      asked_last_(asked_.range.last.value_or("")),
      answer_(answer) {
  answer_->mutable_body()->mutable_range();
}

bool MediaScan::Work(Time until, Cancellation& cancellation) {
  while (true) {
    if (cancellation.ended()) {
      Finish(Fail(ETIMEDOUT, "its time has run out"), /*complete=*/false);
      return true;
    }
    const Result<bool> ended = Step();
    if (!ended.has_value()) Finish(ended.error(), /*complete=*/false);
    if (!ended.has_value() || *ended) return true;
    if (runtime_.Now() >= until) return false;
  }
}

// One record. True: that was all.
Result<bool> MediaScan::Step() {
  kinetic::Range* found = answer_->mutable_body()->mutable_range();
  if (next_.empty()) {
    for (std::string& key : TRY(engine_.Keys(asked_.range, kKeysAtOnce, /*reverse=*/false))) {
      next_.push_back(std::move(key));
    }
    if (next_.empty()) {
      Finish({}, /*complete=*/true);
      return true;
    }
    asked_.range.first = next_.back();
    asked_.range.first_included = false;
  }
  last_read_ = std::move(next_.front());
  next_.pop_front();
  if (!TRY(IsDamaged(last_read_))) return false;
  if (static_cast<uint32_t>(found->keys_size()) < asked_.max_damaged) {
    found->add_keys(last_read_);
    return false;
  }
  Finish({}, /*complete=*/false);
  return true;
}

Result<bool> MediaScan::IsDamaged(const std::string& key) {
  const Result<StoredRecord> record = engine_.Get(key);
  bool damaged = false;
  if (record.has_value()) {
    value_bytes_ += record->value.size();
    damaged = !asked_.checksums_only && CheckTag(record->head, record->value) == TagVerdict::kWrong;
  } else if (record.error().code() == EBADMSG || record.error().code() == EIO) {
    damaged = true;
  } else if (record.error().code() != ENOENT) {  // deleted since it was listed: nothing to say
    return Failed(record.error());
  }
  ++records_;
  return damaged;
}

void MediaScan::Finish(const Status& status, bool complete) {
  kinetic::Range* found = answer_->mutable_body()->mutable_range();
  found->set_endkey(complete ? asked_last_ : last_read_);
  if (asked_.checksums_only) {
    found->set_scannedrecords(records_);
    found->set_scannedbytes(value_bytes_);
  }
  SetStatus(status, answer_->mutable_status());
}

bool MediaOptimize::Work(Time, Cancellation& cancellation) {
  Status status = engine_.Compact(range_, cancellation.ended_flag());
  if (status.code() == ECANCELED) status = Fail(ETIMEDOUT, "its time has run out");
  if (status.ok()) answer_->mutable_body()->mutable_range()->set_endkey(range_.last.value_or(""));
  SetStatus(status, answer_->mutable_status());
  return true;
}

}  // namespace pinstripe
