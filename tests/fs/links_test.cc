// Symbolic links, and paths that lead through them.

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

class SymlinkTest : public FsTest {
 protected:
  InodeId Link(std::string_view path, std::string_view target) {
    const auto place = fs_->ResolveParent(path);
    EXPECT_OK(place);
    const auto made = fs_->MakeSymlink(place->directory, place->name, target, {3, 4});
    EXPECT_OK(made);
    return made.has_value() ? made->inode : 0;
  }
  InodeId At(std::string_view path) { return fs_->Resolve(path).value_or(Attributes()).inode; }
};

TEST_F(SymlinkTest, ALinkIsItsTargetAndHasAttributesOfItsOwn) {
  const auto made = fs_->MakeSymlink(kRootInode, "l", "no/such/thing", {3, 4});
  ASSERT_OK(made);
  EXPECT_EQ(made->kind, FileKind::kSymlink);
  EXPECT_EQ(made->size, 13u);
  EXPECT_EQ(made->mode, 0777u);
  EXPECT_EQ(made->owner, (Owner{3, 4}));
  EXPECT_EQ(made->links, 1u);
  EXPECT_EQ(*fs_->ReadSymlink(made->inode), "no/such/thing");
  const auto listed = fs_->ReadDirectory(kRootInode, "", 10, true);
  ASSERT_OK(listed);
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_EQ(listed->front().kind, FileKind::kSymlink);
  EXPECT_EQ(listed->front().attributes->size, 13u);
  EXPECT_EQ(fs_->SetAttributes(made->inode, {.user = 9, .modified = 77})->modified, 77);
  EXPECT_EQ(*fs_->ReadSymlink(made->inode), "no/such/thing");
}

TEST_F(SymlinkTest, AnyTargetOfAllowedLengthIsKept) {
  for (const std::string& target :
       {std::string(4095, 'x'), std::string("\xff\n ../~"), std::string("/")}) {
    const auto made = fs_->MakeSymlink(kRootInode, "l", target, {});
    ASSERT_OK(made);
    EXPECT_EQ(*NewHost()->ReadSymlink(made->inode), target);
    ASSERT_OK(fs_->Unlink(kRootInode, "l"));
  }
  EXPECT_FAILS(fs_->MakeSymlink(kRootInode, "l", std::string(4096, 'x'), {}), ENAMETOOLONG);
  EXPECT_FAILS(fs_->MakeSymlink(kRootInode, "l", "", {}), ENOENT);
  EXPECT_FAILS(fs_->MakeSymlink(kRootInode, "l", std::string_view("a\0b", 3), {}), EINVAL);
  EXPECT_FAILS(fs_->MakeSymlink(kRootInode, std::string(256, 'x'), "a", {}), ENAMETOOLONG);
  const InodeId file = Make("file", "x");
  EXPECT_FAILS(fs_->MakeSymlink(kRootInode, "file", "a", {}), EEXIST);
  EXPECT_FAILS(fs_->MakeSymlink(file, "l", "a", {}), ENOTDIR);
  EXPECT_FAILS(fs_->ReadSymlink(file), EINVAL);
  EXPECT_EQ(List(), std::vector<std::string>{"file"});
}

TEST_F(SymlinkTest, NamesOfLinksAreRemovedAndRenamedLikeOthers) {
  Make("file", "contents");
  const InodeId link = Link("/l", "file");
  ASSERT_OK(fs_->MakePath("/d", 0755, {}));
  ASSERT_OK(fs_->Rename(kRootInode, "l", kRootInode, "m"));
  EXPECT_EQ(fs_->Lookup(kRootInode, "m")->inode, link);
  EXPECT_EQ(Contents("/m"), "contents");
  EXPECT_FAILS(fs_->Rename(kRootInode, "m", kRootInode, "d"), EISDIR);
  EXPECT_FAILS(fs_->Rename(kRootInode, "d", kRootInode, "m"), ENOTDIR);
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "m"), ENOTDIR);
  Link("/n", "elsewhere");
  ASSERT_OK(fs_->Rename(kRootInode, "n", kRootInode, "m"));  // over a link
  EXPECT_FAILS(fs_->ReadSymlink(link), ENOENT);
  ASSERT_OK(fs_->Unlink(kRootInode, "m"));
  EXPECT_EQ(List(), (std::vector<std::string>{"d", "file"}));
  EXPECT_EQ(Contents("/file"), "contents");
}

TEST_F(SymlinkTest, ALinkCannotBeOpened) {
  Make("file", "contents");
  const InodeId link = Link("/l", "file");
  EXPECT_FAILS(fs_->Open(link, FileSystem::Access::kRead), ELOOP);
  EXPECT_FAILS(fs_->Create(kRootInode, "l", {}), ELOOP);
  EXPECT_FAILS(fs_->Create(kRootInode, "l", {.truncate = true, .publish_at_commit = true}), ELOOP);
  EXPECT_FAILS(fs_->Create(kRootInode, "l", {.exclusive = true}), EEXIST);
  EXPECT_EQ(*fs_->ReadSymlink(link), "file");
}

TEST_F(SymlinkTest, PathsLeadThroughLinks) {
  ASSERT_OK(fs_->MakePath("/a/b/c", 0755, {}));
  ASSERT_OK(fs_->MakePath("/x", 0755, {}));
  Make("f", "in c", At("/a/b/c"));
  Link("/x/absolute", "/a/b");
  Link("/x/relative", "../a/./b//");
  Link("/x/chain", "relative/c");
  Link("/x/file", "chain/f");
  Link("/a/up", "..");
  Link("/a/root", "/");
  for (const char* path : {"/x/absolute/c/f", "/x/relative/c/f", "/x/chain/f", "/x/file",
                           "/a/up/x/file", "/a/root/x/chain/f/", "/x//./relative/../b/c/f"}) {
    EXPECT_EQ(Contents(path), "in c") << path;
  }
  EXPECT_EQ(At("/a/root"), kRootInode);
  EXPECT_EQ(At("/x/relative"), At("/a/b"));
  EXPECT_EQ(fs_->Resolve("/x/file")->kind, FileKind::kRegular);
}

// As POSIX has it: the parent of what the link leads to, not of the link.
TEST_F(SymlinkTest, TheParentOfALinksTargetIsWhereItLeads) {
  ASSERT_OK(fs_->MakePath("/a/b", 0755, {}));
  ASSERT_OK(fs_->MakePath("/x", 0755, {}));
  Link("/x/l", "/a/b");
  EXPECT_EQ(At("/x/l/.."), At("/a"));
  EXPECT_EQ(At("/.."), kRootInode);
  EXPECT_EQ(At("/x/l/../../x"), At("/x"));
  EXPECT_FAILS(fs_->Resolve("/none/../x"), ENOENT);
  Make("file", "");
  EXPECT_FAILS(fs_->Resolve("/file/../x"), ENOTDIR);
  EXPECT_FAILS(fs_->Resolve("/file/.."), ENOTDIR);
}

TEST_F(SymlinkTest, LoopsAndLinksToNothingAreToldApart) {
  Link("/self", "self");
  Link("/a", "b");
  Link("/b", "/a");
  Link("/nothing", "none");
  EXPECT_FAILS(fs_->Resolve("/self"), ELOOP);
  EXPECT_FAILS(fs_->Resolve("/a"), ELOOP);
  EXPECT_FAILS(fs_->Resolve("/a/x"), ELOOP);
  EXPECT_FAILS(fs_->ResolveParent("/a/x"), ELOOP);
  EXPECT_FAILS(fs_->Resolve("/nothing"), ENOENT);
  EXPECT_FAILS(fs_->Resolve("/nothing/x"), ENOENT);
  Make("file", "found");
  std::string target = "file";
  for (int i = 0; i < 41; ++i) {
    Link(fmt::format("/l{}", i), target);
    target = fmt::format("l{}", i);
  }
  EXPECT_EQ(Contents("/l39"), "found");  // 40 links
  EXPECT_FAILS(fs_->Resolve("/l40"), ELOOP);
  ASSERT_OK(fs_->Unlink(kRootInode, "self"));
}

TEST_F(SymlinkTest, TheEndOfAPathIsFollowedWhereItIsAskedFor) {
  ASSERT_OK(fs_->MakePath("/a", 0755, {}));
  ASSERT_OK(fs_->MakePath("/b", 0755, {}));
  const InodeId link = Link("/a/l", "../b/new");
  const auto place = fs_->ResolveParent("/a/l");
  ASSERT_OK(place);
  EXPECT_EQ(place->directory, At("/a"));
  EXPECT_EQ(place->name, "l");
  EXPECT_EQ(fs_->Lookup(place->directory, place->name)->inode, link);
  const auto target = fs_->ResolveTarget("/a/l");
  ASSERT_OK(target);
  EXPECT_EQ(target->directory, At("/b"));
  EXPECT_EQ(target->name, "new");
  Link("/a/up", "..");
  EXPECT_FAILS(fs_->ResolveTarget("/a/up"), EISDIR);
  EXPECT_FAILS(fs_->ResolveTarget("/"), EISDIR);
  EXPECT_FAILS(fs_->ResolveParent("/a/.."), EINVAL);
}

TEST_F(SymlinkTest, MakePathGoesThroughLinks) {
  ASSERT_OK(fs_->MakePath("/real", 0755, {}));
  Link("/l", "real");
  ASSERT_OK(fs_->MakePath("/l/x/../y", 0755, {}));
  EXPECT_EQ(List(At("/real")), (std::vector<std::string>{"x", "y"}));
  Link("/nothing", "none");
  EXPECT_FAILS(fs_->MakePath("/nothing/x", 0755, {}), ENOENT);
}

}  // namespace
}  // namespace pinstripe
