// Replacing files wholly, and files that have lost their name: what uploads rely on.

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

class ReplaceTest : public FsTest {
 protected:
  // As a client does who uploads over whatever is there.
  std::unique_ptr<OpenFile> Upload(std::string_view name, uint32_t mode = 0644) {
    auto file =
        fs_->Create(kRootInode, name,
                    {.mode = mode, .owner = {7, 8}, .truncate = true, .publish_at_commit = true});
    EXPECT_OK(file);
    return *std::move(file);
  }
};

TEST_F(ReplaceTest, TheOldContentsStayUntilTheNewOnesAreCommitted) {
  Make("f", Pattern(1, 3 * kTestBlock));
  auto upload = Upload("f");
  ASSERT_OK(upload->Write(0, AsBytes("new")));
  EXPECT_EQ(upload->Stat()->size, 3u);
  EXPECT_EQ(Contents("/f"), Pattern(1, 3 * kTestBlock));

  ASSERT_OK(upload->Close());
  EXPECT_EQ(Contents("/f"), "new");
  EXPECT_EQ(List(), std::vector<std::string>{"f"});
}

TEST_F(ReplaceTest, AnUploadThatIsNotClosedChangesNothing) {
  Make("f", "old");
  auto upload = Upload("f");
  ASSERT_OK(upload->Write(0, AsBytes("new")));
  upload.reset();
  EXPECT_EQ(Contents("/f"), "old");
}

// What is asked of a file by its number while it is uploaded is done to the upload.
TEST_F(ReplaceTest, AnUploadIsChangedByItsNumberAndAppearsNoSoonerForIt) {
  auto upload = Upload("f");
  ASSERT_OK(upload->Write(0, AsBytes("new contents")));
  const InodeId id = upload->inode();
  ASSERT_OK(fs_->SetAttributes(id, {.mode = 0600, .size = 3}));
  ASSERT_OK(fs_->SetExtended(id, "user.a", "b"));
  const auto during = fs_->GetAttributes(id);
  ASSERT_OK(during);
  EXPECT_EQ(during->size, 3u);
  EXPECT_EQ(during->mode, 0600u);
  EXPECT_EQ(*fs_->GetExtended(id, "user.a"), "b");
  EXPECT_EQ(List(), std::vector<std::string>{});

  ASSERT_OK(upload->Close());
  EXPECT_EQ(Contents("/f"), "new");
  EXPECT_EQ(*fs_->GetExtended(id, "user.a"), "b");
  EXPECT_EQ(fs_->Resolve("/f")->mode, 0600u);
}

TEST_F(ReplaceTest, AnUploadThatIsDiscardedGoesOnLikeAnUnlinkedFileAndNeverAppears) {
  Make("f", "old");
  const std::vector<std::string> shards = ShardsOn(1);
  auto upload = Upload("f");
  ASSERT_OK(upload->Write(0, AsBytes(Pattern(1, 3 * kTestBlock))));
  const auto discarded = fs_->Discard(upload->inode());
  ASSERT_OK(discarded);
  EXPECT_TRUE(*discarded);
  ASSERT_OK(upload->Write(3 * kTestBlock, AsBytes("more")));
  EXPECT_EQ(upload->Stat()->size, 3 * kTestBlock + 4);
  EXPECT_EQ(upload->Stat()->links, 0u);
  EXPECT_EQ(ReadAll(*upload, 3 * kTestBlock), "more");
  EXPECT_OK(upload->Sync());
  EXPECT_OK(upload->Commit());
  EXPECT_OK(upload->Close());
  EXPECT_EQ(Contents("/f"), "old");
  upload.reset();
  sim_.Sleep(std::chrono::minutes(2));
  EXPECT_EQ(ShardsOn(1), shards) << "nothing of it is left";
}

TEST_F(ReplaceTest, WhatHasAppearedIsNotDiscarded) {
  auto upload = Upload("f");
  ASSERT_OK(upload->Write(0, AsBytes("new")));
  ASSERT_OK(upload->Sync());
  EXPECT_EQ(*fs_->Discard(upload->inode()), false);
  ASSERT_OK(upload->Close());
  const InodeId id = upload->inode();
  upload.reset();
  EXPECT_EQ(*fs_->Discard(id), false) << "it is not open";
  EXPECT_EQ(Contents("/f"), "new");
}

TEST_F(ReplaceTest, OfTwoUploadsTheLastOneClosedIsThereAsAWhole) {
  auto first = Upload("f");
  auto second = Upload("f");
  ASSERT_OK(second->Write(0, AsBytes("second")));
  ASSERT_OK(first->Write(0, AsBytes("the first one")));
  ASSERT_OK(second->Close());
  EXPECT_EQ(Contents("/f"), "second");
  ASSERT_OK(first->Close());
  EXPECT_EQ(Contents("/f"), "the first one");
}

// So that who comes back to go on with an upload that is gone can be told from others.
TEST_F(ReplaceTest, WhatIsToBeReplacedIsNotedOnTheFileThatIsThere) {
  const FileSystem::CreateOptions options{
      .truncate = true, .publish_at_commit = true, .note_on_replaced = {{"trusted.note", "by me"}}};
  auto first = fs_->Create(kRootInode, "f", options);
  ASSERT_OK(first);
  ASSERT_OK((*first)->Close());
  const InodeId id = fs_->Resolve("/f")->inode;
  EXPECT_FAILS(fs_->GetExtended(id, "trusted.note"), ENODATA) << "it has replaced nothing";

  auto second = fs_->Create(kRootInode, "f", options);
  ASSERT_OK(second);
  EXPECT_EQ(*fs_->GetExtended(id, "trusted.note"), "by me");
  second->reset();
  EXPECT_EQ(*fs_->GetExtended(id, "trusted.note"), "by me");

  auto third = fs_->Create(kRootInode, "f", options);
  ASSERT_OK(third);
  ASSERT_OK((*third)->Write(0, AsBytes("new")));
  ASSERT_OK((*third)->Close());
  EXPECT_EQ(Contents("/f"), "new");
  EXPECT_FAILS(fs_->GetExtended(fs_->Resolve("/f")->inode, "trusted.note"), ENODATA);
}

TEST_F(ReplaceTest, AFileWithoutRoomForTheNoteIsReplacedAllTheSame) {
  const InodeId id = Make("f", "old");
  ASSERT_OK(fs_->SetExtended(id, "user.large", std::string(32'700, 'x')));
  auto upload = fs_->Create(kRootInode, "f",
                            {.truncate = true,
                             .publish_at_commit = true,
                             .note_on_replaced = {{"trusted.note", std::string(100, 'x')}}});
  ASSERT_OK(upload);
  ASSERT_OK((*upload)->Write(0, AsBytes("new")));
  ASSERT_OK((*upload)->Close());
  EXPECT_EQ(Contents("/f"), "new");
}

TEST_F(ReplaceTest, WhoHasTheOldContentsOpenKeepsThem) {
  const InodeId old = Make("f", Pattern(1, 2 * kTestBlock));
  auto reader = fs_->Open(old, FileSystem::Access::kRead);
  ASSERT_OK(reader);
  auto upload = Upload("f");
  ASSERT_OK(upload->Write(0, AsBytes("new")));
  ASSERT_OK(upload->Close());
  EXPECT_EQ(ReadAll(**reader), Pattern(1, 2 * kTestBlock));
}

TEST_F(ReplaceTest, ModeAndOwnerAreThoseOfTheFileThatWasThere) {
  auto file = fs_->Create(kRootInode, "f", {.mode = 0640, .owner = {1, 2}});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Close());
  ASSERT_OK(Upload("f", 0777)->Close());
  const auto attributes = fs_->Resolve("/f");
  ASSERT_OK(attributes);
  EXPECT_EQ(attributes->mode, 0640u);
  EXPECT_EQ(attributes->owner.user, 1u);
}

TEST_F(ReplaceTest, ADirectoryIsNotReplaced) {
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {}));
  const auto file = fs_->Create(kRootInode, "d", {.truncate = true, .publish_at_commit = true});
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code(), EISDIR);
}

TEST_F(ReplaceTest, AnOpenFileWithoutANameStillHasAttributes) {
  const InodeId id = Make("f", "still here");
  auto file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK(fs_->Unlink(kRootInode, "f"));
  ASSERT_OK((*file)->Write(10, AsBytes(", growing")));

  const auto attributes = fs_->GetAttributes(id);
  ASSERT_OK(attributes);
  EXPECT_EQ(attributes->size, 19u);
  EXPECT_EQ(attributes->links, 0u);

  ASSERT_OK((*file)->Close());
  file->reset();
  EXPECT_EQ(fs_->GetAttributes(id).error().code(), ENOENT);
}

TEST_F(ReplaceTest, ADirectoryIsSafeWhenEnoughDrivesHaveFlushed) {
  Make("f", "x");
  EXPECT_OK(fs_->SyncDirectory(kRootInode));
  machines_.SetDown(1, true);
  EXPECT_OK(fs_->SyncDirectory(kRootInode));
  machines_.SetDown(2, true);
  EXPECT_EQ(fs_->SyncDirectory(kRootInode).code(), EIO);
  machines_.SetDown(1, false);
  machines_.SetDown(2, false);
  EXPECT_EQ(fs_->SyncDirectory(fs_->Resolve("/f")->inode).code(), ENOTDIR);
}

}  // namespace
}  // namespace pinstripe
