#include "engines/etcd/txn.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::KeyValue;
using etcdserverpb::RequestOp;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

constexpr uint8_t kRecordForm = 1;
constexpr uint64_t kSign = uint64_t{1} << 63;

void CompareValue(TxnRequest& request, std::string key, Compare::Result result, std::string value) {
  Compare& compare = *request.add_compare();
  compare.set_target(Compare::VALUE);
  compare.set_result(result);
  compare.set_key(std::move(key));
  compare.set_value(std::move(value));
}

void RequireBeginning(TxnRequest& request, const std::string& key, const std::string& beginning) {
  CompareValue(request, key, Compare::GREATER, beginning);
  CompareValue(request, key, Compare::LESS, beginning + '\xff');
}

void RequireStore(TxnRequest& request, const EtcdKeys& keys, const EtcdFence& fence) {
  if (fence.version) {
    CompareValue(request, keys.store(), Compare::EQUAL,
                 EncodeEtcdStore({.id = fence.id, .version = *fence.version}));
    return;
  }
  // Of any version.
  CompareValue(request, keys.store(), Compare::GREATER, fence.id);
  CompareValue(request, keys.store(), Compare::LESS, fence.id + std::string(9, '\xff'));
}

void Require(TxnRequest& request, const EtcdKeys& keys, const EtcdCondition& condition) {
  const std::string key = keys.Of(condition.key);
  if (condition.kind == EtcdCondition::Kind::kVersion) {
    RequireBeginning(request, key, Writer().U8(kRecordForm).Text(condition.version).Take());
    return;
  }
  Compare& compare = *request.add_compare();
  compare.set_key(key);
  compare.set_result(Compare::EQUAL);
  if (condition.revision == 0) {
    compare.set_target(Compare::CREATE);
    compare.set_create_revision(0);
  } else {
    compare.set_target(Compare::MOD);
    compare.set_mod_revision(condition.revision);
  }
}

void Get(RequestOp& operation, std::string key) {
  operation.mutable_range()->set_key(std::move(key));
}

Failed Strange() { return Fail(EBADMSG, "its answer cannot be understood"); }

// The record that the answer number `i` tells of: null if there is none.
Result<KeyValue*> RecordAt(TxnResponse& answer, int i, const std::string& key) {
  if (i >= answer.responses_size() || !answer.responses(i).has_range()) return Strange();
  auto& range = *answer.mutable_responses(i)->mutable_range();
  if (range.records_size() == 0) return nullptr;
  KeyValue* const record = range.mutable_records(0);
  if (range.records_size() > 1 || record->key() != key || record->mod_revision() <= 0) {
    return Strange();
  }
  return record;
}

Result<Record> Decode(KeyValue& record) {
  return DecodeEngineRecord(SharedBytes(std::move(*record.mutable_value())));
}

Result<Record> ReadAt(TxnResponse& answer, int i, const std::string& key) {
  KeyValue* const record = TRY(RecordAt(answer, i, key));
  if (record == nullptr) return Fail(ENOENT, "no such key");
  return Decode(*record);
}

}  // namespace

EtcdKeys::EtcdKeys(std::string_view cluster)
    : store_(fmt::format("pinstripe/{}/store", cluster)),
      records_(fmt::format("pinstripe/{}/r", cluster)) {}

std::optional<std::string_view> EtcdKeys::KeyIn(std::string_view etcd_key) const {
  if (!etcd_key.starts_with(records_)) return std::nullopt;
  return etcd_key.substr(records_.size());
}

std::string EncodeEtcdStore(const EtcdStore& store) {
  return Writer().Raw(store.id).U64(static_cast<uint64_t>(store.version) ^ kSign).Take();
}

Result<EtcdStore> DecodeEtcdStore(std::string_view value) {
  Reader reader(value);
  EtcdStore store;
  store.id = reader.Raw(kEtcdStoreIdBytes);
  store.version = static_cast<int64_t>(reader.U64() ^ kSign);
  TRY(reader.Finish("what etcd says which store it is"));
  return store;
}

TxnRequest AskPlan(const EtcdKeys& keys, const EtcdFence& fence, const EtcdPlan& plan,
                   std::span<const EngineChange> changes, std::span<const std::string> encoded,
                   std::span<const std::string> reads) {
  TxnRequest request;
  RequireStore(request, keys, fence);
  for (const EtcdCondition& condition : plan.conditions) Require(request, keys, condition);
  for (const auto& [key, change] : plan.effects) {
    RequestOp& operation = *request.add_success();
    if (changes[change].put) {
      operation.mutable_put()->set_key(keys.Of(key));
      operation.mutable_put()->set_value(encoded[change]);
    } else {
      operation.mutable_remove()->set_key(keys.Of(key));
    }
  }
  for (const std::string& key : reads) Get(*request.add_success(), keys.Of(key));
  Get(*request.add_failure(), keys.store());
  for (const std::string& key : KeysOf(changes)) Get(*request.add_failure(), keys.Of(key));
  return request;
}

TxnRequest AskList(const EtcdKeys& keys, const EtcdFence& fence, const EngineRange& range,
                   uint32_t max) {
  TxnRequest request;
  RequireStore(request, keys, fence);
  auto& asked = *request.add_success()->mutable_range();
  asked.set_key(keys.Of(range.first));
  asked.set_range_end(keys.Of(range.last) + '\0');
  asked.set_limit(max);
  if (range.reverse) asked.set_order(etcdserverpb::RangeRequest::DESCEND);
  Get(*request.add_failure(), keys.store());
  return request;
}

// A comparison that is never true, so that the answer has the same form as those of the others.
TxnRequest AskStore(const EtcdKeys& keys) {
  TxnRequest request;
  Compare& compare = *request.add_compare();
  compare.set_key(keys.store());
  compare.set_target(Compare::MOD);
  compare.set_result(Compare::LESS);
  compare.set_mod_revision(0);
  Get(*request.add_failure(), keys.store());
  return request;
}

TxnRequest AskToSetStore(const EtcdKeys& keys, const EtcdStore* now, const EtcdStore& next) {
  TxnRequest request;
  if (now != nullptr) {
    CompareValue(request, keys.store(), Compare::EQUAL, EncodeEtcdStore(*now));
  } else {
    Compare& compare = *request.add_compare();
    compare.set_key(keys.store());
    compare.set_target(Compare::CREATE);
    compare.set_result(Compare::EQUAL);
    compare.set_create_revision(0);
  }
  auto& put = *request.add_success()->mutable_put();
  put.set_key(keys.store());
  put.set_value(EncodeEtcdStore(next));
  Get(*request.add_failure(), keys.store());
  return request;
}

Result<std::optional<EtcdStore>> StoreIn(const EtcdKeys& keys, const TxnResponse& answer) {
  if (answer.responses_size() == 0 || !answer.responses(0).has_range()) return Strange();
  const auto& range = answer.responses(0).range();
  if (range.records_size() == 0) return std::nullopt;
  if (range.records_size() > 1 || range.records(0).key() != keys.store()) return Strange();
  return TRY(DecodeEtcdStore(range.records(0).value()));
}

Result<EtcdSeenRecords> SeenIn(const EtcdKeys& keys, std::span<const EngineChange> changes,
                               TxnResponse& answer) {
  EtcdSeenRecords seen;
  int i = 0;
  for (const std::string& key : KeysOf(changes)) {
    KeyValue* const found = TRY(RecordAt(answer, ++i, keys.Of(key)));
    EtcdSeen& record = seen[key];
    if (found == nullptr) continue;
    record.exists = true;
    record.revision = found->mod_revision();
    Result<Record> decoded = Decode(*found);
    record.damaged = !decoded.has_value();
    if (decoded) record.version = std::move(decoded->version);
  }
  return seen;
}

std::vector<Result<Record>> ReadsIn(const EtcdKeys& keys, size_t effects,
                                    std::span<const std::string> reads, TxnResponse& answer) {
  std::vector<Result<Record>> records;
  int i = static_cast<int>(effects);
  for (const std::string& key : reads) records.push_back(ReadAt(answer, i++, keys.Of(key)));
  return records;
}

Result<EtcdPage> PageIn(const EtcdKeys& keys, const EngineRange& range, uint32_t max,
                        TxnResponse& answer) {
  if (answer.responses_size() != 1 || !answer.responses(0).has_range()) return Strange();
  auto& found = *answer.mutable_responses(0)->mutable_range();
  if (std::cmp_greater(found.records_size(), max)) return Strange();
  EtcdPage page;
  page.records.more = found.more();
  for (KeyValue& each : *found.mutable_records()) {
    const auto key = keys.KeyIn(each.key());
    if (!key) return Strange();
    RangeRecord listed{.key = std::string(*key), .record = {}};
    page.bytes += each.key().size() + each.value().size();
    if (Result<Record> record = Decode(each)) {
      listed.record = *std::move(record);
      listed.has_value = listed.record.value.size() <= range.value_limit;
      if (!listed.has_value) listed.record.value = {};
    } else {
      listed.damaged = true;
    }
    page.records.records.push_back(std::move(listed));
  }
  if (page.records.more && page.records.records.empty()) return Strange();
  return page;
}

}  // namespace pinstripe
