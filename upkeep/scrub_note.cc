#include "upkeep/scrub_note.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/coding.h"
#include "base/try.h"
#include "base/utf8.h"

namespace pinstripe {
namespace {

constexpr uint8_t kFormat = 1;
constexpr uint8_t kNoteKind = 7;  // beside those of LookKind and of care
constexpr size_t kMaxTextBytes = 400;
constexpr uint8_t kRounds = 2;
// So many numbers of inodes are not divided further.
constexpr uint64_t kFewNumbers = uint64_t{1} << 54;

// As if inodes were spread evenly over the numbers that they may have, as they are.
double NumberOf(const ScrubPlace& place) {
  return place.group + std::ldexp(static_cast<double>(place.file), -64);
}
double GroupsIn(const ScrubPart& part) { return NumberOf(part.end) - NumberOf(part.next); }

// Where its upper half begins. Null: it is not worth it.
std::optional<ScrubPlace> MiddleOf(const ScrubPart& part) {
  const uint32_t last = part.end.file == 0 ? part.end.group - 1 : part.end.group;
  const uint32_t first = part.next.group;
  if (last > first) return ScrubPlace{first + (last - first + 2) / 2};
  const uint64_t numbers = (part.end.file == 0 ? UINT64_MAX : part.end.file) - part.next.file;
  if (numbers < kFewNumbers) return std::nullopt;
  return ScrubPlace{first, part.next.file + numbers / 2};
}

}  // namespace

std::string ScrubNoteKey() { return Writer().Raw("C").U8(kNoteKind).Take(); }

void ScrubFound::Add(const ScrubFound& other) {
  blocks += other.blocks;
  damaged += other.damaged;
  missing += other.missing;
  written += other.written;
  relocated += other.relocated;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  unread += other.unread;
  more_not_whole += other.more_not_whole;
  more_contradicted += other.more_contradicted;
  for (const FileBlock& block : other.not_whole) {
    if (not_whole.contains(block)) continue;
    if (not_whole.size() < kMostScrubBlocks) {
      not_whole.insert(block);
    } else {
      ++more_not_whole;
    }
  }
  for (const auto& [file, what] : other.contradicted) {
    if (contradicted.size() < kMostScrubTexts) {
      contradicted.emplace_back(file, Printable(what, kMaxTextBytes));
    } else {
      ++more_contradicted;
    }
  }
}

// ---- Who reads what

ScrubNote ScrubNote::Begin(const ScrubId& id, int64_t now, uint32_t groups) {
  ScrubNote note{.id = id, .began = now, .touched = now, .groups = groups};
  note.left.push_back({.next = {}, .end = {groups}});
  return note;
}

std::optional<ScrubPart> ScrubNote::Take(const ScrubId& reader, const std::set<ScrubId>& dead) {
  const auto has = std::ranges::find(left, reader, &ScrubPart::reader);
  if (has != left.end()) return *has;
  for (ScrubPart& part : left) {
    if (!part.IsFree() && !dead.contains(part.reader)) continue;
    part.reader = reader;
    part.signs = 0;
    return part;
  }
  const auto largest = std::ranges::max_element(left, {}, GroupsIn);
  if (largest == left.end() || left.size() >= kMostScrubParts) return std::nullopt;
  const auto middle = IsEnd(*largest) ? std::nullopt : MiddleOf(*largest);
  if (!middle) return std::nullopt;
  const ScrubPart ours{.next = *middle, .end = largest->end, .reader = reader};
  largest->end = *middle;
  left.insert(largest + 1, ours);
  return ours;
}

std::optional<ScrubPlace> ScrubNote::Advance(const ScrubId& reader, const ScrubPlace& next,
                                             bool one_is_back) {
  const auto part = std::ranges::find(left, reader, &ScrubPart::reader);
  if (part == left.end() || next < part->next) return std::nullopt;
  const ScrubPlace end = part->end;
  part->next = next;
  ++part->signs;
  if (next < end) return end;
  left.erase(part);
  if (left.empty()) GoToNextRound(one_is_back);
  return end;
}

void ScrubNote::GoToNextRound(bool one_is_back) {
  if (round < kRounds && !again.empty() && one_is_back) {
    for (const GroupRange& range : again) {
      // More than so many parts are one with what lies between them.
      if (left.size() < kMostScrubParts / 2) {
        left.push_back({.next = {range.first}, .end = {range.end}});
      } else {
        left.back().end = {range.end};
      }
    }
    again.clear();
    away.clear();
    unread_at_first = 0;
    ++round;
    return;
  }
  found.unread += unread_at_first;
  unread_at_first = 0;
  left.push_back({.next = {groups}, .end = {groups + 1}});
}

void ScrubNote::Release(const ScrubId& reader) {
  for (ScrubPart& part : left) {
    if (part.reader == reader) part.reader = {};
  }
}

void ScrubNote::ReadAgain(GroupRange range, uint64_t unread, const std::set<DriveId>& drives) {
  if (round == kRounds) return;
  unread_at_first += unread;
  away.insert(drives.begin(), drives.end());
  if (drives.empty() || away.size() > kMostScrubDrives) away = {0};
  // Those that it touches become one with it.
  auto first = std::ranges::lower_bound(again, range.first, {}, &GroupRange::end);
  auto last = first;
  for (; last != again.end() && last->first <= range.end; ++last) {
    range.first = std::min(range.first, last->first);
    range.end = std::max(range.end, last->end);
  }
  again.insert(again.erase(first, last), range);
  if (again.size() <= kMostScrubRanges) return;
  // The two become one between which the least is.
  size_t best = 1;
  for (size_t i = 2; i < again.size(); ++i) {
    const auto gap = [&](size_t at) { return again[at].first - again[at - 1].end; };
    if (gap(i) < gap(best)) best = i;
  }
  again[best - 1].end = again[best].end;
  again.erase(again.begin() + static_cast<std::ptrdiff_t>(best));
}

bool ScrubNote::IsTakenByOthers(const ScrubId& reader) const {
  return std::ranges::any_of(
      left, [&](const ScrubPart& part) { return !part.IsFree() && part.reader != reader; });
}

double ScrubNote::Done() const {
  double groups_left = 0;
  for (const ScrubPart& part : left) {
    if (!IsEnd(part)) groups_left += GroupsIn(part);
  }
  return groups == 0 ? 1 : 1 - groups_left / groups;
}

// ---- The bytes

std::string ScrubNote::Encode() const {
  Writer out;
  out.U8(kFormat).Raw(std::as_bytes(std::span(id))).U64(static_cast<uint64_t>(began));
  out.U64(static_cast<uint64_t>(touched)).U32(groups).U8(round);
  out.Varint(left.size());
  for (const ScrubPart& part : left) {
    out.U32(part.next.group)
        .U64(part.next.file)
        .Varint(part.next.block)
        .U32(part.end.group)
        .U64(part.end.file)
        .Raw(std::as_bytes(std::span(part.reader)))
        .Varint(part.signs);
  }
  out.Varint(again.size());
  for (const GroupRange& range : again) out.U32(range.first).U32(range.end);
  out.Varint(unread_at_first).Varint(away.size());
  for (const DriveId drive : away) out.U16(drive);
  out.Varint(found.blocks).Varint(found.damaged).Varint(found.missing).Varint(found.written);
  out.Varint(found.relocated).Varint(found.bytes_read).Varint(found.bytes_written);
  out.Varint(found.unread);
  out.Varint(found.not_whole.size());
  for (const auto& [file, block] : found.not_whole) out.U64(file).U64(block);
  out.Varint(found.more_not_whole);
  out.Varint(found.contradicted.size());
  for (const auto& [file, what] : found.contradicted) out.U64(file).Text(what);
  out.Varint(found.more_contradicted);
  return out.Take();
}

namespace {

ScrubId TakeId(Reader& in) {
  ScrubId id{};
  const std::string_view bytes = in.Raw(id.size());
  if (bytes.size() == id.size()) std::ranges::copy(bytes, id.begin());
  return id;
}

size_t TakeCount(Reader& in, size_t most) {
  const uint64_t count = in.Varint();
  if (count > most) in.MarkBad();
  return in.ok() ? count : 0;
}

void TakeParts(Reader& in, ScrubNote& note) {
  const size_t count = TakeCount(in, kMostScrubParts);
  ScrubPlace last;
  for (size_t i = 0; i < count && in.ok(); ++i) {
    ScrubPart part;
    part.next.group = in.U32();
    part.next.file = in.U64();
    part.next.block = in.Varint();
    part.end.group = in.U32();
    part.end.file = in.U64();
    part.reader = TakeId(in);
    const uint64_t signs = in.Varint();
    part.signs = static_cast<uint32_t>(signs);
    const bool is_end = part.next == ScrubPlace{note.groups} &&
                        part.end == ScrubPlace{note.groups + 1} && count == 1;
    const bool fits =
        part.next >= last && part.end > part.next && part.end <= ScrubPlace{note.groups};
    if (signs > UINT32_MAX || (!fits && !is_end)) in.MarkBad();
    last = part.end;
    note.left.push_back(part);
  }
  if (count == 0) in.MarkBad();
}

void TakeRanges(Reader& in, ScrubNote& note) {
  const size_t count = TakeCount(in, kMostScrubRanges);
  for (size_t i = 0; i < count && in.ok(); ++i) {
    GroupRange range;
    range.first = in.U32();
    range.end = in.U32();
    const bool is_after = note.again.empty() || range.first > note.again.back().end;
    if (!is_after || range.end <= range.first || range.end > note.groups) in.MarkBad();
    note.again.push_back(range);
  }
  note.unread_at_first = in.Varint();
  const size_t drives = TakeCount(in, kMostScrubDrives);
  for (size_t i = 0; i < drives && in.ok(); ++i) {
    const DriveId drive = in.U16();
    if (!note.away.empty() && drive <= *note.away.rbegin()) in.MarkBad();
    note.away.insert(drive);
  }
}

void TakeFound(Reader& in, ScrubFound& found) {
  found.blocks = in.Varint();
  found.damaged = in.Varint();
  found.missing = in.Varint();
  found.written = in.Varint();
  found.relocated = in.Varint();
  found.bytes_read = in.Varint();
  found.bytes_written = in.Varint();
  found.unread = in.Varint();
  const size_t blocks = TakeCount(in, kMostScrubBlocks);
  for (size_t i = 0; i < blocks && in.ok(); ++i) {
    const uint64_t file = in.U64();
    const FileBlock block(file, in.U64());
    if (!found.not_whole.empty() && block <= *found.not_whole.rbegin()) in.MarkBad();
    found.not_whole.insert(block);
  }
  found.more_not_whole = in.Varint();
  const size_t texts = TakeCount(in, kMostScrubTexts);
  for (size_t i = 0; i < texts && in.ok(); ++i) {
    const uint64_t file = in.U64();
    const std::string_view what = in.Text();
    if (what != Printable(what, kMaxTextBytes)) in.MarkBad();
    found.contradicted.emplace_back(file, what);
  }
  found.more_contradicted = in.Varint();
}

}  // namespace

Result<ScrubNote> ScrubNote::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kFormat) {
    return Fail(EBADMSG, "how far a scrub is: format {} is not known here (known: {})", format,
                kFormat);
  }
  ScrubNote note;
  note.id = TakeId(in);
  note.began = static_cast<int64_t>(in.U64());
  note.touched = static_cast<int64_t>(in.U64());
  note.groups = in.U32();
  note.round = in.U8();
  if (note.round < 1 || note.round > kRounds || note.groups == UINT32_MAX) in.MarkBad();
  TakeParts(in, note);
  TakeRanges(in, note);
  TakeFound(in, note.found);
  TRY(in.Finish("how far a scrub is"));
  return note;
}

}  // namespace pinstripe
