#include "kinetic/kinetic_drive.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "drive/limits.h"
#include "kinetic/connection.h"
#include "kinetic/covering_tag.h"
#include "kinetic/drive_link.h"
#include "kinetic/get_operation.h"
#include "kinetic/operation.h"
#include "kinetic/put_operation.h"

namespace pinstripe {
namespace {

// Whether a drive has forgotten nothing since this start, as it says.
bool HasKeptAllSince(std::string_view known, const std::vector<DriveStart>& starts) {
  for (const DriveStart& start : starts) {
    if (fmt::to_string(start.id) == known) return true;
    if (!start.clean) return false;
  }
  return false;
}

constexpr size_t kMaxRangeBytes = kMaxRangeKeys * kMaxKeyBytes;
static_assert(kMaxRangeBytes < kMaxMessageBytes, "the longest answer to a range fits in a message");

}  // namespace

// The drive's way to its device. Shakes hands: takes the greeting, asks what the device can do, and
// has its identity checked.
class KineticDrive::Link final : public DriveLink<KineticConnection> {
 public:
  Link(KineticIo& io, Options options);

  const Options& options() const { return options_; }
  DriveCapabilities capabilities() const;
  std::vector<WaitedRequest> WaitedFor(std::span<const uint64_t> operations) const;

  void OnGreeting() override;

 private:
  Result<std::shared_ptr<KineticConnection>> NewConnection(const std::string& host,
                                                           const SocketAddress& address) override {
    const auto shared = options_.shares_connection ? &io().SharedOf(loop()) : nullptr;
    return KineticConnection::Start(loop(), host, address, connection_options_, *this, shared);
  }
  void OnCapabilities(Result<DriveCapabilities> capabilities);
  void OnIdentity(Result<Record> record, Result<DriveInfo> info);

  const Options options_;
  const std::shared_ptr<const KineticConnection::Options> connection_options_;

  mutable Mutex mutex_;
  DriveCapabilities capabilities_ GUARDED_BY(mutex_);
};

KineticDrive::Link::Link(KineticIo& io, Options options)
    : DriveLink(io, {.name = options.name,
                     .addresses = options.addresses,
                     .connect_timeout = options.connect_timeout,
                     .least_backoff = options.least_backoff,
                     .most_backoff = options.most_backoff,
                     .idle_timeout = options.idle_timeout}),
      options_(std::move(options)),
      connection_options_(std::make_shared<KineticConnection::Options>(
          KineticConnection::Options{.drive = std::string(name()),
                                     .identity = options_.identity,
                                     .key = HmacKey(options_.key),
                                     .tls = options_.tls,
                                     .max_in_flight = options_.max_in_flight,
                                     .patience = options_.patience,
                                     .times = options_.times,
                                     .waited = options_.waited})) {
  assert(options_.max_in_flight > 0);
}

DriveCapabilities KineticDrive::Link::capabilities() const {
  const MutexLock lock(mutex_);
  return capabilities_;
}

// What was noted, and what is unanswered on the connection that there is now.
std::vector<WaitedRequest> KineticDrive::Link::WaitedFor(
    std::span<const uint64_t> operations) const {
  std::vector<WaitedRequest> requests = options_.waited->Of(operations);
  if (const auto current = connection()) current->AddUnanswered(operations, &requests);
  return requests;
}

void KineticDrive::Link::OnGreeting() {
  trying()->Submit(NewAskCapabilities(
      try_deadline(), [this, asked = trying().get()](Result<DriveCapabilities> capabilities) {
        if (trying().get() == asked) OnCapabilities(std::move(capabilities));
      }));
}

void KineticDrive::Link::OnCapabilities(Result<DriveCapabilities> capabilities) {
  if (!capabilities) return Refuse(capabilities.error());
  trying()->SetCapabilities(*capabilities);
  {
    const MutexLock lock(mutex_);
    capabilities_ = *capabilities;
  }
  if (const ProgramName program = ThisProgram(); capabilities->clients && !program.name.empty()) {
    trying()->Submit(NewIntroduction(program, try_deadline(), [](const Status&) {}));
  }
  if (!options_.check_identity) return Up("");
  // Both at once; the answers come on this thread.
  auto info = std::make_shared<std::optional<Result<DriveInfo>>>();
  auto record = std::make_shared<std::optional<Result<Record>>>();
  const auto go_on = [this, asked = trying().get(), info, record] {
    const bool is_complete = info->has_value() && record->has_value();
    if (is_complete && trying().get() == asked) OnIdentity(std::move(**record), **info);
  };
  // The first answer may end the attempt.
  const std::shared_ptr<KineticConnection> connection = trying();
  connection->Submit(NewGet(options_.identity_key, ValueRange(), try_deadline(),
                            [record, go_on](Result<Record> answer) {
                              *record = std::move(answer);
                              go_on();
                            }));
  connection->Submit(NewInfo(try_deadline(), [info, go_on](Result<DriveInfo> answer) {
    *info = std::move(answer);
    go_on();
  }));
}

void KineticDrive::Link::OnIdentity(Result<Record> record, Result<DriveInfo> info) {
  if (!record && record.error().code() == ETIMEDOUT) return Refuse(record.error());
  if (!info && info.error().code() == ETIMEDOUT) return Refuse(info.error());
  std::string start;
  if (info && !info->starts.empty()) start = fmt::to_string(info->starts.front().id);
  if (info) info->goes_on = GoesOn(start);
  const Status right = options_.check_identity(record, info);
  if (!right.ok()) return Refuse(right);
  if (record) trying()->SetIdentity(options_.identity_key, {record->version, record->tag});
  Up(std::move(start), info && HasKeptAllSince(last_start(), info->starts));
}

// --- The drive

KineticDrive::KineticDrive(KineticIo& io, Options options)
    : io_(io),
      link_(std::make_unique<CurrentLink<Link>>(std::make_shared<Link>(io, std::move(options)))) {}

KineticDrive::~KineticDrive() = default;

void KineticDrive::Redirect(const Options& way) {
  link_->Replace([&](const Link& former) {
    Options options = former.options();
    options.addresses = way.addresses;
    options.identity = way.identity;
    options.key = way.key;
    options.tls = way.tls;
    return std::make_shared<Link>(io_, std::move(options));
  });
}

std::shared_ptr<KineticDrive::Link> KineticDrive::link() const { return link_->get(); }

std::string_view KineticDrive::name() const { return link()->name(); }
DriveCapabilities KineticDrive::capabilities() const { return link()->capabilities(); }
const DriveTimes* KineticDrive::times() const { return link()->options().times.get(); }
bool KineticDrive::IsUp() const { return link()->IsUp(); }

std::vector<WaitedRequest> KineticDrive::WaitedFor(std::span<const uint64_t> operations) const {
  return link()->WaitedFor(operations);
}

void KineticDrive::Tell(std::vector<SlowOperation> operations, Terms terms) {
  const std::shared_ptr<Link> link = this->link();
  if (!link->capabilities().slow) return;
  link->Submit(Status(), NewTellSlow(operations, terms, [](const Status&) {}));
}

uint64_t KineticDrive::CountLosses() const { return link_->CountLosses(); }

void KineticDrive::Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) {
  Status valid = CheckKey(key);
  const std::shared_ptr<Link> link = this->link();
  if (range.likely_bytes == 0 || !range.whole() || !range.version.whole()) {
    return link->Submit(std::move(valid), NewGet(std::move(key), range, terms, std::move(done)));
  }
  const auto submit = [link](KineticOperationPtr operation) {
    link->Submit(Status(), std::move(operation));
  };
  link->Submit(std::move(valid),
               NewSmallGet(std::move(key), range.likely_bytes, terms, submit, std::move(done)));
}

void KineticDrive::Head(std::string key, Terms terms, Callback<RecordHead> done) {
  Status valid = CheckKey(key);
  link()->Submit(std::move(valid), NewHead(std::move(key), terms, std::move(done)));
}

void KineticDrive::Put(PutRequest request, Terms terms, StatusCallback done) {
  Status valid = CheckPut(request);
  // Nothing else that is signed says what the value is.
  if (request.tag.empty() && !request.value.empty()) request.tag = CoveringTag(request.value);
  link()->Submit(std::move(valid), NewPut(std::move(request), terms, std::move(done)));
}

void KineticDrive::PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                              Callback<Record> read) {
  Status valid = CheckPut(request);
  if (valid.ok()) valid = CheckKey(key);
  if (request.tag.empty() && !request.value.empty()) request.tag = CoveringTag(request.value);
  const std::shared_ptr<Link> link = this->link();
  const auto submit = [link](KineticOperationPtr operation) {
    link->Submit(Status(), std::move(operation));
  };
  link->Submit(std::move(valid), NewPutThenGet(std::move(request), std::move(key), terms, submit,
                                               std::move(done), std::move(read)));
}

void KineticDrive::Delete(std::string key, Expected expected, Durability durability, Terms terms,
                          StatusCallback done) {
  Status valid = CheckKey(key);
  link()->Submit(std::move(valid), NewDelete(std::move(key), std::move(expected), durability, terms,
                                             std::move(done)));
}

void KineticDrive::Range(std::string first, std::string last, uint32_t max, bool reverse,
                         Terms terms, Callback<std::vector<std::string>> done) {
  Status valid = CheckRange(first, last, "a range of keys", max, kMaxRangeKeys);
  link()->Submit(std::move(valid),
                 NewRange(std::move(first), std::move(last), max, reverse, terms, std::move(done)));
}

void KineticDrive::ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                               uint32_t value_limit, Terms terms, Callback<RangeRecords> done) {
  Status valid = CheckRange(first, last, "a list of records", max, kMaxRangeRecords);
  const auto submit = [link = link()](KineticOperationPtr operation) {
    link->Submit(Status(), std::move(operation));
  };
  link()->Submit(std::move(valid), NewListRecords(std::move(first), std::move(last), max, reverse,
                                                  value_limit, terms, submit, std::move(done)));
}

void KineticDrive::Flush(Terms terms, StatusCallback done) {
  link()->Submit(Status(), NewFlush(terms, std::move(done)));
}

void KineticDrive::AskUse(Terms terms, Callback<DriveUse> done) {
  link()->Submit(Status(), NewAskUse(terms, std::move(done)));
}

void KineticDrive::AskSlow(Terms terms, Callback<DriveSlow> done) {
  link()->Submit(Status(), NewAskSlow(terms, std::move(done)));
}

void KineticDrive::Info(Terms terms, Callback<DriveInfo> done) {
  link()->Submit(Status(), NewInfo(terms, std::move(done)));
}

void KineticDrive::GetNeighbour(std::string key, bool previous, Terms terms,
                                Callback<KeyedRecord> done) {
  link()->Submit(Status(), NewGetNeighbour(std::move(key), previous, terms, std::move(done)));
}

void KineticDrive::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  link()->Submit(Status(), NewSetClusterVersion(version, terms, std::move(done)));
}

}  // namespace pinstripe
