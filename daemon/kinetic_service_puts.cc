// KineticService, second part: puts, one by one and several in one message.

#include <algorithm>
#include <utility>
#include <vector>

#include "base/try.h"
#include "daemon/kinetic_service.h"
#include "daemon/message_reads.h"
#include "daemon/put_entry.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using kinetic::KeyValue;

bool IsSeveral(const Command& request) { return request.header().messagetype() == Header::PUTS; }

// EINVAL: it is not what a request for several puts must be.
Status CheckPuts(const Command& request, size_t value_bytes) {
  const kinetic::Puts& puts = request.body().puts();
  if (request.header().has_batchid()) {
    return Fail(EINVAL, "several puts in one message cannot be a part of a batch");
  }
  if (puts.records_size() < 1 || puts.records_size() > static_cast<int>(kMostPutsTogether)) {
    return Fail(EINVAL, "{} puts in one message; 1 to {} can be", puts.records_size(),
                kMostPutsTogether);
  }
  uint64_t bytes = 0;
  size_t reads = 0;
  for (const kinetic::Puts::Record& record : puts.records()) {
    bytes += record.valuebytes();
    if (!record.has_thenget()) continue;
    ++reads;
    const size_t length = record.thenget().size();
    if (length < 1 || length > kMaxKeyBytes) {
      return Fail(EINVAL, "a key of {} bytes to be read after a put; 1 to {} can be", length,
                  kMaxKeyBytes);
    }
  }
  if (reads > kMostThenGetsTogether) {
    return Fail(EINVAL, "{} reads after puts in one message; the limit is {}", reads,
                kMostThenGetsTogether);
  }
  if (bytes == value_bytes) return {};
  return Fail(EINVAL, "the values of its puts have {} bytes, and {} came with it", bytes,
              value_bytes);
}

bool HasReads(const Command& request) {
  return IsSeveral(request) &&
         std::ranges::any_of(request.body().puts().records(),
                             [](const kinetic::Puts::Record& each) { return each.has_thenget(); });
}

}  // namespace

// The changes that requests ask for, and where it is said what became of each.
class KineticService::PutRun {
 public:
  PutRun(const KineticService& service, size_t requests) : service_(service), outcomes_(requests) {}

  // The puts of one request, which has this number. False: one of them must not be made, and the
  // answer says why.
  bool Add(const PutRequest& put, size_t number);

  const std::vector<Engine::Change>& changes() const { return changes_; }

  void Tell(size_t change, const Status& status) {
    const Place& place = places_[change];
    SetStatus(status, place.said);
    if (status.ok() && place.wants_flush) outcomes_[place.request].after_flush = true;
  }

  // Makes the reads that follow the puts of a request, where those were made, and says so in its
  // answer. What goes with that. None: `at_once`, and one of them would have to wait; then the
  // answer has none of them.
  static std::optional<SharedBytes> Read(KineticService& service, const PutRequest& put,
                                         bool at_once);

  std::vector<Outcome> TakeOutcomes() { return std::move(outcomes_); }

 private:
  struct Place {
    size_t request;
    bool wants_flush;
    kinetic::Status* said;
  };

  Status CheckWhole(const PutRequest& put) const {
    TRY(service_.CheckAdmitted(put.caller, put.answer));
    return IsSeveral(*put.request) ? CheckPuts(*put.request, put.value.size())
                                   : CheckSinglePut(*put.request);
  }
  bool AddOne(const PutRequest& put, size_t number, const KeyValue& entry, SharedBytes value,
              kinetic::Status* said);

  const KineticService& service_;
  std::vector<Outcome> outcomes_;
  std::vector<Engine::Change> changes_;
  std::vector<Place> places_;
};

bool KineticService::PutRun::Add(const PutRequest& put, size_t number) {
  const Command& request = *put.request;
  kinetic::Body* told = put.answer->mutable_body();
  kinetic::Status* whole = put.answer->mutable_status();
  if (!IsSeveral(request)) told->mutable_keyvalue();  // as every answer to a PUT has one
  const Status may = CheckWhole(put);
  SetStatus(may, whole);
  if (!may.ok()) return false;
  if (!IsSeveral(request)) {
    return AddOne(put, number, request.body().keyvalue(), put.value, whole);
  }
  bool all = true;
  size_t offset = 0;
  for (const kinetic::Puts::Record& record : request.body().puts().records()) {
    SharedBytes value = put.value.Slice(offset, record.valuebytes());
    offset += record.valuebytes();
    kinetic::Status* said = told->mutable_puts()->add_records()->mutable_status();
    all = AddOne(put, number, record.keyvalue(), std::move(value), said) && all;
  }
  return all;
}

bool KineticService::PutRun::AddOne(const PutRequest& put, size_t number, const KeyValue& entry,
                                    SharedBytes value, kinetic::Status* said) {
  const Status added = [&]() -> Status {
    TRY(AllowPut(put.caller.identity->rights, entry, put.caller.tls));
    const bool wants_flush = TRY(WantsFlush(entry));
    const bool bound = put.request->header().bound();
    Engine::Change change = TRY(PutOf(entry, bound, std::move(value)));
    changes_.push_back(std::move(change));
    places_.push_back({number, wants_flush, said});
    return {};
  }();
  if (!added.ok()) SetStatus(added, said);
  return added.ok();
}

std::vector<KineticService::Outcome> KineticService::ExecutePuts(std::span<const PutRequest> puts) {
  PutRun run(*this, puts.size());
  const Gate::Visit visit(executing_);
  for (size_t i = 0; i < puts.size(); ++i) run.Add(puts[i], i);
  const std::vector<Status> statuses = engine_.PutEach(run.changes());
  for (size_t i = 0; i < statuses.size(); ++i) run.Tell(i, statuses[i]);
  std::vector<Outcome> outcomes = run.TakeOutcomes();
  for (size_t i = 0; i < puts.size(); ++i) {
    if (HasReads(*puts[i].request))
      outcomes[i].value = *PutRun::Read(*this, puts[i], /*at_once=*/false);
  }
  return outcomes;
}

std::optional<std::vector<KineticService::Outcome>> KineticService::ExecutePutsAtOnce(
    std::span<const PutRequest> puts) {
  const Gate::QuickVisit visit(executing_);
  if (!visit.inside()) return std::nullopt;
  PutRun run(*this, puts.size());
  for (size_t i = 0; i < puts.size(); ++i) {
    if (!run.Add(puts[i], i)) return std::nullopt;
  }
  if (!engine_.PutAllAtOnce(run.changes())) return std::nullopt;
  for (size_t i = 0; i < run.changes().size(); ++i) run.Tell(i, {});
  std::vector<Outcome> outcomes = run.TakeOutcomes();
  for (size_t i = 0; i < puts.size(); ++i) {
    if (!HasReads(*puts[i].request)) continue;
    std::optional<SharedBytes> values = PutRun::Read(*this, puts[i], /*at_once=*/true);
    outcomes[i].reads_left = !values.has_value();
    if (values) outcomes[i].value = *std::move(values);
  }
  return outcomes;
}

SharedBytes KineticService::MakeReads(const PutRequest& put) {
  const Gate::Visit visit(executing_);
  return *PutRun::Read(*this, put, /*at_once=*/false);
}

std::optional<SharedBytes> KineticService::PutRun::Read(KineticService& service,
                                                        const PutRequest& put, bool at_once) {
  const kinetic::Puts& asked = put.request->body().puts();
  if (put.answer->body().puts().records_size() == 0) return SharedBytes();  // refused as a whole
  auto& told = *put.answer->mutable_body()->mutable_puts()->mutable_records();
  // Since its puts were made it may have been erased, if they were made at once and these are not.
  const MessageReads::Reader reader{put.caller.identity->rights, put.caller.tls,
                                    service.CheckAdmitted(put.caller, put.answer)};
  MessageReads reads(service.engine_, reader, kMostThenGetBytes, at_once);
  for (int i = 0; i < told.size(); ++i) {
    if (!asked.records(i).has_thenget()) continue;
    if (told[i].status().code() != kinetic::Status::SUCCESS) continue;
    if (reads.Add(asked.records(i).thenget(), told[i].mutable_read())) continue;
    for (kinetic::Puts::Record& each : told) each.clear_read();
    return std::nullopt;
  }
  return reads.TakeValues();
}

}  // namespace pinstripe
