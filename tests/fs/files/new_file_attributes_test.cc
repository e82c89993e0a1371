// Attributes that are set of a file between its creation and its first commit, as tar and cp set
// them: they appear with the contents, in the same change, and here at once.

#include <gtest/gtest.h>

#include "fs/names/records.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

constexpr int64_t kLongAgo = 1'000'000'000'000'000'000;  // 2001

class NewFileAttributesTest : public FsTest {
 protected:
  void SetUp() override {
    FsTest::SetUp();
    other_ = NewHost();
    auto made = fs_->Create(kRootInode, "new", {.mode = 0644, .owner = {1, 1}, .exclusive = true});
    ASSERT_OK(made);
    file_ = *std::move(made);
    id_ = file_->inode();
  }
  // How often the inode was changed.
  uint64_t Slot() {
    const auto stored = Records(*other_.cluster).FindInode(id_);
    EXPECT_OK(stored);
    return (*stored)->slot;
  }
  Attributes Here() { return *fs_->GetAttributes(id_, {}); }
  Attributes There() { return *other_->GetAttributes(id_, {}); }

  Host other_;
  std::unique_ptr<OpenFile> file_;
  InodeId id_ = 0;
};

TEST_F(NewFileAttributesTest, AppearWithTheContentsInOneChange) {
  ASSERT_OK(file_->Write(0, AsBytes("contents")));
  const uint64_t made = Slot();
  const auto owned = fs_->SetAttributes(id_, {.user = 7, .group = 8});
  ASSERT_OK(owned);
  EXPECT_EQ(owned->owner, (Owner{7, 8}));
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0600}));
  ASSERT_OK(file_->SetAttributes({.accessed = kLongAgo, .modified = kLongAgo + 1}));
  EXPECT_EQ(Here().mode & 07777, 0600u);
  EXPECT_EQ(Here().owner, (Owner{7, 8}));
  EXPECT_EQ(Here().modified, kLongAgo + 1);
  EXPECT_EQ(file_->Stat()->accessed, kLongAgo);
  const auto listed = fs_->ReadDirectory(kRootInode, "", 1, /*with_attributes=*/true);
  ASSERT_OK(listed);
  EXPECT_EQ(listed->at(0).attributes->mode & 07777, 0600u);
  EXPECT_EQ(Slot(), made) << "nothing of it is on the drives";
  EXPECT_EQ(There().mode & 07777, 0644u);
  EXPECT_EQ(There().size, 0u);

  ASSERT_OK(file_->Close());
  EXPECT_EQ(Slot(), made + 1);
  for (const Attributes& all : {Here(), There()}) {
    EXPECT_EQ(all.mode & 07777, 0600u);
    EXPECT_EQ(all.owner, (Owner{7, 8}));
    EXPECT_EQ(all.accessed, kLongAgo);
    EXPECT_EQ(all.modified, kLongAgo + 1);
    EXPECT_GT(all.changed, kLongAgo + 1);
    EXPECT_EQ(all.size, 8u);
  }
}

TEST_F(NewFileAttributesTest, AreSafeWithAnFsync) {
  ASSERT_OK(file_->Write(0, AsBytes("x")));
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0600}));
  ASSERT_OK(file_->Sync());
  EXPECT_EQ(There().mode & 07777, 0600u);
}

TEST_F(NewFileAttributesTest, ALaterWriteHasTheLastWordOnTheTime) {
  ASSERT_OK(file_->Write(0, AsBytes("x")));
  ASSERT_OK(fs_->SetAttributes(id_, {.modified = kLongAgo}));
  ASSERT_OK(file_->Write(1, AsBytes("y")));
  EXPECT_GT(Here().modified, kLongAgo);
  ASSERT_OK(file_->Close());
  EXPECT_GT(There().modified, kLongAgo);
}

// Whoever sees contents sees changes of attributes as they are made.
TEST_F(NewFileAttributesTest, OfOtherFilesAppearAtOnce) {
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0640}));  // there is nothing that it could come with
  EXPECT_EQ(There().mode & 07777, 0640u);
  ASSERT_OK(file_->Write(0, AsBytes("x")));
  ASSERT_OK(file_->Sync());
  ASSERT_OK(file_->Write(0, AsBytes("y")));
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0600}));
  EXPECT_EQ(There().mode & 07777, 0600u);
}

TEST_F(NewFileAttributesTest, AreKeptInTheirOrderWithOtherChanges) {
  ASSERT_OK(file_->Write(0, AsBytes("x")));
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0600, .modified = kLongAgo}));
  ASSERT_OK(fs_->SetExtended(id_, "user.a", "b", ExtendedMode::kSet));
  EXPECT_EQ(There().mode & 07777, 0600u) << "what came before an attribute is there with it";
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0660}));
  EXPECT_EQ(There().mode & 07777, 0660u) << "with attributes of its own it may have an ACL";
  ASSERT_OK(file_->Close());
  EXPECT_EQ(There().mode & 07777, 0660u);
  EXPECT_EQ(There().modified, kLongAgo);
}

// They count from when they were set, whenever they appear.
TEST_F(NewFileAttributesTest, AreLaidOverWhatOthersHadSetBefore) {
  ASSERT_OK(file_->Write(0, AsBytes("x")));
  ASSERT_OK(other_->SetAttributes(id_, {.mode = 0666, .user = 99}));
  sim_.Sleep(std::chrono::milliseconds(1));
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0600}));
  ASSERT_OK(file_->Close());
  EXPECT_EQ(There().mode & 07777, 0600u);
  EXPECT_EQ(There().owner, (Owner{99, 1}));
}

TEST_F(NewFileAttributesTest, DoNotUndoWhatOthersHaveSetSince) {
  ASSERT_OK(file_->Write(0, AsBytes("x")));
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0644, .group = 5, .accessed = kLongAgo}));
  sim_.Sleep(std::chrono::milliseconds(1));
  ASSERT_OK(other_->SetAttributes(id_, {.mode = 0600, .user = 99}));
  const int64_t changed = There().changed;
  ASSERT_OK(file_->Close());
  EXPECT_EQ(There().mode & 07777, 0600u);
  EXPECT_EQ(There().owner, (Owner{99, 5})) << "nobody else has set the group";
  EXPECT_EQ(There().accessed, kLongAgo);
  EXPECT_EQ(There().size, 1u);
  EXPECT_GE(There().changed, changed - 1'000'000) << "no more than back to the write";
}

// The kernel keeps what it was answered.
TEST_F(NewFileAttributesTest, AreAnsweredWithAllThatWasSetBefore) {
  ASSERT_OK(file_->Write(0, AsBytes("x")));
  ASSERT_OK(fs_->SetAttributes(id_, {.user = 7, .group = 8}));
  ASSERT_OK(fs_->SetExtended(id_, "user.a", "b", ExtendedMode::kSet));
  ASSERT_OK(fs_->RemoveExtended(id_, "user.a"));
  const auto answer = fs_->SetAttributes(id_, {.mode = 0600});
  ASSERT_OK(answer);
  EXPECT_EQ(answer->owner, (Owner{7, 8}));
  EXPECT_EQ(answer->mode & 07777, 0600u);
}

TEST_F(NewFileAttributesTest, OfAFileThatIsRemovedMeanwhileAreThoseOfTheOpenFile) {
  ASSERT_OK(file_->Write(0, AsBytes("x")));
  ASSERT_OK(fs_->SetAttributes(id_, {.mode = 0600}));
  ASSERT_OK(fs_->Unlink(kRootInode, "new"));
  EXPECT_EQ(file_->Stat()->mode & 07777, 0600u);
  ASSERT_OK(file_->SetAttributes({.mode = 0640}));
  EXPECT_EQ(file_->Stat()->mode & 07777, 0640u);
  EXPECT_OK(file_->Close());
}

}  // namespace
}  // namespace pinstripe
