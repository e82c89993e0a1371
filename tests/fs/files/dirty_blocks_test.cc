// Blocks in memory: what they keep through all short ways through their states, and which of them
// goes first when memory is short.

#include "fs/files/dirty_blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "base/checksum.h"
#include "base/real_runtime.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

const StripeLayout kLayout{2, 1, 64 << 10};
const StripeLayout kSmall{1, 1, 64 << 10};
constexpr uint64_t kBytes = 4;  // of the block that are looked at

MutableBytes Writable(std::string& text) { return std::as_writable_bytes(std::span(text)); }

class DirtyBlocksTest : public ::testing::Test {
 protected:
  void Write(DirtyBlocks& blocks, uint64_t number, uint64_t first, const std::string& text) {
    DirtyBlocks::Block& block = blocks.At(number);
    blocks.Touch(block);
    blocks.MakeRoom(block, first + text.size(), kSmall);
    CopyBytes(block.dirty->data().subspan(first, text.size()), AsBytes(text));
    block.present.Add(first, first + text.size());
    block.ours.Add(first, first + text.size());
    blocks.CheckInvariants();
  }

  void SendWhole(DirtyBlocks& blocks, uint64_t number) {
    const DirtyBlocks::Block& block = *blocks.Find(number);
    const auto end = static_cast<uint32_t>(block.present.end());
    blocks.Send(number, {.buffer = block.dirty,
                         .stored = end,
                         .valid = end,
                         .age = block.age,
                         .written_at = block.written_at});
  }

  RealRuntime runtime_;
  MemoryBudget budget_{64 << 20};
  BlockMemory memory_{budget_};
  std::atomic<uint64_t> ages_{0};
  DirtyBlocks blocks_{memory_, ages_, runtime_};
};

TEST_F(DirtyBlocksTest, WhatIsOnItsWayGoesFirstThenWhatWasWrittenLongestAgo) {
  EXPECT_FALSE(blocks_.Oldest());
  Write(blocks_, 7, 0, "a");
  Write(blocks_, 3, 0, "b");
  Write(blocks_, 5, 0, "c");
  EXPECT_EQ(blocks_.OldestDirty(), 7u);
  Write(blocks_, 7, 1, "d");
  EXPECT_EQ(blocks_.OldestDirty(), 3u);
  EXPECT_EQ(blocks_.AllDirty(), (std::vector<uint64_t>{3, 5, 7}));
  EXPECT_FALSE(blocks_.Oldest()->sent);
  SendWhole(blocks_, 5);
  SendWhole(blocks_, 3);
  EXPECT_TRUE(blocks_.Oldest()->sent);
  EXPECT_EQ(blocks_.Oldest()->age, blocks_.Find(3)->sent->age);
  EXPECT_EQ(blocks_.OldestDirty(), 7u);
  EXPECT_EQ(blocks_.TakeFirstInFlight(), 5u);  // in the order in which they were sent
  EXPECT_EQ(blocks_.TakeFirstInFlight(), 3u);
  EXPECT_EQ(blocks_.TakeFirstInFlight(), std::nullopt);
}

TEST_F(DirtyBlocksTest, WhatWasDroppedIsNotWaitedFor) {
  Write(blocks_, 1, 0, "a");
  Write(blocks_, 2, 0, "b");
  SendWhole(blocks_, 1);
  SendWhole(blocks_, 2);
  blocks_.Erase(1, 2);
  EXPECT_EQ(blocks_.TakeDropped().size(), 1u);
  EXPECT_EQ(blocks_.TakeFirstInFlight(), 2u);
}

TEST_F(DirtyBlocksTest, ABufferThatBecomesTooSmallIsReplacedAndItsMemoryComesBack) {
  Write(blocks_, 0, 0, "ab");
  EXPECT_EQ(budget_.used(), StripeBuffer::MemoryBytes(kSmall));
  DirtyBlocks::Block& block = blocks_.At(0);
  blocks_.MakeRoom(block, kLayout.block_bytes(), kLayout);
  EXPECT_EQ(budget_.used(), StripeBuffer::MemoryBytes(kLayout));
  EXPECT_EQ(AsText(block.dirty->data().first(2)), "ab");
  EXPECT_EQ(blocks_.TakeAll().size(), 1u);
  EXPECT_EQ(budget_.used(), 0u);
}

// One block, with what is stored of it, beside a string that has what it should read as.
class Walk {
 public:
  explicit Walk(DirtyBlocks& blocks) : blocks_(blocks) {}

  enum class Action {
    kWriteFirst,
    kWriteMiddle,
    kSendWhole,
    kSendPatch,
    kStored,
    kFailed,
    kCut,
    kForget,
    kKeepOnlyOurs
  };
  static constexpr int kActions = 9;

  void Do(Action action) {
    DirtyBlocks::Block* const block = blocks_.Find(0);
    switch (action) {
      case Action::kWriteFirst: return Write(0, 1);
      case Action::kWriteMiddle: return Write(1, 3);
      case Action::kSendWhole: return SendWhole();
      case Action::kSendPatch: return SendPatch();
      case Action::kStored: {
        if (!block || !block->sent) return;
        const DirtyBlocks::Sent sent = blocks_.Finish(*block);
        for (const auto& part : sent.Bytes().Within(0, kBytes)) {
          std::string bytes(part.end - part.first, '?');
          sent.CopyTo(part, part.first, Writable(bytes));
          stored_.replace(part.first, bytes.size(), bytes);
          ever_stored_.insert(bytes.begin(), bytes.end());
        }
        break;
      }
      case Action::kFailed: {
        if (!block || !block->sent) return;
        const DirtyBlocks::Sent sent = blocks_.Finish(*block);
        blocks_.TakeBack(*block, sent, kSmall);
        break;
      }
      case Action::kCut:
        expected_.replace(2, 2, 2, '\0');
        stored_.replace(2, 2, 2, '\0');
        blocks_.CutTo(0, 2);
        break;
      case Action::kForget:
        expected_ = stored_ = std::string(kBytes, '\0');
        if (block) blocks_.Forget(*block);
        break;
      case Action::kKeepOnlyOurs:
        // All that is ours is brought into memory; what is below it becomes another host's.
        if (!block || block->ours.empty()) return;
        Fill(block->ours);
        blocks_.KeepOnlyOurs(*block);
        stored_ = "wxyz";
        for (uint64_t at = 0; at < kBytes; ++at) {
          if (!block->ours.Contains(at)) expected_[at] = stored_[at];
        }
        break;
    }
    (void)blocks_.TakeDropped();
  }

  // Whether the bytes in memory have the sums that came with them, and these are right.
  void CheckSums() const {
    const DirtyBlocks::Block* const block = blocks_.Find(0);
    if (!block) return;
    if (block->sent) {
      EXPECT_OK(block->sent->buffer->sums().Check(block->sent->buffer->data()));
    }
    if (!block->dirty) return;
    EXPECT_OK(block->dirty->sums().Check(block->dirty->data()));
    IntervalSet summed;
    for (const auto& range : block->dirty->sums().ranges()) summed.Add(range.first, range.end());
    for (uint64_t at = 0; at < kBytes; ++at) {
      const bool came_with_one =
          expected_[at] >= 'A' && expected_[at] < next_ && !ever_stored_.contains(expected_[at]);
      EXPECT_TRUE(!came_with_one || !block->present.Contains(at) || summed.Contains(at)) << at;
    }
  }

  std::string expected() const { return expected_; }
  std::string Read() const {
    std::string bytes = Below();
    const DirtyBlocks::Block* const block = blocks_.Find(0);
    if (!block) return bytes;
    for (const auto& part : block->present.Within(0, kBytes)) {
      for (uint64_t at = part.first; at < part.end; ++at) {
        bytes[at] = AsText(block->dirty->data())[at];
      }
    }
    return bytes;
  }

 private:
  void Write(uint64_t first, uint64_t end) {
    DirtyBlocks::Block& block = blocks_.At(0);
    blocks_.Touch(block);
    blocks_.MakeRoom(block, end, kSmall);
    block.dirty->sums().Cut(first, end, block.dirty->data());
    block.present.Add(first, end);
    block.ours.Add(first, end);
    for (uint64_t at = first; at < end; ++at) expected_[at] = next_++;
    const Bytes bytes = AsBytes(expected_).subspan(first, end - first);
    CopyBytes(block.dirty->data().subspan(first, end - first), bytes);
    const RangeSums::Range range{first, static_cast<uint32_t>(end - first), Crc32c(bytes)};
    block.dirty->sums().Add({&range, 1});
  }

  // Without what is dirty.
  std::string Below() const {
    std::string bytes = stored_;
    const DirtyBlocks::Block* const block = blocks_.Find(0);
    if (block && block->sent) block->sent->CopyTo({0, kBytes}, 0, Writable(bytes));
    return bytes;
  }

  void Fill(const IntervalSet& wanted) {
    DirtyBlocks::Block& block = blocks_.At(0);
    blocks_.MakeRoom(block, wanted.end(), kSmall);
    const std::string below = Below();
    for (const auto& part : wanted.Within(0, kBytes)) {
      for (const auto& gap : block.present.GapsWithin(part.first, part.end)) {
        CopyBytes(block.dirty->data().subspan(gap.first, gap.end - gap.first),
                  AsBytes(below).subspan(gap.first, gap.end - gap.first));
        if (block.sent) block.sent->CopySumsTo(gap, *block.dirty);
      }
      block.present.Add(part.first, part.end);
    }
  }

  void SendWhole() {
    DirtyBlocks::Block* const block = blocks_.Find(0);
    if (!block || !block->dirty) return;
    IntervalSet all;
    all.Add(0, kBytes);
    Fill(all);
    blocks_.Send(0, {.buffer = block->dirty, .stored = kBytes, .valid = kBytes});
  }

  void SendPatch() {
    DirtyBlocks::Block* const block = blocks_.Find(0);
    if (!block || !block->dirty || block->sent || block->present.empty()) return;
    DirtyBlocks::Sent sent{.buffer = std::make_shared<StripeBuffer>(kSmall)};
    for (const auto& part : block->present.Within(0, kBytes)) {
      const auto length = static_cast<uint32_t>(part.end - part.first);
      CopyBytes(sent.buffer->data().subspan(sent.stored, length),
                block->dirty->data().subspan(part.first, length));
      sent.buffer->sums().AddCopied(block->dirty->sums(), block->dirty->data(), part.first,
                                    part.end, sent.stored);
      sent.extents.push_back({static_cast<uint32_t>(part.first), length});
      sent.stored += length;
    }
    blocks_.Send(0, std::move(sent));
  }

  DirtyBlocks& blocks_;
  std::string stored_ = "0123";
  std::string expected_ = "0123";
  char next_ = 'A';
  std::set<char> ever_stored_;
};

TEST_F(DirtyBlocksTest, AllShortWaysThroughItsStatesKeepWhatWasWritten) {
  constexpr int kSteps = 4;
  int ways = 1;
  for (int i = 0; i < kSteps; ++i) ways *= Walk::kActions;
  for (int way = 0; way < ways; ++way) {
    DirtyBlocks blocks(memory_, ages_, runtime_);
    Walk walk(blocks);
    // Which begins with a write: there is nothing to do with a block that is not there.
    walk.Do(Walk::Action::kWriteMiddle);
    std::string steps;
    for (int i = 0, rest = way; i < kSteps; ++i, rest /= Walk::kActions) {
      steps += fmt::format(" {}", rest % Walk::kActions);
      walk.Do(static_cast<Walk::Action>(rest % Walk::kActions));
      blocks.CheckInvariants();
      ASSERT_EQ(walk.Read(), walk.expected()) << steps;
      walk.CheckSums();
      ASSERT_FALSE(HasFailure()) << steps;
    }
  }
}

TEST_F(DirtyBlocksTest, ABlockThatClaimsBytesWithoutABufferIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  blocks_.At(0).present.Add(0, 1);
  EXPECT_DEATH(blocks_.CheckInvariants(), "present");
}

}  // namespace
}  // namespace pinstripe
