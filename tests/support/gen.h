// Walks every sequence of choices that a test makes, one per round, until there is none left:
//
//   Gen gen;
//   while (gen.Next()) {
//     for (Shard& shard : shards) shard.lost = gen.Bool();
//     ...                            // all 2^n patterns of loss come by
//   }
//
// The idea is TigerBeetle's exhaustigen. A round may make fewer or more choices, and other ones,
// than the round before, as long as what it does depends on its earlier choices alone. One thread.

#pragma once

#include <cassert>
#include <cstddef>
#include <vector>

namespace pinstripe {

class Gen {
 public:
  // Starts the next round; false when every sequence was walked.
  bool Next() {
    if (!started_) return started_ = true;
    choices_.resize(made_);
    while (!choices_.empty() && choices_.back().value == choices_.back().most) choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().value;
    made_ = 0;
    return true;
  }

  // A number from 0 to `most`, both included.
  int UpTo(int most) {
    assert(started_ && most >= 0);
    if (made_ == choices_.size()) choices_.push_back({0, most});
    assert(choices_[made_].most == most);  // else the test depends on more than its choices
    return choices_[made_++].value;
  }

  bool Bool() { return UpTo(1) == 1; }

  // One of the elements of a container.
  template <typename Container>
  const auto& Of(const Container& container) {
    return *(std::begin(container) + UpTo(static_cast<int>(std::size(container)) - 1));
  }

 private:
  struct Choice {
    int value;
    int most;
  };
  bool started_ = false;
  std::vector<Choice> choices_;  // the last of this round is raised for the next
  size_t made_ = 0;              // how many of them this round has asked for
};

}  // namespace pinstripe
