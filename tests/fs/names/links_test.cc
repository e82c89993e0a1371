// Hard links; symbolic links, and paths that lead through them.

#include <gtest/gtest.h>

#include <algorithm>

#include "fs/names/records.h"
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

TEST_F(SymlinkTest, AnOpenThatCreatesFollowsTheEndUnlessExclusive) {
  const auto create = [&](std::string_view path, bool exclusive = false) -> Status {
    const auto file = fs_->OpenPath({.path = path,
                                     .create = true,
                                     .exclusive = exclusive,
                                     .parents = FileSystem::MissingParents{.mode = 0750}});
    return file.has_value() ? (*file)->Close() : file.error();
  };
  ASSERT_OK(fs_->MakePath("/b", 0755, {}));
  Link("/l", "b/new");
  EXPECT_EQ(create("/l", /*exclusive=*/true).code(), EEXIST);
  EXPECT_OK(create("/l"));
  EXPECT_EQ(List(At("/b")), std::vector<std::string>{"new"});
  EXPECT_OK(create("/l"));
  EXPECT_EQ(create("/b/new", /*exclusive=*/true).code(), EEXIST);
  EXPECT_EQ(create("/b/new/x").code(), ENOTDIR);
  EXPECT_EQ(create("/b").code(), EISDIR);
  EXPECT_EQ(create("/").code(), EINVAL);
  EXPECT_EQ(create("/b/..").code(), EINVAL);
  Link("/up", "b/..");
  EXPECT_EQ(create("/up").code(), EISDIR);

  EXPECT_OK(create("/c/d/../e/f"));
  EXPECT_EQ(List(At("/c")), (std::vector<std::string>{"d", "e"}));
  EXPECT_EQ(fs_->Resolve("/c/e")->mode, 0750u);
  EXPECT_OK(create("/c/d/f", /*exclusive=*/true));
  Link("/nothing", "none");
  EXPECT_EQ(create("/nothing/f").code(), ENOENT) << "nothing is made where a link leads";
  EXPECT_FAILS(fs_->Resolve("/none"), ENOENT);
}

TEST_F(SymlinkTest, MakePathGoesThroughLinks) {
  ASSERT_OK(fs_->MakePath("/real", 0755, {}));
  Link("/l", "real");
  ASSERT_OK(fs_->MakePath("/l/x/../y", 0755, {}));
  EXPECT_EQ(List(At("/real")), (std::vector<std::string>{"x", "y"}));
  Link("/nothing", "none");
  EXPECT_FAILS(fs_->MakePath("/nothing/x", 0755, {}), ENOENT);
}

// ---- Hard links

using Names_ = std::vector<std::string>;

class HardLinkTest : public FsTest {
 protected:
  uint32_t Links(InodeId id) { return fs_->GetAttributes(id).value_or(Attributes()).links; }

  // How many names it has, here and in the directories here.
  uint32_t Entries(InodeId id, FileSystem& fs, InodeId directory = kRootInode) {
    uint32_t count = 0;
    const auto listed = fs.ReadDirectory(directory, "", 1000, false);
    EXPECT_OK(listed);
    for (const DirectoryEntry& entry : *listed) {
      const auto found = fs.Lookup(directory, entry.name);
      if (!found.has_value()) continue;
      if (found->inode == id) ++count;
      if (found->kind == FileKind::kDirectory) count += Entries(id, fs, found->inode);
    }
    return count;
  }
};

TEST_F(HardLinkTest, AFileHasAsManyNamesAsItIsGiven) {
  const InodeId d = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  const InodeId file = Make("a", "contents");
  const int64_t before = fs_->GetAttributes(file)->changed;
  const int64_t directory_before = fs_->GetAttributes(d)->modified;
  const auto linked = fs_->Link(file, d, "b");
  ASSERT_OK(linked);
  EXPECT_EQ(linked->inode, file);
  EXPECT_EQ(linked->links, 2u);
  EXPECT_GT(linked->changed, before);
  EXPECT_GT(fs_->GetAttributes(d)->modified, directory_before);
  EXPECT_EQ(Contents("/d/b"), "contents");
  Make("a", "written through the other name");
  EXPECT_EQ(Contents("/d/b"), "written through the other name");
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  EXPECT_EQ(Links(file), 1u);
  EXPECT_EQ(Contents("/d/b"), "written through the other name");
  ASSERT_OK(fs_->Unlink(d, "b"));
  EXPECT_FAILS(fs_->GetAttributes(file), ENOENT);
}

TEST_F(HardLinkTest, FailuresAreThoseOfPosix) {
  const InodeId d = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  const InodeId file = Make("a", "x");
  Make("b", "y");
  EXPECT_FAILS(fs_->Link(d, kRootInode, "e"), EPERM);
  EXPECT_FAILS(fs_->Link(kRootInode, kRootInode, "e"), EPERM);
  EXPECT_FAILS(fs_->Link(file, kRootInode, "b"), EEXIST);
  EXPECT_FAILS(fs_->Link(file, kRootInode, "a"), EEXIST);
  EXPECT_FAILS(fs_->Link(file, file, "c"), ENOTDIR);
  EXPECT_FAILS(fs_->Link(file, 12345, "c"), ENOENT);
  EXPECT_FAILS(fs_->Link(12345, kRootInode, "c"), ENOENT);
  EXPECT_FAILS(fs_->Link(file, kRootInode, std::string(256, 'x')), ENAMETOOLONG);
  EXPECT_EQ(Links(file), 1u);
  const InodeId link = fs_->MakeSymlink(kRootInode, "l", "a", {})->inode;
  EXPECT_EQ(fs_->Link(link, kRootInode, "m")->links, 2u);  // as on Linux
}

TEST_F(HardLinkTest, ThereIsALimit) {
  const InodeId file = Make("a", "x");
  Records records(*host_.cluster);
  StoredInode stored = **records.FindInode(file);
  stored.inode.links = kMaxLinks - 1;
  ASSERT_TRUE(records.ChangeInode(file, stored.slot, stored.inode).applied());
  ASSERT_OK(fs_->Link(file, kRootInode, "b"));
  EXPECT_FAILS(fs_->Link(file, kRootInode, "c"), EMLINK);
  EXPECT_EQ(Links(file), kMaxLinks);
  EXPECT_EQ(List(), (Names_{"a", "b"}));
}

TEST_F(HardLinkTest, ARenameOntoAnotherNameOfTheFileDoesNothing) {
  const InodeId file = Make("a", "x");
  ASSERT_OK(fs_->Link(file, kRootInode, "b"));
  ASSERT_OK(fs_->Rename(kRootInode, "a", kRootInode, "b"));
  EXPECT_EQ(List(), (Names_{"a", "b"}));
  EXPECT_EQ(Links(file), 2u);
  EXPECT_FAILS(fs_->Rename(kRootInode, "a", kRootInode, "b", true), EEXIST);
}

TEST_F(HardLinkTest, ARenameOverOneNameLeavesTheOthers) {
  const InodeId file = Make("a", "x");
  const InodeId other = Make("c", "y");
  ASSERT_OK(fs_->Link(file, kRootInode, "b"));
  ASSERT_OK(fs_->Rename(kRootInode, "c", kRootInode, "b"));
  EXPECT_EQ(Links(file), 1u);
  EXPECT_EQ(Contents("/a"), "x");
  ASSERT_OK(fs_->Link(other, kRootInode, "c"));
  ASSERT_OK(fs_->Rename(kRootInode, "b", kRootInode, "a"));  // one of two names, over the last one
  EXPECT_FAILS(fs_->GetAttributes(file), ENOENT);
  EXPECT_EQ(Links(other), 2u);
  EXPECT_EQ(List(), (Names_{"a", "c"}));
}

TEST_F(HardLinkTest, AnUploadOverOneNameLeavesTheOthers) {
  const InodeId file = Make("a", "old");
  ASSERT_OK(fs_->Link(file, kRootInode, "b"));
  auto upload = fs_->Create(kRootInode, "b", {.truncate = true, .publish_at_commit = true});
  ASSERT_OK(upload);
  ASSERT_OK((*upload)->Write(0, AsBytes("new")));
  ASSERT_OK((*upload)->Close());
  EXPECT_EQ(Contents("/b"), "new");
  EXPECT_EQ(Contents("/a"), "old");
  EXPECT_EQ(Links(file), 1u);
}

TEST_F(HardLinkTest, AnOpenFileStaysUntilItsLastNameAndItsHandleAreGone) {
  const std::string bytes = Pattern(1, 2 * kTestBlock);
  const InodeId file = Make("a", bytes);
  ASSERT_OK(fs_->Link(file, kRootInode, "b"));
  auto open = fs_->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  EXPECT_EQ((*open)->Stat()->links, 1u);
  ASSERT_OK((*open)->Write(5, AsBytes("x")));
  ASSERT_OK((*open)->Commit());
  EXPECT_EQ(Contents("/b").substr(5, 1), "x");
  ASSERT_OK(fs_->Unlink(kRootInode, "b"));
  EXPECT_EQ((*open)->Stat()->links, 0u);
  EXPECT_EQ(ReadAll(**open, 6), bytes.substr(6));
  EXPECT_FAILS(fs_->Link(file, kRootInode, "c"), ENOENT);
  EXPECT_OK((*open)->Close());
}

TEST_F(HardLinkTest, TheCountIsExactHoweverManyWorkOnIt) {
  constexpr int kHosts = 4;
  std::vector<Host> hosts;
  for (int i = 0; i < kHosts; ++i) hosts.push_back(NewHost());
  const InodeId file = Make("keep", "contents");
  RunTogether(kHosts, [&](int i) {
    FileSystem& fs = *hosts[i].fs;
    const auto name = [&] { return std::string(1, static_cast<char>('a' + sim_.Below(4))); };
    for (int step = 0; step < 50; ++step) {
      Status status;
      switch (sim_.Below(4)) {
        case 0:
        case 1: status = StatusOf(fs.Link(file, kRootInode, name())); break;
        case 2: status = fs.Unlink(kRootInode, name()); break;
        case 3: status = fs.Rename(kRootInode, name(), kRootInode, name()); break;
      }
      const bool expected = status.ok() || status.code() == EEXIST || status.code() == ENOENT;
      EXPECT_TRUE(expected) << status.message();
    }
  });
  EXPECT_EQ(Links(file), Entries(file, *fs_));
  EXPECT_EQ(Contents("/keep"), "contents");
}

// A client dies before its n-th request, for every n: the count is never less than the names there
// are, so that no name ever stands for a file that is gone.
TEST_F(HardLinkTest, ADeadClientLeavesTheCountTooHighAtMost) {
  using Operation = std::function<Status(FileSystem&, InodeId, InodeId)>;
  const Operation operations[] = {
      [](FileSystem& fs, InodeId file, InodeId d) { return StatusOf(fs.Link(file, d, "new")); },
      [](FileSystem& fs, InodeId, InodeId d) { return fs.Unlink(d, "a"); },
      [](FileSystem& fs, InodeId, InodeId d) { return fs.Rename(d, "other", d, "a"); },
      [](FileSystem& fs, InodeId, InodeId d) { return fs.Rename(d, "a", d, "other"); },
      [](FileSystem& fs, InodeId, InodeId d) { return fs.Rename(d, "a", d, "new"); },
  };
  int directories = 0;
  for (const Operation& operation : operations) {
    int deaths = 0;
    for (uint64_t n = 0;; ++n) {
      SCOPED_TRACE(fmt::format("operation {} request {}", &operation - operations, n));
      ASSERT_LT(n, 1000u);
      const std::string name = fmt::format("d{}", directories++);
      const InodeId d = fs_->MakeDirectory(kRootInode, name, 0755, {})->inode;
      const InodeId file = Make("a", "contents", d);
      ASSERT_OK(fs_->Link(file, d, "b"));
      const InodeId other = Make("other", "others", d);
      ASSERT_OK(fs_->Link(other, d, "others"));
      const auto life = std::make_shared<ClientLife>();
      bool done = false;
      {
        auto cluster = machines_.Open(life);
        ASSERT_OK(cluster);
        auto fs = FileSystem::Open(**cluster, {});
        ASSERT_OK(fs);
        life->CrashAfter(n);
        done = operation(**fs, file, d).ok() && !life->crashed();
      }
      deaths += done ? 0 : 1;
      sim_.Sleep(std::chrono::seconds(30));  // what was on its way arrives
      (void)Entries(file, *fs_, d);          // whoever looks finishes what was begun
      for (const InodeId id : {file, other}) {
        // What a minority of the drives has may count for one who looks, and not for the next.
        uint32_t links = Links(id);
        uint32_t entries = Entries(id, *fs_, d);
        while (Links(id) != links || Entries(id, *fs_, d) != entries) {
          links = Links(id);
          entries = Entries(id, *fs_, d);
        }
        ASSERT_GE(entries, 1u);
        if (done) {
          ASSERT_EQ(links, entries);
        } else {
          ASSERT_GE(links, entries);
          ASSERT_LE(links, 3u);
        }
      }
      ASSERT_EQ(Contents("/" + name + "/b"), "contents");
      ASSERT_EQ(Contents("/" + name + "/others"), "others");
      if (done) break;
    }
    EXPECT_GE(deaths, 5);
  }
}

}  // namespace
}  // namespace pinstripe
