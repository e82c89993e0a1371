#include "kinetic/get_operation.h"

#include <span>
#include <utility>

#include "base/try.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"

namespace pinstripe {
namespace {

using kinetic::Header;

constexpr size_t kAroundEachRead = 100;
static_assert(kMostGetsTogether *
                          (kMaxKeyBytes + kMaxVersionBytes + kMaxTagBytes + kAroundEachRead) +
                      4096 <=
                  kMaxMessageBytes,
              "whatever is read together fits in a message, and its answer in another one");

class SmallGet final : public KineticOperation {
 public:
  SmallGet(std::string key, uint32_t likely_bytes, Terms terms,
           std::function<void(KineticOperationPtr)> submit, Callback<Record> done)
      : KineticOperation(Header::GET, Kind::kRead, terms),
        key_(std::move(key)),
        likely_bytes_(likely_bytes),
        submit_(std::move(submit)),
        done_(std::move(done)) {}

  const std::string* small_get() const override { return &key_; }
  uint32_t likely_bytes() const override { return likely_bytes_; }

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    body->mutable_keyvalue()->set_key(key_);
  }

  void Finish(Result<KineticAnswer> answer) override {
    // Moved out, as with every operation: what it holds on to must go with the answer.
    const Callback<Record> done = std::exchange(done_, nullptr);
    if (!answer) return done(tl::unexpected(std::move(answer).error()));
    kinetic::KeyValue* entry = answer->body->mutable_keyvalue();
    if (const Status right = CheckAnsweredKey(key_, *entry); !right.ok()) {
      return done(tl::unexpected(right.OfDrive(answer->drive)));
    }
    done(Record{.version = std::move(*entry->mutable_dbversion()),
                .tag = std::move(*entry->mutable_tag()),
                .value = SharedBytes(std::move(answer->value))});
  }

  // Not as a small one: it would be asked for with others once more.
  void AskAlone() { submit_(NewGet(key_, {}, terms(), std::exchange(done_, nullptr))); }

 private:
  const std::string key_;
  const uint32_t likely_bytes_;
  const std::function<void(KineticOperationPtr)> submit_;
  Callback<Record> done_;
};

Status CheckCount(const kinetic::Gets& told, size_t asked) {
  if (static_cast<size_t>(told.reads_size()) == asked) return {};
  return Fail(EHOSTUNREACH, "it told of {} records where it was asked for {}", told.reads_size(),
              asked);
}

class GetsTogether final : public KineticOperation {
 public:
  GetsTogether(std::vector<KineticOperationPtr> gets, Terms terms)
      : KineticOperation(Header::GETS, Kind::kRead, terms), gets_(std::move(gets)) {}

  std::span<const KineticOperationPtr> parts() const override { return gets_; }

  void Describe(DriveCapabilities, kinetic::Body* body) const override {
    for (const KineticOperationPtr& each : gets_) {
      body->mutable_gets()->add_keys(*each->small_get());
    }
  }

  void Finish(Result<KineticAnswer> answer) override {
    Status whole = answer ? CheckWhole(answer->body->gets(), answer->value.size()) : answer.error();
    if (answer && !whole.ok()) whole = whole.OfDrive(answer->drive);
    Bytes values = answer ? Bytes(answer->value) : Bytes();
    for (size_t i = 0; i < gets_.size(); ++i) {
      if (!whole.ok()) {
        FailOne(*gets_[i], whole);
        continue;
      }
      kinetic::Puts::Read& read = *answer->body->mutable_gets()->mutable_reads(static_cast<int>(i));
      const Bytes value = values.first(read.valuebytes());
      values = values.subspan(value.size());
      FinishOne(*gets_[i], read, value, *answer);
    }
  }

 private:
  // A version that only others want is no reason for a get to fail.
  void FailOne(KineticOperation& get, const Status& whole) const {
    const bool any_will_do = !get.terms().cluster_version && terms().cluster_version;
    if (whole.code() == EREMCHG && any_will_do) return static_cast<SmallGet&>(get).AskAlone();
    get.Finish(tl::unexpected(whole));
  }

  static void FinishOne(KineticOperation& get, kinetic::Puts::Read& read, Bytes value,
                        const KineticAnswer& answer) {
    if (read.status().code() == kinetic::Status::SERVICE_BUSY) {
      return static_cast<SmallGet&>(get).AskAlone();
    }
    const Status status = StatusOfAnswer(read.status());
    if (!status.ok()) return get.Finish(tl::unexpected(status.OfDrive(answer.drive)));
    kinetic::Body body;
    if (read.has_keyvalue()) body.mutable_keyvalue()->Swap(read.mutable_keyvalue());
    get.Finish(KineticAnswer{.body = &body,
                             .value = Buffer::CopyOf(value),
                             .capabilities = answer.capabilities,
                             .drive = answer.drive});
  }

  // Whether an answer tells of each, and its value is made of theirs. Else nothing is believed.
  Status CheckWhole(const kinetic::Gets& told, size_t value_bytes) const {
    TRY(CheckCount(told, gets_.size()));
    uint64_t bytes = 0;
    for (const kinetic::Puts::Read& read : told.reads()) {
      const bool has_failed = read.status().code() != kinetic::Status::SUCCESS;
      if (has_failed && read.valuebytes() > 0) {
        return Fail(EHOSTUNREACH, "it told of the value of a record that it could not read");
      }
      bytes += read.valuebytes();
    }
    if (bytes == value_bytes) return {};
    return Fail(EHOSTUNREACH, "the values of its records have {} bytes, and {} came", bytes,
                value_bytes);
  }

  const std::vector<KineticOperationPtr> gets_;  // each one a SmallGet
};

}  // namespace

KineticOperationPtr NewSmallGet(std::string key, uint32_t likely_bytes, Terms terms,
                                std::function<void(KineticOperationPtr)> submit,
                                Callback<Record> done) {
  return std::make_shared<SmallGet>(std::move(key), likely_bytes, terms, std::move(submit),
                                    std::move(done));
}

KineticOperationPtr NewGetsTogether(std::vector<KineticOperationPtr> gets, Terms terms) {
  return std::make_shared<GetsTogether>(std::move(gets), terms);
}

Status StatusOfGet(const kinetic::Gets& told, size_t number, size_t asked) {
  TRY(CheckCount(told, asked));
  return StatusOfAnswer(told.reads(static_cast<int>(number)).status());
}

}  // namespace pinstripe
