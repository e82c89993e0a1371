#include "store/log_reclaim.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint64_t kMoveAtOnce = uint64_t{32} << 20;  // by compaction, between two flushes

}  // namespace

// The entries that are needed, or may be, as they are when it is made: what is in flight first,
// then what is in the index, so that what goes from the one into the other is not missed. Later
// ones lie behind the cursor.
//
// It remembers the last gap between such entries, for RocksDB walks over every deletion in it to
// find its ends, and much that died together is given back one after the other.
class LogReclaim::LiveEntries {
 public:
  explicit LiveEntries(const Parts& parts)
      : files_(parts.files), seen_(parts.ledger.Look()), scan_(parts.index.Places()) {}

  Result<Gap> GapAround(LogLocation location) {
    const uint32_t segment = location.segment;
    const bool same =
        segment == segment_ && gap_.begin <= location.offset && location.offset < gap_.end;
    if (same) return gap_;
    Gap gap;
    gap.end = segment == seen_.cursor.segment ? seen_.cursor.offset : TRY(files_.Size(segment));
    LogLedger::Shrink(seen_.in_flight, location, gap);
    scan_.Seek(location);
    if (scan_.Valid()) {
      const IndexPlace next = TRY(scan_.place());
      if (next.location.segment == segment) gap.end = std::min(gap.end, next.location.offset);
    }
    scan_.SeekForPrev(location);
    if (scan_.Valid()) {
      const IndexPlace previous = TRY(scan_.place());
      if (previous.location.segment == segment) gap.begin = std::max(gap.begin, previous.end());
    }
    TRY(scan_.status());
    segment_ = segment;
    gap_ = gap;
    return gap;
  }

 private:
  SegmentFiles& files_;
  const LogLedger::Snapshot seen_;
  IndexScan scan_;
  uint32_t segment_ = 0;
  Gap gap_;  // of that segment
};

// The free space around a dead range. What has left the index since is seen dying or dead after.
Result<LogLedger::Gap> LogReclaim::GapAround(LogLocation location, LiveEntries& live) {
  Gap gap = TRY(live.GapAround(location));
  parts_.ledger.ShrinkToFree(location, gap);
  return gap;
}

Status LogReclaim::ReturnSpace() {
  auto [free, changed] = parts_.ledger.TakeReturnable();
  Status first_failure;
  const auto note = [&](const Status& status) {
    // A segment may have gone meanwhile, and given everything back.
    if (first_failure.ok() && status.code() != ENOENT) first_failure = status;
  };
  for (const uint32_t segment : changed) note(parts_.files.Trim(segment));
  if (!free.empty()) {
    LiveEntries live(parts_);
    LogLocation done_to;
    for (const auto& [location, bytes] : free) {
      changed.insert(location.segment);
      if (location < done_to) continue;  // in a gap that was given back already
      const Result<Gap> gap = GapAround(location, live);
      if (!gap.has_value()) {
        note(gap.error());
        continue;
      }
      note(parts_.files.Punch(location.segment, gap->begin, gap->end));
      done_to = {location.segment, gap->end};
    }
  }
  note(RemoveDeadSegments());
  note(MeasureSegments(changed));
  return first_failure;
}

Status LogReclaim::RemoveDeadSegments() {
  for (const uint32_t segment : parts_.ledger.TakeDeadSegments()) {
    // Nothing brings it back, so that the count alone is not believed.
    if (TRY(parts_.index.EndOfLastEntry(segment)) > 0) {
      Log(LogLevel::kError, "segment counted as unused is used, and stays",
          {{"store", path_},
           {"segment", fmt::format("{:08x}", segment)},
           {"do", "the index is damaged: count this drive as lost and replace it"}});
      continue;
    }
    TRY(parts_.index.ForgetSegment(segment));
    TRY(parts_.files.Remove(segment));
  }
  return {};
}

// How much the file system keeps for each of these.
Status LogReclaim::MeasureSegments(const std::set<uint32_t>& segments) {
  for (const uint32_t segment : segments) {
    if (!parts_.ledger.IsWhole(segment)) continue;
    parts_.ledger.NoteAllocated(segment, TRY(parts_.files.AllocatedBytes(segment)));
  }
  return {};
}

Result<bool> LogReclaim::Compact() {
  const std::optional<uint32_t> segment = parts_.ledger.SegmentToCompact(slack_bytes_);
  if (!segment) return false;
  LogLedger::Compacted compacted;
  IndexScan scan = parts_.index.PlacesOf(*segment);
  for (scan.SeekToFirst(); scan.Valid() && compacted.moved_bytes < kMoveAtOnce; scan.Next()) {
    const Result<IndexPlace> place = scan.place();
    const Status done = place.has_value() ? parts_.writer.Move(place->location, place->record)
                                          : Status(place.error());
    if (IsDamage(done)) {
      compacted.damaged = true;
    } else if (!done.ok()) {
      return Failed(Status(done).Context(fmt::format("compact segment {:08x}", *segment)));
    } else {
      compacted.moved_bytes += place->record.entry_bytes;
    }
  }
  TRY(scan.status());
  compacted.finished = !scan.Valid();
  parts_.ledger.NoteCompacted(*segment, compacted);
  return true;
}

}  // namespace pinstripe
