#include "fuse/directory_positions.h"

#include <algorithm>
#include <cassert>

#include "base/checksum.h"

namespace pinstripe {
namespace {

constexpr size_t kNamesOfChunk = 64;
constexpr size_t kRecent = 256;  // more than a chunk has

}  // namespace

uint32_t DirectoryPositions::SumOf(std::string_view name) { return Crc32c(AsBytes(name)); }

void DirectoryPositions::Begin() {
  if (!forked_) return;
  sums_.clear();
  chunks_.clear();
  recent_.clear();
  forked_ = false;
}

DirectoryPositions::Resume DirectoryPositions::At(uint64_t position) const {
  assert(Knows(position));
  if (position <= kAfterDotDot) return {};
  const size_t number = position - kAfterDotDot - 1;
  if (sums_.size() - number <= recent_.size()) {
    return {.after = recent_[recent_.size() - (sums_.size() - number)]};
  }
  const auto behind =
      std::upper_bound(chunks_.begin(), chunks_.end(), number,
                       [](size_t n, const Chunk& chunk) { return n < chunk.first; });
  const Chunk& chunk = *std::prev(behind);
  const auto sum = [this](size_t n) { return sums_.begin() + static_cast<ptrdiff_t>(n); };
  Resume resume{.after = chunk.before, .passed = {sum(chunk.first), sum(number + 1)}};
  const size_t end = behind == chunks_.end() ? sums_.size() : behind->first;
  resume.later.assign(sum(number + 1), sum(end));
  // The chunk's last name is known if another chunk goes on behind it.
  if (behind != chunks_.end() && behind->follows) resume.until = behind->before;
  return resume;
}

uint64_t DirectoryPositions::After(uint64_t previous, std::string_view previous_name,
                                   std::string_view name) {
  const uint32_t sum = SumOf(name);
  const size_t number = std::max(previous, kAfterDotDot) - kAfterDotDot;
  if (number < sums_.size() && sums_[number] == sum) return kAfterDotDot + number + 1;
  const bool follows = number == sums_.size();
  forked_ |= !follows;
  if (chunks_.empty() || !follows || sums_.size() - chunks_.back().first >= kNamesOfChunk) {
    chunks_.push_back({sums_.size(), std::string(previous_name), follows && !chunks_.empty()});
  }
  sums_.push_back(sum);
  recent_.emplace_back(name);
  if (recent_.size() > kRecent) recent_.pop_front();
  return kAfterDotDot + sums_.size();
}

}  // namespace pinstripe
