#include "drive/kinetic_operation.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "drive/kinetic.pb.h"
#include "drive/message.h"

namespace pinstripe {
namespace {

using Kind = KineticOperation::Kind;
using kinetic::Header;

constexpr int32_t kAlgorithmCrc32c = 4;
constexpr size_t kMaxFailureBytes = 1024;  // of what a device says about itself

// The version an entry must have, for a change of it.
void SetExpected(const Expected& expected, kinetic::KeyValue* entry) {
  if (!expected.version()) {
    entry->set_force(true);
  } else if (!expected.version()->empty()) {  // none and the empty version are the same
    entry->set_dbversion(*expected.version());
  }
}

void SetDurability(Durability durability, kinetic::KeyValue* entry) {
  entry->set_synchronization(durability == Durability::kWriteThrough
                                 ? kinetic::KeyValue::WRITETHROUGH
                                 : kinetic::KeyValue::WRITEBACK);
}

// A device that mixes up its answers must not go unnoticed. Some leave the key out.
Status CheckKey(const std::string& asked, const kinetic::KeyValue& entry) {
  if (!entry.has_key() || entry.key() == asked) return {};
  return Fail(EBADMSG, "it answered with another key than the one that was asked for");
}

// An operation whose answer is a T.
template <typename T>
class Asking : public KineticOperation {
 public:
  Asking(int message_type, Kind kind, Time deadline, Callback<T> done)
      : KineticOperation(message_type, kind, deadline), done_(std::move(done)) {}

  void Finish(Result<KineticAnswer> answer) final {
    // Moved out: what the callback holds on to must go with the answer, not with the operation,
    // which a sender may keep a moment longer.
    const Callback<T> done = std::exchange(done_, nullptr);
    if (!answer) return done(NoAnswer(std::move(answer).error()));
    const std::string_view drive = answer->drive;
    Result<T> result = Read(*std::move(answer));
    if (!result) result = tl::unexpected(result.error().Context(drive));
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
  Doing(int message_type, Kind kind, Time deadline, StatusCallback done)
      : KineticOperation(message_type, kind, deadline), done_(std::move(done)) {}

  void Finish(Result<KineticAnswer> answer) final {
    const StatusCallback done = std::exchange(done_, nullptr);
    done(answer ? Status() : std::move(answer).error());
  }

 private:
  StatusCallback done_;
};

class GetOperation final : public Asking<Record> {
 public:
  GetOperation(std::string key, ValueRange range, Time deadline, Callback<Record> done)
      : Asking(Header::GET, Kind::kRead, deadline, std::move(done)),
        key_(std::move(key)),
        range_(range) {}

  void Describe(DriveCapabilities capabilities, kinetic::Body* body) const override {
    kinetic::KeyValue* entry = body->mutable_keyvalue();
    entry->set_key(key_);
    if (range_.whole() || !capabilities.range_get) return;
    entry->set_valueoffset(range_.offset);
    entry->set_valuelength(range_.length);
  }

 protected:
  Result<Record> Read(KineticAnswer answer) override {
    kinetic::KeyValue* entry = answer.body->mutable_keyvalue();
    TRY(CheckKey(key_, *entry));
    Record record;
    record.version = std::move(*entry->mutable_dbversion());
    record.tag = std::move(*entry->mutable_tag());
    if (answer.capabilities.range_get && answer.value.size() > range_.length) {
      return Fail(EBADMSG, "it answered with {} bytes where {} were asked for", answer.value.size(),
                  range_.length);
    }
    record.value = SharedBytes(std::move(answer.value));
    if (!answer.capabilities.range_get && !range_.whole()) {
      const size_t offset = std::min<size_t>(range_.offset, record.value.size());
      const size_t length = std::min<size_t>(range_.length, record.value.size() - offset);
      record.value = record.value.Slice(offset, length);
    }
    return record;
  }

 private:
  const std::string key_;
  const ValueRange range_;
};

class HeadOperation final : public Asking<RecordHead> {
 public:
  HeadOperation(std::string key, Time deadline, Callback<RecordHead> done)
      : Asking(Header::GET, Kind::kRead, deadline, std::move(done)), key_(std::move(key)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_keyvalue()->set_key(key_);
    body->mutable_keyvalue()->set_metadataonly(true);
  }

 protected:
  Result<RecordHead> Read(KineticAnswer answer) override {
    kinetic::KeyValue* entry = answer.body->mutable_keyvalue();
    TRY(CheckKey(key_, *entry));
    return RecordHead{.version = std::move(*entry->mutable_dbversion()),
                      .tag = std::move(*entry->mutable_tag())};
  }

 private:
  const std::string key_;
};

class PutOperation final : public Doing {
 public:
  PutOperation(Drive::PutRequest request, Time deadline, StatusCallback done)
      : Doing(Header::PUT, Kind::kWrite, deadline, std::move(done)), request_(std::move(request)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    kinetic::KeyValue* entry = body->mutable_keyvalue();
    entry->set_key(request_.key);
    if (!request_.version.empty()) entry->set_newversion(request_.version);
    if (!request_.tag.empty()) {
      entry->set_tag(request_.tag);
      entry->set_algorithm(kAlgorithmCrc32c);
    }
    SetExpected(request_.expected, entry);
    SetDurability(request_.durability, entry);
  }

  SharedBytes value() const override { return request_.value; }

 private:
  const Drive::PutRequest request_;
};

class DeleteOperation final : public Doing {
 public:
  DeleteOperation(std::string key, Expected expected, Durability durability, Time deadline,
                  StatusCallback done)
      : Doing(Header::DELETE, Kind::kWrite, deadline, std::move(done)),
        key_(std::move(key)),
        expected_(std::move(expected)),
        durability_(durability) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    kinetic::KeyValue* entry = body->mutable_keyvalue();
    entry->set_key(key_);
    SetExpected(expected_, entry);
    SetDurability(durability_, entry);
  }

 private:
  const std::string key_;
  const Expected expected_;
  const Durability durability_;
};

class RangeOperation final : public Asking<std::vector<std::string>> {
 public:
  RangeOperation(std::string first, std::string last, uint32_t max, bool reverse, Time deadline,
                 Callback<std::vector<std::string>> done)
      : Asking(Header::GETKEYRANGE, Kind::kRead, deadline, std::move(done)),
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

 protected:
  Result<std::vector<std::string>> Read(KineticAnswer answer) override {
    auto& found = *answer.body->mutable_range()->mutable_keys();
    if (found.size() > static_cast<int>(max_)) {
      return Fail(EBADMSG, "it answered with {} keys where {} were asked for", found.size(), max_);
    }
    std::vector<std::string> keys;
    keys.reserve(found.size());
    for (std::string& key : found) {
      if (key < first_ || last_ < key) {
        return Fail(EBADMSG, "it answered with a key outside of the range that was asked for");
      }
      keys.push_back(std::move(key));
    }
    return keys;
  }

 private:
  const std::string first_;
  const std::string last_;
  const uint32_t max_;
  const bool reverse_;
};

class NeighbourOperation final : public Asking<KeyedRecord> {
 public:
  NeighbourOperation(std::string key, bool previous, Time deadline, Callback<KeyedRecord> done)
      : Asking(previous ? Header::GETPREVIOUS : Header::GETNEXT, Kind::kRead, deadline,
               std::move(done)),
        key_(std::move(key)),
        previous_(previous) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_keyvalue()->set_key(key_);
  }

 protected:
  Result<KeyedRecord> Read(KineticAnswer answer) override {
    kinetic::KeyValue* entry = answer.body->mutable_keyvalue();
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

class FlushOperation final : public Doing {
 public:
  FlushOperation(Time deadline, StatusCallback done)
      : Doing(Header::FLUSHALLDATA, Kind::kWrite, deadline, std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body*) const override {}
};

class InfoOperation final : public Asking<DriveInfo> {
 public:
  InfoOperation(Time deadline, Callback<DriveInfo> done)
      : Asking(Header::GETLOG, Kind::kRead, deadline, std::move(done)) {}

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
    return info;
  }
};

class AskCapabilitiesOperation final : public Asking<DriveCapabilities> {
 public:
  AskCapabilitiesOperation(Time deadline, Callback<DriveCapabilities> done)
      : Asking(Header::GETLOG, Kind::kRead, deadline, std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_getlog()->add_types(kinetic::GetLog::DEVICE);
    body->mutable_getlog()->mutable_device()->set_name(std::string(kCapabilitiesLog));
  }

 protected:
  Result<DriveCapabilities> Read(KineticAnswer answer) override {
    DriveCapabilities capabilities;
    std::string_view left = AsText(answer.value.bytes());
    while (!left.empty()) {
      const std::string_view line = left.substr(0, left.find('\n'));
      left.remove_prefix(std::min(line.size() + 1, left.size()));
      if (line == kRangeGetCapability) capabilities.range_get = true;
    }
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

}  // namespace

KineticOperationPtr NewGet(std::string key, ValueRange range, Time deadline,
                           Callback<Record> done) {
  return std::make_shared<GetOperation>(std::move(key), range, deadline, std::move(done));
}

KineticOperationPtr NewHead(std::string key, Time deadline, Callback<RecordHead> done) {
  return std::make_shared<HeadOperation>(std::move(key), deadline, std::move(done));
}

KineticOperationPtr NewPut(Drive::PutRequest request, Time deadline, StatusCallback done) {
  return std::make_shared<PutOperation>(std::move(request), deadline, std::move(done));
}

KineticOperationPtr NewDelete(std::string key, Expected expected, Durability durability,
                              Time deadline, StatusCallback done) {
  return std::make_shared<DeleteOperation>(std::move(key), std::move(expected), durability,
                                           deadline, std::move(done));
}

KineticOperationPtr NewRange(std::string first, std::string last, uint32_t max, bool reverse,
                             Time deadline, Callback<std::vector<std::string>> done) {
  return std::make_shared<RangeOperation>(std::move(first), std::move(last), max, reverse, deadline,
                                          std::move(done));
}

KineticOperationPtr NewGetNeighbour(std::string key, bool previous, Time deadline,
                                    Callback<KeyedRecord> done) {
  return std::make_shared<NeighbourOperation>(std::move(key), previous, deadline, std::move(done));
}

KineticOperationPtr NewFlush(Time deadline, StatusCallback done) {
  return std::make_shared<FlushOperation>(deadline, std::move(done));
}

KineticOperationPtr NewInfo(Time deadline, Callback<DriveInfo> done) {
  return std::make_shared<InfoOperation>(deadline, std::move(done));
}

KineticOperationPtr NewAskCapabilities(Time deadline, Callback<DriveCapabilities> done) {
  return std::make_shared<AskCapabilitiesOperation>(deadline, std::move(done));
}

}  // namespace pinstripe
