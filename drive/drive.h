// Drive: one key-value store, asked asynchronously. This is the waist of the system: cluster/ and
// everything above it know drives only through this interface, and everything is tested by putting
// another implementation behind it.
//
// Implementations: KineticDrive (a device behind a socket), RedisDrive (a store of the Redis
// protocol), EngineDrive (an etcd or a PostgreSQL that keeps names), MemoryDrive and LocalDrive
// (the daemon's own engine in this process), FaultyDrive (misbehaves on command; tests/support).
//
// Keys are 1..4096 arbitrary bytes, ordered as unsigned bytes, a prefix first. A record has a value
// of at most 1 MiB, a version of at most 2048 bytes and a tag of at most 128. An entry that does
// not exist has the empty version; so does one that was put with an empty version.
//
// Every operation takes a deadline (Terms) and answers exactly once, with a result or a failure.
// The answer comes on a thread of the runtime or of the drive, never inside the call and never
// under a lock of the caller. A drive that answers others meanwhile may take up to four times as
// long as it was given. A callback does little and never waits. Operations outstanding when a Drive
// is destroyed are answered (EHOSTUNREACH) before its destructor returns. An operation that failed
// with ETIMEDOUT or EHOSTUNREACH may have been executed, or may still be. One that answered ESTALE
// changed nothing: a drive never sends a request again by itself. Operations may be executed in any
// order.
//
// Failures: ENOENT no such key; ESTALE the version is another one; EBADMSG the drive found its
// record damaged, or answered with another one, or got another value to put than was signed; ENOSPC
// full; EINVAL a size is over a limit; ECANCELED a put's guard has another version than it must;
// EACCES refused for this identity; EREMCHG it has a later cluster version; EHOSTUNREACH away (not
// connected; fails at once), not the drive it should be, or it confirmed another change than the
// one that was asked for; ETIMEDOUT; ENOTSUP the drive lacks the capability; EIO anything else. The
// message names the drive.
//
// Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/latency_histogram.h"
#include "base/runtime.h"
#include "base/status.h"
#include "drive/slow_operation.h"

namespace pinstripe {

inline constexpr size_t kMaxKeyBytes = 4096;
inline constexpr size_t kMaxValueBytes = 1 << 20;
inline constexpr size_t kMaxVersionBytes = 2048;
inline constexpr size_t kMaxTagBytes = 128;
inline constexpr uint32_t kMaxRangeKeys = 200;  // what every device can answer at once

// How many entries of a range can come at once with their values; fewer where they are large.
inline constexpr uint32_t kMaxRangeRecords = 4096;

// When a change must be safe from power loss. Either way it survives a kill of the drive's process.
enum class Durability {
  kWriteBack,     // with the next Flush()
  kWriteThrough,  // before the answer
};

// The part of a drive's space that a put may take. Data does not take what is held back for names,
// and names do not take what is held back for freeing space. So a drive that is full of data still
// takes what is needed to remove some. A drive that does not know of it has one kind of space.
enum class Room : uint8_t {
  kData = 0,     // contents of files
  kRepair = 1,   // what makes data whole again
  kNames = 2,    // names and inodes
  kFreeing = 3,  // what removes something, finishes what was begun, or tells of the drives
};

// What a change requires of the entry as it is. An entry that is not there has the empty version.
class Expected {
 public:
  static Expected Any() { return Expected(std::nullopt); }
  static Expected Absent() { return Expected(std::string()); }
  static Expected Version(std::string version) { return Expected(std::move(version)); }

  // Null: anything will do.
  const std::optional<std::string>& version() const { return version_; }

 private:
  explicit Expected(std::optional<std::string> version) : version_(std::move(version)) {}
  std::optional<std::string> version_;
};

// What a put depends on beside the record that it replaces: another record of the same drive, which
// must have this version when the put is made (Expected::Absent(): must not be there). Both are one
// step: nobody changes either record between the look at them and the put.
struct Guard {
  std::string key;    // not the one that is put
  Expected expected;  // not Expected::Any()
};

// A part of a version: its first `head` bytes, and `length` more from `offset` on. Bytes beyond its
// end are left out.
struct VersionPart {
  uint32_t head = UINT32_MAX;
  uint32_t offset = 0;
  uint32_t length = 0;
  bool whole() const { return head == UINT32_MAX; }
  std::string CutFrom(std::string_view version) const {
    std::string part(version.substr(0, head));
    if (offset < version.size()) part += version.substr(offset, length);
    return part;
  }
  friend bool operator==(const VersionPart&, const VersionPart&) = default;
};

// A part of a value. Bytes beyond its end are left out, so a range may come back short or empty.
struct ValueRange {
  uint32_t offset = 0;
  uint32_t length = UINT32_MAX;
  VersionPart version{};  // that comes with it
  // Of the whole: it is small, and likely to have no more bytes than these. Then the question and
  // its answer may share their messages with others that are asked at the same time
  // (base/send_together.h). 0: nobody knows.
  uint32_t likely_bytes = 0;
  bool whole() const { return offset == 0 && length == UINT32_MAX; }
};

inline constexpr ValueRange kSmallRecord{.likely_bytes = 512};

struct Record {
  std::string version;
  std::string tag;    // 4 bytes: CRC32C of the whole value, big-endian (Kinetic algorithm 4)
  SharedBytes value;  // or the part that was asked for
};

struct RecordHead {
  std::string version;
  std::string tag;
};

struct KeyedRecord {
  std::string key;
  Record record;
};

// An entry of a range.
struct RangeRecord {
  std::string key;
  Record record;  // without a value where has_value is not set
  bool has_value = false;
  bool damaged = false;  // the drive cannot read it; nothing else is known of it
};
struct RangeRecords {
  std::vector<RangeRecord> records;
  bool more = false;  // there may be further ones in the range
};

// A start of what serves a drive. A drive may forget, with the machine's power or by a disk that
// fails, changes that it has answered and not flushed; after a clean start it has not.
struct DriveStart {
  uint64_t id = 0;  // by chance, never 0; another one for each start
  bool clean = false;

  friend bool operator==(const DriveStart&, const DriveStart&) = default;
};
inline constexpr size_t kMaxDriveStarts = 64;

struct DriveInfo {
  uint64_t capacity_bytes = 0;
  double portion_full = 0;  // 0..1
  double temperature_celsius = 0;
  std::string vendor;
  std::string model;
  std::string serial_number;
  std::string world_wide_name;
  std::string software_version;
  std::string protocol_version;
  std::string
      failure;  // why it takes no changes any more and only serves reads; empty: it does not say

  // Its last starts, newest first, at most kMaxDriveStarts and all different; empty: it does not
  // say. A client that knows the drive by the id of a start knows what the drive may have forgotten
  // since. If all newer starts are clean, it has forgotten nothing. If one is not, or that id is
  // not there any more, it may have forgotten whatever was not flushed. (An id is missing if the
  // drive goes on from a copy, was erased, or was started very often.)
  std::vector<DriveStart> starts;
  uint64_t start_count =
      0;  // of all, since it was made or erased; no less than there are in `starts`
  // If an unclean start among them has forgotten something, that was answered longer ago than this.
  // As a rule that is how long the machine is up; less after a start that was unclean though the
  // machine had not gone down. Null: it does not say.
  std::optional<Duration> up;
  // We have closed the connection, as nobody used it, and this one goes on with the same start.
  bool goes_on = false;
};

// What a drive can do beyond the Kinetic core. Asked for, never assumed.
struct DriveCapabilities {
  bool range_get = false;      // Get() of a part of a value moves only that part
  bool version_part = false;   // so it does of a version
  bool range_records = false;  // ListRecords() is one request
  bool rooms = false;          // PutRequest::room counts
  bool bound = false;          // it refuses what was said elsewhere or before, and altered values
  bool unerased = false;       // it answers nothing more to who knew it before it was erased
  bool clients = false;        // it tells who uses it, and wants to know who we are
  bool slow = false;           // it tells what took long, and wants to know what did for us
  bool guards = false;         // it takes puts with a guard
  bool puts = false;           // several small puts may travel in one message
  bool then_gets = false;      // PutThenGet() is one request
  bool gets = false;           // several Get() of kSmallRecord may travel in one message
};

// How a drive has answered so far, as whoever asks it sees it. Thread-safe.
struct DriveTimes {
  LatencyHistogram reads;   // from when a request is sent to its answer, of those that come
  LatencyHistogram writes;  // changes and flushes
  std::atomic<uint64_t> read_bytes = 0;     // of values
  std::atomic<uint64_t> written_bytes = 0;  // likewise
  std::atomic<uint64_t> failures = 0;  // answers that are one: not a missing key, nor a version
  std::atomic<uint64_t> timeouts = 0;  // answers that did not come in time
};

// What an operation is asked under: until when an answer is wanted and, if that matters, which
// cluster version the drive must have. Drives keep that number, 0 at first, as a fence between
// those who know of a change and those who do not (cluster/map/drive_map.h). A drive of a later
// version refuses with EREMCHG, and has changed nothing; one of an earlier version is brought to
// this one first.
struct Terms {
  Terms(Time deadline_in,  // NOLINT: most operations have nothing else
        std::optional<int64_t> cluster_version_in = std::nullopt)
      : deadline(deadline_in), cluster_version(cluster_version_in) {}

  Time deadline;
  std::optional<int64_t> cluster_version;  // null: whatever the drive has
};

template <typename T>
using Callback = std::function<void(Result<T>)>;
using StatusCallback = std::function<void(Status)>;

class Drive {
 public:
  virtual ~Drive() = default;

  // For messages: "drive 3 (127.0.0.1:8103)".
  virtual std::string_view name() const = 0;

  virtual DriveCapabilities capabilities() const = 0;

  // Whether operations can be expected to reach it now. A hint: what it says may change at once.
  virtual bool IsUp() const = 0;
  // Why not, where more is known than that: for messages, after the drive's name.
  virtual std::string WhyAway() const { return "away"; }

  // How often it was lost so far. It may have lost its power then, and with it what it had
  // acknowledged and not flushed: a Flush() after a loss says nothing about what was put before.
  virtual uint64_t CountLosses() const = 0;

  // Null: nobody counts. As long as the drive.
  virtual const DriveTimes* times() const { return nullptr; }

  // The requests of these operations of this process (base/operation_trace.h) that took long, or
  // are still unanswered; not all where there are many.
  virtual std::vector<WaitedRequest> WaitedFor(std::span<const uint64_t> /*operations*/) const {
    return {};
  }
  // Tells a drive that wants to know (DriveCapabilities::slow), at most kMostToldOperations.
  // Nobody hears whether it came to know.
  virtual void Tell(std::vector<SlowOperation> /*operations*/, Terms /*terms*/) {}

  // The record, or the part of its value and version in `range`. A drive without range_get, or
  // version_part, is asked for all of it and the part is cut out here.
  virtual void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) = 0;

  // Version and tag without the value.
  virtual void Head(std::string key, Terms terms, Callback<RecordHead> done) = 0;

  struct PutRequest {
    std::string key;
    SharedBytes value;
    std::string version;  // the entry's version from now on
    std::string tag;      // as in Record; none: a drive behind a socket takes the sum itself
    Expected expected = Expected::Any();
    Durability durability = Durability::kWriteBack;
    Room room = Room::kData;
    std::optional<Guard> guard = {};
  };
  // Of a put with a guard that fails nothing was changed. ESTALE comes first: whoever has made this
  // put before, and did not hear of it, learns that it is done, whatever became of the guard since.
  // So ECANCELED says that the record itself is as expected. A drive without `guards` never ignores
  // one, but answers ENOTSUP.
  virtual void Put(PutRequest request, Terms terms, StatusCallback done) = 0;

  // A put, and if it was made a look at the record `key` of this drive: Get() of the whole, after
  // the put took effect. So it sees the put, and whatever this drive had answered before.
  // A drive with then_gets has both in one message, also with the puts that a SendTogether sends
  // along (base/send_together.h). It makes the reads after all puts of their message.
  //
  // Each callback is called once; `read` with the failure of the put where that failed. Where one
  // answer tells of both, `read` comes first: whoever waits for the put finds the record there.
  // A read may fail though the put was made, as any Get(). A drive without then_gets is asked for
  // one after the other, both under these terms.
  virtual void PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                          Callback<Record> read) {
    Put(std::move(request), terms,
        [this, key = std::move(key), terms, done = std::move(done),
         read = std::move(read)](const Status& put) {
          if (put.ok()) {
            Get(key, {}, terms, read);
          } else {
            read(tl::unexpected(put));
          }
          done(put);
        });
  }

  // ENOENT when there is no such key and a version was expected. With Any, success means that there
  // is none any more: a drive may not tell whether there was one.
  virtual void Delete(std::string key, Expected expected, Durability durability, Terms terms,
                      StatusCallback done) = 0;

  // Keys from `first` to `last`, both included, at most `max` of them (1..kMaxRangeKeys), lowest
  // first, or with `reverse` highest first. Fewer than `max` means that there are no more.
  virtual void Range(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
                     Callback<std::vector<std::string>> done) = 0;

  // The entries whose keys Range() would give, at most `max` of them (1..kMaxRangeRecords), each
  // with version and tag, and with its value if that has at most `value_limit` bytes. Ends before
  // `max` where the answer would become too large; `more` tells. A drive without range_records is
  // asked for keys first, then for each entry, and tells of at most kMaxRangeKeys at a time.
  virtual void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                           uint32_t value_limit, Terms terms, Callback<RangeRecords> done) = 0;

  // Everything acknowledged before is safe from power loss after.
  virtual void Flush(Terms terms, StatusCallback done) = 0;

  virtual void Info(Terms terms, Callback<DriveInfo> done) = 0;

  // Sets the cluster version, durably, also to a lower one. For making a new cluster of drives that
  // were another's. Everybody else raises it by asking for something under Terms.
  virtual void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) = 0;
};

}  // namespace pinstripe
