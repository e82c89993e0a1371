// CheckState: a check that is stopped or killed, wherever that is, goes on and says what one says
// that ran in one piece. What is damaged, or somebody else's, is refused in a sentence.

#include "upkeep/check_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/coding.h"
#include "cluster/stripes/shard.h"
#include "fs/files/copy_range.h"
#include "tests/fs/fs_test_base.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/unhex.h"
#include "upkeep/collector.h"

namespace pinstripe {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void PutBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// ---- The file

struct Thing {
  uint64_t number = 0;
  int negative = 0;
  std::string text;
  std::vector<std::string> texts;
  std::set<uint16_t> drives;
  std::map<std::string, uint64_t> counts;
  friend bool operator==(const Thing&, const Thing&) = default;
};

void Archive(StateFile& file, Thing& thing) {
  file.Number(thing.number);
  file.Number(thing.negative);
  file.Text(thing.text);
  file.Items(thing.texts, [&](std::string& text) { file.Text(text); });
  file.Items(thing.drives, [&](uint16_t& drive) { file.Number(drive); });
  file.Items(thing.counts, [&](std::string& name, uint64_t& count) {
    file.Text(name);
    file.Number(count);
  });
}

const Thing kThing{.number = 1'000'000'000'000,
                   .negative = -7,
                   .text = std::string("a\0b", 3),
                   .texts = {"", "one", "two"},
                   .drives = {3, 65535},
                   .counts = {{"x", 1}, {"y", 0}}};

Status Write(const std::string& path, Thing thing) {
  auto file = StateFile::Write(path);
  if (!file.has_value()) return file.error();
  Archive(*file, thing);
  return file->Finish();
}

Result<Thing> Read(const std::string& path) {
  auto file = StateFile::Read(path);
  if (!file.has_value()) return tl::unexpected(file.error());
  Thing thing;
  Archive(*file, thing);
  if (const Status end = file->Finish(); !end.ok()) return tl::unexpected(end);
  return thing;
}

TEST(StateFileTest, WhatIsWrittenIsRead) {
  const TemporaryDirectory directory;
  const std::string path = directory / "state";
  EXPECT_EQ(Read(path).error().code(), ENOENT);
  ASSERT_OK(Write(path, kThing));
  const auto read = Read(path);
  ASSERT_OK(read);
  EXPECT_EQ(*read, kThing);
  // As docs/format.md has it: a frame, and the empty one that ends the file.
  Thing small{.number = 300, .negative = 0, .text = "ab"};
  ASSERT_OK(Write(path, small));
  EXPECT_EQ(Hex(AsBytes(BytesOf(path))),
            "00000009"
            "0fdef867"
            "ac02"
            "00"
            "026162"
            "000000"
            "0000000000000000");
}

TEST(StateFileTest, ManyItemsAreManyFrames) {
  const TemporaryDirectory directory;
  const std::string path = directory / "state";
  Thing many;
  for (int i = 0; i < 3000; ++i) many.texts.emplace_back(1000, static_cast<char>(i));
  many.texts.emplace_back(5 << 20, 'x');  // one alone may be larger
  for (int i = 0; i < 100'000; ++i) many.counts[fmt::format("{}", i)] = i;
  ASSERT_OK(Write(path, many));
  const auto read = Read(path);
  ASSERT_OK(read);
  EXPECT_TRUE(*read == many);
}

// What was there before stays until the new one is whole.
TEST(StateFileTest, OneThatIsNotFinishedLeavesNothing) {
  const TemporaryDirectory directory;
  const std::string path = directory / "state";
  ASSERT_OK(Write(path, kThing));
  {
    auto file = StateFile::Write(path);
    ASSERT_OK(file);
    Thing other{.text = "other"};
    Archive(*file, other);
  }
  EXPECT_EQ(*Read(path), kThing);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(StateFileTest, EveryDamageIsNoticed) {
  const TemporaryDirectory directory;
  const std::string path = directory / "state";
  ASSERT_OK(Write(path, kThing));
  const std::string good = BytesOf(path);
  for (size_t size = 0; size < good.size(); ++size) {
    PutBytes(path, good.substr(0, size));
    EXPECT_EQ(Read(path).error().code(), EBADMSG) << "cut at " << size;
  }
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    PutBytes(path, bad);
    EXPECT_EQ(Read(path).error().code(), EBADMSG) << "bit " << bit;
  }
  // Whole, and something else: its checksums are right.
  auto file = StateFile::Write(path);
  ASSERT_OK(file);
  uint64_t number = UINT64_MAX;
  for (int i = 0; i < 5; ++i) file->Number(number);
  ASSERT_OK(file->Finish());
  EXPECT_EQ(Read(path).error().code(), EBADMSG);
}

// ---- The check

class CheckStateTest : public FsTest {
 protected:
  CheckStateTest() {
    options_ = kSmallPages;
    SetLogLevel(LogLevel::kError);
  }

  std::unique_ptr<CheckState> Open(Duration every = hours(1)) {
    auto state = CheckState::Open(*host_.cluster, path_, every);
    EXPECT_OK(state);
    return state.has_value() ? *std::move(state) : nullptr;
  }

  void Put(DriveId drive, const std::string& key) {
    Gather<Status> gather(sim_);
    machines_.memory(drive).Put({.key = key, .value = {}, .version = {}, .tag = {}}, Time::max(),
                                gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  void Delete(DriveId drive, const std::string& key) {
    Gather<Status> gather(sim_);
    machines_.memory(drive).Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(),
                                   gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }

  // Something of all that a check knows.
  void MakeATreeWithAllKindsOfTrouble() {
    const InodeId a = MakeDirectory("a");
    Make("small", "inline", a);
    for (int i = 0; i < 12; ++i) Make(fmt::format("file{}", i), Pattern(i, 3 * kTestBlock), a);
    MakeInPieces("pages");
    const InodeId linked = Make("linked", Pattern(1, kTestBlock));
    ASSERT_OK(fs_->Link(linked, a, "again"));
    // Blocks that two files share.
    const InodeId source = Make("source", Pattern(7, 12 * kTestBlock));
    auto from = fs_->Open(source, FileSystem::Access::kWrite);
    auto to = fs_->Create(kRootInode, "clone", {});
    ASSERT_OK(from);
    ASSERT_OK(to);
    ASSERT_OK(CopyRange(**from, 0, **to, 0, 12 * kTestBlock));
    ASSERT_OK((*from)->Close());
    ASSERT_OK((*to)->Close());
    // A file that overwrites a little: patches.
    auto patched = fs_->Open(fs_->Resolve("/a/file3")->inode, FileSystem::Access::kWrite);
    ASSERT_OK((*patched)->Write(5000, AsBytes(std::string("patch"))));
    ASSERT_OK((*patched)->Close());
    // One that nobody puts right, which was written while a drive was away.
    {
      auto cluster = machines_.Open();
      ASSERT_OK(cluster);
      auto fs = FileSystem::Open(**cluster, {});
      ASSERT_OK(fs);
      machines_.SetDown(4, true);
      auto file = (*fs)->Create(kRootInode, "displaced", {});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(Pattern(9, 6 * kTestBlock))));
      ASSERT_OK((*file)->Close());
      machines_.SetDown(4, false);
    }
    Make("orphan", Pattern(3, kTestBlock));
    // Leftovers, an error in the tree, a lost inode, and a register that cannot be read.
    PutEntry(a, "nothing", Entry{0x1234, FileKind::kRegular, std::nullopt});
    PutEntry(a, "third", Entry{linked, FileKind::kRegular, std::nullopt});
    const InodeId lost = Make("lost", Pattern(2, kTestBlock));
    LoseCopies(lost, Writer().Raw("I").U64(lost).Take());
    PutEntry(kRootInode, "orphan", std::nullopt);
    ChangeInode(a, [](Inode& inode) { inode.links = 9; });
    const RegisterName damaged{host_.cluster->GroupOfObject(a),
                               Writer().Raw("E").U64(a).Take() + "damaged"};
    const auto seen = host_.cluster->registers().Read(damaged);
    EXPECT_TRUE(host_.cluster->registers().Change(damaged, *seen, "no entry").applied());
    // Shards that are missing, that nobody names, and that are none.
    for (const DriveId drive : {1, 2}) {
      const auto shards = ShardsOn(drive);
      for (size_t i = 0; i < shards.size(); i += 2) Delete(drive, shards[i]);
    }
    for (const uint64_t object : {uint64_t{7}, uint64_t{1} << 62, ~uint64_t{0}}) {
      Put(1, ShardKey(ClusterPrefix("test"), {object, 0, {}}, 0));
      Put(2, ShardKey(ClusterPrefix("test"), {object, 0, {}}, 1));
    }
    Put(3, ClusterPrefix("test") + "D?");
  }

  // All that a checker tells anybody.
  std::vector<std::string> TextOf(Checker& checker, const CheckReport& report) {
    std::vector<std::string> text;
    for (const Finding& one : report.findings) {
      text.push_back(fmt::format("{} {} {} {}", static_cast<int>(one.severity), one.problem,
                                 one.where, one.what));
    }
    for (const auto& [problem, untold] : report.untold) {
      text.push_back(fmt::format("untold {} {}", problem, untold.count));
    }
    for (const std::string& what : report.not_checked) text.push_back("not checked " + what);
    for (const ListedStripe& stripe : checker.unused_stripes()) {
      text.push_back(fmt::format("unused {:x} {} {}", stripe.id.object, stripe.id.block,
                                 stripe.copies.size()));
    }
    for (const LackingBlock& one : checker.TakeLackingBlocks()) {
      text.push_back(fmt::format("lacking {:x} {}: {} missing, {} of {}, {} needed, {}", one.file,
                                 one.block, one.missing, one.present, one.all, one.needed,
                                 one.lost));
    }
    for (const auto& [file, block] : checker.TakeDisplacedBlocks()) {
      text.push_back(fmt::format("displaced {:x} {}", file, block));
    }
    for (const Suspicion& one : checker.confirmed()) {
      text.push_back(fmt::format("confirmed {} {:x}", NameOf(one.problem), one.inode.id));
    }
    for (const auto& [id, lost] : checker.lost_inodes()) {
      text.push_back(fmt::format("lost {:x} {}", id, lost.Text()));
    }
    for (const auto& [id, keeping] : checker.keepers()) {
      text.push_back(fmt::format("keeper {:x} of {} files", id, keeping.files.size()));
    }
    for (const auto& [drive, count] : report.shards_by_drive) {
      text.push_back(fmt::format("drive {}: {} shards", drive, count));
    }
    for (const auto& [k, m] : report.geometries) text.push_back(fmt::format("{}+{}", k, m));
    text.push_back(fmt::format(
        "{} directories, {} files, {} entries, {} blocks, {} pages, {} patches, {} shards, {} "
        "unused, {} bytes of them, {} displaced, knows all names {}, all places {}, {} with data, "
        "{} lost, began {}",
        report.directories, report.files, report.entries, report.blocks, report.map_pages,
        report.patches, report.shards, report.unused_shards, report.unused_bytes,
        report.displaced_blocks, checker.knows_all_names(), report.knows_all_places,
        checker.CountWithData(), report.lost_inodes, report.began));
    std::ranges::sort(text);
    return text;
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "state";
};

struct Killed {};

// A check that ends in the middle again and again.
struct Life {
  int steps = 0;  // that it does before
  bool is_short = false;
  bool killed = false;
  std::string phase;
  bool GoOn() {
    // Who goes on does this anew. So one that never comes to the end of it gets no further.
    const bool is_done_anew = phase == "looking again" || phase == "putting names together" ||
                              phase == "naming what was found";
    if (is_done_anew && is_short) return true;
    if (steps-- > 0) return true;
    if (killed) throw Killed();
    return false;
  }
};

TEST_F(CheckStateTest, WhereverItEndsItGoesOnAndSaysTheSame) {
  MakeATreeWithAllKindsOfTrouble();
  ASSERT_FALSE(HasFailure());
  size_t most_suspects = 1'000'000;
  const auto options = [&](Life& life, CheckState* state) {
    return Checker::Options{.most_told = 8,
                            .most_suspects = most_suspects,
                            .progress = [&](std::string_view phase, double) { life.phase = phase; },
                            .go_on = [&] { return life.GoOn(); },
                            .state = state};
  };
  Life endless{.steps = 1'000'000};
  Checker whole(*host_.cluster, options(endless, nullptr));
  const CheckReport expected_report = whole.Run();
  const int steps = 1'000'000 - endless.steps;
  std::vector<std::string> expected = TextOf(whole, expected_report);
  const auto has = [&](std::string_view what) {
    return std::ranges::any_of(expected,
                               [&](const std::string& line) { return line.starts_with(what); });
  };
  for (const char* what : {"unused", "lacking", "displaced", "confirmed", "keeper", "untold",
                           "0 damaged-entry", "0 strange-key", "0 too-few-links"}) {
    EXPECT_TRUE(has(what)) << what << " is missing in what is to be kept";
  }
  // Which blocks of a file are told together depends on when they are asked for in parts.
  const auto comparable = [&](std::vector<std::string> text) {
    std::erase_if(text, [&](const std::string& line) {
      const bool is_told_in_parts =
          line.find("short-of-shards") != line.npos || line.find("lost-data") != line.npos;
      return line.find(" began ") != line.npos || (most_suspects == 3 && is_told_in_parts);
    });
    return text;
  };
  constexpr bool no = false;
  constexpr bool yes = true;
  for (const auto& [killed, in_parts] : {std::pair(no, no), {no, yes}, {yes, no}, {yes, yes}}) {
    most_suspects = in_parts ? 3 : 1'000'000;
    for (const int at_once : {3, 7, 50, steps / 2, steps - 1}) {
      SCOPED_TRACE(fmt::format("{} steps, then {}", at_once, killed ? "killed" : "stopped"));
      const int64_t began = sim_.WallClock();
      for (int run = 0;; ++run) {
        ASSERT_LT(run, 10 * steps) << "it gets no further";
        const auto state = Open(/*every=*/killed ? seconds(0) : hours(1));
        EXPECT_EQ(state->goes_on_since().has_value(), run > 0);
        Life life{.steps = at_once, .is_short = at_once < 50, .killed = killed};
        Checker checker(*host_.cluster, options(life, state.get()));
        try {
          const CheckReport report = checker.Run();
          if (life.steps < 0) {
            EXPECT_THAT(report.not_checked, testing::Contains(HasSubstr("it was stopped")));
            continue;
          }
          EXPECT_EQ(comparable(TextOf(checker, report)), comparable(expected));
          EXPECT_EQ(report.began, began) << "it is as old as what was seen first";
          ASSERT_FALSE(HasFailure());
          EXPECT_OK(state->Remove());
          EXPECT_FALSE(std::filesystem::exists(path_));
          break;
        } catch (const Killed&) {
        }
      }
    }
  }
}

// Its end is kept, too, for a repair that is killed while it writes.
TEST_F(CheckStateTest, WhatWasFoundIsKeptUntilItIsRemoved) {
  MakeATreeWithAllKindsOfTrouble();
  auto state = Open();
  Checker first(*host_.cluster, {.state = state.get()});
  const auto expected = TextOf(first, first.Run());
  state.reset();
  state = Open();
  Checker again(*host_.cluster, {.progress =
                                     [](std::string_view phase, double) {
                                       EXPECT_THAT(std::string(phase),
                                                   testing::Not(HasSubstr("reading")));
                                     },
                                 .state = state.get()});
  EXPECT_EQ(TextOf(again, again.Run()), expected);
}

TEST_F(CheckStateTest, ADriveThatWasAwayIsStillSaidToHaveBeen) {
  for (int i = 0; i < 20; ++i) Make(fmt::format("file{}", i), Pattern(i, kTestBlock));
  machines_.SetDown(2, true);
  bool stop = false;
  auto state = Open();
  Checker first(*host_.cluster, {.most_suspects = 1,
                                 .progress =
                                     [&](std::string_view phase, double done) {
                                       stop |= phase == "looking for shards" && done > 0;
                                     },
                                 .go_on = [&] { return !stop; },
                                 .state = state.get()});
  first.Run();
  ASSERT_TRUE(stop);
  machines_.SetDown(2, false);
  sim_.Sleep(seconds(60));
  state.reset();
  state = Open();
  Checker second(*host_.cluster, {.state = state.get()});
  const CheckReport report = second.Run();
  EXPECT_THAT(report.not_checked, testing::ElementsAre(HasSubstr("the shards of drive 2")));
  EXPECT_THAT(report.findings, IsEmpty());
}

// What had no name when it was seen may have one now.
TEST_F(CheckStateTest, ACollectionThatGoesOnIsAsOldAsWhatItSaw) {
  auto upload = fs_->Create(kRootInode, "new", {.truncate = true, .publish_at_commit = true});
  ASSERT_OK((*upload)->Write(0, AsBytes(Pattern(2, 4 * kTestBlock))));
  sim_.Sleep(seconds(10));  // until its stripes are on the drives
  auto state = Open();
  Checker(*host_.cluster, {.state = state.get()}).Run();
  ASSERT_OK((*upload)->Close());
  sim_.Sleep(hours(30));
  state.reset();
  state = Open();
  Collector collector(*host_.cluster, {.older_than = hours(24), .state = state.get()});
  const CollectReport report = collector.Run();
  EXPECT_EQ(report.shards + report.inodes + report.entries, 0u);
  EXPECT_EQ(Contents("/new"), Pattern(2, 4 * kTestBlock));
}

// What was removed since may have left a name that was not seen. So it is not old enough to be
// forgotten, however long the collection took.
TEST_F(CheckStateTest, WhatWasRemovedSinceIsNotErased) {
  Make("gone", "x");
  auto state = Open();
  Checker(*host_.cluster, {.state = state.get()}).Run();
  ASSERT_OK(fs_->Unlink(kRootInode, "gone"));
  sim_.Sleep(hours(48));
  state.reset();
  state = Open();
  Collector goes_on(*host_.cluster, {.older_than = seconds(0), .state = state.get()});
  EXPECT_EQ(goes_on.Run().tombstones, 0u);
  EXPECT_THAT(goes_on.Run().not_collected, IsEmpty());
  Collector anew(*host_.cluster, {.older_than = seconds(0)});
  EXPECT_GT(anew.Run().tombstones, 0u);
}

TEST_F(CheckStateTest, WhatDoesNotBelongThereIsRefused) {
  Make("file", Pattern(1, kTestBlock));
  Checker(*host_.cluster, {.state = Open().get()}).Run();
  const auto refused = [&] {
    const auto state = CheckState::Open(*host_.cluster, path_);
    EXPECT_FALSE(state.has_value());
    return state.has_value()
               ? std::pair(0, std::string())
               : std::pair(state.error().code(), std::string(state.error().message()));
  };
  {
    const auto one = Open();
    EXPECT_EQ(refused(), std::pair(EBUSY, path_ + " is used by another process"));
  }
  const std::string names = BytesOf(path_ + "/names");
  PutBytes(path_ + "/names", names.substr(0, names.size() / 2));
  EXPECT_EQ(refused().first, EBADMSG);
  EXPECT_THAT(refused().second, HasSubstr("remove it to begin anew"));
  PutBytes(path_ + "/names", names);

  // Of another cluster.
  TestCluster others(sim_, {.drives = 5, .layout = {2, 1, 64 << 10}});
  ASSERT_OK(others.Format(format_));
  const auto other = others.Open();
  ASSERT_OK(other);
  const auto state = CheckState::Open(**other, path_);
  ASSERT_FALSE(state.has_value());
  EXPECT_EQ(state.error().code(), EINVAL);
  EXPECT_THAT(std::string(state.error().message()), HasSubstr("another cluster"));

  // What goes with other names is not gone on with.
  const std::string shards = BytesOf(path_ + "/shards");
  Open()->WriteNames(1, [](StateFile&) {});
  EXPECT_FALSE(*Open()->ReadShards([](StateFile&) { ADD_FAILURE() << "it was read"; }));

  // Nor is what nobody can have kept: nothing is said to be in order.
  const auto damaged = Open();
  Checker checker(*host_.cluster, {.state = damaged.get()});
  const CheckReport report = checker.Run();
  EXPECT_THAT(report.not_checked, testing::ElementsAre(HasSubstr("its contents do not fit")));
  EXPECT_FALSE(checker.knows_all_names());
  EXPECT_FALSE(report.is_complete);
  Collector collector(*host_.cluster, {.older_than = seconds(0), .state = damaged.get()});
  EXPECT_THAT(collector.Run().not_collected,
              testing::ElementsAre(HasSubstr("its contents do not fit")));
  EXPECT_OK(damaged->Remove());
  EXPECT_TRUE(std::filesystem::exists(path_ + "/names")) << "it may be readable another time";

  // What others can write to may say anything.
  ASSERT_EQ(chmod(directory_.path().c_str(), 0777), 0);
  EXPECT_EQ(CheckState::Open(*host_.cluster, directory_.path()).error().code(), EPERM);
  EXPECT_EQ(CheckState::Open(*host_.cluster, directory_ / "a/b").error().code(), ENOENT);
  PutBytes(directory_ / "file", "");
  EXPECT_EQ(CheckState::Open(*host_.cluster, directory_ / "file").error().code(), ENOTDIR);
}

// One that was killed while it wrote leaves nothing for ever.
TEST_F(CheckStateTest, WhatWasBeingWrittenGoesWithTheRest) {
  Make("file", Pattern(1, kTestBlock));
  const auto state = Open();
  PutBytes(path_ + "/names.new", std::string(1000, 'x'));
  PutBytes(path_ + "/shards.new", "x");
  Checker checker(*host_.cluster, {.state = state.get()});
  ExpectClean(checker.Run());
  PutBytes(path_ + "/names.new", "x");
  EXPECT_OK(state->Remove());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

// A full disk costs a word in the log, and no check.
TEST_F(CheckStateTest, WhereItCannotBeKeptTheCheckGoesOn) {
  Make("file", Pattern(1, kTestBlock));
  const auto state = Open();
  std::filesystem::remove_all(path_);
  Checker checker(*host_.cluster, {.state = state.get()});
  ExpectClean(checker.Run());
}

}  // namespace
}  // namespace pinstripe
