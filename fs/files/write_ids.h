// WriteIds: the write ids of what one open file stores. No two stripes of a block get the same one.
// Used under the file's turn alone.

#pragma once

#include <cstdint>
#include <map>

#include "cluster/stripes/store.h"
#include "fs/files/interval_set.h"
#include "fs/names/inode.h"

namespace pinstripe {

class WriteIds {
 public:
  // `writer` is a number that nobody else has: chance.
  explicit WriteIds(uint64_t writer) : writer_(writer) {}

  WriteId Next(uint64_t block, int64_t wall_clock) {
    if (pass_ == 0) pass_ = SecondsOf(wall_clock);
    uint32_t count = 0;
    if (written_once_.Contains(block)) {
      count = ++written_[block];
    } else {
      written_once_.Add(block, block + 1);
    }
    return MakeWriteId(pass_, writer_, count);
  }

  // When the first stripe since the last commit got its id, in seconds since 1970; 0: none has.
  uint32_t pass() const { return pass_; }
  void EndPass() { pass_ = 0; }

 private:
  const uint64_t writer_;
  uint32_t pass_ = 0;
  IntervalSet written_once_;              // blocks that have a stripe under count 0
  std::map<uint64_t, uint32_t> written_;  // blocks written more often: how often
};

}  // namespace pinstripe
