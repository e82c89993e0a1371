// ReadPattern: guesses from the reads of one handle which bytes will be wanted next. It knows
// readers that go forward, several at a time in one file, and whose requests overtake each other;
// and those that go in equal steps, forward or back.
//
// A guess is never larger than what was read in that manner before, so it doubles, up to
// kMostAhead. What turned out wrong is remembered: while it is more than a tenth of all that was
// read (beyond kTrust), nothing is guessed any more. So somebody who reads here and there costs the
// drives at most a tenth more than he asked for.
//
// Pure. One thread at a time.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinstripe {

class ReadPattern {
 public:
  static constexpr uint64_t kMostAhead = 8 << 20;
  static constexpr uint64_t kTrust = 1 << 20;
  static constexpr uint64_t kChunk = 1 << 20;  // ranges end at multiples of it, where they are long

  struct Range {
    uint64_t offset = 0;
    uint64_t size = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  // Somebody reads this. The answer is what to read ahead now, and was not in an earlier answer;
  // it may lie beyond the end of the file.
  std::vector<Range> Read(uint64_t offset, uint64_t size);

  // Whether a read is likely to be one of somebody who reads a little here and there, so that what
  // lies around it will not be wanted. Asked before Read() is told of it.
  bool IsScattered(uint64_t offset, uint64_t size) const;

  // The part of an answer at `offset` and beyond was not read ahead: there is no memory for it.
  void Refused(uint64_t offset);

 private:
  struct Stream {
    uint64_t next = 0;    // where it goes on
    uint64_t ahead = 0;   // up to there it was read ahead; at least `next`
    uint64_t run = 0;     // bytes read in it
    uint64_t window = 0;  // to keep ahead
    uint64_t reads = 0;
    uint64_t skipped = 0;  // bytes that were read ahead and passed over; they may still be read
    uint64_t used_at = 0;  // 0: free
  };
  struct Steps {
    uint64_t offset = 0;  // of the last read
    uint64_t size = 0;
    int64_t step = 0;
    uint64_t count = 0;  // of equal steps in a row
    uint64_t ahead = 0;  // how many more were read ahead
    uint64_t window = 0;
  };

  Stream* Find(uint64_t offset);
  void GoOn(Stream& stream, uint64_t offset, uint64_t size);
  std::vector<Range> Extend(Stream& stream, uint64_t size);
  std::vector<Range> Step(uint64_t offset, uint64_t size);
  Stream& Replace();
  bool MayGuess() const { return wasted_ <= read_ / 10 + kTrust; }

  std::array<Stream, 8> streams_;
  Steps steps_;
  uint64_t read_ = 0;    // bytes, of all reads
  uint64_t wasted_ = 0;  // bytes that were read ahead for nothing
  // How many of the last reads went on where none had ended: one more for each such read, and half
  // for each that goes on.
  uint64_t scattered_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace pinstripe
