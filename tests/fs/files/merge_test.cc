// Merging, over all small cases: a file of up to three blocks of two bytes each, changed by us and
// by another host. What is expected comes from strings: our changes, made after theirs.

#include "fs/files/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace pinstripe {
namespace {

constexpr uint64_t kBlock = 2;
constexpr uint64_t kBlocks = 3;
constexpr uint64_t kBytes = kBlock * kBlocks;
const StripeLayout kLayout{2, 1, 1};
constexpr InodeId kFile = 5;
constexpr InodeId kKeeper = 9;

// ---- What a file goes through

struct Step {
  enum class Kind { kWrite, kTruncate, kZero, kClear };
  Kind kind;
  uint64_t first = 0;  // of a truncation: the size
  uint64_t end = 0;

  // What it makes of contents.
  void ApplyTo(std::string& bytes, char written) const {
    if (kind == Kind::kTruncate) return bytes.resize(first);
    bytes.resize(std::max<size_t>(bytes.size(), end));
    std::fill(bytes.begin() + first, bytes.begin() + end, kind == Kind::kWrite ? written : '\0');
  }
};

std::string Describe(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& step : steps) {
    text += fmt::format(" {}({},{})", "wtzc"[static_cast<int>(step.kind)], step.first, step.end);
  }
  return text;
}

std::vector<Step> AllSteps() {
  using Kind = Step::Kind;
  std::vector<Step> steps;
  for (uint64_t at = 0; at < kBytes; ++at) {
    steps.push_back({Kind::kWrite, at, at + 1});
    steps.push_back({Kind::kTruncate, at, 0});
    steps.push_back({Kind::kZero, at, at + 1});
  }
  steps.push_back({Kind::kTruncate, kBytes, 0});
  steps.push_back({Kind::kWrite, 0, 2});
  steps.push_back({Kind::kWrite, 1, 3});
  for (uint64_t block = 0; block < kBlocks; ++block) {
    steps.push_back({Kind::kClear, block * kBlock, (block + 1) * kBlock});
  }
  return steps;
}

// No steps, one, ... up to `most`.
std::vector<std::vector<Step>> Sequences(size_t most) {
  std::vector<std::vector<Step>> all(1);
  size_t begin = 0;
  for (size_t length = 1; length <= most; ++length) {
    const size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const Step& step : AllSteps()) {
        std::vector<Step> longer = all[begin];
        longer.push_back(step);
        all.push_back(std::move(longer));
      }
    }
  }
  return all;
}

// ---- What is stored

// Stripes by the first byte of their write id, each with its bytes where they are in the block.
class Drives {
 public:
  BlockPlace Store(const std::string& bytes) {
    BlockPlace place{.object = kFile, .write = Put(bytes), .layout = kLayout};
    place.place.epoch = 1;
    place.stored = place.valid = static_cast<uint32_t>(bytes.size());
    return place;
  }

  BlockPatch StorePatch(const std::string& block, const IntervalSet& bytes) {
    BlockPatch patch{.object = kFile, .write = Put(block), .layout = CopiesOf(kBlock, 1)};
    patch.stored = static_cast<uint32_t>(bytes.Count());
    for (const auto& part : bytes.Within(0, kBlock)) {
      patch.extents.push_back(
          {static_cast<uint32_t>(part.first), static_cast<uint32_t>(part.end - part.first)});
    }
    return patch;
  }

  // What the keeper has under this number in its map.
  void Keep(uint64_t block, const BlockPlace& place) { kept_[block] = place; }

  char ByteAt(const BlockPlace& place, uint64_t block, uint64_t byte) const {
    if (byte >= place.valid) return '\0';
    if (place.shared) return ByteAt(kept_.at(block), block, byte);
    for (size_t i = place.patches.size(); i-- > 0;) {
      for (const auto& extent : place.patches[i].extents) {
        if (extent.first <= byte && byte < extent.end()) {
          return stripes_.at(place.patches[i].write[0]).at(byte);
        }
      }
    }
    return stripes_.at(place.write[0]).at(byte);
  }

  char ByteAt(const Inode& inode, uint64_t at) const {
    if (!inode.map) return at < inode.inline_data.size() ? inode.inline_data[at] : '\0';
    const auto place = inode.map->Find(at / kBlock);
    return place ? ByteAt(*place, at / kBlock, at % kBlock) : '\0';
  }

  size_t count() const { return stripes_.size(); }
  // Forgets what was stored since there were so many.
  void Forget(size_t count) { stripes_.resize(count); }

 private:
  WriteId Put(const std::string& bytes) {
    stripes_.push_back(bytes);
    WriteId write{};
    write[0] = static_cast<uint8_t>(stripes_.size() - 1);
    return write;
  }

  std::vector<std::string> stripes_;
  std::array<BlockPlace, kBlocks> kept_;
};

std::string BlockOf(const std::string& bytes, uint64_t block) {
  return block * kBlock < bytes.size() ? bytes.substr(block * kBlock, kBlock) : std::string();
}

struct Base {
  std::string bytes;
  Inode inode;
};

std::vector<Base> AllBases(Drives& drives) {
  std::vector<Base> bases;
  for (const uint64_t size : {0, 1, 2}) {
    Base base{std::string("012345").substr(0, size), {}};
    base.inode.size = size;
    base.inode.inline_data = base.bytes;
    bases.push_back(std::move(base));
  }
  enum class Form { kPlain, kHole, kShared, kPatched };
  for (const Form form : {Form::kPlain, Form::kHole, Form::kShared, Form::kPatched}) {
    for (const uint64_t size : {1, 2, 3, 5}) {
      if (form != Form::kPlain && size < 3) continue;
      Base base{std::string("012345").substr(0, size), {}};
      base.inode.size = size;
      base.inode.map.emplace(kLayout).Resize(size);
      for (uint64_t block = 0; block * kBlock < size; ++block) {
        if (form == Form::kHole && block == 0) {
          base.bytes.replace(0, kBlock, kBlock, '\0');
          continue;
        }
        BlockPlace place = drives.Store(BlockOf(base.bytes, block));
        if (form == Form::kPatched && block == 0) {
          IntervalSet bytes;
          bytes.Add(1, 2);
          base.bytes[1] = 'p';
          place.Lay(drives.StorePatch(BlockOf(base.bytes, 0), bytes));
        }
        if (form == Form::kShared) {
          drives.Keep(block, place);
          place = SharedPlace(kKeeper, 0, place.valid);
        }
        base.inode.map->Set(block, place);
      }
      bases.push_back(std::move(base));
    }
  }
  return bases;
}

// ---- Our host: what FileState has of a file between two commits

class Ours {
 public:
  enum class Mode { kMemory, kMemoryOverMap, kFilled, kStored, kPatched };
  static constexpr std::array kModes = {Mode::kMemory, Mode::kMemoryOverMap, Mode::kFilled,
                                        Mode::kStored, Mode::kPatched};

  Ours(const Base& base, Drives& drives, Mode mode)
      : bytes_(base.bytes), drives_(drives), mode_(mode) {
    changes_.now = base.inode;
    changes_.block_bytes = kBlock;
  }

  // False: it does nothing, or nothing of what was there before is left, so nothing is merged.
  bool Do(const Step& step, char written) {
    Inode& now = changes_.now;
    if (step.kind == Step::Kind::kZero && step.first >= now.size) return false;
    step.ApplyTo(bytes_, written);
    if (step.kind == Step::Kind::kTruncate) {
      if (step.first == 0) return false;
      Truncate(step.first);
    } else {
      Resize(std::max(now.size, step.end));
      if (step.kind == Step::Kind::kWrite) {
        for (uint64_t at = step.first; at < step.end; ++at) Write(at);
      } else {
        changes_.grown_to = std::max(changes_.grown_to, step.end);
        if (step.kind == Step::Kind::kClear) Clear(step.first / kBlock);
        if (step.kind == Step::Kind::kZero) Zero(step.first);
      }
    }
    Keep();
    return true;
  }

  LocalChanges Changes() const {
    LocalChanges changes = changes_;
    for (const auto& [block, open] : blocks_) changes.written_ends[block] = open.ours.end();
    return changes;
  }
  bool IsAllStored() const {
    return changes_.now.map && std::ranges::all_of(blocks_, [](const auto& entry) {
             return entry.second.present.empty();
           });
  }
  bool HasWritten(uint64_t block) const { return !blocks_.at(block).ours.empty(); }

  // What is read when memory has been made ready for the merged inode.
  std::string ReadOver(const Merged& merged) const {
    std::string out(merged.inode.size, '?');
    for (uint64_t at = 0; at < out.size(); ++at) {
      const auto found = blocks_.find(at / kBlock);
      IntervalSet in_memory;
      if (found != blocks_.end() && !found->second.ours.empty()) {
        in_memory =
            merged.relaid.contains(found->first) ? found->second.ours : found->second.present;
      }
      if (in_memory.Contains(at % kBlock)) {
        out[at] = bytes_.at(at);
      } else if (at < merged.under_block0.size()) {
        out[at] = merged.under_block0[at];
      } else {
        out[at] = drives_.ByteAt(merged.inode, at);
      }
    }
    return out;
  }

 private:
  struct Open {
    IntervalSet ours;
    IntervalSet present;  // in memory
  };

  uint64_t LowerEnd(uint64_t block) const {
    const Inode& now = changes_.now;
    if (!now.map) return block == 0 ? now.inline_data.size() : 0;
    const auto place = now.map->Find(block);
    return place ? place->valid : 0;
  }

  void Resize(uint64_t size) {
    changes_.now.size = size;
    if (changes_.now.map) changes_.now.map->Resize(size);
  }

  void EnsureMap() {
    Inode& now = changes_.now;
    if (now.map) return;
    if (!now.inline_data.empty()) blocks_[0].present.Add(0, now.inline_data.size());
    now.inline_data.clear();
    now.map.emplace(kLayout).Resize(now.size);
  }

  void Write(uint64_t at) {
    Open& open = blocks_[at / kBlock];
    open.ours.Add(at % kBlock, at % kBlock + 1);
    open.present.Add(at % kBlock, at % kBlock + 1);
  }

  void Truncate(uint64_t size) {
    Inode& now = changes_.now;
    if (now.inline_data.size() > size) now.inline_data.resize(size);
    std::erase_if(blocks_, [&](const auto& entry) { return entry.first * kBlock >= size; });
    if (const auto last = blocks_.find(size / kBlock); last != blocks_.end()) {
      last->second.ours.CutFrom(size % kBlock);
      last->second.present.CutFrom(size % kBlock);
    }
    Resize(size);
    changes_.size_set = true;
    changes_.cut_to = std::min(changes_.cut_to.value_or(UINT64_MAX), size);
  }

  void Clear(uint64_t block) {
    EnsureMap();
    changes_.now.map->SetHoles(block, block + 1);
    blocks_.erase(block);
    changes_.cleared.Add(block, block + 1);
  }

  // Zeros are written where something is; a block of which nothing is left becomes a hole.
  void Zero(uint64_t at) {
    const uint64_t block = at / kBlock;
    const uint64_t first = at % kBlock;
    Open& open = blocks_[block];
    const uint64_t lower_end = LowerEnd(block);
    const bool is_all = (lower_end == 0 || (first == 0 && lower_end <= 1)) &&
                        open.present.Within(0, first).empty() && open.present.end() <= first + 1;
    if (is_all && changes_.now.map) {
      changes_.now.map->SetHoles(block, block + 1);
      open.present = {};
    } else if (std::max(lower_end, open.present.end()) > first) {
      open.present.Add(first, first + 1);
    }
    open.ours.Add(first, first + 1);
  }

  void Keep() {
    if (mode_ == Mode::kMemory) return;
    EnsureMap();
    if (mode_ == Mode::kMemoryOverMap) return;
    for (auto& [block, open] : blocks_) {
      if (open.present.empty()) continue;
      const uint64_t end = std::max(open.present.end(), LowerEnd(block));
      if (mode_ == Mode::kFilled) {
        open.present.Add(0, end);
        continue;
      }
      auto place = changes_.now.map->Find(block);
      const std::string bytes = BlockOf(bytes_, block);
      if (mode_ == Mode::kPatched && place && !place->shared &&
          open.present.end() <= place->valid) {
        place->Lay(drives_.StorePatch(bytes, open.present));
      } else {
        place = drives_.Store(bytes.substr(0, end));
      }
      changes_.now.map->Set(block, *place);
      open.present = {};
    }
  }

  std::string bytes_;
  Drives& drives_;
  Mode mode_;
  LocalChanges changes_;
  std::map<uint64_t, Open> blocks_;
};

// ---- The other host

struct Theirs {
  // How it has stored what it did, and what else has happened to what it did not touch.
  enum class Form { kBlocks, kInline, kRepaired, kShared, kSharedUnresolved };
  static constexpr std::array kForms = {Form::kBlocks, Form::kInline, Form::kRepaired,
                                        Form::kShared, Form::kSharedUnresolved};

  std::string bytes;
  Inode inode;
  std::map<uint64_t, BlockPlace> resolved;

  TheirChanges Changes() const { return {inode, resolved}; }
};

// Null: they cannot have it so.
std::optional<Theirs> MakeTheirs(const Base& base, const std::vector<Step>& steps,
                                 Theirs::Form form, Drives& drives) {
  using Form = Theirs::Form;
  Theirs theirs{base.bytes, base.inode, {}};
  theirs.inode.mode = 0600;
  theirs.inode.keepers = {kKeeper};
  std::set<uint64_t> touched;
  char written = 'a';
  for (const Step& step : steps) {
    const uint64_t before = theirs.bytes.size();
    step.ApplyTo(theirs.bytes, written++);
    for (uint64_t block = 0; block < kBlocks && step.kind != Step::Kind::kTruncate; ++block) {
      if (block * kBlock < step.end && step.first < (block + 1) * kBlock) touched.insert(block);
    }
    if (theirs.inode.map) {
      theirs.inode.map->Resize(std::min<uint64_t>(before, theirs.bytes.size()));
      theirs.inode.map->Resize(theirs.bytes.size());
    }
  }
  theirs.inode.size = theirs.bytes.size();
  if (form == Form::kInline || theirs.bytes.empty()) {
    if (theirs.bytes.size() > kBlock) return std::nullopt;
    theirs.inode.map.reset();
    theirs.inode.inline_data = theirs.bytes;
    return theirs;
  }
  if (!theirs.inode.map) {
    for (uint64_t block = 0; block < kBlocks; ++block) touched.insert(block);
    theirs.inode.map.emplace(kLayout).Resize(theirs.bytes.size());
    theirs.inode.inline_data.clear();
  }
  BlockMap& map = *theirs.inode.map;
  for (uint64_t block = 0; block < map.blocks(); ++block) {
    auto place = map.Find(block);
    if (touched.contains(block)) {
      map.Set(block, drives.Store(BlockOf(theirs.bytes, block)));
    } else if (place && form == Form::kRepaired && !place->shared) {
      place->place.moved = {{0, 7}};
      map.Set(block, *place);
    } else if (place && (form == Form::kShared || form == Form::kSharedUnresolved)) {
      if (!place->shared) {
        drives.Keep(block, *place);
        if (form == Form::kShared) theirs.resolved.emplace(block, *place);
      }
      map.Set(block, SharedPlace(kKeeper, 0, place->valid));
    }
  }
  return theirs;
}

// ---- The tests

class MergeTest : public ::testing::Test {
 protected:
  // Ours, of all bases, in all modes, up to `most` steps.
  template <typename Check>
  void ForAllOurs(size_t most, const Check& check) {
    Drives drives;
    const std::vector<Base> bases = AllBases(drives);
    const size_t before = drives.count();
    const auto sequences = Sequences(most);
    for (const Base& base : bases) {
      for (const auto& steps : sequences) {
        for (const Ours::Mode mode : Ours::kModes) {
          drives.Forget(before);
          Ours ours(base, drives, mode);
          char written = 'A';
          const bool counts = std::ranges::all_of(
              steps, [&](const Step& step) { return ours.Do(step, written++); });
          if (!counts) continue;
          check(base, ours, steps, static_cast<int>(mode), drives);
          if (HasFailure()) return;
        }
      }
    }
  }

  void Expect(const Ours& ours, const std::vector<Step>& steps, const Base& base,
              const Theirs& theirs, const std::string& what) {
    ++cases_;
    const LocalChanges changes = ours.Changes();
    const Merged merged = Merge(base.inode, changes, theirs.Changes());
    std::string expected = theirs.bytes;
    char written = 'A';
    for (const Step& step : steps) step.ApplyTo(expected, written++);
    if (ours.ReadOver(merged) != expected) {
      FAIL() << fmt::format("{}: {:?} became {:?}, and not {:?}", what, theirs.bytes,
                            ours.ReadOver(merged), expected);
    }
    // Attributes, and what else there is, are theirs.
    Inode rest = theirs.inode;
    rest.size = merged.inode.size;
    rest.inline_data = merged.inode.inline_data;
    rest.map = merged.inode.map;
    if (rest != merged.inode) FAIL() << what;
    ExpectNothingDangles(merged, changes, base, theirs, what);
  }

  // What was stored of relaid blocks is garbage from then on, and what others share is not ours.
  // Nothing is relaid without need.
  void ExpectNothingDangles(const Merged& merged, const LocalChanges& changes, const Base& base,
                            const Theirs& theirs, const std::string& what) {
    if (!merged.inode.map) return;
    for (uint64_t block = 0; block < merged.inode.map->blocks(); ++block) {
      const auto place = merged.inode.map->Find(block);
      if (!place) continue;
      const auto there = theirs.inode.map ? theirs.inode.map->Find(block) : std::nullopt;
      if (merged.relaid.contains(block)) {
        const bool is_theirs =
            there && std::ranges::all_of(place->Stripes(),
                                         [&](const auto& stripe) { return there->Names(stripe); });
        if (!is_theirs) FAIL() << what << ", relaid block " << block;
      } else if (there && there->shared && !place->shared) {
        const auto before = base.inode.map ? base.inode.map->Find(block) : std::nullopt;
        if (before && place->Names(*before)) FAIL() << what << ", shared block " << block;
      }
    }
    for (const uint64_t block : merged.relaid) {
      if (!changes.written_ends.contains(block)) FAIL() << what << ", nothing of " << block;
      // Where nothing of theirs is left, nothing of theirs can be wrong.
      const bool is_all_ours =
          changes.cut_to.value_or(kBytes) <= block * kBlock || changes.cleared.Contains(block);
      if (is_all_ours && changes.written_ends.at(block) > 0) FAIL() << what << ", " << block;
    }
  }

  void TearDown() override { RecordProperty("cases", static_cast<int>(cases_)); }

  size_t cases_ = 0;
};

TEST_F(MergeTest, OurChangesAreLaidOverTheirs) {
  const auto their_sequences = Sequences(1);
  ForAllOurs(2, [&](const Base& base, const Ours& ours, const std::vector<Step>& steps, int mode,
                    Drives& drives) {
    const size_t before = drives.count();
    for (const auto& their_steps : their_sequences) {
      for (const Theirs::Form form : Theirs::kForms) {
        // Two of ours meet less, to save time.
        const bool is_special =
            form == Theirs::Form::kRepaired || form == Theirs::Form::kSharedUnresolved;
        if (steps.size() > 1 && is_special) continue;
        drives.Forget(before);
        const auto theirs = MakeTheirs(base, their_steps, form, drives);
        if (!theirs) continue;
        Expect(ours, steps, base, *theirs,
               fmt::format("base {:?}, ours{} in mode {}, theirs{} in form {}", base.bytes,
                           Describe(steps), mode, Describe(their_steps), static_cast<int>(form)));
        if (HasFailure()) return;
      }
    }
  });
  EXPECT_GT(cases_, 100'000u);
}

TEST_F(MergeTest, OneChangeOfOursIsLaidOverTwoOfTheirs) {
  const auto their_sequences = Sequences(2);
  ForAllOurs(1, [&](const Base& base, const Ours& ours, const std::vector<Step>& steps, int mode,
                    Drives& drives) {
    const size_t before = drives.count();
    for (const auto& their_steps : their_sequences) {
      drives.Forget(before);
      const auto theirs = MakeTheirs(base, their_steps, Theirs::Form::kBlocks, drives);
      Expect(ours, steps, base, *theirs,
             fmt::format("base {:?}, ours{} in mode {}, theirs{}", base.bytes, Describe(steps),
                         mode, Describe(their_steps)));
      if (HasFailure()) return;
    }
  });
  EXPECT_GT(cases_, 100'000u);
}

// Its outcome was not known, and the shards may have been moved since.
TEST_F(MergeTest, ACommitOfOursThatHasHappenedIsFoundAgain) {
  ForAllOurs(2, [&](const Base& base, const Ours& ours, const std::vector<Step>& steps, int mode,
                    Drives&) {
    if (!ours.IsAllStored()) return;
    Theirs theirs{base.bytes, ours.Changes().now, {}};
    char written = 'A';
    for (const Step& step : steps) step.ApplyTo(theirs.bytes, written++);
    BlockMap& map = *theirs.inode.map;
    for (uint64_t block = 0; block < map.blocks(); ++block) {
      auto place = map.Find(block);
      if (!place || place->shared) continue;
      place->place.moved = {{1, 8}};
      map.Set(block, *place);
    }
    const std::string what =
        fmt::format("base {:?}, ours{} in mode {}", base.bytes, Describe(steps), mode);
    Expect(ours, steps, base, theirs, what);
    const Merged merged = Merge(base.inode, ours.Changes(), theirs.Changes());
    if (!(merged.inode.map == theirs.inode.map)) FAIL() << what;
  });
  EXPECT_GT(cases_, 1'000u);
}

// What was stored is not stored again when nobody has changed the bytes below it.
TEST_F(MergeTest, WhereTheirBytesAreThoseThatWeBeganWithNothingIsRelaid) {
  ForAllOurs(2, [&](const Base& base, const Ours& ours, const std::vector<Step>& steps, int mode,
                    Drives& drives) {
    for (const Theirs::Form form : {Theirs::Form::kBlocks, Theirs::Form::kRepaired}) {
      if (!base.inode.map) continue;
      ++cases_;
      const auto theirs = MakeTheirs(base, {}, form, drives);
      const Merged merged = Merge(base.inode, ours.Changes(), theirs->Changes());
      for (const uint64_t block : merged.relaid) {
        if (ours.HasWritten(block)) {
          FAIL() << fmt::format("base {:?}, ours{} in mode {}: block {}", base.bytes,
                                Describe(steps), mode, block);
        }
      }
    }
  });
  EXPECT_GT(cases_, 1'000u);
}

// Only blocks have a size.
TEST_F(MergeTest, BlocksOfAnotherSizeCannotBePutTogether) {
  Inode theirs;
  theirs.map.emplace(StripeLayout{4, 1, 1});
  LocalChanges ours{.block_bytes = kBlock};
  EXPECT_TRUE(CanMerge(ours, theirs));
  ours.written_ends[0] = 0;
  EXPECT_FALSE(CanMerge(ours, theirs));
  ours.written_ends.clear();
  ours.cleared.Add(1, 2);
  EXPECT_FALSE(CanMerge(ours, theirs));
  theirs.map.reset();
  EXPECT_TRUE(CanMerge(ours, theirs));
}

}  // namespace
}  // namespace pinstripe
