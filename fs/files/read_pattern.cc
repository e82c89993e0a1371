#include "fs/files/read_pattern.h"

#include <algorithm>

namespace pinstripe {
namespace {

constexpr uint64_t kCellBytesHint = 64 << 10;
constexpr uint64_t kLargeRead = 512 << 10;  // at the beginning of a file: somebody wants all of it
constexpr uint64_t kSlack = 1 << 20;        // by how much requests may overtake each other
constexpr uint64_t kEstablished = 2;        // reads, after which they may
constexpr uint64_t kEqualSteps = 2;         // after which one more is expected
constexpr uint64_t kSmallRead = 16 << 10;   // of which some, here and there, make a pattern
constexpr uint64_t kScattered = 4;          // so many of them
constexpr uint64_t kMostScattered = 16;     // more are not counted

}  // namespace

ReadPattern::Stream* ReadPattern::Find(uint64_t offset) {
  for (Stream& stream : streams_) {
    if (stream.used_at != 0 && offset == stream.next) return &stream;
  }
  for (Stream& stream : streams_) {
    if (stream.used_at == 0 || stream.reads < kEstablished) continue;
    if (offset + kSlack >= stream.next && offset <= stream.ahead + kSlack) return &stream;
  }
  return nullptr;
}

ReadPattern::Stream& ReadPattern::Replace() {
  Stream& oldest =
      *std::min_element(streams_.begin(), streams_.end(),
                        [](const Stream& a, const Stream& b) { return a.used_at < b.used_at; });
  wasted_ += oldest.ahead - oldest.next;
  oldest = {};
  return oldest;
}

void ReadPattern::GoOn(Stream& stream, uint64_t offset, uint64_t size) {
  stream.used_at = ++clock_;
  ++stream.reads;
  stream.run += size;
  if (offset + size <= stream.next) {  // it was overtaken
    const uint64_t back = std::min(size, stream.skipped);
    stream.skipped -= back;
    wasted_ -= back;
    return;
  }
  if (offset > stream.next) {
    const uint64_t skipped = std::min(offset, stream.ahead) - stream.next;
    stream.skipped += skipped;
    wasted_ += skipped;
  }
  stream.next = offset + size;
  stream.ahead = std::max(stream.ahead, stream.next);
}

std::vector<ReadPattern::Range> ReadPattern::Extend(Stream& stream, uint64_t size) {
  const bool large = stream.reads == 1 && stream.next == size && size >= kLargeRead;
  if (!MayGuess() || (stream.reads < 2 && !large)) return {};
  stream.window = std::clamp(2 * stream.window, 2 * size, kMostAhead);
  stream.window = std::min(stream.window, stream.run);
  uint64_t end = stream.next + stream.window;
  if (end >= stream.ahead + kChunk) {
    end -= end % kChunk;
  } else if (end < stream.ahead + std::min(kChunk, (stream.window + 1) / 2)) {
    return {};  // not worth a request yet
  }
  if (end <= stream.ahead) return {};
  std::vector<Range> ranges;
  while (stream.ahead < end) {
    const uint64_t stop = std::min(end, stream.ahead / kChunk * kChunk + kChunk);
    ranges.push_back({stream.ahead, stop - stream.ahead});
    stream.ahead = stop;
  }
  return ranges;
}

std::vector<ReadPattern::Range> ReadPattern::Step(uint64_t offset, uint64_t size) {
  const auto step = static_cast<int64_t>(offset - steps_.offset);
  if (step != steps_.step || step == 0) {
    wasted_ += steps_.ahead * std::max(steps_.size, kCellBytesHint);
    steps_ = {offset, size, step, 0, 0, 0};
    return {};
  }
  steps_.offset = offset;
  steps_.size = std::max(steps_.size, size);
  ++steps_.count;
  if (steps_.ahead > 0) --steps_.ahead;
  if (steps_.count < kEqualSteps || !MayGuess()) return {};
  const uint64_t each = std::max(steps_.size, kCellBytesHint);
  steps_.window = std::min({std::max<uint64_t>(1, 2 * steps_.window), steps_.count,
                            std::max<uint64_t>(1, kMostAhead / each)});
  std::vector<Range> ranges;
  while (steps_.ahead < steps_.window) {
    int64_t at = 0;  // beyond either end of what a file may be there is nothing to read
    if (__builtin_mul_overflow(static_cast<int64_t>(steps_.ahead + 1), step, &at) ||
        __builtin_add_overflow(at, static_cast<int64_t>(offset), &at) || at < 0) {
      break;
    }
    ranges.push_back({static_cast<uint64_t>(at), steps_.size});
    ++steps_.ahead;
  }
  return ranges;
}

std::vector<ReadPattern::Range> ReadPattern::Read(uint64_t offset, uint64_t size) {
  if (size == 0) return {};
  read_ += size;
  if (Stream* stream = Find(offset)) {
    if (stream->next == offset) scattered_ /= 2;
    GoOn(*stream, offset, size);
    steps_.offset = offset;
    return Extend(*stream, size);
  }
  std::vector<Range> ranges = Step(offset, size);
  scattered_ =
      steps_.count >= kEqualSteps ? scattered_ / 2 : std::min(scattered_ + 1, kMostScattered);
  Stream& stream = Replace();
  stream.next = stream.ahead = offset;
  GoOn(stream, offset, size);
  if (ranges.empty()) ranges = Extend(stream, size);
  return ranges;
}

bool ReadPattern::IsScattered(uint64_t offset, uint64_t size) const {
  const bool goes_on = std::ranges::any_of(streams_, [offset](const Stream& stream) {
    return stream.used_at != 0 && stream.next == offset;
  });
  return size <= kSmallRead && scattered_ >= kScattered && !goes_on;
}

void ReadPattern::Refused(uint64_t offset) {
  for (Stream& stream : streams_) {
    if (stream.ahead <= offset || stream.next > offset) continue;
    stream.ahead = offset;
    stream.window /= 2;
  }
  steps_.ahead = 0;
  steps_.window /= 2;
}

}  // namespace pinstripe
