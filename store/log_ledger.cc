#include "store/log_ledger.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint64_t kUnsyncedBytesToFlush = uint64_t{256} << 20;
constexpr uint64_t kDeadBytesToFlush = uint64_t{64} << 20;
constexpr uint64_t kInlineDeadBytes = uint64_t{32} << 20;  // and a sixteenth of what is there
constexpr uint64_t kLeastSlack = 16;  // a segment's live bytes by its slack, to be compacted

}  // namespace

// ------------------------------------------------------------------------------------------
// opening

void LogLedger::Load(const std::vector<uint32_t>& segments,
                     const std::map<uint32_t, uint64_t>& segment_bytes, uint64_t inline_bytes) {
  const MutexLock lock(mutex_);
  for (const uint32_t segment : segments) segments_[segment];
  for (const auto& [segment, bytes] : segment_bytes) {
    if (bytes > 0 || segments_.contains(segment)) segments_[segment].live_bytes = bytes;
    live_bytes_ += bytes;
  }
  inline_bytes_ = inline_bytes;
}

std::optional<uint32_t> LogLedger::last_segment() const {
  const MutexLock lock(mutex_);
  if (segments_.empty()) return std::nullopt;
  return segments_.rbegin()->first;
}

Status LogLedger::BeginAt(LogLocation cursor, bool in_new_segment) {
  if (in_new_segment) {
    if (cursor.segment == UINT32_MAX) return Fail(EBADMSG, "the index names an impossible segment");
    cursor = {cursor.segment + 1, 0};
    TRY(files_.Create(cursor.segment));  // a neighbour's round looks at us meanwhile
  }
  const MutexLock lock(mutex_);
  cursor_ = cursor;
  if (in_new_segment) segments_[cursor.segment];
  return {};
}

uint64_t LogLedger::LiveBytes(uint32_t segment) const {
  const MutexLock lock(mutex_);
  const auto found = segments_.find(segment);
  return found == segments_.end() ? 0 : found->second.live_bytes;
}

void LogLedger::NoteTrimmable(uint32_t segment) {
  const MutexLock lock(mutex_);
  trimmable_.insert(segment);
}

// From now on a round of others may take it along.
void LogLedger::Begin(LogLocation durable, Written dirty) {
  const MutexLock lock(mutex_);
  durable_ = durable;
  dirty_ = std::move(dirty);
  index_dirty_ = true;
}

// ------------------------------------------------------------------------------------------
// writing

Status LogLedger::Reserve(const std::vector<uint64_t>& entry_bytes, Change& change) {
  const MutexLock lock(mutex_);
  for (const uint64_t bytes : entry_bytes) {
    const LogLocation location = TRY(ReserveOne(bytes, lock));
    change.added.push_back({location, bytes});
  }
  return {};
}

// Lets go of the lock while it makes a segment.
Result<LogLocation> LogLedger::ReserveOne(uint64_t bytes, const MutexLock& lock) {
  while (cursor_.offset > 0 && cursor_.offset + bytes > segment_bytes_) {
    if (rolling_) {
      rolled_.Wait(lock);
      continue;
    }
    if (cursor_.segment == UINT32_MAX) return Fail(ENOSPC, "no segment can follow the last one");
    rolling_ = true;
    const uint32_t next = cursor_.segment + 1;
    mutex_.Unlock();  // and not the lock's: the analysis follows no lock that was handed in
    const Status created = files_.Create(next);
    mutex_.Lock();
    rolling_ = false;
    rolled_.WakeAll();
    TRY(created);
    segments_[next];
    full_.insert(cursor_.segment);
    cursor_ = {next, 0};
  }
  const LogLocation location = cursor_;
  in_flight_.emplace(location, bytes);
  cursor_.offset += bytes;
  return location;
}

void LogLedger::NoteWritten(uint32_t segment, const SegmentFiles::Held& held, uint64_t bytes) {
  const MutexLock lock(mutex_);
  dirty_.try_emplace(segment, held);
  unsynced_bytes_ += bytes;
}

void LogLedger::Abandon(const Change& change) {
  const MutexLock lock(mutex_);
  for (const auto& [location, bytes] : change.added) {
    in_flight_.erase(location);
    dead_[location] = bytes;
    dead_bytes_ += bytes;
  }
}

void LogLedger::BeginDying(const Change& change) {
  if (change.removed.empty()) return;
  const MutexLock lock(mutex_);
  for (const auto& [location, bytes] : change.removed) dying_[location] = bytes;
}

void LogLedger::ForgetDying(const Change& change) {
  const MutexLock lock(mutex_);
  for (const auto& entry : change.removed) dying_.erase(entry.location);
}

void LogLedger::Commit(const Change& change) {
  const MutexLock lock(mutex_);
  index_dirty_ = true;
  inline_bytes_ += change.inline_added - change.inline_removed;
  inline_dead_bytes_ += change.inline_removed;
  replacing_.insert(change.replacing.begin(), change.replacing.end());
  for (const auto& [location, bytes] : change.added) {
    in_flight_.erase(location);
    segments_[location.segment].live_bytes += bytes;
    live_bytes_ += bytes;
  }
  for (const auto& [location, bytes] : change.removed) {
    dying_.erase(location);
    dead_[location] = bytes;
    dead_bytes_ += bytes;
    segments_[location.segment].live_bytes -= bytes;
    live_bytes_ -= bytes;
  }
}

// ------------------------------------------------------------------------------------------
// flushing

bool LogLedger::HasChanges() const {
  const MutexLock lock(mutex_);
  return !dirty_.empty() || !dead_.empty() || index_dirty_;
}

LogLedger::Round LogLedger::BeginRound() {
  const MutexLock lock(mutex_);
  Round round;
  round.segments = std::exchange(dirty_, {});
  round.durable = in_flight_.empty() ? cursor_ : in_flight_.begin()->first;
  round.durable_before = durable_;
  committing_ = std::exchange(dead_, {});
  // One that has an entry in flight is still written.
  while (!full_.empty() && *full_.begin() < round.durable.segment) {
    round.full.push_back(full_.extract(full_.begin()).value());
  }
  index_dirty_ = false;
  unsynced_bytes_ = 0;
  return round;
}

std::vector<LogLocation> LogLedger::TakeReplacingBelow(LogLocation mark) {
  const MutexLock lock(mutex_);
  const auto beyond = replacing_.lower_bound(mark);
  const std::vector<LogLocation> below(replacing_.begin(), beyond);
  replacing_.erase(replacing_.begin(), beyond);
  return below;
}

void LogLedger::EndRound(const Round& round) {
  const MutexLock lock(mutex_);
  durable_ = round.durable;
  trimmable_.insert(round.full.begin(), round.full.end());
  for (const auto& [location, bytes] : committing_) dead_bytes_ -= bytes;
  free_.merge(committing_);
  committing_.clear();
}

bool LogLedger::HasLeftovers() const {
  const MutexLock lock(mutex_);
  return !dead_.empty() || !committing_.empty() || !free_.empty();
}

// ------------------------------------------------------------------------------------------
// giving back

LogLedger::Returnable LogLedger::TakeReturnable() {
  const MutexLock lock(mutex_);
  return {std::exchange(free_, {}), std::exchange(trimmable_, {})};
}

LogLedger::Snapshot LogLedger::Look() const {
  const MutexLock lock(mutex_);
  return {cursor_, in_flight_};
}

void LogLedger::Shrink(const Ranges& ranges, LogLocation location, Gap& gap) {
  const auto above = ranges.lower_bound(location);
  if (above != ranges.end() && above->first.segment == location.segment) {
    gap.end = std::min(gap.end, above->first.offset);
  }
  if (above == ranges.begin()) return;
  const auto below = std::prev(above);
  if (below->first.segment != location.segment) return;
  gap.begin = std::max(gap.begin, below->first.offset + below->second);
}

void LogLedger::ShrinkToFree(LogLocation location, Gap& gap) const {
  const MutexLock lock(mutex_);
  Shrink(dying_, location, gap);
  Shrink(dead_, location, gap);
  Shrink(committing_, location, gap);
}

std::vector<uint32_t> LogLedger::TakeDeadSegments() {
  const MutexLock lock(mutex_);
  const auto uses = [](const Ranges& ranges, uint32_t segment) {
    const auto at = ranges.lower_bound(LogLocation{segment, 0});
    return at != ranges.end() && at->first.segment == segment;
  };
  std::vector<uint32_t> dead;
  for (const auto& [number, segment] : segments_) {
    if (segment.live_bytes == 0 && number < cursor_.segment && !uses(in_flight_, number) &&
        !uses(dying_, number) && !uses(dead_, number) && !uses(committing_, number)) {
      dead.push_back(number);
    }
  }
  for (const uint32_t number : dead) segments_.erase(number);
  return dead;
}

bool LogLedger::IsWhole(uint32_t segment) const {
  const MutexLock lock(mutex_);
  return segments_.contains(segment) && segment != cursor_.segment;
}

void LogLedger::NoteAllocated(uint32_t segment, uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto found = segments_.find(segment);
  if (found != segments_.end()) found->second.allocated_bytes = bytes;
}

// ------------------------------------------------------------------------------------------
// tidying

bool LogLedger::WantsFlush() const {
  const MutexLock lock(mutex_);
  return dead_bytes_ >= kDeadBytesToFlush || unsynced_bytes_ >= kUnsyncedBytesToFlush;
}

bool LogLedger::HasReturnable() const {
  const MutexLock lock(mutex_);
  return !free_.empty() || !trimmable_.empty();
}

bool LogLedger::TakeInlineDeletions() {
  const MutexLock lock(mutex_);
  if (inline_dead_bytes_ < kInlineDeadBytes + inline_bytes_ / kLeastSlack) return false;
  inline_dead_bytes_ = 0;
  return true;
}

// Only whole pages can be punched out of a file, so between small entries much stays that is not
// needed. When that is too much, segments are emptied into new ones, those first where least has to
// be moved for what is got back. Everything of a segment that was begun is moved, or the bound on
// the work would not hold.
std::optional<uint32_t> LogLedger::SegmentToCompact(uint64_t slack_bytes) const {
  const MutexLock lock(mutex_);
  if (compacting_ && segments_.contains(*compacting_)) return compacting_;
  uint64_t whole_slack = 0;
  double best_gain = 1.0 / kLeastSlack;
  std::optional<uint32_t> best;
  for (const auto& [number, segment] : segments_) {
    // Above the mark an entry may still be undone.
    if (number >= durable_.segment || segment.holds_damage) continue;
    const uint64_t slack = segment.slack();
    whole_slack += slack;
    const double gain = static_cast<double>(slack) / static_cast<double>(segment.live_bytes + 1);
    if (gain < best_gain) continue;
    best_gain = gain;
    best = number;
  }
  if (whole_slack < slack_bytes + live_bytes_ / kLeastSlack) return std::nullopt;
  return best;
}

void LogLedger::NoteCompacted(uint32_t segment, const Compacted& compacted) {
  const MutexLock lock(mutex_);
  compacting_ = compacted.finished ? std::nullopt : std::optional(segment);
  moved_bytes_ += compacted.moved_bytes;
  // A damaged entry stays where it is, so that its key goes on being called damaged.
  if (compacted.damaged) segments_[segment].holds_damage = true;
}

// ------------------------------------------------------------------------------------------

uint64_t LogLedger::used_bytes() const {
  const MutexLock lock(mutex_);
  return live_bytes_ + dead_bytes_ + inline_bytes_;
}

LogCounts LogLedger::Counts() const {
  const MutexLock lock(mutex_);
  LogCounts counts{.segments = segments_.size(),
                   .dead_bytes = dead_bytes_,
                   .unsynced_bytes = unsynced_bytes_,
                   .moved_bytes = moved_bytes_};
  for (const auto& [number, segment] : segments_) counts.slack_bytes += segment.slack();
  return counts;
}

uint64_t LogLedger::moved_bytes() const {
  const MutexLock lock(mutex_);
  return moved_bytes_;
}

LogLocation LogLedger::cursor() const {
  const MutexLock lock(mutex_);
  return cursor_;
}

// What is not live lies below the cursor, and is one thing only.
void LogLedger::CheckRanges() const {
  Ranges all;
  for (const Ranges* ranges : {&in_flight_, &dying_, &dead_, &committing_, &free_}) {
    for (const auto& [location, bytes] : *ranges) {
      assert(bytes > 0);
      assert((LogLocation{location.segment, location.offset + bytes}) <= cursor_ ||
             location.segment < cursor_.segment);
      [[maybe_unused]] const bool alone = all.emplace(location, bytes).second;
      assert(alone && "an entry is two things at once");
    }
  }
  LogLocation end;
  for (const auto& [location, bytes] : all) {
    assert(end <= location && "two entries overlap");
    end = {location.segment, location.offset + bytes};
  }
}

void LogLedger::CheckInvariants() const {
  const MutexLock lock(mutex_);
  CheckRanges();
  uint64_t live_bytes = 0;
  for (const auto& [number, segment] : segments_) live_bytes += segment.live_bytes;
  assert(live_bytes == live_bytes_ && "segments do not add up to what is live");
  uint64_t dead_bytes = 0;
  for (const Ranges* ranges : {&dead_, &committing_}) {
    for (const auto& [location, bytes] : *ranges) dead_bytes += bytes;
  }
  assert(dead_bytes == dead_bytes_ && "the count of dead bytes is wrong");
  for (const auto& [location, bytes] : dying_) {
    const auto segment = segments_.find(location.segment);
    assert(segment != segments_.end() && segment->second.live_bytes >= bytes);
  }
  for (const auto& [location, bytes] : in_flight_) assert(durable_ <= location);
  assert(durable_ <= cursor_ && "what was never written is durable");
  assert(replacing_.empty() || *replacing_.rbegin() < cursor_);
  for (const uint32_t segment : full_) assert(segment < cursor_.segment);
  for (const uint32_t segment : trimmable_) assert(!full_.contains(segment));
}

}  // namespace pinstripe
