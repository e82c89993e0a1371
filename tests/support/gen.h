// Gen: walks every sequence of choices of a test, so that nothing is left to luck.
//
//   Gen gen;
//   while (gen.Next()) {
//     const int drives = gen.Int(1, 5);    // each run of the body takes another way,
//     const bool up = gen.Bool();          // until every way was taken once
//   }
//
// The body must be deterministic apart from its choices. One thread.

#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinstripe {

class Gen {
 public:
  // True while there is a way not yet taken.
  bool Next() {
    if (!started_) {
      started_ = true;
      return true;
    }
    choices_.resize(position_);
    while (!choices_.empty() && choices_.back().taken == choices_.back().most) choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    position_ = 0;
    return true;
  }

  // least <= answer <= most.
  int64_t Int(int64_t least, int64_t most) {
    assert(least <= most);
    const auto span = static_cast<uint64_t>(most - least);
    if (position_ == choices_.size()) choices_.push_back({0, span});
    assert(choices_[position_].most == span);  // else the body is not deterministic
    return least + static_cast<int64_t>(choices_[position_++].taken);
  }

  bool Bool() { return Int(0, 1) == 1; }

 private:
  struct Choice {
    uint64_t taken;
    uint64_t most;
  };
  std::vector<Choice> choices_;
  size_t position_ = 0;
  bool started_ = false;
};

}  // namespace pinstripe
