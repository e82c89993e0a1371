#include "upkeep/scrubber.h"

#include <algorithm>
#include <utility>

#include "base/attempts.h"
#include "base/coding.h"
#include "base/try.h"
#include "cluster/membership/group_work.h"
#include "upkeep/events.h"

namespace pinstripe {
namespace {

constexpr Duration kSignEvery = std::chrono::seconds(5);
constexpr Duration kWatchOthersEvery = std::chrono::seconds(1);

RegisterName NoteName() { return {kMapGroup, ScrubNoteKey()}; }

ScrubId NewId(Runtime& runtime) {
  const std::string random = Writer().U64(runtime.Random()).U64(runtime.Random()).Take();
  ScrubId id{};
  std::ranges::copy(random, id.begin());
  id[0] |= 1;  // zeros are nobody
  return id;
}

// What it tells of how far it is reaches others through us.
Repairer::Options ForReading(Repairer::Options options, const std::function<void()>& live) {
  options.read_all = true;
  options.progress = [told = std::move(options.progress), live](std::string_view phase, double done,
                                                                uint64_t bytes) {
    live();
    if (told) told(phase, done, bytes);
  };
  return options;
}

}  // namespace

Scrubber::Scrubber(Cluster& cluster, Options options)
    : cluster_(cluster),
      runtime_(cluster.runtime()),
      options_(std::move(options)),
      ours_(NewId(runtime_)),
      repairer_(cluster, ForReading(options_.repair, [this] { ShowLife(); })) {}

Scrubber::~Scrubber() {
  if (!part_ && !HasSomethingToTell()) return;
  (void)Change([this](ScrubNote& note) {
    if (part_) (void)note.Advance(ours_, part_->next);
    note.Release(ours_);
    return true;
  });
}

// ---- The note

// What this process has found goes with every change.
Status Scrubber::Change(const Edit& edit) {
  for (Attempts attempts; attempts.Next();) {
    const RegisterValue seen = TRY(cluster_.registers().Read(NoteName()));
    auto note = seen.value ? ScrubNote::Decode(*seen.value)
                           : Result<ScrubNote>(Fail(ESTALE, "it has come to its end"));
    if (!note.has_value() || note->id != note_.id) {
      return Fail(ESTALE, "the scrub was ended or begun anew by somebody else");
    }
    note_ = *std::move(note);
    ScrubNote wanted = note_;
    // Before anything else: the round may come to its end.
    if (read_again_) wanted.ReadAgain(*read_again_, unread_, away_);
    if (!edit(wanted)) return {};
    wanted.found.Add(untold_);
    wanted.touched = runtime_.WallClock();
    const auto outcome = cluster_.registers().Change(NoteName(), seen, wanted.Encode());
    TRY(outcome.why);
    if (outcome.applied()) {
      note_ = std::move(wanted);
      untold_ = {};
      read_again_.reset();
      unread_ = 0;
      away_.clear();
      return {};
    }
    attempts.Pause(runtime_);
  }
  return Fail(EIO, "others change what is noted of the scrub at this moment, again and again");
}

// Goes on with what others have begun, or begins.
Status Scrubber::Join() {
  for (Attempts attempts; attempts.Next();) {
    const RegisterValue seen = TRY(cluster_.registers().Read(NoteName()));
    const int64_t now = runtime_.WallClock();
    if (seen.value) {
      auto note = ScrubNote::Decode(*seen.value);
      // What cannot be understood says nothing, and is begun anew.
      const bool is_known = note.has_value() && note->groups == cluster_.map().groups;
      bool is_stale = is_known && TimeBetween(note->touched, now) >= kScrubIsStaleAfter;
      if (is_known) note_ = *std::move(note);
      if (is_known && (is_stale || options_.anew)) {
        const std::optional<bool> lives = OneLives();
        if (!lives) {
          if (!GoOn("looking whether others still scrub")) return {};
          Sleep(runtime_, runtime_.Now() + kWatchOthersEvery);
          continue;
        }
        if (*lives && options_.anew) return Fail(EBUSY, "others scrub the cluster at this moment");
        is_stale &= !*lives;
      }
      if (is_known && !is_stale && !options_.anew) {
        if (options_.goes_on) options_.goes_on(note_);
        return {};
      }
    }
    if (options_.only_join) return Fail(ESTALE, "it has come to its end");
    const ScrubNote begun = ScrubNote::Begin(NewId(runtime_), now, cluster_.map().groups);
    const auto outcome = cluster_.registers().Change(NoteName(), seen, begun.Encode());
    TRY(outcome.why);
    if (!outcome.applied()) continue;
    note_ = begun;
    return {};
  }
  return Fail(EIO, "others change what is noted of the scrub at this moment, again and again");
}

// ---- Who lives

void Scrubber::Watch() {
  const Time now = runtime_.Now();
  std::map<ScrubId, Watched> seen;
  for (const ScrubPart& part : note_.left) {
    if (part.IsFree() || part.reader == ours_) continue;
    const auto before = watched_.find(part.reader);
    const bool is_new = before == watched_.end();
    if (is_new || before->second.signs != part.signs) {
      seen[part.reader] = {.signs = part.signs, .since = now, .lives = !is_new};
    } else {
      seen[part.reader] = before->second;
    }
  }
  watched_ = std::move(seen);
}

std::set<ScrubId> Scrubber::Dead() const {
  std::set<ScrubId> dead;
  for (const auto& [reader, watched] : watched_) {
    if (runtime_.Now() - watched.since >= kScrubReaderIsDeadAfter) dead.insert(reader);
  }
  return dead;
}

std::optional<bool> Scrubber::OneLives() {
  Watch();
  const auto lives = [](const auto& reader) { return reader.second.lives; };
  if (std::ranges::any_of(watched_, lives)) return true;
  return Dead().size() == watched_.size() ? std::optional(false) : std::nullopt;
}

// Whether all of them have shown that they live, since we look.
bool Scrubber::AllLive() const {
  return std::ranges::all_of(watched_, [](const auto& one) { return one.second.lives; });
}

// ---- Reading

Result<Scrubber::Ended> Scrubber::Read() {
  const auto ended = TryToRead();
  if (ended.has_value() || ended.error().code() != ESTALE) return ended;
  part_.reset();
  return Ended::kOthersRead;
}

Result<Scrubber::Ended> Scrubber::TryToRead() {
  TRY(Join());
  for (;;) {
    if (!GoOn("scrubbing")) return Ended::kStopped;
    TRY(Change([this](ScrubNote& note) {
      Watch();
      part_ = note.Take(ours_, Dead());
      return part_.has_value() || HasSomethingToTell();
    }));
    if (part_) {
      next_sign_ = runtime_.Now() + kSignEvery;
      if (note_.IsEnd(*part_)) return Ended::kAllIsRead;
      TRY(ReadPart());
      continue;
    }
    if (AllLive()) return Ended::kOthersRead;
    if (!GoOn("looking whether others still read the rest")) return Ended::kStopped;
    Sleep(runtime_, runtime_.Now() + kWatchOthersEvery);
  }
}

Status Scrubber::ReadPart() {
  while (part_ && !stopped_) {
    const ScrubPlace first = part_->next;
    const double done = note_.Done();
    const double all = note_.groups;
    auto read = repairer_.ScrubGroups(first, part_->end, done,
                                      done + (part_->end.group - first.group) / all);
    const bool counts = GoOn("scrubbing") && part_;  // else it is read once more
    if (!counts) read.found.unread = 0;
    if (note_.round == 1 && read.found.unread > 0) {
      // The second time counts.
      unread_ += std::exchange(read.found.unread, 0);
      away_.merge(read.away);
      const GroupRange range{first.group, std::min(read.next.group + 1, note_.groups)};
      const GroupRange before = read_again_.value_or(range);
      read_again_ = {std::min(before.first, range.first), range.end};
    }
    own_.Add(read.found);
    untold_.Add(read.found);
    if (!counts) break;
    part_->next = read.next;
    const bool is_read = part_->next >= part_->end;
    if (!is_read && runtime_.Now() < next_sign_) continue;
    const Status told = GiveSign();
    if (is_read || told.code() == ESTALE) TRY(told);
  }
  return {};
}

// And says how far it is.
Status Scrubber::GiveSign() {
  next_sign_ = runtime_.Now() + kSignEvery;
  std::optional<ScrubPlace> end;
  TRY(Change([&](ScrubNote& note) {
    const std::set<DriveId> away = DrivesAway();
    const bool one_is_back =
        std::ranges::any_of(note.away, [&](DriveId id) { return !away.contains(id); });
    end = note.Advance(ours_, part_->next, one_is_back);
    return true;
  }));
  if (!end || part_->next >= *end) {
    part_.reset();
  } else {
    part_->end = *end;
  }
  return {};
}

bool Scrubber::HasSomethingToTell() const { return read_again_ || untold_ != ScrubFound(); }

void Scrubber::ShowLife() {
  if (!part_ || runtime_.Now() < next_sign_) return;
  (void)GiveSign();  // the next one may come through
}

std::set<DriveId> Scrubber::DrivesAway() const {
  std::set<DriveId> away;
  for (const MappedDrive& mapped : cluster_.map().drives) {
    const Drive* drive = cluster_.FindDrive(mapped.id);
    if (drive == nullptr || !drive->IsUp()) away.insert(mapped.id);
  }
  return away;
}

bool Scrubber::GoOn(std::string_view phase) {
  if (options_.repair.progress) {
    const uint64_t bytes = own_.bytes_read + own_.bytes_written;
    options_.repair.progress(phase, note_.Done(), bytes);
  }
  if (options_.repair.go_on && !options_.repair.go_on()) stopped_ = true;
  return !stopped_;
}

Status Scrubber::Forget() {
  part_.reset();
  const RegisterValue seen = TRY(cluster_.registers().Read(NoteName()));
  const auto note = seen.value ? ScrubNote::Decode(*seen.value) : Result<ScrubNote>(ScrubNote());
  if (!note.has_value() || note->id != note_.id) return {};
  return cluster_.registers().Change(NoteName(), seen, std::nullopt).why;
}

}  // namespace pinstripe
