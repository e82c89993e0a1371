#include "daemon/kinetic_service.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "daemon/build_stamp.h"
#include "daemon/drive_use.h"
#include "daemon/media_operations.h"
#include "daemon/message_reads.h"
#include "daemon/peer_push.h"
#include "daemon/put_entry.h"
#include "daemon/security_commands.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using kinetic::KeyValue;

constexpr std::string_view kProtocolVersion = "4.0.1";
constexpr int kMaxLogTypes = 32;  // of one request: each type a few times over

ValueRange RangeOf(const KeyValue& entry) {
  if (entry.metadataonly()) return {0, 0};
  ValueRange range;
  if (entry.has_valueoffset()) range.offset = entry.valueoffset();
  if (entry.has_valuelength()) range.length = entry.valuelength();
  return range;
}

KeyRange KeyRangeOf(const kinetic::Range& asked) {
  KeyRange range;
  range.first = asked.startkey();
  // Without a first key the range begins at the very beginning, whatever the flag says.
  range.first_included = asked.startkeyinclusive() || asked.startkey().empty();
  if (!asked.endkey().empty()) range.last = asked.endkey();  // none, or an empty one: to the end
  range.last_included = asked.endkeyinclusive();
  return range;
}

VersionPart VersionPartOf(const KeyValue& entry) {
  if (!entry.has_versionhead()) return {};
  return {entry.versionhead(), entry.versionoffset(), entry.versionlength()};
}

void Describe(const std::string& key, const StoredHead& head, VersionPart part, Command* answer) {
  DescribeRecord(key, head, part, answer->mutable_body()->mutable_keyvalue());
}

// One record for each key, and the values one after the other.
void Describe(std::vector<RangeItem> items, kinetic::Range* found, SharedBytes* values) {
  size_t value_bytes = 0;
  for (const RangeItem& item : items) value_bytes += item.value.size();
  Buffer all(value_bytes);
  MutableBytes space = all;
  for (RangeItem& item : items) {
    found->add_keys(std::move(item.key));
    kinetic::Range::Record* record = found->add_records();
    if (item.damaged) {
      record->set_damaged(true);
      continue;
    }
    if (!item.head.version.empty()) record->set_version(std::move(item.head.version));
    if (!item.head.tag.empty()) record->set_tag(std::move(item.head.tag));
    if (item.head.algorithm) record->set_algorithm(*item.head.algorithm);
    record->set_valuebytes(item.head.value_bytes);
    if (!item.has_value) continue;
    record->set_hasvalue(true);
    CopyBytes(space, item.value);
    space = space.subspan(item.value.size());
  }
  *values = SharedBytes(std::move(all));
}

// Answers of these have a keyValue, empty if need be, even when they fail.
bool AnswersWithEntry(Header::MessageType type) {
  switch (type) {
    case Header::GET:
    case Header::GETNEXT:
    case Header::GETPREVIOUS:
    case Header::GETVERSION:
    case Header::DELETE: return true;
    default: return false;
  }
}

// What every answer says in the end.
void Conclude(Header::MessageType type, const Status& status, Command* answer) {
  if (AnswersWithEntry(type)) answer->mutable_body()->mutable_keyvalue();
  answer->mutable_status()->set_code(kinetic::Status::SUCCESS);
  if (!status.ok()) KineticService::SetFailure(status, answer);
}

Status Allow(const KineticService::Caller& caller, Permission permission, ForKey key) {
  return Allow(caller.identity->rights, permission, key, caller.tls);
}

// Several of them. EAGAIN: they are to be read `at_once`, and one would have to wait.
Status GetEach(Engine& engine, const KineticService::Caller& caller, const Command& request,
               bool at_once, Command* answer, SharedBytes* values) {
  const auto& keys = request.body().gets().keys();
  if (keys.empty() || keys.size() > static_cast<int>(kMostGetsTogether)) {
    return Fail(EINVAL, "{} gets in one message; 1 to {} can be", keys.size(), kMostGetsTogether);
  }
  MessageReads reads(engine, {caller.identity->rights, caller.tls, {}}, kMostGetBytes, at_once);
  kinetic::Gets* told = answer->mutable_body()->mutable_gets();
  for (const std::string& key : keys) {
    if (reads.Add(key, told->add_reads())) continue;
    answer->clear_body();
    return Fail(EAGAIN, "a record is not in memory");
  }
  *values = reads.TakeValues();
  return {};
}

void FillLimits(size_t max_connections, kinetic::GetLog* log) {
  kinetic::GetLog::Limits* limits = log->mutable_limits();
  limits->set_maxkeysize(kMaxKeyBytes);
  limits->set_maxvaluesize(kMaxValueBytes);
  limits->set_maxversionsize(kMaxVersionBytes);
  limits->set_maxtagsize(kMaxTagBytes);
  limits->set_maxconnections(static_cast<uint32_t>(max_connections));
  limits->set_maxoutstandingreadrequests(kMaxOutstandingReads);
  limits->set_maxoutstandingwriterequests(kMaxOutstandingWrites);
  limits->set_maxmessagesize(1 << 20);
  limits->set_maxkeyrangecount(kMaxRangeKeys);
  limits->set_maxidentitycount(kMaxIdentities);
  limits->set_maxpinsize(kMaxPinBytes);
  limits->set_maxoperationcountperbatch(kMaxBatchOperations);
  limits->set_maxbatchcountperdevice(kMaxBatchesPerDevice);
  limits->set_maxbatchsize(kMaxBatchBytes);
  limits->set_maxdeletesperbatch(kMaxBatchOperations);
}

}  // namespace

KineticService::KineticService(DeviceDescription device, DeviceSecurity& security, Engine& engine)
    : device_(std::move(device)),
      security_(security),
      engine_(engine),
      slow_(device_.slow_request),
      host_(HostReadings::DiskUnder(device_.path)) {}

Command KineticService::Greeting() {
  Command greeting;
  greeting.mutable_header()->set_clusterversion(security_.cluster_version());
  FillConfiguration(greeting.mutable_body()->mutable_getlog());
  FillLimits(device_.max_connections, greeting.mutable_body()->mutable_getlog());
  greeting.mutable_status()->set_code(kinetic::Status::SUCCESS);
  return greeting;
}

KineticService::Outcome KineticService::Execute(const Caller& caller, const Command& request,
                                                SharedBytes value, Command* answer) {
  const Header::MessageType type = request.header().messagetype();
  Outcome outcome;
  if (type == Header::PUT || type == Header::PUTS) {
    const PutRequest put{caller, &request, std::move(value), answer};
    return std::move(ExecutePuts({&put, 1})[0]);
  }
  if (type == Header::SETUP) {
    Conclude(type, Setup(caller, request, answer), answer);
    return outcome;
  }
  const Gate::Visit visit(executing_);
  const Status status = [&]() -> Status {
    TRY(CheckAdmitted(caller, answer));
    switch (type) {
      case Header::NOOP: return {};
      case Header::GET: return Get(caller, request, answer, &outcome.value);
      case Header::GETS:
        return GetEach(engine_, caller, request, /*at_once=*/false, answer, &outcome.value);
      case Header::GETVERSION: return GetVersion(caller, request, answer);
      case Header::GETNEXT:
      case Header::GETPREVIOUS: return GetNeighbour(caller, request, answer, &outcome.value);
      case Header::GETKEYRANGE: return GetKeyRange(caller, request, answer, &outcome.value);
      case Header::DELETE: return Delete(caller, request, &outcome.after_flush);
      case Header::FLUSHALLDATA: outcome.after_flush = true; return {};
      case Header::GETLOG: return GetLog(caller, request, answer, &outcome.value);
      case Header::SECURITY: return Security(caller, request);
      case Header::PINOP: return Fail(EINVAL, "a PIN operation is authorised by a PIN");
      default:
        return Fail(EINVAL, "this device does not support message type {}", static_cast<int>(type));
    }
  }();
  Conclude(type, status, answer);
  return outcome;
}

std::optional<KineticService::Outcome> KineticService::ExecuteAtOnce(const Caller& caller,
                                                                     const Command& request,
                                                                     Command* answer) {
  const Header::MessageType type = request.header().messagetype();
  if (type != Header::GET && type != Header::GETS) return std::nullopt;
  const Gate::QuickVisit visit(executing_);
  if (!visit.inside()) return std::nullopt;
  Outcome outcome;
  const KeyValue& entry = request.body().keyvalue();
  const Status status = [&]() -> Status {
    TRY(CheckAdmitted(caller, answer));
    if (type == Header::GETS) {
      return GetEach(engine_, caller, request, /*at_once=*/true, answer, &outcome.value);
    }
    TRY(Allow(caller, Permission::kRead, entry.key()));
    StoredRecord record = TRY(engine_.GetAtOnce(entry.key(), RangeOf(entry)));
    Describe(entry.key(), record.head, VersionPartOf(entry), answer);
    outcome.value = std::move(record.value);
    return {};
  }();
  if (status.code() == EAGAIN) return std::nullopt;
  Conclude(type, status, answer);
  return outcome;
}

void KineticService::SetFailure(const Status& failure, Command* answer) {
  SetStatus(failure, answer->mutable_status());
}

Status KineticService::Get(const Caller& caller, const Command& request, Command* answer,
                           SharedBytes* value) {
  const KeyValue& entry = request.body().keyvalue();
  TRY(Allow(caller, Permission::kRead, entry.key()));
  StoredRecord record = TRY(engine_.Get(entry.key(), RangeOf(entry)));
  Describe(entry.key(), record.head, VersionPartOf(entry), answer);
  *value = std::move(record.value);
  return {};
}

Status KineticService::GetVersion(const Caller& caller, const Command& request, Command* answer) {
  const std::string& key = request.body().keyvalue().key();
  TRY(Allow(caller, Permission::kRead, key));
  const StoredHead head = TRY(engine_.Head(key));
  answer->mutable_body()->mutable_keyvalue()->set_dbversion(head.version);
  return {};
}

Status KineticService::GetNeighbour(const Caller& caller, const Command& request, Command* answer,
                                    SharedBytes* value) {
  const KeyValue& entry = request.body().keyvalue();
  TRY(Allow(caller, Permission::kRead, std::nullopt));
  const bool next = request.header().messagetype() == Header::GETNEXT;
  Engine::Neighbour found = TRY(next ? engine_.GetNext(entry.key(), RangeOf(entry))
                                     : engine_.GetPrevious(entry.key(), RangeOf(entry)));
  TRY(Allow(caller, Permission::kRead, found.key));
  Describe(found.key, found.record.head, VersionPartOf(entry), answer);
  *value = std::move(found.record.value);
  return {};
}

Status KineticService::GetKeyRange(const Caller& caller, const Command& request, Command* answer,
                                   SharedBytes* values) {
  const kinetic::Range& asked = request.body().range();
  TRY(Allow(caller, Permission::kRange, std::nullopt));
  if (asked.has_valuelimit()) {
    return ListRecords(caller, asked, answer->mutable_body()->mutable_range(), values);
  }
  kinetic::Range found;
  TRY(ListAllowed(caller, KeyRangeOf(asked), asked.maxreturned(), asked.reverse(), &found));
  // Other devices say nothing at all where there is nothing, and some clients count on that.
  if (found.keys_size() > 0) *answer->mutable_body()->mutable_range() = std::move(found);
  return {};
}

// Our extension: the entries of a range that the caller may know of and read.
Status KineticService::ListRecords(const Caller& caller, const kinetic::Range& asked,
                                   kinetic::Range* found, SharedBytes* values) {
  constexpr size_t kFieldsAroundEach = 40;
  static_assert(kMaxRangeHeadBytes + kFieldsAroundEach * kMaxRangeRecords + 4096 <=
                kMaxMessageBytes);
  const Rights& rights = caller.identity->rights;
  const KeyRange range = KeyRangeOf(asked);
  RangeLimits left{.entries = asked.maxreturned(),
                   .value_bytes = asked.valuelimit(),
                   .all_value_bytes = kMaxValueBytes,
                   .all_head_bytes = kMaxRangeHeadBytes};
  std::vector<RangeItem> items;
  std::vector<KeyRange> parts = PartsToList(rights, range, caller.tls);
  // Nothing of the range is for this caller, but the question may be a wrong one all the same.
  if (parts.empty()) return Engine::CheckItems(range, left);
  if (asked.reverse()) std::reverse(parts.begin(), parts.end());
  for (KeyRange& part : parts) {
    bool more = true;
    while (more && !found->more()) {
      RangeItems next = TRY(engine_.Items(part, left, asked.reverse()));
      more = next.more;
      if (more && asked.reverse()) {
        part.last = next.items.back().key;
        part.last_included = false;
      } else if (more) {
        part.first = next.items.back().key;
        part.first_included = false;
      }
      for (RangeItem& item : next.items) {
        if (!MayDo(rights, Permission::kRange, item.key, caller.tls)) continue;
        if (!MayDo(rights, Permission::kRead, item.key, caller.tls)) continue;
        const size_t heads = item.key.size() + item.head.version.size() + item.head.tag.size();
        left.entries -= 1;
        left.all_head_bytes -= std::min(left.all_head_bytes, heads);
        left.all_value_bytes -= std::min(left.all_value_bytes, item.value.size());
        items.push_back(std::move(item));
      }
      // Almost full is full: the next list would hold an entry whatever its size.
      constexpr size_t kLargestHead = kMaxKeyBytes + kMaxVersionBytes + kMaxTagBytes;
      const bool full = left.entries == 0 || left.all_head_bytes < kLargestHead ||
                        left.all_value_bytes < std::min<size_t>(left.value_bytes, kMaxValueBytes);
      if (full && (more || &part != &parts.back())) found->set_more(true);
    }
    if (found->more()) break;
  }
  Describe(std::move(items), found, values);
  return {};
}

// The keys of a range that the caller may know of; the others are passed over.
Status KineticService::ListAllowed(const Caller& caller, const KeyRange& range, uint32_t max,
                                   bool reverse, kinetic::Range* found) {
  const Rights& rights = caller.identity->rights;
  std::vector<KeyRange> parts = PartsToList(rights, range, caller.tls);
  // Nothing of the range is for this caller, but the question may be a wrong one all the same.
  if (parts.empty()) return engine_.CheckKeys(range, max);
  if (reverse) std::reverse(parts.begin(), parts.end());
  for (KeyRange& part : parts) {
    while (true) {
      std::vector<std::string> keys = TRY(engine_.Keys(part, max, reverse));
      const bool last_of_part = keys.size() < max;
      if (!keys.empty() && reverse) {
        part.last = keys.back();
        part.last_included = false;
      } else if (!keys.empty()) {
        part.first = keys.back();
        part.first_included = false;
      }
      for (std::string& key : keys) {
        if (static_cast<uint32_t>(found->keys_size()) == max) return {};
        if (MayDo(rights, Permission::kRange, key, caller.tls)) found->add_keys(std::move(key));
      }
      if (static_cast<uint32_t>(found->keys_size()) == max) return {};
      if (last_of_part) break;
    }
  }
  return {};
}

Status KineticService::Delete(const Caller& caller, const Command& request, bool* after_flush) {
  const KeyValue& entry = request.body().keyvalue();
  TRY(Allow(caller, Permission::kDelete, entry.key()));
  const bool flush = TRY(WantsFlush(entry));
  const Engine::Change deletion = TRY(DeletionOf(entry));
  const Status deleted = engine_.Delete(deletion.key, deletion.expected);
  // A forced delete of what is not there has reached what it wanted.
  if (!deleted.ok() && !(deleted.code() == ENOENT && entry.force())) return deleted;
  *after_flush = flush;
  return {};
}

bool KineticService::TakesLong(const Command& request) {
  switch (request.header().messagetype()) {
    case Header::PEER2PEERPUSH:
    case Header::MEDIASCAN:
    case Header::MEDIAOPTIMIZE: return true;
    default: return false;
  }
}

Duration KineticService::LongestTime(const Command& request) {
  return request.header().messagetype() == Header::PEER2PEERPUSH ? PeerPush::kLongest
                                                                 : Duration::max();
}

Result<std::unique_ptr<LongOperation>> KineticService::Start(Runtime& runtime, KineticIo& io,
                                                             const Caller& caller,
                                                             const Command& request, Time expiry,
                                                             Command* answer) {
  const kinetic::Body& body = request.body();
  const Header::MessageType type = request.header().messagetype();
  if (type == Header::PEER2PEERPUSH) {
    TRY(Allow(caller, Permission::kPeerToPeer, std::nullopt));
    TRY(PeerPush::Check(body.p2poperation()));
    return std::make_unique<PeerPush>(
        runtime, io, engine_,
        PeerPush::Asked{.identity = caller.identity->id,
                        .key = caller.identity->key,
                        .expiry = expiry,
                        .may_read = [this, caller](std::string_view key) -> Status {
                          TRY(CheckCurrent(caller));
                          return Allow(caller, Permission::kRead, key);
                        }},
        body.p2poperation(), answer);
  }
  KeyRange range = KeyRangeOf(body.range());
  TRY(Engine::CheckRange(range));
  if (!MayDoAll(caller.identity->rights, Permission::kRange, range.first, range.last.value_or(""),
                caller.tls)) {
    return Fail(EACCES, "permission denied");
  }
  if (type == Header::MEDIAOPTIMIZE) {
    return std::make_unique<MediaOptimize>(engine_, std::move(range), answer);
  }
  const uint32_t most =
      body.range().maxreturned() == 0 ? kMaxRangeKeys : body.range().maxreturned();
  if (most > kMaxRangeKeys) {
    return Fail(EINVAL, "{} keys were asked for; 1 to {} can be", most, kMaxRangeKeys);
  }
  return std::make_unique<MediaScan>(
      runtime, engine_,
      MediaScan::Asked{.range = std::move(range),
                       .max_damaged = most,
                       .checksums_only = body.range().checksumsonly()},
      answer);
}

Result<Engine::Change> KineticService::ChangeOf(const Caller& caller, const Command& request,
                                                SharedBytes value) {
  const KeyValue& entry = request.body().keyvalue();
  const bool put = request.header().messagetype() == Header::PUT;
  TRY(put ? AllowPut(caller.identity->rights, entry, caller.tls)
          : Allow(caller, Permission::kDelete, entry.key()));
  TRY(CheckSinglePut(request));
  TRY(WantsFlush(entry));  // the end of the batch decides; but it must be a valid request
  return put ? PutOf(entry, request.header().bound(), std::move(value)) : DeletionOf(entry);
}

KineticService::Outcome KineticService::EndBatch(const Caller& caller, const Batch& batch,
                                                 Command* answer) {
  const Gate::Visit visit(executing_);
  if (const Status admitted = CheckAdmitted(caller, answer); !admitted.ok()) {
    SetFailure(admitted, answer);
    return {};
  }
  kinetic::Batch* ended = answer->mutable_body()->mutable_batch();
  for (const uint64_t sequence : batch.sequences()) ended->add_sequence(sequence);
  const auto fail = [&](uint64_t sequence, const Status& why) {
    ended->set_failedsequence(sequence);
    SetFailure(why, answer);
    answer->mutable_status()->set_statusmessage(fmt::format(
        "{}: {}", StatusCodeName(answer->status().code()), answer->status().statusmessage()));
    answer->mutable_status()->set_code(kinetic::Status::INVALID_BATCH);
  };
  if (!batch.failure().ok()) {
    fail(batch.failed_sequence(), batch.failure());
    return {};
  }
  if (const auto failure = engine_.Apply(batch.changes())) {
    if (failure->change) {
      fail(batch.sequences()[*failure->change], failure->status);
    } else {
      SetFailure(failure->status, answer);
    }
    return {};
  }
  answer->mutable_status()->set_code(kinetic::Status::SUCCESS);
  return {.after_flush = true};
}

Status KineticService::GetLog(const Caller& caller, const Command& request, Command* answer,
                              SharedBytes* value) {
  using Log = kinetic::GetLog;
  TRY(Allow(caller, Permission::kGetLog, std::nullopt));
  const Log& asked = request.body().getlog();
  Log* log = answer->mutable_body()->mutable_getlog();
  if (asked.types_size() > kMaxLogTypes) {
    return Fail(EINVAL, "{} log types in one request; the limit is {}", asked.types_size(),
                kMaxLogTypes);
  }
  for (const int type : asked.types()) {
    log->add_types(static_cast<Log::Type>(type));
    switch (type) {
      case Log::UTILIZATIONS: FillUtilizations(log); break;
      case Log::TEMPERATURES: FillTemperatures(log); break;
      case Log::CAPACITIES: FillCapacities(log); break;
      case Log::CONFIGURATION: FillConfiguration(log); break;
      case Log::STATISTICS: FillStatistics(log); break;
      case Log::MESSAGES: log->set_messages(events_.Text()); break;
      case Log::LIMITS: FillLimits(device_.max_connections, log); break;
      case Log::DEVICE: TRY(FillDevice(asked.device().name(), caller.asked, log, value)); break;
      default: return Fail(EINVAL, "unknown log type {}", type);
    }
  }
  return {};
}

void KineticService::FillCapacities(kinetic::GetLog* log) {
  const StoreUsage usage = engine_.Usage();
  log->mutable_capacity()->set_nominalcapacityinbytes(usage.capacity_bytes);
  log->mutable_capacity()->set_portionfull(static_cast<float>(usage.portion_full()));
  if (!usage.failure.ok()) log->set_storefailure(std::string(usage.failure.message()));
  FillStarts(log);
}

// The logs that only we have.
Status KineticService::FillDevice(std::string_view name, Time now, kinetic::GetLog* log,
                                  SharedBytes* value) {
  if (name == kClientsLog) {
    FillUse(*this, now, log);
    return {};
  }
  if (name == kSlowLog) {
    slow_.Fill(now, log);
    return {};
  }
  if (name != kCapabilitiesLog) {
    return Fail(ENOENT, "no device log '{}'", Hex(AsBytes(name.substr(0, 64))));
  }
  log->set_capabilities(fmt::format(
      "{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", kRangeGetCapability,
      kVersionPartCapability, kRangeRecordsCapability, kChecksumScanCapability, kRoomsCapability,
      kBoundCapability, kUnerasedCapability, kClientsCapability, kSlowCapability, kGuardsCapability,
      kPutsCapability, kThenGetsCapability, kGetsCapability));
  *value = SharedBytes(log->capabilities());
  return {};
}

Status KineticService::CheckCurrent(const Caller& caller) const {
  if (security_.IsCurrent(*caller.identity)) return {};
  return Fail(caller.unerased ? ECONNABORTED : EACCES, "permission denied: the device was erased");
}

Status KineticService::CheckAdmitted(const Caller& caller, Command* answer) const {
  TRY(CheckCurrent(caller));
  const int64_t now = security_.cluster_version();
  if (now == caller.cluster_version) return {};
  answer->mutable_header()->set_clusterversion(now);
  return Fail(EREMCHG, "this device has cluster version {}, the request {}", now,
              caller.cluster_version);
}

void KineticService::ExecutePin(const Command& request, std::string_view pin, Command* answer) {
  using Pin = kinetic::PinOperation;
  const auto type = request.body().pinop().has_pinoptype() ? request.body().pinop().pinoptype()
                                                           : Pin::INVALID_PINOP;
  const Status status = [&]() -> Status {
    switch (type) {
      case Pin::LOCK_PINOP: return security_.Lock(pin);
      case Pin::UNLOCK_PINOP: return security_.Unlock(pin);
      case Pin::ERASE_PINOP: return Erase(pin, /*secure=*/false);
      case Pin::SECURE_ERASE_PINOP: return Erase(pin, /*secure=*/true);
      default: return Fail(EINVAL, "unknown PIN operation");
    }
  }();
  answer->mutable_status()->set_code(kinetic::Status::SUCCESS);
  if (!status.ok()) SetFailure(status, answer);
}

// Nobody is served while the old records, identities and PINs go together.
Status KineticService::Erase(std::string_view pin, bool secure) {
  {
    const Gate::Closure alone(executing_);
    if (!device_.erase_without_pin && !security_.has_erase_pin()) {
      return Fail(EACCES,
                  "permission denied: no erase PIN is set, and erase_without_pin is not \"allow\"");
    }
    TRY(security_.CheckErasePin(pin));
    TRY(engine_.Erase());
    security_.Reset();
  }
  return secure ? engine_.RemoveErased() : Status();
}

Status KineticService::Security(const Caller& caller, const Command& request) {
  // Keys and PINs would be there for everybody to read.
  if (!caller.tls) return Fail(EINVAL, "TLS channel is required for Security operation");
  TRY(Allow(caller, Permission::kSecurity, std::nullopt));
  return ExecuteSecurity(request.body().security(), security_);
}

// Nobody is served meanwhile: what was admitted under the former cluster version is done before, or
// finds out.
Status KineticService::Setup(const Caller& caller, const Command& request, Command* answer) {
  const Gate::Closure alone(executing_);
  TRY(CheckAdmitted(caller, answer));
  TRY(Allow(caller, Permission::kSetup, std::nullopt));
  return ExecuteSetup(request.body().setup(), request.header().clusterversion(), security_);
}

void KineticService::FillConfiguration(kinetic::GetLog* log) const {
  kinetic::GetLog::Configuration* configuration = log->mutable_configuration();
  configuration->set_vendor("Pinstripe");
  configuration->set_model("pinstriped");
  configuration->set_serialnumber(device_.serial_number);
  configuration->set_worldwidename(device_.world_wide_name);
  configuration->set_version(PINSTRIPE_VERSION);
  configuration->set_compilationdate(kBuildDate);
  configuration->set_sourcehash(kSourceHash);
  configuration->set_protocolversion(std::string(kProtocolVersion));
  configuration->set_protocolcompilationdate(kProtocolBuildDate);
  configuration->set_protocolsourcehash(kProtocolSourceHash);
  configuration->set_port(port_);
  configuration->set_tlsport(tls_port_);
  configuration->set_currentpowerlevel(kinetic::PowerManagement::OPERATIONAL);
  for (const NetworkInterface& interface : NetworkInterfaces()) {
    kinetic::GetLog::Interface* entry = configuration->add_interface();
    entry->set_name(interface.name);
    if (!interface.mac.empty()) entry->set_mac(interface.mac);
    if (!interface.ipv4.empty()) entry->set_ipv4address(interface.ipv4);
    if (!interface.ipv6.empty()) entry->set_ipv6address(interface.ipv6);
  }
}

// Peers know these names and take them by their place, so all are there; what is not known has no
// value.
void KineticService::FillUtilizations(kinetic::GetLog* log) {
  const HostReadings::Load load = host_.ReadLoad();
  const auto fill = [&](const char* name, std::optional<double> part) {
    kinetic::GetLog::Utilization* entry = log->add_utilizations();
    entry->set_name(name);
    if (part) entry->set_value(static_cast<float>(*part));
  };
  fill("HDA", load.disk);
  fill("EN0", load.network[0]);
  fill("EN1", load.network[1]);
  fill("CPU", load.cpu);
}

void KineticService::FillTemperatures(kinetic::GetLog* log) const {
  const auto fill = [&](std::string_view name,
                        const std::optional<HostReadings::Temperature>& temperature) {
    kinetic::GetLog::Temperature* entry = log->add_temperatures();
    entry->set_name(std::string(name));
    if (!temperature) return;
    entry->set_current(static_cast<float>(temperature->current));
    if (temperature->minimum) entry->set_minimum(static_cast<float>(*temperature->minimum));
    if (temperature->maximum) entry->set_maximum(static_cast<float>(*temperature->maximum));
  };
  fill("HDA", host_.DiskTemperature());
  fill("CPU", host_.CpuTemperature());
}

void KineticService::FillStarts(kinetic::GetLog* log) {
  const StoreStarts known = engine_.Starts();
  if (known.starts.empty()) return;
  log->clear_starts();  // a type may be asked for twice
  for (const DriveStart& start : known.starts) {
    kinetic::GetLog::Start* entry = log->add_starts();
    entry->set_id(start.id);
    entry->set_clean(start.clean);
  }
  log->set_startcount(known.count);
  if (!known.up) return;
  const auto up = std::chrono::floor<std::chrono::milliseconds>(*known.up);
  log->set_upmilliseconds(static_cast<uint64_t>(up.count()));
}

void KineticService::FillStatistics(kinetic::GetLog* log) const {
  for (const auto& [number, name] : kServedTypes) {
    const auto type = static_cast<Header::MessageType>(number);
    const OperationStatistics::Count count = statistics_.Of(type);
    kinetic::GetLog::Statistics* entry = log->add_statistics();
    entry->set_messagetype(type);
    entry->set_count(count.operations);
    entry->set_bytes(count.value_bytes);
    const auto longest = std::chrono::ceil<std::chrono::milliseconds>(count.longest);
    entry->set_maxlatency(static_cast<uint64_t>(longest.count()));
  }
}

}  // namespace pinstripe
