// Events: what happened in a cluster, for people who ask the next morning. They are kept on the
// drives, in a ring of registers in the group of the drive map (docs/format.md, "Events"), so they
// outlive every host, and the oldest make room for new ones.
//
//   EventLog log(cluster);
//   log.Add({.kind = EventKind::kWorkBegan, .work = "scrub"});     // never waits
//
//   const auto list = ReadEvents(cluster, since);                  // what there is
//   EventFollower follower(cluster);                               // and what comes: Poll() it
//
// They are told as well as it goes. Nothing is safe because of an event, nothing waits for one, and
// what cannot be kept is dropped and counted.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "upkeep/actor.h"

namespace pinstripe {

// Part of the format.
enum class EventKind : uint8_t {
  kDriveWent = 1,       // could not be reached any more
  kDriveCame = 2,       // could again
  kSparesUsed = 3,      // `count` times files were written while drives were away
  kFilesMended = 4,     // `count` files that were written so are whole again
  kDamageFound = 5,     // `count` shards, by `work`
  kDamageMended = 6,    // `count` shards, by `work`
  kWorkBegan = 7,       // `work`
  kWorkEnded = 8,       // `work`, with `result`
  kWorkAsked = 9,       // somebody had `work` pause, go on, end, or be slower
  kConfiguration = 10,  // of the cluster: the drive map, or that it was made, by `work`
  kDropped = 11,        // `count` events that could not be kept
  kDriveCompared = 12,  // had no say before it was compared with the others, for a reason
};

// Part of the format.
enum class WorkResult : uint8_t {
  kNone = 0,     // of events that are about no end
  kDone = 1,     // all of it, and all is in order
  kShort = 2,    // something is left to do or is not known
  kFailed = 3,   // or something is lost
  kStopped = 4,  // somebody asked for that
  kDied = 5,     // its process gave no sign of life any more
};

// As far as a number can say it: times that drives have may be anything.
Duration TimeBetween(int64_t earlier, int64_t later);

enum class EventLevel { kInfo, kWarning, kError };
std::string_view NameOf(EventLevel level);  // "info", "warning", "error"

struct Event {
  EventKind kind = EventKind::kDropped;
  int64_t at = 0;               // by the clock of the actor, nanoseconds since 1970
  Actor actor;                  // who did it, or saw it
  std::vector<DriveId> drives;  // that it is about
  uint64_t count = 0;
  std::string work;  // the command: "scrub"
  WorkResult result = WorkResult::kNone;
  std::string text;     // what else there is to say: ASCII, of one line
  std::string later{};  // what later versions say of it

  EventLevel Level() const;
  std::string Name() const;      // of the kind: "drive-went"; "kind-77" of one that is not known
  std::string Sentence() const;  // without the time

  std::string Encode() const;                           // cuts what is too long
  static Result<Event> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const Event&, const Event&) = default;
};

// The value of a register of the ring.
struct EventPage {
  uint64_t number = 0;  // 1 and up; the register is number modulo kEventPages
  std::vector<Event> events;

  std::string Encode() const;
  // EBADMSG. An event that is damaged by itself is left out.
  static Result<EventPage> Decode(std::string_view bytes);
};

inline constexpr uint64_t kEventPages = 128;
inline constexpr size_t kEventPageBytes = 7 << 10;  // so that a range of registers has it
inline constexpr uint64_t kMaxEventPage = uint64_t{1} << 56;
std::string EventPageKey(uint64_t number);  // "J" U8

// What many hosts see is told by the first of them. A drive that was seen to go at about the same
// time, and is there again, is told once though clocks differ by as much.
inline constexpr Duration kSameEventWithin = std::chrono::minutes(1);

struct EventList {
  std::vector<Event> events;  // ascending by time
  // The oldest that is kept; null: none is.
  std::optional<int64_t> oldest;
  bool reaches_back = true;  // nothing that happened since then was dropped to make room
  uint64_t damaged = 0;      // pages that cannot be understood
};

// Those that happened at `since` or later. EIO: the registers cannot be read.
Result<EventList> ReadEvents(Cluster& cluster, int64_t since);

// For people, in the local time of this process: a line for each day, and one for each event.
// `day` is the last day that was printed, and is kept up to date.
std::string EventsText(const std::vector<Event>& events, std::string& day);
// One object, without an end of line: "at", "kind", "level", "text" and so on.
std::string EventJson(const Event& event);
// All of them in one.
std::string EventListJson(const EventList& list, int64_t since);

// Reads on from where it was. Used by one thread.
class EventFollower {
 public:
  explicit EventFollower(Cluster& cluster) : cluster_(cluster) {}

  // What there is the first time; what has come since, afterwards. Then it costs three small reads.
  // EIO: the registers cannot be read; the next call goes on where this one did not get.
  Result<std::vector<Event>> Poll();

  uint64_t damaged() const { return damaged_; }  // pages that the first call could not understand
  uint64_t page() const { return head_.number; }
  uint64_t first_page() const { return first_page_; }  // that was there at first; 0: none

 private:
  friend class EventLog;
  Status ReadAll(std::vector<Event>& found);
  Status ReadOn(std::vector<Event>& found);

  Cluster& cluster_;
  bool has_read_ = false;
  bool is_behind_ = false;  // the last call could not read all that it saw
  uint64_t first_page_ = 0;
  uint64_t damaged_ = 0;
  EventPage before_;         // head_; whoever was slow may still append to it
  EventPage head_;           // number 0: there is no page
  RegisterValue head_seen_;  // as it was read
  RegisterValue next_seen_;  // the register of the page that would follow
};

// Thread-safe. Has a thread while it writes.
class EventLog {
 public:
  struct Options {
    Actor actor = ThisProcess();
    // Of what a host sees: so many hosts that see the same do not all write at once.
    Duration spread{};
    size_t most_waiting = 256;                  // events; what comes on top is dropped, and counted
    Duration again = std::chrono::seconds(30);  // after a failure
  };

  explicit EventLog(Cluster& cluster) : EventLog(cluster, Options()) {}
  EventLog(Cluster& cluster, Options options);
  ~EventLog();  // drops what waits; Flush() before

  // Sets `at`, unless it is set, and `actor`. Never waits. Drives that went are told only if they
  // were there by the last that anybody told of them, and drives that came only if they were away:
  // whoever begins to watch adds what it finds. What names its `work` is told in any case.
  void Add(Event event);

  // Until all is written, or nothing can be, or the deadline. False: something is left.
  bool Flush(Duration patience = std::chrono::seconds(5));

 private:
  struct Alarm;
  void Run();
  void WaitToSpread();
  std::vector<Event> TakeBatch();
  void PutBack(std::vector<Event> batch);
  Status Write(const std::vector<Event>& batch);
  Status CatchUp();
  std::vector<Event> OnlyNews(const std::vector<Event>& batch) const;

  Cluster& cluster_;
  Runtime& runtime_;
  const Options options_;
  const std::shared_ptr<Signal> flushed_;
  const std::shared_ptr<Alarm> alarm_;  // wakes the thread after a failure
  Mutex mutex_;
  std::deque<Event> waiting_ GUARDED_BY(mutex_);
  uint64_t dropped_ GUARDED_BY(mutex_) = 0;
  bool writing_ GUARDED_BY(mutex_) = false;
  bool failed_ GUARDED_BY(mutex_) = false;  // the last attempt
  bool in_haste_ GUARDED_BY(mutex_) = false;
  // The thread's alone:
  EventFollower follower_;
  std::map<DriveId, Event> last_of_drive_;  // in the ring: that it went or came
  std::deque<Event> recent_;                // the last of the ring
  BackgroundThread thread_;                 // the last member: it uses the others
};

}  // namespace pinstripe
