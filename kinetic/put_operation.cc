#include "kinetic/put_operation.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/try.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"

namespace pinstripe {
namespace {

using kinetic::Header;

constexpr int32_t kAlgorithmCrc32c = 4;

constexpr size_t kMostOfRecord = 2 * kMaxKeyBytes + 3 * kMaxVersionBytes + kMaxTagBytes;
constexpr size_t kAroundEach = 100;
static_assert(kMostPutsTogether * (kMostOfRecord + kAroundEach) +
                      kMostThenGetsTogether * kMaxKeyBytes + 4096 <=
                  kMaxMessageBytes,
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

// A read that follows a put.
struct ThenGet {
  std::function<void(KineticOperationPtr)> submit;
  Callback<Record> done;
};

class PutOperation final : public KineticOperation {
 public:
  // `then_get`: empty, or what is read then, and `read` says who wants it.
  PutOperation(Drive::PutRequest request, std::string then_get, Terms terms, ThenGet read,
               StatusCallback done)
      : KineticOperation(Header::PUT, Kind::kWrite, terms),
        request_(std::move(request)),
        then_get_(std::move(then_get)),
        read_(std::move(read)),
        done_(std::move(done)) {}

  const Drive::PutRequest* put() const override { return &request_; }
  const std::string* then_get() const override { return then_get_.empty() ? nullptr : &then_get_; }

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

  // With a read, of a device that knows them, the answer is that of the only put of its message.
  void Finish(Result<KineticAnswer> answer) override {
    // Moved out, as with every operation: what it holds on to must go with the answer.
    const StatusCallback done = std::exchange(done_, nullptr);
    ThenGet read = std::exchange(read_, {});
    const Status put = answer ? CheckKey(*answer) : answer.error();
    if (read.done) {
      if (!put.ok()) {
        read.done(tl::unexpected(put));
      } else if (std::optional<Result<Record>> found = ReadOf(*answer)) {
        read.done(*std::move(found));
      } else {
        read.submit(NewGet(then_get_, {}, terms(), std::move(read.done)));
      }
    }
    done(put);
  }

 private:
  Status CheckKey(const KineticAnswer& answer) const {
    const Status right = CheckChangedKey(request_.key, answer.body->keyvalue());
    return right.ok() ? right : right.OfDrive(answer.drive);
  }

  // None: it is to be asked for by itself.
  std::optional<Result<Record>> ReadOf(KineticAnswer& answer) const {
    const kinetic::Puts& told = answer.body->puts();
    if (!answer.capabilities.then_gets) return std::nullopt;
    if (told.records_size() > 0 &&
        told.records(0).read().status().code() == kinetic::Status::SERVICE_BUSY) {
      return std::nullopt;
    }
    if (const Status right = CheckRead(told); !right.ok()) {
      return tl::unexpected(right.OfDrive(answer.drive));
    }
    kinetic::KeyValue& entry =
        *answer.body->mutable_puts()->mutable_records(0)->mutable_read()->mutable_keyvalue();
    return Record{.version = std::move(*entry.mutable_dbversion()),
                  .tag = std::move(*entry.mutable_tag()),
                  .value = SharedBytes(std::move(answer.value))};
  }

  Status CheckRead(const kinetic::Puts& told) const {
    if (told.records_size() == 0) {
      return Fail(EHOSTUNREACH, "it told of other reads than it was asked for after its puts");
    }
    TRY(StatusOfAnswer(told.records(0).read().status()));
    return CheckAnsweredKey(then_get_, told.records(0).read().keyvalue());
  }

  const Drive::PutRequest request_;
  const std::string then_get_;
  ThenGet read_;
  StatusCallback done_;
};

class PutsTogether final : public KineticOperation {
 public:
  PutsTogether(std::vector<KineticOperationPtr> puts, Terms terms)
      : KineticOperation(Header::PUTS, Kind::kWrite, terms), puts_(std::move(puts)) {}

  std::span<const KineticOperationPtr> parts() const override { return puts_; }

  void Describe(DriveCapabilities capabilities, kinetic::Body* body) const override {
    for (const KineticOperationPtr& each : puts_) {
      const Drive::PutRequest& put = *each->put();
      kinetic::Puts::Record* record = body->mutable_puts()->add_records();
      DescribePut(put, capabilities, record->mutable_keyvalue());
      if (!put.value.empty()) record->set_valuebytes(static_cast<uint32_t>(put.value.size()));
      if (capabilities.then_gets && each->then_get() != nullptr) {
        record->set_thenget(*each->then_get());
      }
    }
  }

  // A copy: they are small.
  SharedBytes value() const override {
    if (puts_.size() == 1) return puts_[0]->value();
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

  bool MayBeOfEmptied(const Status& answered) const override {
    return std::ranges::any_of(puts_,
                               [&](const auto& put) { return put->MayBeOfEmptied(answered); });
  }

  void Finish(Result<KineticAnswer> answer) override {
    const bool reads_fit = answer && ReadsFit(answer->body->puts(), answer->value.size());
    SharedBytes values = answer ? SharedBytes(std::move(answer->value)) : SharedBytes();
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
      Buffer value;
      if (reads_fit && record.has_read()) {
        const size_t bytes = record.read().valuebytes();
        value = Buffer::CopyOf(values.bytes().first(bytes));
        values = values.Slice(bytes, values.size() - bytes);
        body.mutable_puts()->add_records()->mutable_read()->Swap(record.mutable_read());
      }
      puts_[i]->Finish(KineticAnswer{.body = &body,
                                     .value = std::move(value),
                                     .capabilities = answer->capabilities,
                                     .drive = answer->drive});
    }
  }

 private:
  // Whether an answer tells of the reads behind those puts that were made, and of no others, and
  // its value is made of theirs. Else none of them is believed.
  bool ReadsFit(const kinetic::Puts& told, size_t value_bytes) const {
    uint64_t bytes = 0;
    for (size_t i = 0; i < puts_.size(); ++i) {
      const bool expected =
          StatusOfPut(told, i, puts_.size()).ok() && puts_[i]->then_get() != nullptr;
      if (static_cast<size_t>(told.records_size()) != puts_.size()) return false;
      const kinetic::Puts::Record& record = told.records(static_cast<int>(i));
      if (record.has_read() != expected) return false;
      if (!record.has_read()) continue;
      if (record.read().status().code() != kinetic::Status::SUCCESS &&
          record.read().valuebytes() > 0) {
        return false;
      }
      bytes += record.read().valuebytes();
    }
    return bytes == value_bytes;
  }

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
  return std::make_shared<PutOperation>(std::move(request), "", terms, ThenGet(), std::move(done));
}

KineticOperationPtr NewPutThenGet(Drive::PutRequest request, std::string key, Terms terms,
                                  std::function<void(KineticOperationPtr)> submit,
                                  StatusCallback done, Callback<Record> read) {
  return std::make_shared<PutOperation>(std::move(request), std::move(key), terms,
                                        ThenGet{std::move(submit), std::move(read)},
                                        std::move(done));
}

KineticOperationPtr NewPutsTogether(std::vector<KineticOperationPtr> puts, Terms terms) {
  return std::make_shared<PutsTogether>(std::move(puts), terms);
}

}  // namespace pinstripe
