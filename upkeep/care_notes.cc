#include "upkeep/care_notes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/attempts.h"
#include "base/coding.h"
#include "base/try.h"
#include "cluster/registers/store.h"
#include "upkeep/actor.h"
#include "upkeep/events.h"

namespace pinstripe {
namespace {

constexpr uint8_t kAwayFormat = 1;
constexpr uint8_t kStopsFormat = 1;
constexpr uint8_t kAwayKind = 5;  // beside those of LookKind
constexpr uint8_t kStopsKind = 6;
constexpr size_t kMaxFailureBytes = 255;
constexpr size_t kMaxWorkBytes = 32;
constexpr size_t kMaxStops = 16;
constexpr int kMostAttempts = 10;

constexpr std::string_view kWorkOfCare[] = {"check", "collect", "scrub", "repair", "pack"};

std::string TakePrintable(Reader& in, size_t most) {
  const std::string_view text = in.Text();
  if (text.size() > most || !IsPrintableAscii(text)) in.MarkBad();
  return std::string(text);
}

// `edit` answers what the register is to have, or null when it is to stay as it is.
using Edit =
    std::function<std::optional<std::optional<std::string>>(const std::optional<std::string>&)>;
Status EditRegister(Cluster& cluster, const std::string& key, const Edit& edit) {
  const RegisterName name{kMapGroup, key};
  for (Attempts attempts(kMostAttempts); attempts.Next();) {
    const RegisterValue seen = TRY(cluster.registers().Read(name));
    const auto wanted = edit(seen.value);
    if (!wanted) return {};
    const auto outcome = cluster.registers().Change(name, seen, *wanted);
    TRY(outcome.why);
    if (outcome.applied()) return {};
  }
  return Fail(EIO, "others change what care has noted at this moment, again and again");
}

}  // namespace

const AwayNote::Watcher* AwayNote::Find(const std::string& host, int64_t now) const {
  const auto found = std::ranges::find(watchers, host, &Watcher::host);
  if (found == watchers.end() || found->since > now || found->seen > now) return nullptr;
  return TimeBetween(found->seen, now) < kStaleAfter ? &*found : nullptr;
}

void AwayNote::See(const std::string& host, int64_t since, int64_t now) {
  std::erase_if(watchers, [&](const Watcher& watcher) { return watcher.host == host; });
  if (watchers.size() >= kMaxWatchers) {
    watchers.erase(std::ranges::min_element(watchers, {}, &Watcher::seen));
  }
  watchers.push_back({.host = host, .since = since, .seen = now});
}

std::string AwayNote::Encode() const {
  Writer out;
  out.U8(kAwayFormat).Text(PrintableAscii(failure, kMaxFailureBytes));
  out.U64(static_cast<uint64_t>(moved)).Varint(watchers.size());
  for (const Watcher& watcher : watchers) {
    out.Text(PrintableAscii(watcher.host, kMaxActorText));
    out.U64(static_cast<uint64_t>(watcher.since)).U64(static_cast<uint64_t>(watcher.seen));
  }
  return out.Take();
}

Result<AwayNote> AwayNote::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kAwayFormat) {
    return Fail(EBADMSG, "a drive that is away: format {} is not known here (known: {})", format,
                kAwayFormat);
  }
  AwayNote note;
  note.failure = TakePrintable(in, kMaxFailureBytes);
  note.moved = static_cast<int64_t>(in.U64());
  const uint64_t watchers = in.Varint();
  if (watchers > kMaxWatchers) in.MarkBad();
  for (uint64_t i = 0; i < watchers && in.ok(); ++i) {
    Watcher watcher{.host = TakePrintable(in, kMaxActorText)};
    watcher.since = static_cast<int64_t>(in.U64());
    watcher.seen = static_cast<int64_t>(in.U64());
    note.watchers.push_back(std::move(watcher));
  }
  TRY(in.Finish("a drive that is away"));
  return note;
}

std::string AwayNoteKey(DriveId drive) { return Writer().Raw("C").U8(kAwayKind).U16(drive).Take(); }

Result<AwayNotes> FindAwayNotes(Cluster& cluster) {
  constexpr size_t kAtOnce = 100;
  AwayNotes notes;
  const std::string first = AwayNoteKey(0);
  std::optional<std::string> next = first;
  while (next) {
    const auto page = cluster.registers().Scan(kMapGroup, *next, AwayNoteKey(UINT16_MAX), kAtOnce);
    if (!page.has_value()) {
      return Fail(page.error().code(), "find out since when drives are away: {}",
                  page.error().message());
    }
    for (const auto& entry : page->entries) {
      Reader key(entry.key);
      key.Raw(first.size() - sizeof(DriveId));
      const DriveId drive = key.U16();
      const auto note = AwayNote::Decode(entry.value.value.value_or(""));
      if (key.Finish("the key").ok() && note.has_value()) notes[drive] = *note;
    }
    next = page->next;
  }
  return notes;
}

Status EditAwayNote(Cluster& cluster, DriveId drive, const std::function<bool(AwayNote&)>& edit) {
  return EditRegister(cluster, AwayNoteKey(drive),
                      [&](const auto& value) -> std::optional<std::optional<std::string>> {
                        auto note = AwayNote::Decode(value.value_or("")).value_or(AwayNote());
                        if (!edit(note)) return std::nullopt;
                        return note.Encode();
                      });
}

Status ForgetAwayNote(Cluster& cluster, DriveId drive) {
  return EditRegister(cluster, AwayNoteKey(drive),
                      [](const auto& value) -> std::optional<std::optional<std::string>> {
                        if (!value) return std::nullopt;
                        return std::optional<std::optional<std::string>>(std::in_place);
                      });
}

Status NoteMoved(Cluster& cluster, const std::vector<DriveId>& drives) {
  const int64_t now = cluster.runtime().WallClock();
  for (const DriveId drive : drives) {
    TRY(EditAwayNote(cluster, drive, [now](AwayNote& note) {
      note.moved = now;
      return !note.watchers.empty();
    }));
  }
  return {};
}

std::string EncodeWorkStops(const WorkStops& stops) {
  Writer out;
  out.U8(kStopsFormat).Varint(stops.size());
  for (const auto& [work, at] : stops) {
    out.Text(PrintableAscii(work, kMaxWorkBytes)).U64(static_cast<uint64_t>(at));
  }
  return out.Take();
}

Result<WorkStops> DecodeWorkStops(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kStopsFormat) {
    return Fail(EBADMSG, "work that was stopped: format {} is not known here (known: {})", format,
                kStopsFormat);
  }
  WorkStops stops;
  const uint64_t count = in.Varint();
  if (count > kMaxStops) in.MarkBad();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    const std::string work = TakePrintable(in, kMaxWorkBytes);
    if (!stops.empty() && work <= stops.rbegin()->first) in.MarkBad();
    stops[work] = static_cast<int64_t>(in.U64());
  }
  TRY(in.Finish("work that was stopped"));
  return stops;
}

std::string WorkStopsKey() { return Writer().Raw("C").U8(kStopsKind).Take(); }

Result<WorkStops> FindWorkStops(Cluster& cluster) {
  const RegisterValue seen = TRY(cluster.registers().Read({kMapGroup, WorkStopsKey()}));
  return DecodeWorkStops(seen.value.value_or("")).value_or(WorkStops());
}

Status NoteWorkStop(Cluster& cluster, const std::string& work) {
  if (!CareWouldDo(work)) return {};
  return EditRegister(
      cluster, WorkStopsKey(), [&](const auto& value) -> std::optional<std::optional<std::string>> {
        auto stops = DecodeWorkStops(value.value_or("")).value_or(WorkStops());
        std::erase_if(stops, [](const auto& stop) { return !CareWouldDo(stop.first); });
        stops[work] = cluster.runtime().WallClock();
        return EncodeWorkStops(stops);
      });
}

bool CareWouldDo(std::string_view work) {
  return std::ranges::find(kWorkOfCare, work) != std::end(kWorkOfCare);
}

}  // namespace pinstripe
