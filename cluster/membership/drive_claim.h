// DriveClaim: says who works on a drive, so that others leave it to them. The others are the second
// one of two who rebuild it, or all but one of many clients that notice that it has to be looked
// at. A register in the group of the drive map has it (docs/format.md, "Claims").
//
//   DriveClaim claim(cluster, drive, DriveWork::kRebuild);
//   TRY(claim.Take());                    // or claim.Try() now and then, which never waits
//   ... work, while !claim.IsLost() ...   // it is renewed on the side
//   TRY(claim.Check());                   // somebody has taken it over, because we stood still
//                                         // gives it back when it is destroyed
//
// A claim is a courtesy, and no lock. The holder of a claim may be stopped for any time, and go on
// when somebody else has taken over. Whatever is done under it is safe without it, by conditions on
// what it changes. So nothing depends on how clocks run. All that a claim saves is work done twice.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/map/drive_map.h"
#include "cluster/registers/store.h"

namespace pinstripe {

// Part of the format.
enum class DriveWork : uint8_t {
  kRebuild = 1,  // an empty device takes its place
  kDrain = 2,    // everything is moved off it
  kExpand = 3,   // it is added, taken back, or given another weight
  kCompare = 4,  // what it holds is compared with what others hold
  kRepair = 5,   // of the whole cluster: what files lack is written again
  kScrub = 6,    // of the whole cluster: everything is read, too
  kCare = 7,     // of the whole cluster: what is due is done, by one at a time
};

// No drive has this number. A process that repairs a cluster says so under it, so that others know;
// several may.
inline constexpr DriveId kWholeCluster = 0;

// A drive, or the drive map, which is none of them: a process says under it that it makes epochs,
// as long as it does. Two at a time would wait for each other, and one of them in vain.
using ClaimSubject = uint32_t;
inline constexpr ClaimSubject kDriveMap = UINT32_C(1) << 16;

// The value of the register.
struct DriveClaimRecord {
  DriveWork work = DriveWork::kRebuild;
  std::string host;               // 1 to 255 printable characters of ASCII
  uint32_t process = 0;           // there
  std::array<uint8_t, 16> run{};  // at random, for each claim: not taken for another of one process
  int64_t since = 0;              // by the clock of the host, nanoseconds since 1970
  int64_t renewed = 0;            // so, too: the last sign of life, for people

  std::string Encode() const;
  static Result<DriveClaimRecord> Decode(std::string_view bytes);  // EBADMSG

  // "drive 4 is being rebuilt by process 123 on box1 since 2026-11-24 19:30:12 UTC, with a last
  // sign of life at 19:31:02"
  std::string Text(ClaimSubject subject) const;
};

// Printable characters of ASCII without blanks, 1 to 255 of them.
std::string NameOfThisHost();

// In the group of the map.
std::string DriveClaimKey(ClaimSubject subject);  // "W" U16, of the drive map "W"
std::string CareClaimKey();                       // "W" U16(0) U8(7)

// The processes that have claims at this moment, alive or not.
struct FoundClaims {
  std::map<ClaimSubject, DriveClaimRecord> found;
  std::map<ClaimSubject, Status> unread;  // there may be one, and why nobody can tell
  bool IsKnown(ClaimSubject subject) const { return !unread.contains(subject); }
  // "who works on drives 2 and 5 cannot be found out: ..."; empty when all could be read.
  std::string TextOfUnread() const;
};
FoundClaims FindDriveClaims(Cluster& cluster, const std::set<ClaimSubject>& subjects);

struct DriveClaimOptions {
  Duration renewed_every = std::chrono::seconds(5);
  // When it has not been renewed for so long, by the clock of the watcher, it may be taken over.
  Duration given_up_after = std::chrono::seconds(30);
  std::string host;      // empty: the name of this machine
  uint32_t process = 0;  // 0: this one
};

// Used by one thread, but for IsLost() and Check(). Has a thread of its own while it is held. The
// cluster outlives it.
class DriveClaim {
 public:
  DriveClaim(Cluster& cluster, ClaimSubject subject, DriveWork work,
             DriveClaimOptions options = {});
  ~DriveClaim();  // gives it back
  DriveClaim(const DriveClaim&) = delete;
  DriveClaim& operator=(const DriveClaim&) = delete;

  // Takes it if it is free, or was seen to stand still for long enough by calls of this. EBUSY:
  // somebody else has it; the message says who, and since when. EIO: it could not be found out.
  Status Try();

  // Waits until it is ours, or somebody else is seen to be at work: EBUSY, within a few seconds.
  // A holder who stands still is waited for. `waiting` is called once, when that begins, with who
  // it is.
  Status Take(const std::function<void(const Status& who)>& waiting = nullptr);

  // Somebody else has taken it over.
  bool IsLost() const;
  // EBUSY when it is lost; the message says who has it.
  Status Check() const;

  void GiveBack();

 private:
  Status Claim(const RegisterValue& seen);
  Status Busy(const RegisterValue& seen);
  bool IsOurs(const RegisterValue& value) const;
  void KeepRenewing();
  bool Renew();
  void Lose(const RegisterValue& now);

  Cluster& cluster_;
  Runtime& runtime_;
  const ClaimSubject subject_;
  const DriveClaimOptions options_;
  const RegisterName name_;
  // Somebody else's, as it is watched:
  std::optional<uint64_t> watched_slot_;
  Time still_since_{};
  bool is_alive_ = false;
  DriveClaimRecord ours_;  // the renewing thread's, while there is one
  RegisterValue seen_;     // so, too: the register as we left it
  const std::shared_ptr<Signal> wake_;
  const std::shared_ptr<Signal> ended_;
  mutable Mutex mutex_;
  bool renewing_ GUARDED_BY(mutex_) = false;  // there is a thread
  bool stopping_ GUARDED_BY(mutex_) = false;
  Status lost_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
