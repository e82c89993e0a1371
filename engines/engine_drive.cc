#include "engines/engine_drive.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "drive/limits.h"
#include "engines/engine_checks.h"
#include "engines/engine_line.h"

namespace pinstripe {
namespace {

using Kind = EngineLine::Kind;

// Records are moved whole, and parts cut out here.
constexpr DriveCapabilities kCapabilities{.range_records = true,
                                          .unerased = true,
                                          .guards = true,
                                          .puts = true,
                                          .then_gets = true,
                                          .gets = true};

// Counted for a read of which nobody knows more.
constexpr size_t kUnknownBytes = 64 << 10;

// No record has this key, which is no cluster's: it is read for the fence alone.
constexpr std::string_view kNoRecord("\0", 1);

Record PartOf(Record record, const ValueRange& range) {
  if (!range.version.whole()) record.version = range.version.CutFrom(record.version);
  if (!range.whole()) {
    const size_t offset = std::min<size_t>(range.offset, record.value.size());
    record.value =
        record.value.Slice(offset, std::min<size_t>(range.length, record.value.size() - offset));
  }
  return record;
}

// Everything is written through, and there is one kind of room.
EngineChange ChangeOf(Drive::PutRequest request) {
  if (request.tag.empty() && !request.value.empty()) request.tag = EngineTag(request.value);
  EngineChange change;
  change.key = std::move(request.key);
  change.put = Record{.version = std::move(request.version),
                      .tag = std::move(request.tag),
                      .value = std::move(request.value)};
  change.expected = std::move(request.expected);
  change.guard = std::move(request.guard);
  return change;
}

AskedOfEngine AskedFor(EngineChange change, const Terms& terms) {
  AskedOfEngine asked{.terms = terms};
  asked.likely_bytes = change.key.size();
  if (change.put) asked.likely_bytes += change.put->version.size() + change.put->value.size();
  asked.change = std::move(change);
  return asked;
}

// What is listed, as far as it can be believed.
void List(EngineLine& line, const Status& valid, EngineRange range, const Terms& terms,
          Callback<RangeRecords> done) {
  line.SubmitAlone<RangeRecords>(
      valid, Kind::kRead, terms, std::move(done),
      [range = std::move(range), terms](NameEngine& engine, Callback<RangeRecords> answer) {
        engine.List(range, terms, [range, answer = std::move(answer)](Result<RangeRecords> found) {
          if (found) found = CheckedList(*std::move(found), range);
          answer(std::move(found));
        });
      });
}

// The keys of a range, page by page: a page may end early.
class KeyPages : public std::enable_shared_from_this<KeyPages> {
 public:
  KeyPages(std::shared_ptr<EngineLine> line, Terms terms, EngineRange range,
           Callback<std::vector<std::string>> done)
      : line_(std::move(line)), terms_(terms), range_(std::move(range)), done_(std::move(done)) {}

  void Next(const Status& valid) {
    List(*line_, valid, range_, terms_,
         [self = shared_from_this()](Result<RangeRecords> page) { self->Take(std::move(page)); });
  }

 private:
  void Take(Result<RangeRecords> page) {
    if (!page) return done_(tl::unexpected(page.error()));
    for (RangeRecord& each : page->records) keys_.push_back(std::move(each.key));
    const uint32_t missing = range_.max - static_cast<uint32_t>(page->records.size());
    if (!page->more || missing == 0) return done_(std::move(keys_));
    std::optional<EngineRange> left = RangeBehind(std::move(range_), keys_.back(), missing);
    if (!left) return done_(std::move(keys_));
    range_ = *std::move(left);
    Next(Status());
  }

  const std::shared_ptr<EngineLine> line_;
  const Terms terms_;
  EngineRange range_;  // what is left of it
  std::vector<std::string> keys_;
  const Callback<std::vector<std::string>> done_;
};

}  // namespace

EngineDrive::EngineDrive(Runtime& runtime, std::unique_ptr<NameEngine> engine, Options options)
    : line_(std::make_shared<EngineLine>(runtime, std::move(engine), std::move(options))) {
  line_->Start();
}

EngineDrive::~EngineDrive() { line_->Stop(); }

std::string_view EngineDrive::name() const { return line_->options().name; }
DriveCapabilities EngineDrive::capabilities() const { return kCapabilities; }
bool EngineDrive::IsUp() const { return line_->IsUp(); }
const DriveTimes* EngineDrive::times() const { return line_->options().times.get(); }

std::string EngineDrive::WhyAway() const {
  const std::string why = line_->WhyAway();
  return why.empty() ? Drive::WhyAway() : why;
}

void EngineDrive::Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) {
  const Status valid = CheckKey(key);
  AskedOfEngine asked{.terms = terms, .read = std::move(key)};
  asked.likely_bytes = range.likely_bytes > 0 ? range.likely_bytes : kUnknownBytes;
  asked.done = [range, done = std::move(done)](PutAndRead answer) {
    if (!answer.read) return done(std::move(answer.read));
    done(PartOf(*std::move(answer.read), range));
  };
  line_->Submit(valid, std::move(asked));
}

void EngineDrive::Head(std::string key, Terms terms, Callback<RecordHead> done) {
  Get(std::move(key), {.length = 0}, terms, [done = std::move(done)](Result<Record> record) {
    if (!record) return done(tl::unexpected(record.error()));
    done(RecordHead{.version = std::move(record->version), .tag = std::move(record->tag)});
  });
}

void EngineDrive::Put(PutRequest request, Terms terms, StatusCallback done) {
  const Status valid = CheckPut(request);
  AskedOfEngine asked = AskedFor(ChangeOf(std::move(request)), terms);
  asked.done = [done = std::move(done)](PutAndRead answer) { done(std::move(answer.put)); };
  line_->Submit(valid, std::move(asked));
}

void EngineDrive::PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                             Callback<Record> read) {
  Status valid = CheckPut(request);
  if (valid.ok()) valid = CheckKey(key);
  AskedOfEngine asked = AskedFor(ChangeOf(std::move(request)), terms);
  asked.read = std::move(key);
  asked.likely_bytes += kSmallRecord.likely_bytes;
  asked.done = TellEach(std::move(done), std::move(read));
  line_->Submit(valid, std::move(asked));
}

void EngineDrive::Delete(std::string key, Expected expected, Durability /*durability*/, Terms terms,
                         StatusCallback done) {
  Status valid = CheckKey(key);
  if (valid.ok()) valid = CheckExpected(expected);
  EngineChange removal;
  removal.key = std::move(key);
  removal.expected = std::move(expected);
  AskedOfEngine asked = AskedFor(std::move(removal), terms);
  asked.done = [done = std::move(done)](PutAndRead answer) { done(std::move(answer.put)); };
  line_->Submit(valid, std::move(asked));
}

void EngineDrive::Range(std::string first, std::string last, uint32_t max, bool reverse,
                        Terms terms, Callback<std::vector<std::string>> done) {
  const Status valid = CheckRange(first, last, "a range of keys", max, kMaxRangeKeys);
  EngineRange range{
      .first = std::move(first), .last = std::move(last), .max = max, .reverse = reverse};
  std::make_shared<KeyPages>(line_, terms, std::move(range), std::move(done))->Next(valid);
}

void EngineDrive::ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                              uint32_t value_limit, Terms terms, Callback<RangeRecords> done) {
  const Status valid = CheckRange(first, last, "a list of records", max, kMaxRangeRecords);
  List(*line_, valid,
       {.first = std::move(first),
        .last = std::move(last),
        .max = max,
        .reverse = reverse,
        .value_limit = value_limit},
       terms, std::move(done));
}

// What was answered is safe already, as long as it is this store and this cluster version.
void EngineDrive::Flush(Terms terms, StatusCallback done) {
  AskedOfEngine asked{.terms = terms, .read = std::string(kNoRecord), .is_flush = true};
  asked.done = [done = std::move(done)](const PutAndRead& answer) {
    const int code = answer.read ? 0 : answer.read.error().code();
    const bool answered = code == 0 || code == ENOENT || code == EBADMSG;
    done(answered ? Status() : answer.read.error());
  };
  line_->Submit(Status(), std::move(asked));
}

void EngineDrive::Info(Terms terms, Callback<DriveInfo> done) {
  line_->SubmitAlone<EngineState>(
      Status(), Kind::kRead, terms,
      [line = line_, done = std::move(done)](const Result<EngineState>& state) {
        if (!state) return done(tl::unexpected(state.error()));
        done(InfoOfEngine(*state, line->store()));
      },
      [terms](NameEngine& engine, Callback<EngineState> answer) {
        engine.LookAt(terms, std::move(answer));
      });
}

void EngineDrive::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  line_->SubmitAlone<std::monostate>(
      Status(), Kind::kWrite, terms,
      [done = std::move(done)](const Result<std::monostate>& answer) {
        done(answer ? Status() : answer.error());
      },
      [version, terms](NameEngine& engine, Callback<std::monostate> answer) {
        engine.SetClusterVersion(version, terms, [answer = std::move(answer)](const Status& set) {
          if (!set.ok()) return answer(tl::unexpected(set));
          answer(std::monostate());
        });
      });
}

void EngineDrive::LookAt(Terms terms, Callback<EngineState> done) {
  line_->AskAnyway(terms, std::move(done));
}

}  // namespace pinstripe
