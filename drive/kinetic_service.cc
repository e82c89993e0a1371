#include "drive/kinetic_service.h"

#include <utility>

#include "base/try.h"
#include "drive/kinetic.pb.h"
#include "drive/message.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using kinetic::KeyValue;

constexpr std::string_view kProtocolVersion = "4.0.1";
constexpr int kMaxLogTypes = 32;  // of one request: each type a few times over

// What the request asks to be safe from power loss before it is answered. Without a word about it: yes.
Result<bool> WantsFlush(const KeyValue& entry) {
  if (!entry.has_synchronization()) return true;
  switch (entry.synchronization()) {
    case KeyValue::WRITETHROUGH:
    case KeyValue::FLUSH: return true;
    case KeyValue::WRITEBACK: return false;
    default: return Fail(EINVAL, "unknown synchronization {}", entry.synchronization());
  }
}

Expected ExpectedBy(const KeyValue& entry) {
  return entry.force() ? Expected::Any() : Expected::Version(entry.dbversion());
}

StoredRecord RecordOf(const KeyValue& entry, SharedBytes value) {
  StoredRecord record;
  record.head.version = entry.newversion();
  record.head.tag = entry.tag();
  if (entry.has_algorithm()) record.head.algorithm = entry.algorithm();
  record.value = std::move(value);
  return record;
}

ValueRange RangeOf(const KeyValue& entry) {
  if (entry.metadataonly()) return {0, 0};
  ValueRange range;
  if (entry.has_valueoffset()) range.offset = entry.valueoffset();
  if (entry.has_valuelength()) range.length = entry.valuelength();
  return range;
}

void Describe(const std::string& key, const StoredHead& head, Command* answer) {
  KeyValue* entry = answer->mutable_body()->mutable_keyvalue();
  entry->set_key(key);
  entry->set_dbversion(head.version);
  entry->set_tag(head.tag);
  if (head.algorithm) entry->set_algorithm(*head.algorithm);
}

// Answers of these have a keyValue, empty if need be, even when they fail.
bool AnswersWithEntry(Header::MessageType type) {
  switch (type) {
    case Header::GET:
    case Header::GETNEXT:
    case Header::GETPREVIOUS:
    case Header::GETVERSION:
    case Header::PUT:
    case Header::DELETE: return true;
    default: return false;
  }
}

void FillLimits(kinetic::GetLog* log) {
  constexpr uint32_t kNoLimit = UINT32_MAX;
  kinetic::GetLog::Limits* limits = log->mutable_limits();
  limits->set_maxkeysize(kMaxKeyBytes);
  limits->set_maxvaluesize(kMaxValueBytes);
  limits->set_maxversionsize(kMaxVersionBytes);
  limits->set_maxtagsize(kMaxTagBytes);
  limits->set_maxconnections(kMaxConnections);
  limits->set_maxoutstandingreadrequests(kMaxOutstandingReads);
  limits->set_maxoutstandingwriterequests(kMaxOutstandingWrites);
  limits->set_maxmessagesize(1 << 20);
  limits->set_maxkeyrangecount(kMaxRangeKeys);
  limits->set_maxidentitycount(kNoLimit);
  limits->set_maxpinsize(0);
  limits->set_maxoperationcountperbatch(kMaxBatchOperations);
  limits->set_maxbatchcountperdevice(kMaxBatchesPerDevice);
  limits->set_maxbatchsize(kMaxBatchBytes);
  limits->set_maxdeletesperbatch(kMaxBatchOperations);
}

}  // namespace

KineticService::KineticService(DeviceDescription device, const Identities& identities,
                               Engine& engine)
    : device_(std::move(device)),
      identities_(identities),
      engine_(engine),
      host_(HostReadings::DiskUnder(device_.path)) {}

const HmacKey* KineticService::KeyOf(int64_t identity) const {
  const auto found = identities_.find(identity);
  return found == identities_.end() ? nullptr : &found->second;
}

Command KineticService::Greeting() {
  Command greeting;
  greeting.mutable_header()->set_clusterversion(0);
  FillConfiguration(greeting.mutable_body()->mutable_getlog());
  FillLimits(greeting.mutable_body()->mutable_getlog());
  greeting.mutable_status()->set_code(kinetic::Status::SUCCESS);
  return greeting;
}

KineticService::Outcome KineticService::Execute(const Command& request, SharedBytes value,
                                                Command* answer) {
  const Header::MessageType type = request.header().messagetype();
  Outcome outcome;
  const Status status = [&]() -> Status {
    switch (type) {
      case Header::NOOP: return {};
      case Header::GET: return Get(request, answer, &outcome.value);
      case Header::GETVERSION: return GetVersion(request, answer);
      case Header::GETNEXT:
      case Header::GETPREVIOUS: return GetNeighbour(request, answer, &outcome.value);
      case Header::GETKEYRANGE: return GetKeyRange(request, answer);
      case Header::PUT: return Put(request, std::move(value), &outcome.after_flush);
      case Header::DELETE: return Delete(request, &outcome.after_flush);
      case Header::FLUSHALLDATA: outcome.after_flush = true; return {};
      case Header::GETLOG: return GetLog(request, answer, &outcome.value);
      default:
        return Fail(EINVAL, "this device does not support message type {}", static_cast<int>(type));
    }
  }();
  if (AnswersWithEntry(type)) answer->mutable_body()->mutable_keyvalue();
  answer->mutable_status()->set_code(kinetic::Status::SUCCESS);
  if (!status.ok()) SetFailure(status, answer);
  return outcome;
}

void KineticService::SetFailure(const Status& failure, Command* answer) {
  answer->mutable_status()->set_code(static_cast<kinetic::Status::Code>(StatusCodeFor(failure)));
  answer->mutable_status()->set_statusmessage(std::string(failure.message()));
}

Status KineticService::Get(const Command& request, Command* answer, SharedBytes* value) {
  const KeyValue& entry = request.body().keyvalue();
  StoredRecord record = TRY(engine_.Get(entry.key(), RangeOf(entry)));
  Describe(entry.key(), record.head, answer);
  *value = std::move(record.value);
  return {};
}

Status KineticService::GetVersion(const Command& request, Command* answer) {
  const StoredHead head = TRY(engine_.Head(request.body().keyvalue().key()));
  answer->mutable_body()->mutable_keyvalue()->set_dbversion(head.version);
  return {};
}

Status KineticService::GetNeighbour(const Command& request, Command* answer, SharedBytes* value) {
  const KeyValue& entry = request.body().keyvalue();
  const bool next = request.header().messagetype() == Header::GETNEXT;
  Engine::Neighbour found = TRY(next ? engine_.GetNext(entry.key(), RangeOf(entry))
                                     : engine_.GetPrevious(entry.key(), RangeOf(entry)));
  Describe(found.key, found.record.head, answer);
  *value = std::move(found.record.value);
  return {};
}

Status KineticService::GetKeyRange(const Command& request, Command* answer) {
  const kinetic::Range& asked = request.body().range();
  KeyRange range;
  range.first = asked.startkey();
  // Without a first key the range begins at the very beginning, whatever the flag says.
  range.first_included = asked.startkeyinclusive() || asked.startkey().empty();
  if (!asked.endkey().empty()) range.last = asked.endkey();  // none, or an empty one: to the end
  range.last_included = asked.endkeyinclusive();
  std::vector<std::string> keys = TRY(engine_.Keys(range, asked.maxreturned(), asked.reverse()));
  kinetic::Range* found = answer->mutable_body()->mutable_range();
  for (std::string& key : keys) found->add_keys(std::move(key));
  return {};
}

Status KineticService::Put(const Command& request, SharedBytes value, bool* after_flush) {
  const KeyValue& entry = request.body().keyvalue();
  const bool flush = TRY(WantsFlush(entry));
  TRY(engine_.Put(entry.key(), RecordOf(entry, std::move(value)), ExpectedBy(entry)));
  *after_flush = flush;
  return {};
}

Status KineticService::Delete(const Command& request, bool* after_flush) {
  const KeyValue& entry = request.body().keyvalue();
  const bool flush = TRY(WantsFlush(entry));
  const Status deleted = engine_.Delete(entry.key(), ExpectedBy(entry));
  // A forced delete of what is not there has reached what it wanted.
  if (!deleted.ok() && !(deleted.code() == ENOENT && entry.force())) return deleted;
  *after_flush = flush;
  return {};
}

Result<Engine::Change> KineticService::ChangeOf(const Command& request, SharedBytes value) {
  const KeyValue& entry = request.body().keyvalue();
  TRY(WantsFlush(entry));  // the end of the batch decides; but it must be a valid request
  Engine::Change change{.key = entry.key(), .expected = ExpectedBy(entry)};
  if (request.header().messagetype() == Header::PUT) {
    change.record = RecordOf(entry, std::move(value));
  }
  return change;
}

KineticService::Outcome KineticService::EndBatch(const Batch& batch, Command* answer) {
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

Status KineticService::GetLog(const Command& request, Command* answer, SharedBytes* value) {
  using Log = kinetic::GetLog;
  const Log& asked = request.body().getlog();
  Log* log = answer->mutable_body()->mutable_getlog();
  if (asked.types_size() > kMaxLogTypes) {
    return Fail(EINVAL, "{} log types in one request; the limit is {}", asked.types_size(),
                kMaxLogTypes);
  }
  for (const int type : asked.types()) {
    log->add_types(static_cast<Log::Type>(type));
    const StoreUsage usage = engine_.Usage();
    switch (type) {
      case Log::UTILIZATIONS: FillUtilizations(log); break;
      case Log::TEMPERATURES: FillTemperatures(log); break;
      case Log::CAPACITIES:
        log->mutable_capacity()->set_nominalcapacityinbytes(usage.capacity_bytes);
        log->mutable_capacity()->set_portionfull(static_cast<float>(usage.portion_full()));
        break;
      case Log::CONFIGURATION: FillConfiguration(log); break;
      case Log::STATISTICS: FillStatistics(log); break;
      case Log::MESSAGES: log->set_messages(events_.Text()); break;
      case Log::LIMITS: FillLimits(log); break;
      case Log::DEVICE:
        if (asked.device().name() != kCapabilitiesLog) {
          return Fail(ENOENT, "no device log '{}'",
                      Hex(AsBytes(std::string_view(asked.device().name()).substr(0, 64))));
        }
        *value = SharedBytes(std::string(kRangeGetCapability) + "\n");
        break;
      default: return Fail(EINVAL, "unknown log type {}", type);
    }
  }
  return {};
}

void KineticService::FillConfiguration(kinetic::GetLog* log) const {
  kinetic::GetLog::Configuration* configuration = log->mutable_configuration();
  configuration->set_vendor("Pinstripe");
  configuration->set_model("pinstriped");
  configuration->set_serialnumber(device_.serial_number);
  configuration->set_worldwidename(device_.world_wide_name);
  configuration->set_version(PINSTRIPE_VERSION);
  configuration->set_protocolversion(std::string(kProtocolVersion));
  configuration->set_port(device_.port);
  configuration->set_currentpowerlevel(kinetic::PowerManagement::OPERATIONAL);
  for (const NetworkInterface& interface : NetworkInterfaces()) {
    kinetic::GetLog::Interface* entry = configuration->add_interface();
    entry->set_name(interface.name);
    if (!interface.mac.empty()) entry->set_mac(interface.mac);
    if (!interface.ipv4.empty()) entry->set_ipv4address(interface.ipv4);
    if (!interface.ipv6.empty()) entry->set_ipv6address(interface.ipv6);
  }
}

// Peers know the names HDA and CPU, and expect them; what is not known has no value.
void KineticService::FillUtilizations(kinetic::GetLog* log) {
  const HostReadings::Load load = host_.ReadLoad();
  kinetic::GetLog::Utilization* disk = log->add_utilizations();
  disk->set_name("HDA");
  if (load.disk) disk->set_value(static_cast<float>(*load.disk));
  kinetic::GetLog::Utilization* cpu = log->add_utilizations();
  cpu->set_name("CPU");
  if (load.cpu) cpu->set_value(static_cast<float>(*load.cpu));
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
  if (const auto cpu = host_.CpuTemperature()) fill("CPU", cpu);
}

void KineticService::FillStatistics(kinetic::GetLog* log) const {
  constexpr Header::MessageType kTypes[] = {
      Header::GET,           Header::GETVERSION,  Header::GETNEXT,       Header::GETPREVIOUS,
      Header::GETKEYRANGE,   Header::PUT,         Header::DELETE,        Header::FLUSHALLDATA,
      Header::NOOP,          Header::GETLOG,      Header::SETUP,         Header::SECURITY,
      Header::PINOP,         Header::START_BATCH, Header::END_BATCH,     Header::ABORT_BATCH,
      Header::PEER2PEERPUSH, Header::MEDIASCAN,   Header::MEDIAOPTIMIZE,
  };
  for (const Header::MessageType type : kTypes) {
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
