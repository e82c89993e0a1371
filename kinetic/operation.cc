#include "kinetic/operation.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <utility>

#include "base/try.h"
#include "base/utf8.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "kinetic/put_operation.h"

namespace pinstripe {
namespace {

using Kind = KineticOperation::Kind;
using kinetic::Header;

constexpr size_t kMaxFailureBytes = 1024;                     // of what a device says about itself
constexpr uint64_t kTooManyMilliseconds = uint64_t{1} << 42;  // more than a hundred years

// What it lists must be what was asked for, in the order that was asked for.
Status CheckListed(const kinetic::Range& found, const std::string& first, const std::string& last,
                   uint32_t max, bool reverse) {
  if (static_cast<uint32_t>(found.keys_size()) > max) {
    return Fail(EBADMSG, "it answered with {} keys where {} were asked for", found.keys_size(),
                max);
  }
  for (int i = 0; i < found.keys_size(); ++i) {
    const std::string& key = found.keys(i);
    if (key < first || last < key) {
      return Fail(EBADMSG, "it answered with a key outside of the range that was asked for");
    }
    if (i > 0 && (reverse ? key >= found.keys(i - 1) : key <= found.keys(i - 1))) {
      return Fail(EBADMSG, "it answered with keys that are not in order");
    }
  }
  return {};
}

// An operation whose answer is a T.
template <typename T>
class Asking : public KineticOperation {
 public:
  Asking(int message_type, Kind kind, Terms terms, Callback<T> done)
      : KineticOperation(message_type, kind, terms), done_(std::move(done)) {}

  void Finish(Result<KineticAnswer> answer) final {
    // Moved out: what the callback holds on to must go with the answer, not with the operation,
    // which a sender may keep a moment longer.
    const Callback<T> done = std::exchange(done_, nullptr);
    if (!answer) return done(NoAnswer(std::move(answer).error()));
    const std::string_view drive = answer->drive;
    Result<T> result = Read(*std::move(answer));
    if (!result) result = tl::unexpected(result.error().OfDrive(drive));
    done(std::move(result));
  }

 protected:
  virtual Result<T> Read(KineticAnswer answer) = 0;
  virtual Result<T> NoAnswer(Status failure) { return tl::unexpected(std::move(failure)); }

 private:
  Callback<T> done_;
};

// An operation that is either done or not.
class Doing : public KineticOperation {
 public:
  Doing(int message_type, Kind kind, Terms terms, StatusCallback done)
      : KineticOperation(message_type, kind, terms), done_(std::move(done)) {}

  void Finish(Result<KineticAnswer> answer) final {
    const StatusCallback done = std::exchange(done_, nullptr);
    if (!answer) return done(std::move(answer).error());
    const Status status = Check(*answer->body);
    done(status.ok() ? status : status.OfDrive(answer->drive));
  }

 protected:
  // Whether a success speaks of this operation, as far as it says.
  virtual Status Check(const kinetic::Body&) const { return {}; }

 private:
  StatusCallback done_;
};

class GetOperation final : public Asking<Record> {
 public:
  GetOperation(std::string key, ValueRange range, Terms terms, Callback<Record> done)
      : Asking(Header::GET, Kind::kRead, terms, std::move(done)),
        key_(std::move(key)),
        range_(range) {}

  void Describe(DriveCapabilities capabilities, kinetic::Body* body) const override {
    kinetic::KeyValue* entry = body->mutable_keyvalue();
    entry->set_key(key_);
    if (!range_.whole() && capabilities.range_get) {
      entry->set_valueoffset(range_.offset);
      entry->set_valuelength(range_.length);
    }
    if (!range_.version.whole() && capabilities.version_part) {
      entry->set_versionhead(range_.version.head);
      entry->set_versionoffset(range_.version.offset);
      entry->set_versionlength(range_.version.length);
    }
  }

 protected:
  Result<Record> Read(KineticAnswer answer) override {
    kinetic::KeyValue* entry = answer.body->mutable_keyvalue();
    TRY(CheckAnsweredKey(key_, *entry));
    Record record;
    record.version = std::move(*entry->mutable_dbversion());
    record.tag = std::move(*entry->mutable_tag());
    if (!range_.version.whole()) {
      if (!answer.capabilities.version_part) {
        record.version = range_.version.CutFrom(record.version);
      } else if (record.version.size() > size_t{range_.version.head} + range_.version.length) {
        return Fail(EBADMSG, "it answered with {} bytes of the version where {} were asked for",
                    record.version.size(), size_t{range_.version.head} + range_.version.length);
      }
    }
    if (answer.capabilities.range_get && answer.value.size() > range_.length) {
      return Fail(EBADMSG, "it answered with {} bytes where {} were asked for", answer.value.size(),
                  range_.length);
    }
    record.value = SharedBytes(std::move(answer.value));
    if (!answer.capabilities.range_get && !range_.whole()) {
      const size_t offset = std::min<size_t>(range_.offset, record.value.size());
      const size_t length = std::min<size_t>(range_.length, record.value.size() - offset);
      // A copy: who keeps the part should not keep the whole.
      record.value = SharedBytes(Buffer::CopyOf(record.value.bytes().subspan(offset, length)));
    }
    return record;
  }

 private:
  const std::string key_;
  const ValueRange range_;
};

class HeadOperation : public Asking<RecordHead> {
 public:
  HeadOperation(std::string key, Terms terms, Callback<RecordHead> done)
      : Asking(Header::GET, Kind::kRead, terms, std::move(done)), key_(std::move(key)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_keyvalue()->set_key(key_);
    body->mutable_keyvalue()->set_metadataonly(true);
  }

 protected:
  Result<RecordHead> Read(KineticAnswer answer) override {
    kinetic::KeyValue* entry = answer.body->mutable_keyvalue();
    TRY(CheckAnsweredKey(key_, *entry));
    return RecordHead{.version = std::move(*entry->mutable_dbversion()),
                      .tag = std::move(*entry->mutable_tag())};
  }

 private:
  const std::string key_;
};

class HeadOfIdentityOperation final : public HeadOperation {
 public:
  using HeadOperation::HeadOperation;
  bool MayBeOfEmptied(const Status&) const override { return false; }
};

class DeleteOperation final : public Doing {
 public:
  DeleteOperation(std::string key, Expected expected, Durability durability, Terms terms,
                  StatusCallback done)
      : Doing(Header::DELETE, Kind::kWrite, terms, std::move(done)),
        key_(std::move(key)),
        expected_(std::move(expected)),
        durability_(durability) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    kinetic::KeyValue* entry = body->mutable_keyvalue();
    entry->set_key(key_);
    DescribeChange(expected_, durability_, entry);
  }

 protected:
  Status Check(const kinetic::Body& body) const override {
    return CheckChangedKey(key_, body.keyvalue());
  }

 private:
  const std::string key_;
  const Expected expected_;
  const Durability durability_;
};

class RangeOperation final : public Asking<std::vector<std::string>> {
 public:
  RangeOperation(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
                 Callback<std::vector<std::string>> done)
      : Asking(Header::GETKEYRANGE, Kind::kRead, terms, std::move(done)),
        first_(std::move(first)),
        last_(std::move(last)),
        max_(max),
        reverse_(reverse) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    kinetic::Range* range = body->mutable_range();
    range->set_startkey(first_);
    range->set_endkey(last_);
    range->set_startkeyinclusive(true);
    range->set_endkeyinclusive(true);
    range->set_maxreturned(max_);
    if (reverse_) range->set_reverse(true);
  }

  bool MayBeOfEmptied(const Status& answered) const override { return answered.ok(); }

 protected:
  Result<std::vector<std::string>> Read(KineticAnswer answer) override {
    TRY(CheckListed(answer.body->range(), first_, last_, max_, reverse_));
    auto& found = *answer.body->mutable_range()->mutable_keys();
    return std::vector<std::string>(std::make_move_iterator(found.begin()),
                                    std::make_move_iterator(found.end()));
  }

 private:
  const std::string first_;
  const std::string last_;
  const uint32_t max_;
  const bool reverse_;
};

class NeighbourOperation final : public Asking<KeyedRecord> {
 public:
  NeighbourOperation(std::string key, bool previous, Terms terms, Callback<KeyedRecord> done)
      : Asking(previous ? Header::GETPREVIOUS : Header::GETNEXT, Kind::kRead, terms,
               std::move(done)),
        key_(std::move(key)),
        previous_(previous) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_keyvalue()->set_key(key_);
  }

  bool MayBeOfEmptied(const Status& answered) const override {
    return answered.ok() || answered.code() == ENOENT;
  }

 protected:
  Result<KeyedRecord> Read(KineticAnswer answer) override {
    kinetic::KeyValue* entry = answer.body->mutable_keyvalue();
    if (entry->key().empty()) return Fail(EBADMSG, "it answered without a key");
    if (previous_ ? entry->key() >= key_ : entry->key() <= key_) {
      return Fail(EBADMSG, "it answered with a key on the wrong side of the one that was given");
    }
    KeyedRecord found;
    found.key = std::move(*entry->mutable_key());
    found.record.version = std::move(*entry->mutable_dbversion());
    found.record.tag = std::move(*entry->mutable_tag());
    found.record.value = SharedBytes(std::move(answer.value));
    return found;
  }

 private:
  const std::string key_;
  const bool previous_;
};

// The records of these keys, one by one: for a device that cannot list them. Lives as long as one
// of its questions is outstanding; answers come on one thread.
class RecordsOneByOne final : public std::enable_shared_from_this<RecordsOneByOne> {
 public:
  RecordsOneByOne(uint32_t value_limit, bool more, Callback<RangeRecords> done)
      : value_limit_(value_limit), done_(std::move(done)) {
    found_.more = more;
  }

  void Ask(std::vector<std::string> keys, Terms terms,
           const std::function<void(KineticOperationPtr)>& submit) {
    left_ = keys.size();
    found_.records.resize(keys.size());
    if (left_ == 0) return Finish();
    for (size_t i = 0; i < keys.size(); ++i) {
      found_.records[i].key = keys[i];
      submit(NewGet(std::move(keys[i]), ValueRange(), terms,
                    [self = shared_from_this(), i](Result<Record> record) {
                      self->Take(i, std::move(record));
                    }));
    }
  }

 private:
  void Take(size_t index, Result<Record> record) {
    RangeRecord& entry = found_.records[index];
    if (record.has_value()) {
      entry.record = *std::move(record);
      entry.has_value = entry.record.value.size() <= value_limit_;
      if (!entry.has_value) entry.record.value = {};
    } else if (record.error().code() == ENOENT) {
      entry.key.clear();  // deleted since it was listed; no key is empty
    } else if (record.error().code() == EBADMSG) {
      entry.damaged = true;
    } else {
      failure_ = record.error();
    }
    if (--left_ == 0) Finish();
  }

  void Finish() {
    if (!failure_.ok()) return done_(tl::unexpected(failure_));
    std::erase_if(found_.records, [](const RangeRecord& each) { return each.key.empty(); });
    done_(std::move(found_));
  }

  const uint32_t value_limit_;
  const Callback<RangeRecords> done_;
  size_t left_ = 0;
  RangeRecords found_;
  Status failure_;
};

class ListRecordsOperation final : public KineticOperation {
 public:
  ListRecordsOperation(std::string first, std::string last, uint32_t max, bool reverse,
                       uint32_t value_limit, Terms terms,
                       std::function<void(KineticOperationPtr)> submit, Callback<RangeRecords> done)
      : KineticOperation(Header::GETKEYRANGE, Kind::kRead, terms),
        first_(std::move(first)),
        last_(std::move(last)),
        max_(max),
        reverse_(reverse),
        value_limit_(value_limit),
        submit_(std::move(submit)),
        done_(std::move(done)) {}

  void Describe(DriveCapabilities capabilities, kinetic::Body* body) const override {
    kinetic::Range* range = body->mutable_range();
    range->set_startkey(first_);
    range->set_endkey(last_);
    range->set_startkeyinclusive(true);
    range->set_endkeyinclusive(true);
    range->set_maxreturned(AtMost(capabilities));
    if (reverse_) range->set_reverse(true);
    if (capabilities.range_records) range->set_valuelimit(value_limit_);
  }

  bool MayBeOfEmptied(const Status& answered) const override { return answered.ok(); }

  void Finish(Result<KineticAnswer> answer) override {
    // Moved out, as with every operation: they must go with the answer.
    const Callback<RangeRecords> done = std::exchange(done_, nullptr);
    const auto submit = std::exchange(submit_, nullptr);
    if (!answer.has_value()) return done(tl::unexpected(std::move(answer).error()));
    const std::string_view drive = answer->drive;
    const uint32_t most = AtMost(answer->capabilities);
    const Status valid = CheckListed(answer->body->range(), first_, last_, most, reverse_);
    if (!valid.ok()) return done(tl::unexpected(valid.OfDrive(drive)));
    if (!answer->capabilities.range_records) {
      auto& keys = *answer->body->mutable_range()->mutable_keys();
      const bool more = static_cast<uint32_t>(keys.size()) == most;
      std::vector<std::string> found(std::make_move_iterator(keys.begin()),
                                     std::make_move_iterator(keys.end()));
      std::make_shared<RecordsOneByOne>(value_limit_, more, done)
          ->Ask(std::move(found), terms(), submit);
      return;
    }
    Result<RangeRecords> records = Read(*std::move(answer));
    if (!records.has_value()) return done(tl::unexpected(records.error().OfDrive(drive)));
    done(std::move(records));
  }

 private:
  uint32_t AtMost(DriveCapabilities capabilities) const {
    return capabilities.range_records ? max_ : std::min(max_, kMaxRangeKeys);
  }

  Result<RangeRecords> Read(KineticAnswer answer) const {
    kinetic::Range& range = *answer.body->mutable_range();
    if (range.records_size() != range.keys_size()) {
      return Fail(EBADMSG, "it answered with {} keys and {} records", range.keys_size(),
                  range.records_size());
    }
    RangeRecords found;
    found.more = range.more();
    SharedBytes values(std::move(answer.value));
    for (int i = 0; i < range.keys_size(); ++i) {
      kinetic::Range::Record& from = *range.mutable_records(i);
      RangeRecord record{.key = std::move(*range.mutable_keys(i))};
      record.record.version = std::move(*from.mutable_version());
      record.record.tag = std::move(*from.mutable_tag());
      record.damaged = from.damaged();
      record.has_value = from.hasvalue() && !from.damaged();
      if (record.has_value) {
        if (from.valuebytes() > value_limit_ || from.valuebytes() > values.size()) {
          return Fail(EBADMSG, "it answered with records that do not fit their values");
        }
        record.record.value = values.Slice(0, from.valuebytes());
        values = values.Slice(from.valuebytes(), values.size() - from.valuebytes());
      }
      found.records.push_back(std::move(record));
    }
    if (!values.empty())
      return Fail(EBADMSG, "it answered with {} bytes of no record", values.size());
    return found;
  }

  const std::string first_;
  const std::string last_;
  const uint32_t max_;
  const bool reverse_;
  const uint32_t value_limit_;
  std::function<void(KineticOperationPtr)> submit_;
  Callback<RangeRecords> done_;
};

class FlushOperation final : public Doing {
 public:
  FlushOperation(Terms terms, StatusCallback done)
      : Doing(Header::FLUSHALLDATA, Kind::kWrite, terms, std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body*) const override {}
};

class InfoOperation final : public Asking<DriveInfo> {
 public:
  InfoOperation(Terms terms, Callback<DriveInfo> done)
      : Asking(Header::GETLOG, Kind::kRead, terms, std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    kinetic::GetLog* log = body->mutable_getlog();
    log->add_types(kinetic::GetLog::TEMPERATURES);
    log->add_types(kinetic::GetLog::CAPACITIES);
    log->add_types(kinetic::GetLog::CONFIGURATION);
  }

 protected:
  Result<DriveInfo> Read(KineticAnswer answer) override {
    const kinetic::GetLog& log = answer.body->getlog();
    const kinetic::GetLog::Configuration& configuration = log.configuration();
    DriveInfo info;
    info.capacity_bytes = log.capacity().nominalcapacityinbytes();
    info.portion_full = std::clamp(log.capacity().portionfull(), 0.0f, 1.0f);
    for (const kinetic::GetLog::Temperature& each : log.temperatures()) {
      info.temperature_celsius = std::max<double>(info.temperature_celsius, each.current());
    }
    info.vendor = configuration.vendor();
    info.model = configuration.model();
    info.serial_number = configuration.serialnumber();
    info.world_wide_name = configuration.worldwidename();
    info.software_version = configuration.version();
    info.protocol_version = configuration.protocolversion();
    info.failure = log.storefailure().substr(0, kMaxFailureBytes);
    TRY(ReadStarts(log, &info));
    return info;
  }

 private:
  // A list that cannot be is not one to go by, and neither is that there is none.
  static Status ReadStarts(const kinetic::GetLog& log, DriveInfo* info) {
    const auto impossible = [](std::string_view what) {
      return Fail(EIO, "what it says of its starts cannot be: {}", what);
    };
    if (log.starts_size() > static_cast<int>(kMaxDriveStarts)) return impossible("too many");
    std::set<uint64_t> ids;
    for (const kinetic::GetLog::Start& start : log.starts()) {
      if (start.id() == 0 || !ids.insert(start.id()).second) return impossible("an id twice, or 0");
      info->starts.push_back({start.id(), start.clean()});
    }
    info->start_count = log.startcount();
    if (info->start_count < ids.size()) return impossible("more than there were");
    if (!log.has_upmilliseconds()) return {};
    if (log.upmilliseconds() >= kTooManyMilliseconds) return impossible("up for too long");
    info->up = std::chrono::milliseconds(log.upmilliseconds());
    return {};
  }
};

class SetClusterVersionOperation final : public Doing {
 public:
  SetClusterVersionOperation(int64_t version, Terms terms, StatusCallback done)
      : Doing(Header::SETUP, Kind::kWrite, terms, std::move(done)), version_(version) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_setup()->set_setupoptype(kinetic::Setup::CLUSTER_VERSION_SETUPOP);
    body->mutable_setup()->set_newclusterversion(version_);
  }

 private:
  const int64_t version_;
};

class AskCapabilitiesOperation final : public Asking<DriveCapabilities> {
 public:
  AskCapabilitiesOperation(Terms terms, Callback<DriveCapabilities> done)
      : Asking(Header::GETLOG, Kind::kRead, terms, std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_getlog()->add_types(kinetic::GetLog::DEVICE);
    body->mutable_getlog()->mutable_device()->set_name(std::string(kCapabilitiesLog));
  }

 protected:
  Result<DriveCapabilities> Read(KineticAnswer answer) override {
    DriveCapabilities capabilities;
    // The signature does not cover the value. A device that can say the same within what is signed,
    // says it there.
    const kinetic::GetLog& log = answer.body->getlog();
    std::string_view left =
        log.has_capabilities() ? log.capabilities() : AsText(answer.value.bytes());
    while (!left.empty()) {
      const std::string_view line = left.substr(0, left.find('\n'));
      left.remove_prefix(std::min(line.size() + 1, left.size()));
      if (line == kRangeGetCapability) capabilities.range_get = true;
      if (line == kVersionPartCapability) capabilities.version_part = true;
      if (line == kRangeRecordsCapability) capabilities.range_records = true;
      if (line == kRoomsCapability) capabilities.rooms = true;
      if (line == kBoundCapability) capabilities.bound = true;
      if (line == kUnerasedCapability) capabilities.unerased = true;
      if (line == kClientsCapability) capabilities.clients = true;
      if (line == kSlowCapability) capabilities.slow = true;
      if (line == kGuardsCapability) capabilities.guards = true;
      if (line == kPutsCapability) capabilities.puts = true;
      if (line == kThenGetsCapability) capabilities.then_gets = true;
      if (line == kGetsCapability) capabilities.gets = true;
    }
    // They travel with puts, which go together to one that looks itself whether it was erased.
    capabilities.then_gets &= capabilities.puts && capabilities.unerased;
    capabilities.gets &= capabilities.unerased;
    return capabilities;
  }

  // Peers refuse a log that they do not have, or logs at all, in ways of their own.
  Result<DriveCapabilities> NoAnswer(Status failure) override {
    switch (failure.code()) {
      case ENOENT:
      case EINVAL:
      case EACCES: return DriveCapabilities{};
      default: return tl::unexpected(std::move(failure));
    }
  }
};

// A request for no log at all, which says who asks.
class Introduction final : public Doing {
 public:
  Introduction(ProgramName program, Terms terms, StatusCallback done)
      : Doing(Header::GETLOG, Kind::kRead, terms, std::move(done)), program_(std::move(program)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    kinetic::GetLog::Client* client = body->mutable_getlog()->mutable_client();
    client->set_program(program_.name);
    client->set_version(program_.version);
    client->set_host(HostName());
    client->set_process(static_cast<uint32_t>(getpid()));
    if (!program_.detail.empty()) client->set_detail(program_.detail);
  }

 private:
  const ProgramName program_;
};

class AskUseOperation final : public Asking<DriveUse> {
 public:
  AskUseOperation(Terms terms, Callback<DriveUse> done)
      : Asking(Header::GETLOG, Kind::kRead, terms, std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_getlog()->add_types(kinetic::GetLog::DEVICE);
    body->mutable_getlog()->mutable_device()->set_name(std::string(kClientsLog));
  }

 protected:
  Result<DriveUse> Read(KineticAnswer answer) override {
    if (!answer.capabilities.clients)
      return Fail(ENOTSUP, "this device, or this version of pinstriped, cannot");
    const kinetic::GetLog& log = answer.body->getlog();
    DriveUse use;
    for (const kinetic::GetLog::Client& each : log.clients()) {
      DriveUser& client = use.clients.emplace_back();
      client.program = {.name = Printable(each.program(), kMostUserText),
                        .version = Printable(each.version(), kMostUserText),
                        .detail = Printable(each.detail(), kMostUserText)};
      client.host = Printable(each.host(), kMostUserText);
      client.process = each.process();
      client.address = Printable(each.address(), kMostUserText);
      client.tls = each.tls();
      if (each.has_identity()) client.identity = each.identity();
      client.connected = Milliseconds(each.connectedmilliseconds());
      client.requests = each.requests();
      client.bytes_read = each.bytesread();
      client.bytes_written = each.byteswritten();
      client.connection = each.connection();
    }
    for (const kinetic::GetLog::Work& each : log.work()) {
      RequestsOfType& work = use.work.emplace_back();
      const int type = each.messagetype();
      work.is_read = type == Header::GET || type == Header::GETNEXT ||
                     type == Header::GETPREVIOUS || type == Header::GETKEYRANGE ||
                     type == Header::GETVERSION;
      work.is_write = type == Header::PUT || type == Header::DELETE || type == Header::END_BATCH ||
                      type == Header::FLUSHALLDATA;
      work.requests = each.requests();
      work.bytes = each.bytes();
      const size_t buckets = std::min<size_t>(each.took_size(), LatencyCounts::kBuckets);
      for (size_t i = 0; i < buckets; ++i) work.took.of[i] = each.took(static_cast<int>(i));
      work.took.nanoseconds = each.nanoseconds();
    }
    use.counted = Milliseconds(log.workmilliseconds());
    return use;
  }

  // One of others has no such log, or refuses to tell.
  Result<DriveUse> NoAnswer(Status failure) override {
    if (failure.code() != ENOENT && failure.code() != EINVAL) {
      return tl::unexpected(std::move(failure));
    }
    return Fail(ENOTSUP, "this device, or this version of pinstriped, cannot");
  }

 private:
  static Duration Milliseconds(uint64_t number) {
    return std::chrono::milliseconds(std::min(number, kTooManyMilliseconds));
  }
};

}  // namespace

KineticOperationPtr NewIntroduction(ProgramName program, Terms terms, StatusCallback done) {
  return std::make_shared<Introduction>(std::move(program), terms, std::move(done));
}

KineticOperationPtr NewAskUse(Terms terms, Callback<DriveUse> done) {
  return std::make_shared<AskUseOperation>(terms, std::move(done));
}

KineticOperationPtr NewGet(std::string key, ValueRange range, Terms terms, Callback<Record> done) {
  return std::make_shared<GetOperation>(std::move(key), range, terms, std::move(done));
}

KineticOperationPtr NewHead(std::string key, Terms terms, Callback<RecordHead> done) {
  return std::make_shared<HeadOperation>(std::move(key), terms, std::move(done));
}

KineticOperationPtr NewHeadOfIdentity(std::string key, Terms terms, Callback<RecordHead> done) {
  return std::make_shared<HeadOfIdentityOperation>(std::move(key), terms, std::move(done));
}

KineticOperationPtr NewDelete(std::string key, Expected expected, Durability durability,
                              Terms terms, StatusCallback done) {
  return std::make_shared<DeleteOperation>(std::move(key), std::move(expected), durability, terms,
                                           std::move(done));
}

KineticOperationPtr NewRange(std::string first, std::string last, uint32_t max, bool reverse,
                             Terms terms, Callback<std::vector<std::string>> done) {
  return std::make_shared<RangeOperation>(std::move(first), std::move(last), max, reverse, terms,
                                          std::move(done));
}

KineticOperationPtr NewGetNeighbour(std::string key, bool previous, Terms terms,
                                    Callback<KeyedRecord> done) {
  return std::make_shared<NeighbourOperation>(std::move(key), previous, terms, std::move(done));
}

KineticOperationPtr NewListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                                   uint32_t value_limit, Terms terms,
                                   std::function<void(KineticOperationPtr)> submit,
                                   Callback<RangeRecords> done) {
  return std::make_shared<ListRecordsOperation>(std::move(first), std::move(last), max, reverse,
                                                value_limit, terms, std::move(submit),
                                                std::move(done));
}

KineticOperationPtr NewFlush(Terms terms, StatusCallback done) {
  return std::make_shared<FlushOperation>(terms, std::move(done));
}

KineticOperationPtr NewInfo(Terms terms, Callback<DriveInfo> done) {
  return std::make_shared<InfoOperation>(terms, std::move(done));
}

KineticOperationPtr NewSetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  return std::make_shared<SetClusterVersionOperation>(version, terms, std::move(done));
}

KineticOperationPtr NewAskCapabilities(Terms terms, Callback<DriveCapabilities> done) {
  return std::make_shared<AskCapabilitiesOperation>(terms, std::move(done));
}

}  // namespace pinstripe
