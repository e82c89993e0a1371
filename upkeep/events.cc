#include "upkeep/events.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/coding.h"
#include "base/log.h"
#include "base/time_text.h"
#include "base/try.h"
#include "cluster/registers/store.h"

namespace pinstripe {
namespace {

constexpr uint8_t kPageFormat = 1;
constexpr size_t kMaxWorkBytes = 32;
constexpr size_t kMaxTextBytes = 400;
constexpr size_t kMaxDrives = 256;
constexpr size_t kMostRecent = 512;

RegisterName NameOf(uint64_t page) { return {kMapGroup, EventPageKey(page)}; }

std::string DrivesText(const std::vector<DriveId>& drives) {
  if (drives.empty()) return "a drive";
  return fmt::format("{} {}", drives.size() == 1 ? "drive" : "drives", fmt::join(drives, ", "));
}

// ", text", if there is one.
std::string Behind(std::string_view before, const std::string& text) {
  return text.empty() ? "" : fmt::format("{}{}", before, text);
}

std::string_view ResultText(WorkResult result) {
  switch (result) {
    case WorkResult::kNone: break;
    case WorkResult::kDone: return "everything is in order";
    case WorkResult::kShort: return "something is left to do";
    case WorkResult::kFailed: return "it failed, or something is lost";
    case WorkResult::kStopped: return "it was stopped";
    case WorkResult::kDied: return "its process died";
  }
  return "with a result that is not known here";
}

std::string_view ResultName(WorkResult result) {
  switch (result) {
    case WorkResult::kNone: break;
    case WorkResult::kDone: return "done";
    case WorkResult::kShort: return "short";
    case WorkResult::kFailed: return "failed";
    case WorkResult::kStopped: return "stopped";
    case WorkResult::kDied: return "died";
  }
  return "unknown";
}

bool IsAboutDrives(EventKind kind) {
  return kind == EventKind::kDriveWent || kind == EventKind::kDriveCame;
}

}  // namespace

Duration TimeBetween(int64_t earlier, int64_t later) {
  int64_t between = 0;
  if (!__builtin_sub_overflow(later, earlier, &between) && between != INT64_MIN) {
    return Duration(between);
  }
  return Duration(later < earlier ? -INT64_MAX : INT64_MAX);
}

// What an event says ------------------------------------------------------------------------------

std::string_view NameOf(EventLevel level) {
  switch (level) {
    case EventLevel::kInfo: return "info";
    case EventLevel::kWarning: return "warning";
    case EventLevel::kError: break;
  }
  return "error";
}

EventLevel Event::Level() const {
  switch (kind) {
    case EventKind::kDriveWent:
    case EventKind::kDamageFound:
    case EventKind::kSparesUsed:
    case EventKind::kDriveCompared:
    case EventKind::kDropped: return EventLevel::kWarning;
    case EventKind::kWorkEnded:
      if (result == WorkResult::kFailed) return EventLevel::kError;
      return result == WorkResult::kShort || result == WorkResult::kDied ? EventLevel::kWarning
                                                                         : EventLevel::kInfo;
    case EventKind::kDriveCame:
    case EventKind::kFilesMended:
    case EventKind::kDamageMended:
    case EventKind::kWorkBegan:
    case EventKind::kWorkAsked:
    case EventKind::kConfiguration: break;
  }
  return EventLevel::kInfo;
}

std::string Event::Name() const {
  switch (kind) {
    case EventKind::kDriveWent: return "drive-went";
    case EventKind::kDriveCame: return "drive-came";
    case EventKind::kSparesUsed: return "spares-used";
    case EventKind::kFilesMended: return "files-mended";
    case EventKind::kDamageFound: return "damage-found";
    case EventKind::kDamageMended: return "damage-mended";
    case EventKind::kWorkBegan: return "work-began";
    case EventKind::kWorkEnded: return "work-ended";
    case EventKind::kWorkAsked: return "work-asked";
    case EventKind::kConfiguration: return "configuration";
    case EventKind::kDropped: return "dropped";
    case EventKind::kDriveCompared: return "drive-compared";
  }
  return fmt::format("kind-{}", static_cast<int>(kind));
}

std::string Event::Sentence() const {
  const std::string of_drives = drives.empty() ? "" : " of " + DrivesText(drives);
  // What a program does by itself is nobody's doing.
  const std::string seen_by =
      fmt::format("{} on {} (process {})", actor.program, actor.host, actor.process);
  switch (kind) {
    case EventKind::kDriveWent:
      return fmt::format("{} cannot be reached{}, as {} saw", DrivesText(drives),
                         Behind(": ", text), seen_by);
    case EventKind::kDriveCame:
      return fmt::format("{} can be reached again{}, as {} saw", DrivesText(drives),
                         Behind(" ", text), seen_by);
    case EventKind::kSparesUsed:
      return fmt::format("files were written {} by {} while drives were away{}",
                         count == 1 ? "once" : fmt::format("{} times", count), seen_by,
                         Behind(": ", text));
    case EventKind::kFilesMended:
      return fmt::format("{} that lacked shards {} whole again, mended by {}",
                         count == 1 ? "a file" : fmt::format("{} files", count),
                         count == 1 ? "is" : "are", seen_by);
    case EventKind::kDamageFound:
      if (work.empty()) return fmt::format("{} met {} damaged shards", seen_by, count);
      return fmt::format("{} found {} damaged or missing shards{}", work, count,
                         Behind(": ", text));
    case EventKind::kDamageMended:
      if (work.empty()) return fmt::format("{} wrote {} of these again", seen_by, count);
      return fmt::format("{} wrote {} shards again or brought them home{}", work, count,
                         Behind(": ", text));
    case EventKind::kWorkBegan:
      return fmt::format("{}{} began, by {}{}", work, of_drives, actor.Text(), Behind(": ", text));
    case EventKind::kWorkEnded:
      if (result == WorkResult::kStopped && !text.empty()) {
        return fmt::format("{}{} ended: {}", work, of_drives, text);
      }
      return fmt::format("{}{} ended: {}{}", work, of_drives, ResultText(result),
                         Behind("; ", text));
    case EventKind::kWorkAsked:
      return fmt::format("{}{} was asked to {} by {}", work, of_drives,
                         text.empty() ? "do something" : text, actor.Text());
    case EventKind::kConfiguration:
      return fmt::format("{}{} changed the cluster, by {}{}", work, of_drives, actor.Text(),
                         Behind(": ", text));
    case EventKind::kDropped:
      return fmt::format("{} events of {} could not be kept", count, seen_by);
    case EventKind::kDriveCompared:
      return fmt::format("names and inodes of {} were compared with the others' by {}{}",
                         DrivesText(drives), seen_by, Behind(": ", text));
  }
  return fmt::format("something that this version does not know, by {}{}", actor.Text(),
                     Behind(": ", text));
}

// What it is on the drives ------------------------------------------------------------------------

std::string Event::Encode() const {
  Writer out;
  out.U8(static_cast<uint8_t>(kind)).U64(static_cast<uint64_t>(at));
  actor.EncodeInto(out);
  const size_t listed = std::min(drives.size(), kMaxDrives);
  out.Varint(listed);
  for (size_t i = 0; i < listed; ++i) out.U16(drives[i]);
  out.Varint(count).Text(PrintableAscii(work, kMaxWorkBytes)).U8(static_cast<uint8_t>(result));
  out.Text(PrintableAscii(text, kMaxTextBytes)).Raw(later);
  return out.Take();
}

Result<Event> Event::Decode(std::string_view bytes) {
  Reader in(bytes);
  Event event;
  event.kind = static_cast<EventKind>(in.U8());
  event.at = static_cast<int64_t>(in.U64());
  event.actor = Actor::DecodeFrom(in);
  const uint64_t listed = in.Varint();
  if (listed > kMaxDrives) in.MarkBad();
  for (uint64_t i = 0; in.ok() && i < listed; ++i) event.drives.push_back(in.U16());
  event.count = in.Varint();
  event.work = in.Text();
  event.result = static_cast<WorkResult>(in.U8());
  event.text = in.Text();
  if (!IsPrintableAscii(event.work) || !IsPrintableAscii(event.text)) in.MarkBad();
  if (event.work.size() > kMaxWorkBytes || event.text.size() > kMaxTextBytes) in.MarkBad();
  event.later = in.Rest();
  TRY(in.Finish("event"));
  return event;
}

std::string EventPageKey(uint64_t number) {
  return Writer().Raw("J").U8(static_cast<uint8_t>(number % kEventPages)).Take();
}

std::string EventPage::Encode() const {
  Writer out;
  out.U8(kPageFormat).U64(number);
  for (const Event& event : events) out.Text(event.Encode());
  return out.Take();
}

Result<EventPage> EventPage::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kPageFormat) {
    return Fail(EBADMSG, "events: format {} is not known here (known: {})", format, kPageFormat);
  }
  EventPage page;
  page.number = in.U64();
  if (in.ok() && (page.number == 0 || page.number > kMaxEventPage)) {
    return Fail(EBADMSG, "events: {} is no number of a page", page.number);
  }
  while (in.ok() && in.left() > 0) {
    auto event = Event::Decode(in.Text());
    if (event.has_value()) page.events.push_back(*std::move(event));
  }
  TRY(in.Finish("events"));
  return page;
}

// Reading -----------------------------------------------------------------------------------------

namespace {

// The page that a register is to hold, or null: it holds nothing, an earlier one, or damage.
std::optional<EventPage> PageIn(const RegisterValue& value, uint64_t register_number) {
  if (!value.value.has_value()) return std::nullopt;
  auto page = EventPage::Decode(*value.value);
  if (!page.has_value() || page->number % kEventPages != register_number % kEventPages) {
    return std::nullopt;
  }
  return *std::move(page);
}

void Append(std::vector<Event>& found, const std::vector<Event>& events, size_t from = 0) {
  found.insert(found.end(), events.begin() + static_cast<ptrdiff_t>(std::min(from, events.size())),
               events.end());
}

// Pages follow each other, so a number that is far from the others is damage, and the ring would be
// at its end if one that somebody made up counted. The pages of the largest group stay, of the
// lower one where two are as large. The answer: how many were left out.
uint64_t LeaveOutImplausible(std::vector<EventPage>& ascending) {
  const size_t all = ascending.size();
  std::erase_if(ascending, [](const EventPage& page) { return page.number > kMaxEventPage / 2; });
  const auto is_gap = [](const EventPage& one, const EventPage& next) {
    return next.number - one.number >= kEventPages;
  };
  auto best = ascending.begin();
  auto best_end = best;
  for (auto begin = ascending.begin(); begin != ascending.end();) {
    auto end = std::adjacent_find(begin, ascending.end(), is_gap);
    if (end != ascending.end()) ++end;
    if (end - begin > best_end - best) {
      best = begin;
      best_end = end;
    }
    begin = end;
  }
  ascending.erase(best_end, ascending.end());
  ascending.erase(ascending.begin(), best);
  return all - ascending.size();
}

}  // namespace

Status EventFollower::ReadAll(std::vector<Event>& found) {
  std::vector<RegisterName> names;
  for (uint64_t i = 0; i < kEventPages; ++i) names.push_back(NameOf(i));
  const auto values = cluster_.registers().ReadMany(names);
  std::vector<EventPage> pages;
  damaged_ = 0;
  for (uint64_t i = 0; i < kEventPages; ++i) {
    const auto& value = TRY_CONTEXT(values[i], "read the events");
    auto page = PageIn(value, i);
    if (page.has_value()) pages.push_back(*std::move(page));
    if (!page.has_value() && value.value.has_value()) ++damaged_;
  }
  std::ranges::sort(pages, {}, &EventPage::number);
  damaged_ += LeaveOutImplausible(pages);
  const EventPage seen = head_;
  const EventPage seen_before = before_;
  first_page_ = pages.empty() ? 0 : pages.front().number;
  head_ = pages.empty() ? EventPage() : pages.back();
  before_ = pages.size() < 2 ? EventPage() : pages[pages.size() - 2];
  head_seen_ = *values[head_.number % kEventPages];
  next_seen_ = *values[(head_.number + 1) % kEventPages];
  for (const EventPage& page : pages) {
    if (page.number > seen.number) Append(found, page.events);
    if (page.number == seen.number) Append(found, page.events, seen.events.size());
    if (page.number == seen_before.number && page.number < seen.number) {
      Append(found, page.events, seen_before.events.size());
    }
  }
  has_read_ = true;
  return {};
}

Result<std::vector<Event>> EventFollower::Poll() {
  std::vector<Event> found;
  Status read = ReadOn(found);
  is_behind_ = !read.ok();
  // What was found before the failure is not found again.
  if (is_behind_ && found.empty()) return tl::unexpected(std::move(read));
  return found;
}

Status EventFollower::ReadOn(std::vector<Event>& found) {
  if (!has_read_) return ReadAll(found);
  for (;;) {
    const auto values = cluster_.registers().ReadMany(
        std::array{NameOf(before_.number), NameOf(head_.number), NameOf(head_.number + 1)});
    for (const auto& value : values) TRY_CONTEXT(value, "read the events");
    const auto before = PageIn(*values[0], before_.number);
    const auto head = PageIn(*values[1], head_.number);
    const auto next = PageIn(*values[2], head_.number + 1);
    const bool is_overtaken = head_.number != 0 && (!head || head->number != head_.number);
    if (is_overtaken || (next && next->number > head_.number + 1)) {
      // So much has happened, or somebody has spoilt a page.
      return ReadAll(found);
    }
    if (before_.number != 0 && before && before->number == before_.number) {
      Append(found, before->events, before_.events.size());
      before_ = *before;
    }
    if (head_.number != 0) {
      Append(found, head->events, head_.events.size());
      head_ = *head;
    }
    head_seen_ = *values[1];
    next_seen_ = *values[2];
    if (!next || next->number != head_.number + 1) return {};
    // Its events are found by the next round, and what came to the page before it meanwhile.
    before_ = head_;
    head_ = {.number = next->number, .events = {}};
    if (first_page_ == 0) first_page_ = head_.number;
  }
}

Result<EventList> ReadEvents(Cluster& cluster, int64_t since) {
  EventFollower follower(cluster);
  EventList list;
  list.events = TRY(follower.Poll());
  std::ranges::stable_sort(list.events, {}, &Event::at);
  if (!list.events.empty()) list.oldest = list.events.front().at;
  list.damaged = follower.damaged();
  list.reaches_back = follower.first_page() <= 1 || list.oldest.value_or(INT64_MAX) <= since;
  std::erase_if(list.events, [since](const Event& event) { return event.at < since; });
  return list;
}

// Writing -----------------------------------------------------------------------------------------

struct EventLog::Alarm {
  Mutex mutex;
  BackgroundThread* thread GUARDED_BY(mutex) = nullptr;  // null: the log is gone

  void Ring() {
    const MutexLock lock(mutex);
    if (thread != nullptr) thread->Wake();
  }
  void Set(BackgroundThread* to) {
    const MutexLock lock(mutex);
    thread = to;
  }
};

EventLog::EventLog(Cluster& cluster, Options options)
    : cluster_(cluster),
      runtime_(cluster.runtime()),
      options_(std::move(options)),
      flushed_(runtime_.NewSignal()),
      alarm_(std::make_shared<Alarm>()),
      follower_(cluster),
      thread_(runtime_, "events", [this] { Run(); }) {
  alarm_->Set(&thread_);
}

EventLog::~EventLog() {
  alarm_->Set(nullptr);
  thread_.End();
}

void EventLog::Add(Event event) {
  event.actor = options_.actor;
  if (event.at == 0) event.at = runtime_.WallClock();
  event = *Event::Decode(event.Encode());  // as it will be read
  {
    const MutexLock lock(mutex_);
    if (waiting_.size() >= options_.most_waiting) {
      ++dropped_;
      return;
    }
    waiting_.push_back(std::move(event));
  }
  thread_.Wake();
}

bool EventLog::Flush(Duration patience) {
  const Time deadline = runtime_.Now() + patience;
  {
    const MutexLock lock(mutex_);
    in_haste_ = true;
    failed_ = false;
  }
  thread_.Wake();
  for (;;) {
    {
      const MutexLock lock(mutex_);
      const bool is_empty = waiting_.empty() && !writing_;
      if (is_empty || failed_ || runtime_.Now() >= deadline) {
        in_haste_ = false;
        return is_empty;
      }
    }
    flushed_->WaitUntil(deadline);
  }
}

std::vector<Event> EventLog::TakeBatch() {
  const MutexLock lock(mutex_);
  std::vector<Event> batch;
  if (waiting_.empty()) return batch;
  batch.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(waiting_.end()));
  waiting_.clear();
  if (dropped_ > 0) {
    Event lost{.kind = EventKind::kDropped, .at = runtime_.WallClock(), .actor = options_.actor};
    lost.count = std::exchange(dropped_, 0);
    batch.push_back(std::move(lost));
  }
  writing_ = true;
  return batch;
}

void EventLog::PutBack(std::vector<Event> batch) {
  const MutexLock lock(mutex_);
  // They are the oldest; what does not fit any more is the newest of them.
  for (; !batch.empty(); batch.pop_back()) {
    if (batch.back().kind == EventKind::kDropped) {
      dropped_ += batch.back().count;
    } else if (waiting_.size() >= options_.most_waiting) {
      ++dropped_;
    } else {
      waiting_.push_front(std::move(batch.back()));
    }
  }
}

void EventLog::WaitToSpread() {
  if (options_.spread.count() == 0) return;
  const auto most = static_cast<uint64_t>(options_.spread.count());
  const Time until = runtime_.Now() + Duration(static_cast<int64_t>(runtime_.Random() % most));
  while (!thread_.IsEnding() && runtime_.Now() < until) {
    {
      const MutexLock lock(mutex_);
      if (in_haste_) return;
    }
    thread_.WaitUntil(until);
  }
}

void EventLog::Run() {
  for (;;) {
    WaitToSpread();
    if (thread_.IsEnding()) return;
    std::vector<Event> batch = TakeBatch();
    if (batch.empty()) return;
    const Status written = Write(batch);
    if (!written.ok()) PutBack(std::move(batch));
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      failed_ = !written.ok();
    }
    flushed_->Set();
    if (written.ok()) continue;
    Log(LogLevel::kDebug, "events wait until they can be kept", {{"why", written}});
    runtime_.RunAt(runtime_.Now() + options_.again, [alarm = alarm_] { alarm->Ring(); });
    return;
  }
}

Status EventLog::CatchUp() {
  do {
    const std::vector<Event> news = TRY(follower_.Poll());
    for (const Event& event : news) {
      if (IsAboutDrives(event.kind)) {
        for (const DriveId drive : event.drives) last_of_drive_[drive] = event;
      }
      recent_.push_back(event);
      if (recent_.size() > kMostRecent) recent_.pop_front();
    }
  } while (follower_.is_behind_);
  return {};
}

std::vector<Event> EventLog::OnlyNews(const std::vector<Event>& batch) const {
  std::map<DriveId, Event> last = last_of_drive_;
  std::vector<Event> news;
  for (auto at = batch.begin(); at != batch.end(); ++at) {
    if (std::ranges::find(recent_, *at) != recent_.end()) continue;  // an answer was lost
    if (!IsAboutDrives(at->kind) || !at->work.empty()) {
      news.push_back(*at);
      continue;
    }
    Event told = *at;
    const bool went = told.kind == EventKind::kDriveWent;
    std::erase_if(told.drives, [&](DriveId drive) {
      const auto known = last.find(drive);
      const bool is_away = known != last.end() && known->second.kind == EventKind::kDriveWent;
      if (went == is_away) return true;
      if (known != last.end() && known->second.at >= told.at) return true;
      const auto is_same = [&](const Event& other) {
        return other.kind == told.kind && std::ranges::count(other.drives, drive) > 0 &&
               std::chrono::abs(TimeBetween(other.at, told.at)) < kSameEventWithin;
      };
      const auto is_end = [&](const Event& other) {
        return other.kind == EventKind::kDriveCame && std::ranges::count(other.drives, drive) > 0;
      };
      return went && std::any_of(std::next(at), batch.end(), is_end) &&
             std::ranges::any_of(recent_, is_same);
    });
    if (told.drives.empty()) continue;
    for (const DriveId drive : told.drives) last[drive] = told;
    news.push_back(std::move(told));
  }
  return news;
}

// Appends to the last page, or begins the next one, in the register of the oldest. Each is one
// conditional change, so what others have written in between is seen, and stays.
Status EventLog::Write(const std::vector<Event>& batch) {
  for (;;) {
    TRY(CatchUp());
    std::vector<Event> news = OnlyNews(batch);
    if (news.empty()) return {};
    EventPage page = follower_.head_;
    // Of the register rather than of what we understood: what others could not decode stays.
    std::string bytes = page.number == 0 ? "" : *follower_.head_seen_.value;
    RegisterValue seen = follower_.head_seen_;
    size_t taken = 0;
    const auto fill = [&] {
      for (; taken < news.size(); ++taken) {
        const std::string more = Writer().Text(news[taken].Encode()).Take();
        if (bytes.size() + more.size() > kEventPageBytes) break;
        bytes += more;
      }
    };
    if (page.number != 0) fill();
    if (taken == 0) {
      page = {.number = page.number + 1, .events = {}};
      if (page.number > kMaxEventPage) return Fail(EOVERFLOW, "there are no more pages of events");
      bytes = page.Encode();
      seen = follower_.next_seen_;
      fill();
    }
    const ChangeOutcome outcome = cluster_.registers().Change(
        NameOf(page.number), seen, std::move(bytes), Durability::kWriteThrough);
    // What was refused, because somebody else was there first, is looked at anew; and so is what
    // may have happened, at the next attempt.
    TRY_CONTEXT(outcome.why, "keep events");
  }
}

// Telling -----------------------------------------------------------------------------------------

std::string EventsText(const std::vector<Event>& events, std::string& day) {
  std::string text;
  for (const Event& event : events) {
    const std::string its_day = LocalDayText(event.at);
    if (its_day != day) {
      text += fmt::format("{}{}\n", day.empty() ? "" : "\n", its_day);
      day = its_day;
    }
    const EventLevel level = event.Level();
    text += fmt::format("{}  {:<8}{}\n", LocalTimeOfDayText(event.at),
                        level == EventLevel::kInfo ? "" : NameOf(level), event.Sentence());
  }
  return text;
}

namespace {

nlohmann::ordered_json JsonOf(const Event& event) {
  nlohmann::ordered_json json{{"at", event.at / 1'000'000'000}, {"kind", event.Name()},
                              {"level", NameOf(event.Level())}, {"text", event.Sentence()},
                              {"host", event.actor.host},       {"process", event.actor.process},
                              {"program", event.actor.program}, {"user", event.actor.user}};
  if (!event.drives.empty()) json["drives"] = event.drives;
  if (event.count > 0) json["count"] = event.count;
  if (!event.work.empty()) json["work"] = event.work;
  if (event.result != WorkResult::kNone) json["result"] = ResultName(event.result);
  return json;
}

}  // namespace

std::string EventJson(const Event& event) { return JsonOf(event).dump(); }

std::string EventListJson(const EventList& list, int64_t since) {
  nlohmann::ordered_json json{{"since", since / 1'000'000'000},
                              {"complete", list.reaches_back},
                              {"damaged_pages", list.damaged},
                              {"events", nlohmann::ordered_json::array()}};
  if (list.oldest) json["oldest"] = *list.oldest / 1'000'000'000;
  for (const Event& event : list.events) json["events"].push_back(JsonOf(event));
  return json.dump(2) + "\n";
}

}  // namespace pinstripe
