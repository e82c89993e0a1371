#include "cluster/membership/drive_claim.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "base/time_text.h"
#include "base/try.h"
#include "cluster/membership/group_work.h"

namespace pinstripe {
namespace {

constexpr uint8_t kClaimFormat = 1;
constexpr size_t kMaxHostBytes = 255;
constexpr Duration kLook = std::chrono::seconds(1);

bool IsPrintable(char c) { return c > ' ' && c <= '~'; }

std::string_view Doing(DriveWork work) {
  switch (work) {
    case DriveWork::kRebuild: return "rebuilt";
    case DriveWork::kDrain: return "drained";
    case DriveWork::kExpand: return "added or given another part";
    case DriveWork::kCompare: return "compared with the others";
    case DriveWork::kRepair: return "repaired";
    case DriveWork::kScrub: return "scrubbed";
    case DriveWork::kCare: return "looked after";
  }
  return "worked on";
}

// The subject of a claim.
std::string Subject(ClaimSubject subject) {
  if (subject == kWholeCluster) return "the cluster";
  return subject == kDriveMap ? "the drive map" : fmt::format("drive {}", subject);
}

}  // namespace

std::string NameOfThisHost() {
  char name[kMaxHostBytes + 1] = {};
  if (gethostname(name, kMaxHostBytes) != 0) return "?";
  std::string host(name);
  std::replace_if(
      host.begin(), host.end(), [](char c) { return !IsPrintable(c); }, '?');
  return host.empty() ? "?" : host;
}

std::string DriveClaimKey(ClaimSubject subject) {
  if (subject == kDriveMap) return "W";
  return Writer().Raw("W").U16(static_cast<DriveId>(subject)).Take();
}

std::string CareClaimKey() {
  return Writer().Raw("W").U16(kWholeCluster).U8(static_cast<uint8_t>(DriveWork::kCare)).Take();
}

std::string DriveClaimRecord::Encode() const {
  Writer out;
  out.U8(kClaimFormat).U8(static_cast<uint8_t>(work)).Text(host).U32(process);
  out.Raw(AsText(std::as_bytes(std::span(run))));
  out.U64(static_cast<uint64_t>(since)).U64(static_cast<uint64_t>(renewed));
  return out.Take();
}

Result<DriveClaimRecord> DriveClaimRecord::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kClaimFormat) {
    return Fail(EBADMSG, "claim on a drive: format {} is not known here (known: {})", format,
                kClaimFormat);
  }
  DriveClaimRecord record;
  record.work = static_cast<DriveWork>(in.U8());
  record.host = in.Text();
  record.process = in.U32();
  const std::string_view run = in.Raw(record.run.size());
  record.since = static_cast<int64_t>(in.U64());
  record.renewed = static_cast<int64_t>(in.U64());
  TRY(in.Finish("claim on a drive"));
  std::copy(run.begin(), run.end(), record.run.begin());
  if (record.work < DriveWork::kRebuild || record.work > DriveWork::kCare) {
    return Fail(EBADMSG, "claim on a drive: what is done is not known here");
  }
  if (record.host.empty() || record.host.size() > kMaxHostBytes ||
      !std::all_of(record.host.begin(), record.host.end(), IsPrintable)) {
    return Fail(EBADMSG, "claim on a drive: the name of the host is none");
  }
  return record;
}

std::string DriveClaimRecord::Text(ClaimSubject subject) const {
  const std::string_view doing = subject == kDriveMap ? "changed" : Doing(work);
  return fmt::format("{} is being {} by process {} on {} since {}, with a last sign of life at {}",
                     Subject(subject), doing, process, host, TimeText(since),
                     TimeOfDayText(renewed));
}

std::string FoundClaims::TextOfUnread() const {
  if (unread.empty()) return "";
  std::vector<std::string> texts;
  for (const auto& [subject, why] : unread) texts.push_back(Subject(subject));
  return fmt::format("who works on {} cannot be found out: {}", fmt::join(texts, ", "),
                     unread.begin()->second.message());
}

FoundClaims FindDriveClaims(Cluster& cluster, const std::set<ClaimSubject>& subjects) {
  std::vector<RegisterName> names;
  for (const ClaimSubject id : subjects) names.push_back({kMapGroup, DriveClaimKey(id)});
  const auto values = cluster.registers().ReadMany(names);
  FoundClaims claims;
  auto value = values.begin();
  for (const ClaimSubject id : subjects) {
    const auto& answer = *value++;
    if (!answer.has_value()) {
      claims.unread.emplace(id, answer.error());
    } else if (answer->value.has_value()) {
      auto record = DriveClaimRecord::Decode(*answer->value);
      if (record.has_value()) {
        claims.found.emplace(id, *std::move(record));
      } else {
        claims.unread.emplace(id, record.error());
      }
    }
  }
  return claims;
}

DriveClaim::DriveClaim(Cluster& cluster, ClaimSubject subject, DriveWork work,
                       DriveClaimOptions options)
    : cluster_(cluster),
      runtime_(cluster.runtime()),
      subject_(subject),
      options_(std::move(options)),
      name_{kMapGroup, work == DriveWork::kCare ? CareClaimKey() : DriveClaimKey(subject)},
      wake_(runtime_.NewSignal()),
      ended_(runtime_.NewSignal()) {
  ours_.work = work;
  ours_.host = options_.host.empty() ? NameOfThisHost() : options_.host;
  ours_.process = options_.process != 0 ? options_.process : static_cast<uint32_t>(getpid());
}

DriveClaim::~DriveClaim() { GiveBack(); }

// Taking it ---------------------------------------------------------------------------------------

Status DriveClaim::Try() {
  {
    const MutexLock lock(mutex_);
    if (renewing_) return lost_;
  }
  const RegisterValue seen =
      TRY_CONTEXT(cluster_.registers().Read(name_), "find out who works on {}", Subject(subject_));
  if (!seen.value.has_value() || IsOurs(seen)) return Claim(seen);
  is_alive_ |= watched_slot_.has_value() && *watched_slot_ != seen.slot;
  if (watched_slot_ != seen.slot) {
    watched_slot_ = seen.slot;
    still_since_ = runtime_.Now();
  }
  if (runtime_.Now() - still_since_ < options_.given_up_after) return Busy(seen);
  return Claim(seen);
}

Status DriveClaim::Take(const std::function<void(const Status& who)>& waiting) {
  bool told = waiting == nullptr;
  is_alive_ = false;
  for (;;) {
    const Status status = Try();
    if (status.code() != EBUSY || is_alive_) return status;
    if (!std::exchange(told, true)) waiting(status);
    Sleep(runtime_, runtime_.Now() + kLook);
  }
}

Status DriveClaim::Claim(const RegisterValue& seen) {
  for (size_t i = 0; i < ours_.run.size(); i += 8) {
    const std::string random = Writer().U64(runtime_.Random()).Take();
    std::copy(random.begin(), random.end(), ours_.run.begin() + static_cast<ptrdiff_t>(i));
  }
  ours_.since = runtime_.WallClock();
  ours_.renewed = ours_.since;
  const ChangeOutcome outcome = cluster_.registers().Change(name_, seen, ours_.Encode());
  TRY_CONTEXT(outcome.why, "say that {} is worked on", Subject(subject_));
  if (!outcome.applied()) {
    is_alive_ = true;
    return Busy(outcome.now);
  }
  if (seen.value.has_value() && !IsOurs(seen)) {
    Log(LogLevel::kWarn, "took over from who does not work any more",
        {{"of", Subject(subject_)}, {"from", Busy(seen)}});
  }
  seen_ = outcome.now;
  {
    const MutexLock lock(mutex_);
    renewing_ = true;
    stopping_ = false;
    lost_ = Status();
  }
  runtime_.Spawn("claim", [this] { KeepRenewing(); });
  return {};
}

Status DriveClaim::Busy(const RegisterValue& seen) {
  if (!seen.value.has_value()) {
    return Fail(EBUSY, "{} was worked on by somebody else just now", Subject(subject_));
  }
  const auto record = DriveClaimRecord::Decode(*seen.value);
  if (!record.has_value()) {
    return Fail(EBUSY, "{} is being worked on by somebody else: {}", Subject(subject_),
                record.error().message());
  }
  return Fail(EBUSY, "{}", record->Text(subject_));
}

bool DriveClaim::IsOurs(const RegisterValue& value) const {
  if (!value.value.has_value()) return false;
  const auto record = DriveClaimRecord::Decode(*value.value);
  return record.has_value() && record->run == ours_.run;
}

// Keeping it --------------------------------------------------------------------------------------

void DriveClaim::KeepRenewing() {
  for (;;) {
    wake_->WaitUntil(runtime_.Now() + options_.renewed_every);
    {
      const MutexLock lock(mutex_);
      if (stopping_) break;
    }
    if (!Renew()) break;
  }
  bool give_back = false;
  {
    const MutexLock lock(mutex_);
    give_back = lost_.ok();
  }
  // A waiter that cannot be told waits a little longer. Written through, so that a loss of power
  // does not bring it back.
  if (give_back) {
    (void)cluster_.registers().Change(name_, seen_, std::nullopt, Durability::kWriteThrough);
  }
  const MutexLock lock(mutex_);
  renewing_ = false;
  const std::shared_ptr<Signal> ended = ended_;  // *this is gone as soon as the lock is
  ended->Set();
}

// False: it is lost.
bool DriveClaim::Renew() {
  DriveClaimRecord next = ours_;
  next.renewed = runtime_.WallClock();
  const auto outcome = cluster_.registers().Change(name_, seen_, next.Encode());
  RegisterValue now;
  if (outcome.why.ok()) {
    now = outcome.now;
  } else {
    // It may have happened.
    const auto read = cluster_.registers().Read(name_);
    if (!read.has_value()) return true;
    now = *read;
  }
  if (!IsOurs(now)) {
    Lose(now);
    return false;
  }
  seen_ = now;
  return true;
}

void DriveClaim::Lose(const RegisterValue& now) {
  Status who = Busy(now);
  Log(LogLevel::kWarn, "somebody else has taken over the work",
      {{"of", Subject(subject_)}, {"who", who}});
  const MutexLock lock(mutex_);
  lost_ = Fail(EBUSY, "this process stood still, and somebody else took over: {}", who.message());
}

bool DriveClaim::IsLost() const {
  const MutexLock lock(mutex_);
  return !lost_.ok();
}

Status DriveClaim::Check() const {
  const MutexLock lock(mutex_);
  return lost_;
}

void DriveClaim::GiveBack() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_->Set();
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (!renewing_) return;
    }
    ended_->WaitUntil(Time::max());
  }
}

}  // namespace pinstripe
