#include "kinetic/put_operation.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"

namespace pinstripe {
namespace {

using kinetic::Header;

constexpr int32_t kAlgorithmCrc32c = 4;

// Puts whose deadlines are no farther apart may go together, and time out with the last of them.
constexpr Duration kDeadlinesApart = std::chrono::milliseconds(20);

constexpr size_t kMostOfRecord = 2 * kMaxKeyBytes + 3 * kMaxVersionBytes + kMaxTagBytes;
constexpr size_t kAroundEach = 100;
static_assert(kMostPutsTogether * (kMostOfRecord + kAroundEach) + 4096 <= kMaxMessageBytes,
              "whatever is put together fits in a message");

void DescribePut(const Drive::PutRequest& request, DriveCapabilities capabilities,
                 kinetic::KeyValue* entry) {
  entry->set_key(request.key);
  if (request.guard) {
    entry->mutable_guard()->set_key(request.guard->key);
    entry->mutable_guard()->set_version(*request.guard->expected.version());
  }
  if (capabilities.rooms && request.room != Room::kData) {
    entry->set_room(static_cast<uint32_t>(request.room));
  }
  if (!request.version.empty()) entry->set_newversion(request.version);
  if (!request.tag.empty()) {
    entry->set_tag(request.tag);
    entry->set_algorithm(kAlgorithmCrc32c);
  }
  DescribeChange(request.expected, request.durability, entry);
}

class PutOperation final : public KineticOperation {
 public:
  PutOperation(Drive::PutRequest request, Terms terms, StatusCallback done)
      : KineticOperation(Header::PUT, Kind::kWrite, terms),
        request_(std::move(request)),
        done_(std::move(done)) {}

  const Drive::PutRequest* put() const override { return &request_; }

  Status CheckCapabilities(DriveCapabilities capabilities) const override {
    if (!request_.guard || capabilities.guards) return {};
    return Fail(ENOTSUP,
                "it cannot look at another record before it puts one, as this device, or this "
                "version of pinstriped, does not know guards; update it");
  }

  void Describe(DriveCapabilities capabilities, kinetic::Body* body) const override {
    DescribePut(request_, capabilities, body->mutable_keyvalue());
  }

  SharedBytes value() const override { return request_.value; }

  bool MayBeOfEmptied(const Status& answered) const override {
    return answered.ok() && request_.expected.version() && request_.expected.version()->empty();
  }

  void Finish(Result<KineticAnswer> answer) override {
    // Moved out, as with every operation: what it holds on to must go with the answer.
    const StatusCallback done = std::exchange(done_, nullptr);
    if (!answer) return done(std::move(answer).error());
    const Status right = CheckChangedKey(request_.key, answer->body->keyvalue());
    done(right.ok() ? right : right.OfDrive(answer->drive));
  }

 private:
  const Drive::PutRequest request_;
  StatusCallback done_;
};

// Of several, that of the last.
Terms TermsOf(std::span<const KineticOperationPtr> puts) {
  Terms terms = puts[0]->terms();
  for (const KineticOperationPtr& put : puts) {
    terms.deadline = std::max(terms.deadline, put->deadline());
  }
  return terms;
}

class PutsTogether final : public KineticOperation {
 public:
  explicit PutsTogether(std::vector<KineticOperationPtr> puts)
      : KineticOperation(Header::PUTS, Kind::kWrite, TermsOf(puts)), puts_(std::move(puts)) {}

  std::span<const KineticOperationPtr> parts() const override { return puts_; }

  void Describe(DriveCapabilities capabilities, kinetic::Body* body) const override {
    for (const KineticOperationPtr& each : puts_) {
      const Drive::PutRequest& put = *each->put();
      kinetic::Puts::Record* record = body->mutable_puts()->add_records();
      DescribePut(put, capabilities, record->mutable_keyvalue());
      if (!put.value.empty()) record->set_valuebytes(static_cast<uint32_t>(put.value.size()));
    }
  }

  // A copy: they are small.
  SharedBytes value() const override {
    size_t bytes = 0;
    for (const KineticOperationPtr& each : puts_) bytes += each->put()->value.size();
    Buffer all(bytes);
    MutableBytes space = all;
    for (const KineticOperationPtr& each : puts_) {
      const Bytes value = each->put()->value;
      CopyBytes(space, value);
      space = space.subspan(value.size());
    }
    return SharedBytes(std::move(all));
  }

  void Finish(Result<KineticAnswer> answer) override {
    for (size_t i = 0; i < puts_.size(); ++i) {
      if (!answer) {
        puts_[i]->Finish(tl::unexpected(answer.error()));
        continue;
      }
      kinetic::Puts& told = *answer->body->mutable_puts();
      const Status status = StatusOfPut(told, i, puts_.size());
      if (!status.ok()) {
        puts_[i]->Finish(tl::unexpected(status.OfDrive(answer->drive)));
        continue;
      }
      kinetic::Puts::Record& record = *told.mutable_records(static_cast<int>(i));
      kinetic::Body body;
      if (record.has_keyvalue()) body.mutable_keyvalue()->Swap(record.mutable_keyvalue());
      puts_[i]->Finish(KineticAnswer{.body = &body,
                                     .value = {},
                                     .capabilities = answer->capabilities,
                                     .drive = answer->drive});
    }
  }

 private:
  const std::vector<KineticOperationPtr> puts_;
};

}  // namespace

void DescribeChange(const Expected& expected, Durability durability, kinetic::KeyValue* entry) {
  if (!expected.version()) {
    entry->set_force(true);
  } else if (!expected.version()->empty()) {  // none and the empty version are the same
    entry->set_dbversion(*expected.version());
  }
  entry->set_synchronization(durability == Durability::kWriteThrough
                                 ? kinetic::KeyValue::WRITETHROUGH
                                 : kinetic::KeyValue::WRITEBACK);
}

Status CheckChangedKey(const std::string& changed, const kinetic::KeyValue& entry) {
  if (entry.key().empty() || entry.key() == changed) return {};
  return Fail(EHOSTUNREACH,
              "it confirmed a change of another key than the one that was to be changed, which may "
              "have been changed or not");
}

Status StatusOfPut(const kinetic::Puts& told, size_t number, size_t asked) {
  if (static_cast<size_t>(told.records_size()) == asked) {
    return StatusOfAnswer(told.records(static_cast<int>(number)).status());
  }
  return Fail(EHOSTUNREACH,
              "it told of {} puts where it was asked for {}, which may have been made or not",
              told.records_size(), asked);
}

KineticOperationPtr NewPut(Drive::PutRequest request, Terms terms, StatusCallback done) {
  return std::make_shared<PutOperation>(std::move(request), terms, std::move(done));
}

KineticOperationPtr NewPutsTogether(std::vector<KineticOperationPtr> puts) {
  return std::make_shared<PutsTogether>(std::move(puts));
}

KineticOperationPtr TakeNext(std::deque<KineticOperationPtr>& waiting, uint32_t most) {
  std::vector<KineticOperationPtr> puts;
  size_t bytes = 0;
  Time earliest = Time::max();
  Time latest = Time::min();
  const auto goes_along = [&](const KineticOperation& next) {
    if (next.put() == nullptr || bytes + next.put()->value.size() > kMostBytesTogether)
      return false;
    if (puts.empty()) return true;
    // What need not be durable does not wait for the flush of what must.
    return puts[0]->terms().cluster_version == next.terms().cluster_version &&
           puts[0]->put()->durability == next.put()->durability &&
           std::max(latest, next.deadline()) - std::min(earliest, next.deadline()) <=
               kDeadlinesApart;
  };
  while (!waiting.empty() && puts.size() < std::min<size_t>(most, kMostPutsTogether) &&
         goes_along(*waiting.front())) {
    bytes += waiting.front()->put()->value.size();
    earliest = std::min(earliest, waiting.front()->deadline());
    latest = std::max(latest, waiting.front()->deadline());
    puts.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
  if (puts.size() > 1) return NewPutsTogether(std::move(puts));
  if (puts.size() == 1) return std::move(puts[0]);
  KineticOperationPtr first = std::move(waiting.front());
  waiting.pop_front();
  return first;
}

}  // namespace pinstripe
