// What `pinstripe why` and the attribute user.pinstripe.why tell of a file.

#include "upkeep/whereabouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using State = Whereabouts::State;

class WhereaboutsTest : public FsTest {
 protected:
  // As a host finds it that has just come.
  Whereabouts Find(InodeId id) {
    Host host = NewHost();
    const auto found = FindWhereabouts(*host.cluster, id);
    EXPECT_OK(found);
    return found.value_or(Whereabouts());
  }

  static const Whereabouts::Part& PartOf(const Whereabouts& found, std::string_view what) {
    static const Whereabouts::Part none;
    for (const Whereabouts::Part& part : found.parts) {
      if (part.what == what) return part;
    }
    ADD_FAILURE() << "nothing is told of " << what;
    return none;
  }
  static uint64_t Shards(const Whereabouts::Part& part) {
    return std::accumulate(part.on_drive.begin(), part.on_drive.end(), uint64_t{0},
                           [](uint64_t sum, const auto& drive) { return sum + drive.second; });
  }
  DriveId SomeDriveOf(const Whereabouts::Part& part) { return part.on_drive.begin()->first; }
};

TEST_F(WhereaboutsTest, ASmallFileIsInItsInode) {
  const Whereabouts found = Find(Make("small", "hello"));
  EXPECT_EQ(found.state(), State::kWhole);
  EXPECT_EQ(found.size, 5u);
  EXPECT_EQ(found.inline_bytes, 5u);
  ASSERT_EQ(found.parts.size(), 2u);
  for (const std::string_view what : {"name", "inode"}) {
    const Whereabouts::Part& part = PartOf(found, what);
    EXPECT_EQ(part.form, "3 copies");
    EXPECT_EQ(part.needed, 2);
    EXPECT_EQ(Shards(part), 3u);
  }
  EXPECT_EQ(found.Margin(), 1);
}

TEST_F(WhereaboutsTest, ListsTheStripesThatAreAskedForWithTheirShards) {
  const InodeId id = Make("large", Pattern(1, 3 * kTestBlock - 7));
  EXPECT_TRUE(Find(id).stripes.empty());
  const DriveId lost = SomeDriveOf(PartOf(Find(id), "blocks"));
  machines_.SetDown(lost, true);
  Host host = NewHost();
  const auto found =
      FindWhereabouts(*host.cluster, id, {.skipped_stripes = 1, .listed_stripes = 5});
  ASSERT_OK(found);
  EXPECT_EQ(found->stripe_count, 3u);
  ASSERT_EQ(found->stripes.size(), 2u);
  for (const Whereabouts::Stripe& stripe : found->stripes) {
    EXPECT_EQ(stripe.what, "blocks");
    EXPECT_EQ(stripe.data_shards, 2);
    ASSERT_EQ(stripe.shards.size(), 3u);
    int there = 0;
    for (const auto& shard : stripe.shards) {
      EXPECT_EQ(shard.is_there, shard.drive != lost);
      there += shard.is_there ? 1 : 0;
    }
    EXPECT_EQ(stripe.Margin(), there - 2);
  }
  EXPECT_EQ(found->stripes[0].block, 1u);
  const auto json = nlohmann::json::parse(WhereaboutsJson(*found));
  EXPECT_EQ(json["stripe_count"], 3);
  EXPECT_EQ(json["stripes"][1]["block"], 2);
  EXPECT_EQ(json["stripes"][1]["shards"][0]["drive"], found->stripes[1].shards[0].drive);
  EXPECT_EQ(json["margin"], found->Margin());
}

TEST_F(WhereaboutsTest, ALargeOneCanBeReadAsLongAsEnoughOfEachBlockIsThere) {
  const InodeId id = Make("large", Pattern(1, 3 * kTestBlock - 7));
  Whereabouts found = Find(id);
  EXPECT_EQ(found.state(), State::kWhole);
  const Whereabouts::Part blocks = PartOf(found, "blocks");
  EXPECT_EQ(blocks.form, "2+1");
  EXPECT_EQ(blocks.count, 3u);
  EXPECT_EQ(blocks.bytes, 3 * kTestBlock - 7);
  EXPECT_EQ(Shards(blocks), 9u);
  EXPECT_THAT(blocks.lacking, ElementsAre(Pair(0, 3)));

  const DriveId lost = SomeDriveOf(blocks);
  machines_.SetDown(lost, true);
  found = Find(id);
  EXPECT_EQ(found.state(), State::kShort);
  EXPECT_EQ(found.Margin(), 0);
  EXPECT_THAT(found.away, ElementsAre(lost));
  EXPECT_THAT(PartOf(found, "blocks").lacking, Contains(Pair(1, blocks.on_drive.at(lost))));
  EXPECT_THAT(WhereaboutsText(found), HasSubstr(fmt::format("drive {} is away", lost)));
}

// The inode is known to who has read it; that is what is asked here.
TEST_F(WhereaboutsTest, ItSaysWhenTooManyDrivesAreAway) {
  const InodeId id = Make("large", Pattern(1, 3 * kTestBlock));
  const Inode inode = InodeOf(id);
  machines_.SetDown(1, true);
  machines_.SetDown(2, true);
  machines_.SetDown(3, true);
  const auto found = FindWhereabouts(*host_.cluster, id, inode);
  ASSERT_OK(found);
  EXPECT_EQ(found->state(), State::kUnreadable);
  EXPECT_LT(found->Margin(), 0);
  EXPECT_THAT(WhereaboutsText(*found), HasSubstr("CANNOT BE READ"));
}

TEST_F(WhereaboutsTest, HolesAreNowhere) {
  auto file = fs_->Create(kRootInode, "sparse", {});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(100 * kTestBlock, AsBytes(Pattern(1, kTestBlock))));
  const InodeId id = (*file)->inode();
  ASSERT_OK((*file)->Close());
  const Whereabouts found = Find(id);
  EXPECT_EQ(found.size, 101 * kTestBlock);
  EXPECT_EQ(PartOf(found, "blocks").count, 1u);
}

TEST_F(WhereaboutsTest, HolesCostNothingHoweverLongTheyAre) {
  auto file = fs_->Create(kRootInode, "vast", {});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Truncate(kMaxFileBytes));
  ASSERT_OK((*file)->Write(kMaxFileBytes / 2, AsBytes("in the middle")));
  const InodeId id = (*file)->inode();
  ASSERT_OK((*file)->Close());
  const Whereabouts found = Find(id);
  EXPECT_EQ(PartOf(found, "blocks").count, 1u);
  EXPECT_OK(fs_->GetExtended(id, kWhyAttribute));
}

TEST_F(WhereaboutsTest, TheAttributeIsForFilesThatAreNotTooLarge) {
  const InodeId id = Make("file", Pattern(1, 3 * kTestBlock));
  const Inode inode = InodeOf(id);
  EXPECT_OK(FindWhereabouts(*host_.cluster, id, inode, {.most_blocks = 3}));
  EXPECT_FAILS(FindWhereabouts(*host_.cluster, id, inode, {.most_blocks = 2}), EFBIG);
  int questions = 0;
  const auto is_ending = [&] { return ++questions == 3; };
  EXPECT_FAILS(FindWhereabouts(*host_.cluster, id, inode, {.is_ending = is_ending}), ECANCELED);
}

// The name is where the file is found, not where it was made.
TEST_F(WhereaboutsTest, AFileThatWasMovedHasItsNameElsewhere) {
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "from", 0755, {}));
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "to", 0755, {}));
  const InodeId from = fs_->Resolve("/from")->inode;
  const InodeId to = fs_->Resolve("/to")->inode;
  const InodeId id = Make("file", "x", from);
  ASSERT_OK(fs_->Rename(from, "file", to, "file"));
  const auto known = FindWhereabouts(*host_.cluster, id, {.directory = to});
  ASSERT_OK(known);
  const auto homes = host_.cluster->RegisterHomes(host_.cluster->GroupOfObject(to));
  for (const auto& [drive, shards] : PartOf(*known, "name").on_drive) {
    EXPECT_NE(std::ranges::find(homes, drive), homes.end());
  }
  for (const Whereabouts::Part& part : Find(id).parts) {
    EXPECT_NE(part.what, "name") << "who asks by the inode alone does not know it";
  }
}

TEST_F(WhereaboutsTest, WhatHasNoNameIsNotFound) {
  auto file = fs_->Open(Make("file", "x"), FileSystem::Access::kRead);
  ASSERT_OK(file);
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_FAILS(fs_->GetExtended((*file)->inode(), kWhyAttribute), ENODATA);
  EXPECT_FAILS(FindWhereabouts(*host_.cluster, (*file)->inode()), ENOENT);
}

TEST_F(WhereaboutsTest, PatchesAreRecordsOfTheirOwn) {
  const InodeId id = Make("patched", Pattern(1, 2 * kTestBlock));
  auto file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(1000, AsBytes("patch")));
  ASSERT_OK((*file)->Close());
  const Whereabouts found = Find(id);
  EXPECT_EQ(PartOf(found, "blocks").count, 2u);
  const Whereabouts::Part& patches = PartOf(found, "patches");
  EXPECT_EQ(patches.count, 1u);
  EXPECT_EQ(patches.form, "2 copies");
  EXPECT_EQ(patches.needed, 1);
}

TEST_F(WhereaboutsTest, WhatIsOnASpareIsThere) {
  machines_.SetDown(2, true);
  const InodeId id = Make("spared", Pattern(1, 6 * kTestBlock));
  const Whereabouts found = Find(id);
  const Whereabouts::Part& blocks = PartOf(found, "blocks");
  EXPECT_GT(blocks.spares, 0u);
  EXPECT_THAT(blocks.lacking, ElementsAre(Pair(0, 6))) << "spares were free";
  EXPECT_THAT(blocks.on_drive, Not(Contains(Pair(2, testing::_))));
  EXPECT_THAT(WhereaboutsText(found), HasSubstr("on spares"));
}

TEST_F(WhereaboutsTest, TheAttributeSaysItAndCannotBeSetAndIsNotListed) {
  const InodeId id = Make("file", Pattern(1, kTestBlock));
  const auto why = fs_->GetExtended(id, kWhyAttribute);
  ASSERT_OK(why);
  EXPECT_EQ(*why, WhereaboutsText(Find(id)));
  EXPECT_THAT(*why, HasSubstr("whole"));
  EXPECT_FAILS(fs_->SetExtended(id, kWhyAttribute, "x"), EPERM);
  EXPECT_FAILS(fs_->RemoveExtended(id, kWhyAttribute), EPERM);
  const auto names = fs_->ListExtended(id);
  ASSERT_OK(names);
  EXPECT_THAT(*names, testing::IsEmpty());
}

class WhereaboutsOfPagesTest : public WhereaboutsTest {
 protected:
  WhereaboutsOfPagesTest() { options_ = kSmallPages; }
};

TEST_F(WhereaboutsOfPagesTest, PagesOfTheMapAreRecordsOfTheirOwn) {
  InodeId id = 0;
  for (uint64_t block = 0; block < 12; ++block) {
    auto file = fs_->Create(kRootInode, "pieces", {});
    ASSERT_OK(file);
    id = (*file)->inode();
    ASSERT_OK((*file)->Write(block * kTestBlock, AsBytes(Pattern(block, kTestBlock))));
    ASSERT_OK((*file)->Close());
    sim_.Sleep(std::chrono::seconds(2));  // so that each is a run of its own
  }
  const Whereabouts found = Find(id);
  EXPECT_EQ(PartOf(found, "blocks").count, 12u);
  uint64_t pages = 0;
  const Inode inode = InodeOf(id);
  for (const BlockMap::Part& part : inode.map->parts()) pages += part.stretch->page ? 1 : 0;
  ASSERT_GT(pages, 0u);
  EXPECT_EQ(PartOf(found, "map pages").count, pages);
  EXPECT_EQ(found.state(), State::kWhole);

  // With its page the file is lost, and the rest is told all the same.
  for (const auto& [drive, shards] : PartOf(found, "map pages").on_drive) {
    machines_.SetDown(drive, true);
  }
  const auto lost = FindWhereabouts(*host_.cluster, id, inode);
  ASSERT_OK(lost);
  EXPECT_EQ(lost->state(), State::kUnreadable);
  EXPECT_GT(lost->unknown_blocks, 0u);
  EXPECT_GT(PartOf(*lost, "map pages").count, 0u);
  EXPECT_THAT(WhereaboutsText(*lost), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace pinstripe
