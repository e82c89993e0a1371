#include "engines/postgres/requests.h"

#include <algorithm>
#include <map>

#include "base/byte_text.h"
#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"
#include "base/utf8.h"
#include "engines/postgres/server_facts.h"

namespace pinstripe {
namespace {

constexpr size_t kRaiseParameter = 2;  // of PgStatement::kChange
constexpr size_t kMostLook = 100;      // rows
constexpr size_t kMostText = 100;      // of a name

std::string_view HeadOf(std::string_view key) { return key.substr(0, kPgKeyBytes); }
std::string_view RestOf(std::string_view key) {
  return key.substr(std::min(key.size(), kPgKeyBytes));
}

// As EncodeEngineRecord() takes it.
uint32_t SumOf(const Record& record) {
  constexpr uint8_t kForm = 1;
  const std::string head = Writer().U8(kForm).Text(record.version).Text(record.tag).Take();
  return Crc32c(record.value, Crc32c(AsBytes(head)));
}

PgValue VersionParameter(const Terms& terms) {
  if (!terms.cluster_version) return std::nullopt;
  return PgBigint(*terms.cluster_version);
}

// Keys in two arrays. The one of the rests is empty where they all are, as they mostly are.
class KeyArrays {
 public:
  void Add(std::string_view key) {
    keys_.Add(HeadOf(key));
    rests_.Add(RestOf(key));
    has_rests_ = has_rests_ || key.size() > kPgKeyBytes;
  }
  void AddNull() {
    keys_.AddNull();
    rests_.AddNull();
  }
  std::string Keys() const { return keys_.Take(); }
  std::string Rests() const { return has_rests_ ? rests_.Take() : PgArray(PgType::kBytea).Take(); }

 private:
  PgArray keys_{PgType::kBytea};
  PgArray rests_{PgType::kBytea};
  bool has_rests_ = false;
};

// All locks of a batch, each once, in their order.
class Locks {
 public:
  explicit Locks(const PgSql& sql) : sql_(sql) {}
  void Add(std::string_view key, bool exclusive) {
    bool& kind = locks_[sql_.LockOf(key)];
    kind = kind || exclusive;
  }
  std::string Numbers() const {
    PgArray numbers(PgType::kBigint);
    for (const auto& [lock, exclusive] : locks_) numbers.AddBigint(lock);
    return numbers.Take();
  }
  std::string Kinds() const {
    PgArray kinds(PgType::kBoolean);
    for (const auto& [lock, exclusive] : locks_) kinds.AddBoolean(exclusive);
    return kinds.Take();
  }

 private:
  const PgSql& sql_;
  std::map<int64_t, bool> locks_;
};

PgCall ChangeCall(const std::string& store, const Terms& terms, const EngineBatch& batch,
                  const PgSql& sql) {
  Locks locks(sql);
  KeyArrays keys;
  KeyArrays guards;
  PgArray puts(PgType::kBoolean);
  PgArray expected(PgType::kBytea);
  PgArray versions(PgType::kBytea);
  PgArray tags(PgType::kBytea);
  PgArray values(PgType::kBytea);
  PgArray sums(PgType::kInteger);
  PgArray guard_versions(PgType::kBytea);
  for (const EngineChange& change : batch.changes) {
    locks.Add(change.key, true);
    keys.Add(change.key);
    puts.AddBoolean(change.put.has_value());
    change.expected.version() ? expected.Add(*change.expected.version()) : expected.AddNull();
    const Record none;
    const Record& put = change.put ? *change.put : none;
    versions.Add(put.version);
    tags.Add(put.tag);
    values.Add(put.value.text());
    sums.Add(Writer().U32(SumOf(put)).bytes());
    if (change.guard) {
      locks.Add(change.guard->key, false);
      guards.Add(change.guard->key);
      guard_versions.Add(change.guard->expected.version().value_or(""));
    } else {
      guards.AddNull();
      guard_versions.AddNull();
    }
  }
  for (const std::string& key : batch.reads) locks.Add(key, false);
  return {.statement = PgStatement::kChange,
          .parameters = {store, VersionParameter(terms), PgBoolean(false), locks.Numbers(),
                         locks.Kinds(), keys.Keys(), keys.Rests(), puts.Take(), expected.Take(),
                         versions.Take(), tags.Take(), values.Take(), sums.Take(), guards.Keys(),
                         guards.Rests(), guard_versions.Take()}};
}

// One that changes nothing but the cluster version.
PgCall RaiseCall(const std::string& store, const Terms& terms) {
  const std::string none = PgArray(PgType::kBytea).Take();
  return {.statement = PgStatement::kChange,
          .parameters = {store, VersionParameter(terms), PgBoolean(true),
                         PgArray(PgType::kBigint).Take(), PgArray(PgType::kBoolean).Take(), none,
                         none, PgArray(PgType::kBoolean).Take(), none, none, none, none,
                         PgArray(PgType::kInteger).Take(), none, none, none}};
}

Status StatusOfCode(char code) {
  switch (code) {
    case 'o': return {};
    case 's': return Fail(ESTALE, "the record has another version");
    case 'n': return Fail(ENOENT, "no such key");
    case 'g': return Fail(ECANCELED, "the guard has another version");
    default: return Fail(EBADMSG, "its answer to a change cannot be understood");
  }
}

Failed Strange(std::string_view asked) {
  return Fail(EBADMSG, "its answer to {} cannot be understood", asked);
}

// Version, tag, value and sum are at `column` and behind it.
Result<Record> RecordAt(const PgRow& row, int column) {
  const auto version = row.Text(column);
  const auto tag = row.Text(column + 1);
  auto value = row.Bytes(column + 2);
  const auto sum = row.Integer(column + 3);
  if (!version || !tag || !value || !sum) return Strange("a read");
  Record record{.version = *version, .tag = *tag, .value = *std::move(value)};
  if (SumOf(record) != static_cast<uint32_t>(*sum)) {
    return Fail(EBADMSG, "the record does not match its checksum");
  }
  return record;
}

Result<EngineAnswer> AnswerOf(const std::vector<PgRows>& rows, size_t changes, size_t reads) {
  EngineAnswer answer;
  size_t call = 0;
  if (changes > 0) {
    const auto codes = rows[call++][0].Text(2);
    if (!codes || codes->size() != changes) return Strange("a batch");
    for (const char code : *codes) answer.changes.push_back(StatusOfCode(code));
  } else if (rows.size() > (reads > 0 ? 1 : 0)) {
    ++call;  // one that raised the cluster version
  }
  if (reads == 0) return answer;
  const Status none = Fail(ENOENT, "no such key");
  answer.reads.assign(reads, tl::unexpected(none));
  for (const PgRow& row : rows[call]) {
    const auto place = row.Integer(2);
    if (!place && rows[call].size() == 1) break;  // nothing was found
    if (!place || *place < 1 || static_cast<size_t>(*place) > reads) return Strange("a read");
    answer.reads[static_cast<size_t>(*place) - 1] = RecordAt(row, 3);
  }
  return answer;
}

Result<RangeRecords> ListOf(const PgRows& rows, uint32_t max) {
  RangeRecords list;
  int32_t found = 0;
  for (const PgRow& row : rows) {
    const auto count = row.Integer(2);
    if (!count && rows.size() == 1) return list;
    const auto key = row.Text(3);
    const auto rest = row.Text(4);
    const auto version = row.Text(5);
    const auto tag = row.Text(6);
    if (!count || !key || !rest || !version || !tag) return Strange("a list");
    found = *count;
    if (list.records.size() == max) break;  // it only tells that there is more
    RangeRecord listed{.key = *key + *rest, .record = {.version = *version, .tag = *tag}};
    if (row.Bytes(7)) {
      Result<Record> record = RecordAt(row, 5);
      listed.damaged = !record.has_value();
      listed.has_value = record.has_value();
      listed.record = record.has_value() ? *std::move(record) : Record();
    }
    list.records.push_back(std::move(listed));
  }
  list.more = static_cast<size_t>(std::max(found, 0)) > list.records.size();
  return list;
}

Result<PgLook> LookOf(const PgRows& rows) {
  PgLook look;
  bool streams_in_step = false;
  for (const PgRow& row : rows) {
    look.position = 0;
    if (!row.IsTrue(7)) continue;
    const std::string state = row.Text(10).value_or("");
    const std::string sync = row.Text(11).value_or("");
    EngineMember standby{.name = Printable(row.Text(8).value_or(""), kMostText),
                         .address = Printable(row.Text(9).value_or(""), kMostText),
                         .is_up = true};
    // Who may not see more is told that there is one.
    standby.note = "standby";
    if (!sync.empty()) standby.note += sync == "async" ? ", not waited for" : ", waited for";
    if (!state.empty() && state != "streaming") {
      standby.note += ", " + Printable(state, kMostText);
    }
    if (const auto behind = row.Bigint(12); behind && *behind > 0) {
      standby.note += fmt::format(", {} behind", BytesText(static_cast<uint64_t>(*behind)));
    }
    streams_in_step = streams_in_step || sync.empty() ||
                      (state == "streaming" && (sync == "sync" || sync == "quorum"));
    look.standbys.push_back(std::move(standby));
  }
  const PgRow& first = rows.front();
  look.state.software = "PostgreSQL " + Printable(first.Text(3).value_or("?"), kMostText);
  look.state.used_bytes = static_cast<uint64_t>(std::max<int64_t>(first.Bigint(2).value_or(0), 0));
  const std::string synchronous = first.Text(5).value_or("");
  look.state.warnings = PgWarnings(first.Text(4).value_or(""), synchronous, look.standbys.size());
  if (!synchronous.empty() && !streams_in_step) {
    look.state.alarms.emplace_back(
        "no standby that it waits for is connected, so changes hang: start one, or set "
        "'synchronous_standby_names' otherwise");
  }
  return look;
}

template <typename T>
std::pair<PgRequest::Take, PgRequest::Fail> AnswersOf(
    Callback<T> done, std::function<Result<T>(const std::vector<PgRows>&)> interpret) {
  const auto shared = std::make_shared<Callback<T>>(std::move(done));
  return {[shared, interpret = std::move(interpret)](const std::vector<PgRows>& rows) {
            (*shared)(interpret(rows));
          },
          [shared](const Status& why) { (*shared)(tl::unexpected(why)); }};
}

}  // namespace

PgRequest::PgRequest(std::vector<PgCall> calls, Terms terms, Take take, Fail fail)
    : calls_(std::move(calls)), terms_(terms), take_(std::move(take)), fail_(std::move(fail)) {
  for (const PgCall& call : calls_) {
    for (const PgValue& value : call.parameters) bytes_ += value ? value->size() : 0;
  }
}

void PgRequest::Raise(const std::string& store) {
  raises_ = true;
  if (calls_[0].statement == PgStatement::kChange) {
    calls_[0].parameters[kRaiseParameter] = PgBoolean(true);
  } else {
    calls_.insert(calls_.begin(), RaiseCall(store, terms_));
  }
}

void PgRequest::Answer(std::vector<PgRows> rows) {
  fail_ = nullptr;
  if (const Take take = std::exchange(take_, nullptr)) take(std::move(rows));
}

void PgRequest::AnswerFailure(const Status& why) {
  take_ = nullptr;
  if (const Fail fail = std::exchange(fail_, nullptr)) fail(why);
}

Result<PgVerdict> VerdictOf(const std::vector<PgRows>& rows) {
  for (const PgRows& each : rows) {
    if (each.empty()) return PgVerdict{.word = PgWord::kGone};
    const auto word = each[0].Integer(0);
    const auto version = each[0].Bigint(1);
    if (!word || *word < 0 || *word > static_cast<int32_t>(PgWord::kUnsafe)) {
      return Strange("a statement");
    }
    if (*word != 0) {
      return PgVerdict{.word = static_cast<PgWord>(*word), .version = version.value_or(0)};
    }
  }
  return PgVerdict{.word = PgWord::kOk};
}

std::shared_ptr<PgRequest> NewBatchRequest(const PgSql& sql, const std::string& store,
                                           EngineBatch batch, const Terms& terms,
                                           Callback<EngineAnswer> done) {
  std::vector<PgCall> calls;
  if (!batch.changes.empty()) calls.push_back(ChangeCall(store, terms, batch, sql));
  if (!batch.reads.empty() || batch.changes.empty()) {
    KeyArrays keys;
    for (const std::string& key : batch.reads) keys.Add(key);
    calls.push_back({.statement = PgStatement::kRead,
                     .parameters = {store, VersionParameter(terms), keys.Keys(), keys.Rests()},
                     .max_rows = std::max<size_t>(batch.reads.size(), 1)});
  }
  auto [take, fail] = AnswersOf<EngineAnswer>(
      std::move(done),
      [changes = batch.changes.size(), reads = batch.reads.size()](
          const std::vector<PgRows>& rows) { return AnswerOf(rows, changes, reads); });
  return std::make_shared<PgRequest>(std::move(calls), terms, std::move(take), std::move(fail));
}

std::shared_ptr<PgRequest> NewListRequest(const std::string& store, EngineRange range,
                                          const Terms& terms, Callback<RangeRecords> done) {
  PgCall call{.statement = range.reverse ? PgStatement::kListReverse : PgStatement::kList,
              .parameters = {store, VersionParameter(terms), std::string(HeadOf(range.first)),
                             std::string(RestOf(range.first)), std::string(HeadOf(range.last)),
                             std::string(RestOf(range.last)), PgBigint(range.max),
                             PgBigint(range.value_limit)},
              .max_rows = size_t{range.max} + 1};
  auto [take, fail] = AnswersOf<RangeRecords>(
      std::move(done),
      [max = range.max](const std::vector<PgRows>& rows) { return ListOf(rows.back(), max); });
  return std::make_shared<PgRequest>(std::vector{std::move(call)}, terms, std::move(take),
                                     std::move(fail));
}

std::shared_ptr<PgRequest> NewVersionRequest(const std::string& store, int64_t version,
                                             const Terms& terms, StatusCallback done) {
  const auto shared = std::make_shared<StatusCallback>(std::move(done));
  return std::make_shared<PgRequest>(
      std::vector{
          PgCall{.statement = PgStatement::kSetVersion, .parameters = {store, PgBigint(version)}}},
      Terms(terms.deadline), [shared](const std::vector<PgRows>&) { (*shared)(Status()); },
      [shared](const Status& why) { (*shared)(why); });
}

std::shared_ptr<PgRequest> NewLookRequest(const std::string& store, const Terms& terms,
                                          Callback<PgLook> done) {
  auto [take, fail] = AnswersOf<PgLook>(
      std::move(done), [](const std::vector<PgRows>& rows) { return LookOf(rows.back()); });
  return std::make_shared<PgRequest>(
      std::vector{PgCall{.statement = PgStatement::kLook,
                         .parameters = {store, VersionParameter(terms)},
                         .max_rows = kMostLook}},
      terms, std::move(take), std::move(fail));
}

}  // namespace pinstripe
