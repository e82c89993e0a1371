// What is told to a device of what took long, and asked of it (operation.h). The device and those
// who told it are strangers here: everything is bounded and cleaned.

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/try.h"
#include "base/utf8.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "kinetic/operation.h"
#include "kinetic/slow_messages.h"

namespace pinstripe {
namespace {

using kinetic::GetLog;
using kinetic::Header;
using Kind = KineticOperation::Kind;

constexpr uint64_t kTooManyMilliseconds = uint64_t{1} << 42;  // more than a hundred years

uint64_t Microseconds(Duration time) {
  return static_cast<uint64_t>(
      std::max<int64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count(), 0));
}

Duration FromMicroseconds(uint64_t number) {
  return std::chrono::microseconds(std::min(number, kTooManyMilliseconds * 1000));
}

Duration FromMilliseconds(uint64_t number) {
  return std::chrono::milliseconds(std::min(number, kTooManyMilliseconds));
}

class TellSlowOperation final : public KineticOperation {
 public:
  TellSlowOperation(const std::vector<SlowOperation>& operations, Terms terms, StatusCallback done)
      : KineticOperation(Header::GETLOG, Kind::kRead, terms), done_(std::move(done)) {
    for (const SlowOperation& each : operations)
      FillSlowOperation(each, said_.add_slowoperations());
  }

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    *body->mutable_getlog() = said_;
  }

  void Finish(Result<KineticAnswer> answer) override {
    done_(answer.has_value() ? Status() : std::move(answer).error());
  }

 private:
  GetLog said_;
  const StatusCallback done_;
};

DriveUser ClientOf(const GetLog::Client& said) {
  DriveUser client;
  client.program = {.name = Printable(said.program(), kMostUserText),
                    .version = Printable(said.version(), kMostUserText),
                    .detail = Printable(said.detail(), kMostUserText)};
  client.host = Printable(said.host(), kMostUserText);
  client.process = said.process();
  client.address = Printable(said.address(), kMostUserText);
  client.connection = said.connection();
  return client;
}

SlowRequest RequestOf(const GetLog::SlowRequest& said) {
  return {.connection = said.connection(),
          .sequence = said.sequence(),
          .type = said.messagetype(),
          .bytes = said.bytes(),
          .record = Printable(said.record(), kMostRecordText),
          .ago = FromMilliseconds(said.agomilliseconds()),
          .took = FromMicroseconds(said.microseconds()),
          .queue = FromMicroseconds(said.queuemicroseconds()),
          .held = FromMicroseconds(said.heldmicroseconds()),
          .store = FromMicroseconds(said.storemicroseconds()),
          .sync = FromMicroseconds(said.syncmicroseconds()),
          .status = said.status(),
          .client = ClientOf(said.client())};
}

class AskSlowOperation final : public KineticOperation {
 public:
  AskSlowOperation(Terms terms, Callback<DriveSlow> done)
      : KineticOperation(Header::GETLOG, Kind::kRead, terms), done_(std::move(done)) {}

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_getlog()->add_types(GetLog::DEVICE);
    body->mutable_getlog()->mutable_device()->set_name(std::string(kSlowLog));
  }

  void Finish(Result<KineticAnswer> answer) override {
    const Callback<DriveSlow> done = std::exchange(done_, nullptr);
    if (answer.has_value()) return done(Read(answer->capabilities, answer->body->getlog()));
    // One of others has no such log, or refuses to tell.
    const int code = answer.error().code();
    done(tl::unexpected(code == ENOENT || code == EINVAL ? CannotTell() : answer.error()));
  }

 private:
  static Status CannotTell() {
    return {ENOTSUP, "this device, or this version of pinstriped, cannot"};
  }

  static Result<DriveSlow> Read(DriveCapabilities capabilities, const GetLog& log) {
    if (!capabilities.slow) return tl::unexpected(CannotTell());
    DriveSlow slow;
    const auto count = [](int size, size_t most) {
      return static_cast<int>(std::min(static_cast<size_t>(size), most));
    };
    const int requests = count(log.slowrequests_size(), kMostSlowRequests);
    for (int i = 0; i < requests; ++i) slow.requests.push_back(RequestOf(log.slowrequests(i)));
    const int operations = count(log.slowoperations_size(), kMostSlowOperations);
    for (int i = 0; i < operations; ++i) {
      const GetLog::SlowOperation& each = log.slowoperations(i);
      slow.operations.push_back({SlowOperationOf(each), ClientOf(each.client())});
    }
    slow.slow_after = FromMilliseconds(log.slowmilliseconds());
    return slow;
  }

  Callback<DriveSlow> done_;
};

}  // namespace

std::string_view RequestWord(int message_type) {
  switch (message_type) {
    case Header::GET:
    case Header::GETS:
    case Header::GETVERSION:
    case Header::GETNEXT:
    case Header::GETPREVIOUS: return "read";
    case Header::GETKEYRANGE: return "list";
    case Header::PUT:
    case Header::PUTS: return "write";
    case Header::DELETE: return "delete";
    case Header::END_BATCH: return "batch";
    case Header::FLUSHALLDATA: return "flush";
    case Header::GETLOG: return "log";
    case Header::SETUP: return "setup";
    case Header::SECURITY: return "security";
    case Header::NOOP: return "noop";
    default: return "other";
  }
}

SlowOperation SlowOperationOf(const GetLog::SlowOperation& said) {
  SlowOperation operation{
      .id = said.id(),
      .operation = Printable(said.operation(), SlowOperation::kMostOperationBytes),
      .subject = Printable(said.subject(), SlowOperation::kMostSubjectBytes),
      .took = FromMicroseconds(said.microseconds()),
      .ago = FromMilliseconds(said.agomilliseconds()),
      .memory = FromMicroseconds(said.memorymicroseconds()),
      .drives = FromMicroseconds(said.drivesmicroseconds()),
      .turn = FromMicroseconds(said.turnmicroseconds()),
      .requests = {}};
  const size_t requests =
      std::min(static_cast<size_t>(said.requests_size()), SlowOperation::kMostRequests);
  for (size_t i = 0; i < requests; ++i) {
    const GetLog::SlowOperation::Request& each = said.requests(static_cast<int>(i));
    operation.requests.push_back({.drive = each.drive(),
                                  .waited = {.connection = each.connection(),
                                             .sequence = each.sequence(),
                                             .type = each.messagetype(),
                                             .took = FromMicroseconds(each.microseconds()),
                                             .answered = each.answered()}});
  }
  return operation;
}

void FillSlowOperation(const SlowOperation& operation, GetLog::SlowOperation* filled) {
  filled->set_operation(operation.operation.substr(0, SlowOperation::kMostOperationBytes));
  filled->set_subject(operation.subject.substr(0, SlowOperation::kMostSubjectBytes));
  filled->set_id(operation.id);
  filled->set_microseconds(Microseconds(operation.took));
  filled->set_agomilliseconds(Microseconds(operation.ago) / 1000);
  filled->set_memorymicroseconds(Microseconds(operation.memory));
  filled->set_drivesmicroseconds(Microseconds(operation.drives));
  filled->set_turnmicroseconds(Microseconds(operation.turn));
  for (const SlowOperation::Request& each : operation.requests) {
    GetLog::SlowOperation::Request* request = filled->add_requests();
    request->set_drive(each.drive);
    request->set_connection(each.waited.connection);
    request->set_sequence(each.waited.sequence);
    request->set_messagetype(each.waited.type);
    request->set_microseconds(Microseconds(each.waited.took));
    request->set_answered(each.waited.answered);
  }
}

KineticOperationPtr NewTellSlow(const std::vector<SlowOperation>& operations, Terms terms,
                                StatusCallback done) {
  return std::make_shared<TellSlowOperation>(operations, terms, std::move(done));
}

KineticOperationPtr NewAskSlow(Terms terms, Callback<DriveSlow> done) {
  return std::make_shared<AskSlowOperation>(terms, std::move(done));
}

}  // namespace pinstripe
