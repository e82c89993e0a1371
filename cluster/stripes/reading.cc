#include "cluster/stripes/reading.h"

#include <algorithm>

#include "base/send_together.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/stripes/shard.h"

namespace pinstripe {

Result<std::vector<DriveId>> LocateShards(StripeContext& context, const StripeId& id,
                                          const StripeLayout& layout, const StripePlace& place) {
  TRY(layout.Check());
  std::vector<DriveId> places =
      TRY_CONTEXT(context.drives.StripeDrives(place.epoch, id.object, id.block, layout.geometry()),
                  "{}", DescribeStripe(id));
  const auto shards = static_cast<size_t>(layout.geometry().shards());
  if (places.size() < shards) {
    return Fail(EIO, "{}: {} drives in epoch {}, but {} shards", DescribeStripe(id), places.size(),
                place.epoch, shards);
  }
  places.resize(shards);
  for (const StripePlace::Moved& moved : place.moved) {
    if (moved.shard >= shards) {
      return Fail(EBADMSG, "{}: shard {} was moved, but there are {}", DescribeStripe(id),
                  moved.shard, shards);
    }
    if (moved.drive != 0) places[moved.shard] = moved.drive;
  }
  return places;
}

Status CheckBlockLength(const StripeId& id, const StripeLayout& layout, uint64_t length) {
  if (length >= 1 && length <= layout.block_bytes()) return {};
  return Fail(EBADMSG, "{}: a length of {} bytes in blocks of {}", DescribeStripe(id), length,
              layout.block_bytes());
}

namespace {

// A whole shard that is no larger may share its messages with other questions, as small files do.
constexpr uint32_t kSmallShard = 16 << 10;

// How a drive is asked for that.
ValueRange QuestionFor(const PageRange& range, uint32_t shard_bytes) {
  const VersionPart part = DescriptorPartFor(range, shard_bytes);
  if (part.whole() && shard_bytes <= kSmallShard) return {.likely_bytes = shard_bytes};
  return {range.first * kShardPageBytes, RangeBytes(shard_bytes, range), part};
}

// The loop around the plans: time, drives, and answers as they come.
class Reading final : public RunningReads {
 public:
  Reading(StripeContext& context, std::span<PlannedRead> reads, Duration timeout)
      : context_(context),
        reads_(reads),
        deadline_(context.runtime, timeout),
        gather_(context.runtime),
        open_(reads.size()) {}

  void Start() {
    const SendTogether together;
    for (size_t i = 0; i < reads_.size(); ++i) Advance(i);
  }

  void Finish() override {
    while (open_ > 0) {
      if (auto answer = gather_.Next(NextAlarm())) {
        TakeAnswer(questions_[answer->index], std::move(answer->value));
      } else if (gather_.outstanding() == 0 || deadline_.has_passed()) {
        for (size_t i = 0; i < reads_.size(); ++i) GiveUp(i);
      } else {
        LookForLateAnswers();
      }
    }
    for (PlannedRead& read : reads_) {
      if (read.status.ok()) read.status = read.plan.Complete(*read.codec);
      if (!read.status.ok()) {
        read.status = read.status.Context(fmt::format("read {}", DescribeStripe(read.stripe.id)));
      }
    }
  }

 private:
  struct Question {
    size_t read;
    PageRange pages;
    DriveId drive;
    uint64_t bytes;
    Time asked_at;
    Time late_at;
    bool answered = false;
    bool late = false;
  };

  // Asks what the plan of read `i` wants asked, or ends it.
  void Advance(size_t i) {
    PlannedRead& read = reads_[i];
    while (!read.done && !read.plan.Succeeded()) {
      if (read.plan.Hopeless()) return GiveUp(i);
      const std::vector<PageRange> questions = read.plan.TakeQuestions();
      if (questions.empty()) return;
      for (const PageRange& range : questions) Ask(i, range);
    }
    End(i);
  }

  void End(size_t i) {
    if (reads_[i].done) return;
    reads_[i].done = true;
    --open_;
  }

  void GiveUp(size_t i) {
    if (reads_[i].done) return;
    reads_[i].status = reads_[i].plan.Failure([this, &read = reads_[i]](int shard) {
      return context_.NameOf(read.places[static_cast<size_t>(shard)]);
    });
    End(i);
  }

  void Ask(size_t i, const PageRange& range) {
    PlannedRead& read = reads_[i];
    const DriveId id = read.places[static_cast<size_t>(range.shard)];
    Drive* drive = context_.drives.FindDrive(id);
    if (!drive) {
      read.plan.Answer(range, Fail(EHOSTUNREACH, "drive {} is not known", id), nullptr);
      return;
    }
    ++context_.counters.read_requests;
    const Time now = context_.runtime.Now();
    const uint32_t shard_bytes = read.stripe.layout.ShardBytesOf(read.stripe.length);
    const uint32_t bytes = RangeBytes(shard_bytes, range);
    const std::shared_ptr<AnswerTimes>& times = context_.answer_times;
    questions_.push_back({i, range, id, bytes, now, now + times->Late(bytes)});
    // It is asked all the same: it may be faster by now.
    questions_.back().late = times->IsSlow(id, bytes);
    drive->Get(ShardKey(context_.options.prefix, read.stripe.id, range.shard),
               QuestionFor(range, shard_bytes),
               std::min(deadline_.time(), now + context_.options.drive_timeout),
               [runtime = &context_.runtime, times, id, bytes, now,
                arrived = gather_.Ask(questions_.size() - 1)](Result<Record> record) {
                 if (record.has_value()) times->Note(id, bytes, runtime->Now() - now);
                 arrived(std::move(record));
               });
    if (questions_.back().late) read.plan.Late(range);
  }

  void TakeAnswer(Question& question, Result<Record> record) {
    question.answered = true;
    PlannedRead& read = reads_[question.read];
    if (record.has_value()) context_.counters.bytes_fetched += record->value.size();
    if (read.done) return;
    read.plan.Answer(question.pages, std::move(record),
                     [this, drive = question.drive] { return context_.NameOf(drive); });
    Advance(question.read);
  }

  Time NextAlarm() const {
    Time alarm = deadline_.time();
    for (const Question& question : questions_) {
      if (question.answered || question.late || reads_[question.read].done) continue;
      alarm = std::min(alarm, question.late_at);
    }
    return alarm;
  }

  void LookForLateAnswers() {
    const Time now = context_.runtime.Now();
    const size_t asked = questions_.size();  // what Advance() adds is not late
    for (size_t i = 0; i < asked; ++i) {
      Question& question = questions_[i];
      if (question.answered || question.late) continue;
      if (question.late_at > now) continue;
      question.late = true;
      // One that never answers is slow, too.
      context_.answer_times->Note(question.drive, question.bytes, now - question.asked_at);
      const size_t read = question.read;
      if (reads_[read].done) continue;
      reads_[read].plan.Late(question.pages);
      Advance(read);
    }
  }

  StripeContext& context_;
  const std::span<PlannedRead> reads_;
  const TimeLimit deadline_;
  Gather<Result<Record>> gather_;
  std::vector<Question> questions_;
  size_t open_;  // reads that are not done
};

}  // namespace

std::unique_ptr<RunningReads> StartReads(StripeContext& context, std::span<PlannedRead> reads,
                                         Duration timeout) {
  auto reading = std::make_unique<Reading>(context, reads, timeout);
  reading->Start();
  return reading;
}

void RunReads(StripeContext& context, std::span<PlannedRead> reads, Duration timeout) {
  StartReads(context, reads, timeout)->Finish();
}

}  // namespace pinstripe
