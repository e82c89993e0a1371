#include "cluster/map/electorate.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kStartFormat = 1;

bool IsClean(const DriveStart& start) { return start.clean; }

}  // namespace

std::string StartKey(DriveId drive) { return Writer().Raw("T").U16(drive).Take(); }

std::string EncodeStart(uint64_t start) { return Writer().U8(kStartFormat).U64(start).Take(); }

Result<uint64_t> DecodeStart(std::string_view bytes) {
  Reader reader(bytes);
  const uint8_t format = reader.U8();
  const uint64_t start = reader.U64();
  TRY(reader.Finish("start of a drive"));
  if (format != kStartFormat) {
    return Fail(EBADMSG, "the noted start of a drive has format {}; this version knows {}", format,
                kStartFormat);
  }
  return start;
}

Say JudgeStarts(const std::vector<DriveStart>& starts, uint64_t start_count,
                std::optional<uint64_t> noted) {
  if (starts.empty()) return Say::kFull;
  if (!noted) {
    const bool all_are_told = start_count == starts.size();
    const bool all_are_clean = std::ranges::all_of(starts, IsClean);
    return all_are_told && all_are_clean ? Say::kUnnoted : Say::kForgetful;
  }
  if (*noted == kNoStart) return Say::kForgetful;
  const auto known = std::ranges::find(starts, *noted, &DriveStart::id);
  if (known == starts.end()) return Say::kStale;
  if (known == starts.begin()) return Say::kFull;
  return std::all_of(starts.begin(), known, IsClean) ? Say::kUnnoted : Say::kForgetful;
}

void Electorate::Judge(Voter& voter) const {
  if (!voter.starts.empty() && !knows_notes_) {
    voter.say = Say::kUnnoted;  // until that is known
    return;
  }
  voter.say = JudgeStarts(voter.starts, voter.start_count, voter.noted);
}

void Electorate::Meet(DriveId drive, const Result<DriveInfo>& info, Time now) {
  const MutexLock lock(mutex_);
  Voter voter{.met_at = now};
  if (info.has_value()) {
    voter.starts = info->starts;
    voter.start_count = info->start_count;
    voter.up = info->up;
  }
  if (const auto noted = notes_.find(drive); noted != notes_.end()) voter.noted = noted->second;
  Judge(voter);
  const auto known = voters_.find(drive);
  const bool is_known = known != voters_.end() && known->second.start() == voter.start();
  if (is_known) {
    // Both together say since when it is up.
    voter.met_at = known->second.met_at;
    voter.up = known->second.up;
  }
  // Also of one that is known: others may have gone on without it meanwhile. Where we only closed
  // the connection it has forgotten nothing, as if we had stayed connected.
  const bool goes_on = is_known && info.has_value() && info->goes_on;
  if (!goes_on) ++news_;
  voters_.insert_or_assign(drive, std::move(voter));
}

void Electorate::Note(const std::map<DriveId, uint64_t>& starts) {
  const MutexLock lock(mutex_);
  knows_notes_ = true;
  notes_ = starts;
  for (auto& [id, voter] : voters_) {
    const auto noted = notes_.find(id);
    voter.noted = noted != notes_.end() ? std::optional(noted->second) : std::nullopt;
    Judge(voter);
  }
}

void Electorate::Note(DriveId drive, uint64_t start) {
  const MutexLock lock(mutex_);
  notes_[drive] = start;
  const auto voter = voters_.find(drive);
  if (voter == voters_.end()) return;
  voter->second.noted = start;
  Judge(voter->second);
}

bool Electorate::HasSay(DriveId drive) const {
  const MutexLock lock(mutex_);
  const auto voter = voters_.find(drive);
  return voter != voters_.end() && voter->second.say == Say::kFull;
}

bool Electorate::HasSayInMap(DriveId drive) const {
  const MutexLock lock(mutex_);
  const auto voter = voters_.find(drive);
  return voter != voters_.end() && voter->second.say != Say::kStale;
}

std::string Electorate::WhyNot(DriveId drive) const {
  const auto voter = Find(drive);
  if (!voter) return "it has not answered yet";
  switch (voter->say) {
    case Say::kFull: return "";
    case Say::kUnnoted: return "it was started anew, and that is not noted yet";
    case Say::kForgetful:
      if (voter->noted == kNoStart) {
        return "others have gone on without it, and what it holds of names and inodes is compared "
               "with theirs first";
      }
      return "it may have forgotten changes with its power, and what it holds of names and inodes "
             "is compared with the others' first";
    case Say::kStale:
      return "it goes on from a copy or a backup of its disk, and what it holds of names and "
             "inodes "
             "is compared with the others' first";
  }
  return "";
}

void Electorate::NoteCompared(DriveId drive, Say was) {
  const MutexLock lock(mutex_);
  compared_.insert_or_assign(drive, was);
}

std::map<DriveId, Say> Electorate::TakeCompared() {
  const MutexLock lock(mutex_);
  return std::exchange(compared_, {});
}

std::optional<Electorate::Voter> Electorate::Find(DriveId drive) const {
  const MutexLock lock(mutex_);
  const auto voter = voters_.find(drive);
  return voter != voters_.end() ? std::optional(voter->second) : std::nullopt;
}

std::vector<DriveId> Electorate::Doubtful() const {
  const MutexLock lock(mutex_);
  std::vector<DriveId> doubtful;
  for (const auto& [id, voter] : voters_) {
    if (voter.say != Say::kFull) doubtful.push_back(id);
  }
  return doubtful;
}

uint64_t Electorate::news() const {
  const MutexLock lock(mutex_);
  return news_;
}

}  // namespace pinstripe
