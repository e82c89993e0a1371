// One operation asked of a Kinetic device: what its command says, and what its answer means. Knows
// nothing of connections.
//
// What Describe() and value() tell never changes, so that one thread may send an operation while
// another one answers it. Finish() is called exactly once, with the drive's answer or with why
// there is none.

#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/operation_trace.h"
#include "base/runtime.h"
#include "base/status.h"
#include "drive/drive.h"
#include "kinetic/drive_slow.h"
#include "kinetic/drive_use.h"

namespace pinstripe {

namespace kinetic {
class Body;
}  // namespace kinetic

// A successful answer.
struct KineticAnswer {
  kinetic::Body* body;  // may be taken apart
  Buffer value;
  DriveCapabilities capabilities;  // of the device that answered
  std::string_view drive;          // its name, for messages
};

class KineticOperation;
// Shared by whoever sends it and whoever answers it.
using KineticOperationPtr = std::shared_ptr<KineticOperation>;

class KineticOperation {
 public:
  // A device limits the reads and the writes that it has to do at a time, each kind for itself.
  enum class Kind { kRead, kWrite };
  static constexpr int kKinds = 2;

  KineticOperation(int message_type, Kind kind, Terms terms)
      : message_type_(message_type), kind_(kind), terms_(terms) {}
  virtual ~KineticOperation() = default;

  int message_type() const { return message_type_; }  // kinetic::Header::MessageType
  Kind kind() const { return kind_; }
  Time deadline() const { return terms_.deadline; }
  const Terms& terms() const { return terms_; }
  uint64_t asked_by() const { return asked_by_; }  // an OperationTrace; 0: none

  // Null: it is no put.
  virtual const Drive::PutRequest* put() const { return nullptr; }
  // The key of what is to be read after the put; null: nothing is.
  virtual const std::string* then_get() const { return nullptr; }
  // The key of what is read, where it is a Get() of a small record; null: it is not.
  virtual const std::string* small_get() const { return nullptr; }
  virtual uint32_t likely_bytes() const { return 0; }  // of that record (ValueRange)
  // The operations that it is made of, in their order; none: only itself. It is counted, and takes
  // its place in a device's limits, as they would.
  virtual std::span<const KineticOperationPtr> parts() const { return {}; }

  // ENOTSUP: a device that can do only this cannot be asked for it.
  virtual Status CheckCapabilities(DriveCapabilities) const { return {}; }
  virtual void Describe(DriveCapabilities capabilities, kinetic::Body* body) const = 0;
  virtual SharedBytes value() const { return {}; }
  // Whether a device that was emptied could have answered the same, so that this means something
  // only if it was not.
  virtual bool MayBeOfEmptied(const Status& answered) const { return answered.code() == ENOENT; }
  virtual void Finish(Result<KineticAnswer> answer) = 0;

 private:
  const int message_type_;
  const Kind kind_;
  const Terms terms_;
  const uint64_t asked_by_ = OperationTrace::CurrentId();
};

KineticOperationPtr NewGet(std::string key, ValueRange range, Terms terms, Callback<Record> done);
KineticOperationPtr NewHead(std::string key, Terms terms, Callback<RecordHead> done);
// The same, of a record by which it is looked whether a device was emptied.
KineticOperationPtr NewHeadOfIdentity(std::string key, Terms terms, Callback<RecordHead> done);
KineticOperationPtr NewPut(Drive::PutRequest request, Terms terms, StatusCallback done);
KineticOperationPtr NewDelete(std::string key, Expected expected, Durability durability,
                              Terms terms, StatusCallback done);
KineticOperationPtr NewRange(std::string first, std::string last, uint32_t max, bool reverse,
                             Terms terms, Callback<std::vector<std::string>> done);
KineticOperationPtr NewGetNeighbour(std::string key, bool previous, Terms terms,
                                    Callback<KeyedRecord> done);
// A device that cannot list records is asked for keys, and then for each record, by `submit`.
KineticOperationPtr NewListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                                   uint32_t value_limit, Terms terms,
                                   std::function<void(KineticOperationPtr)> submit,
                                   Callback<RangeRecords> done);
KineticOperationPtr NewFlush(Terms terms, StatusCallback done);
KineticOperationPtr NewInfo(Terms terms, Callback<DriveInfo> done);

// Sets the cluster version of a device.
KineticOperationPtr NewSetClusterVersion(int64_t version, Terms terms, StatusCallback done);

// What the device can do beyond the core; a device that has no such log can do nothing.
KineticOperationPtr NewAskCapabilities(Terms terms, Callback<DriveCapabilities> done);

// Tells a device that wants to know (DriveCapabilities::clients) which program this is.
KineticOperationPtr NewIntroduction(ProgramName program, Terms terms, StatusCallback done);
// ENOTSUP: the device does not tell.
KineticOperationPtr NewAskUse(Terms terms, Callback<DriveUse> done);

// Tells a device that wants to know (DriveCapabilities::slow) what took long for us.
KineticOperationPtr NewTellSlow(const std::vector<SlowOperation>& operations, Terms terms,
                                StatusCallback done);
// ENOTSUP: the device does not tell.
KineticOperationPtr NewAskSlow(Terms terms, Callback<DriveSlow> done);

}  // namespace pinstripe
