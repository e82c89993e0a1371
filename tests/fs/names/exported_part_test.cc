// A file system that shows a directory of the cluster as if it were everything. Somebody who may
// write in it, or who could before, tries to have those who use it led out of it.

#include <gtest/gtest.h>

#include "fs/names/names.h"
#include "fs/names/path_walk.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/whereabouts.h"

namespace pinstripe {
namespace {

//   /secret        a file           /part        what is exported
//   /away/         a directory      /part/in/deep/file
//   /away/secret                    /part/secret
class ExportedPartTest : public FsTest {
 protected:
  void SetUp() override {
    FsTest::SetUp();
    ASSERT_OK(fs_->MakePath("/part/in/deep", 0755, {}));
    ASSERT_OK(fs_->MakePath("/away", 0755, {}));
    Make("secret", "outside");
    Make("secret", "outside", At("/away"));
    Make("secret", "inside", At("/part"));
    Make("file", "inside", At("/part/in/deep"));
    options_.exported = "/part";
    part_ = NewHost();
  }

  InodeId At(std::string_view path, FileSystem* fs = nullptr) {
    return (fs != nullptr ? fs : fs_)->Resolve(path).value_or(Attributes()).inode;
  }
  // Made by somebody who sees the whole cluster.
  void Link(std::string_view path, std::string_view target) {
    const auto place = fs_->ResolveParent(path);
    ASSERT_OK(place);
    ASSERT_OK(fs_->MakeSymlink(place->directory, place->name, target, {}));
  }
  // What a client who may write would write into.
  InodeId WrittenInto(std::string_view path) {
    const auto target = part_->ResolveTarget(path);
    EXPECT_OK(target) << path;
    return target.has_value() ? target->directory : 0;
  }

  Host part_;
};

TEST_F(ExportedPartTest, TheDirectoryIsTheRoot) {
  EXPECT_EQ(At("/", part_.fs.get()), At("/part"));
  EXPECT_EQ(Contents("/in/deep/file", part_.fs.get()), "inside");
  EXPECT_EQ(Contents("//./in//deep/../deep/file/", part_.fs.get()), "inside");
  EXPECT_FAILS(part_->Resolve("/part"), ENOENT);
  EXPECT_FAILS(part_->Resolve("/away"), ENOENT);
  EXPECT_FAILS(part_->ResolveParent("/"), EINVAL);
  EXPECT_FAILS(part_->ResolveTarget("//"), EISDIR);
  EXPECT_FAILS(part_->OpenPath({.path = "/"}), EISDIR);
  ASSERT_OK(part_->MakePath("/new/one", 0755, {}));
  EXPECT_NE(At("/part/new/one"), 0u);
}

TEST_F(ExportedPartTest, ThereIsNothingAboveTheRoot) {
  const InodeId root = At("/part");
  for (const char* path : {"/..", "/../", "/../..", "/./..", "/../.", "/in/../..", "/in/../../../",
                           "/in/deep/../../../.."}) {
    EXPECT_EQ(At(path, part_.fs.get()), root) << path;
  }
  for (const char* path : {"/../secret", "/../../secret", "/in/../../secret", "/../in/../secret",
                           "/in/deep/../../../secret"}) {
    EXPECT_EQ(Contents(path, part_.fs.get()), "inside") << path;
    EXPECT_EQ(WrittenInto(path), root) << path;
    EXPECT_EQ(part_->ResolveParent(path)->directory, root) << path;
  }
  EXPECT_FAILS(part_->Resolve("/../away"), ENOENT);
  ASSERT_OK(part_->MakePath("/../../made/../other", 0755, {}));
  EXPECT_EQ(List(root), (std::vector<std::string>{"in", "made", "other", "secret"}));
}

// Each of these texts in links at several depths, alone, behind other links, and on the way.
TEST_F(ExportedPartTest, NoLinkLeadsOut) {
  std::string climb;
  for (int i = 0; i < 600; ++i) climb += "../";
  const std::string targets[] = {"/secret",
                                 "//secret",
                                 "/./secret",
                                 "/../secret",
                                 "/../../secret",
                                 "/part/../secret",
                                 "/in/../../secret",
                                 "../secret",
                                 "../../secret",
                                 "../../../secret",
                                 "../../../../secret",
                                 ".././.././../secret",
                                 "./../..//../secret",
                                 climb + "secret",
                                 "/" + climb + "secret"};
  const InodeId root = At("/part");
  ASSERT_OK(fs_->MakePath("/part/by", 0755, {}));
  Link("/part/by/root", "/");
  Link("/part/by/up", climb);
  int number = 0;
  for (const std::string& target : targets) {
    const std::string name = fmt::format("l{}", number++);
    for (const std::string directory : {"/", "/in/", "/in/deep/"}) {
      const std::string path = directory + name;
      Link("/part" + path, target);
      const auto found = part_->Resolve(path);
      if (!found.has_value()) {
        // Either the text names something that is not in the part, or it does not climb far enough.
        EXPECT_EQ(found.error().code(), ENOENT) << path << " -> " << target;
        continue;
      }
      EXPECT_EQ(Contents(path, part_.fs.get()), "inside") << path << " -> " << target;
      EXPECT_EQ(WrittenInto(path), root) << path << " -> " << target;
      EXPECT_EQ(Contents(path + "/", part_.fs.get()), "inside");
      for (const char* way : {"/by/root", "/by/up", "/by/root/by/up/..", "/by/up/by/root/.."}) {
        EXPECT_EQ(Contents(way + path, part_.fs.get()), "inside") << way << path;
      }
    }
    // A link to that link, and one that is followed on the way.
    Link("/part/by/" + name, "/in/deep/" + name);
    const auto found = part_->Resolve("/by/" + name);
    if (!found.has_value()) continue;
    EXPECT_EQ(Contents("/by/" + name, part_.fs.get()), "inside") << name << " -> " << target;
  }
}

TEST_F(ExportedPartTest, LinksToDirectoriesOutsideAreLinksToNothing) {
  Link("/part/absolute", "/away");
  Link("/part/relative", "../away");
  Link("/part/in/deeper", "../../away");
  Link("/part/named", "/part/secret");
  for (const char* path : {"/absolute", "/relative", "/in/deeper", "/absolute/secret",
                           "/relative/secret", "/in/deeper/secret", "/named", "/absolute/"}) {
    EXPECT_FAILS(part_->Resolve(path), ENOENT) << path;
    EXPECT_FAILS(part_->OpenPath({.path = path, .access = FileSystem::Access::kWrite}), ENOENT)
        << path;
  }
  for (const char* path : {"/absolute/x", "/relative/x", "/in/deeper/x"}) {
    EXPECT_FAILS(part_->ResolveParent(path), ENOENT) << path;
    EXPECT_FAILS(part_->ResolveTarget(path), ENOENT) << path;
    EXPECT_FAILS(part_->MakePath(path, 0755, {}), ENOENT) << path;
  }
  EXPECT_EQ(List(At("/away")), std::vector<std::string>{"secret"});
}

// Who creates a file through a link to nothing creates it where the link leads in the part.
TEST_F(ExportedPartTest, WhatALinkToNothingIsUsedToCreateIsInThePart) {
  Link("/part/absolute", "/created");
  Link("/part/in/relative", "../../../created");
  Link("/part/in/deep/chain", "/in/relative");
  for (const char* path : {"/absolute", "/in/relative", "/in/deep/chain"}) {
    const auto target = part_->ResolveTarget(path);
    ASSERT_OK(target);
    EXPECT_EQ(target->directory, At("/part")) << path;
    EXPECT_EQ(target->name, "created");
  }
}

// What takes the last name itself, as unlink, rmdir, mkdir and both ends of a rename do.
TEST_F(ExportedPartTest, ParentsAreInThePart) {
  Link("/part/root", "/");
  Link("/part/in/up", "../..");
  Link("/part/in/deep/both", "/in/up/../in/up");
  for (const char* path :
       {"/root/secret", "/in/up/secret", "/in/deep/both/secret", "/root/root/in/up/../secret"}) {
    const auto place = part_->ResolveParent(path);
    ASSERT_OK(place);
    EXPECT_EQ(place->directory, At("/part")) << path;
    EXPECT_EQ(place->name, "secret");
  }
}

TEST_F(ExportedPartTest, LoopsThroughTheRootAreFound) {
  Link("/part/a", "/../b");
  Link("/part/b", "../../a");
  Link("/part/up", "../up");
  for (const char* path : {"/a", "/b", "/up", "/up/x", "/../a"}) {
    EXPECT_FAILS(part_->Resolve(path), ELOOP) << path;
  }
}

// Somebody else moves the directory out in which a walk is, so that its parent is another one.
TEST_F(ExportedPartTest, ADirectoryThatIsMovedOutTakesNoWalkAlong) {
  Records records(*part_.cluster);
  Names names(records, [](InodeId, const Inode&, uint64_t) {});
  PathWalk walk(names, /*above=*/1);
  for (const char* name : {"part", "in", "deep"}) ASSERT_OK(walk.Enter(name));
  const InodeId deep = walk.at();
  ASSERT_OK(fs_->Rename(At("/part/in"), "deep", At("/away"), "deep"));
  ASSERT_EQ(*fs_->ParentOf(deep), At("/away"));
  ASSERT_OK(walk.Enter(".."));
  EXPECT_EQ(walk.at(), At("/part/in"));
  // The next one up, too, and through the end of a way and of a link.
  ASSERT_OK(fs_->Rename(At("/part"), "in", At("/away"), "in"));
  const auto end = walk.Follow("..");
  ASSERT_OK(end);
  EXPECT_EQ(end->directory, At("/part"));
  EXPECT_EQ(end->place.id, At("/part"));
  ASSERT_OK(walk.Enter(".."));
  EXPECT_EQ(walk.at(), At("/part"));
}

// The same as a race: the outside's file has another name, so nobody may ever find it.
TEST_F(ExportedPartTest, NobodyGetsOutBesideOneWhoMovesDirectories) {
  Make("only outside", "outside");
  Make("only outside", "outside", At("/away"));
  Link("/part/in/deep/up", "../../only outside");
  Host mover = NewHost();
  const InodeId in = At("/part/in");
  const InodeId away = At("/away");
  bool moves = true;
  int found_way = 0;
  RunTogether(3, [&](int client) {
    if (client == 0) {
      for (int i = 0; i < 60; ++i) {
        EXPECT_OK(fs_->Rename(in, "deep", away, "deep"));
        EXPECT_OK(fs_->Rename(away, "deep", in, "deep"));
      }
      moves = false;
      return;
    }
    FileSystem& fs = client == 1 ? *part_.fs : *mover.fs;
    while (moves) {
      for (const char* path : {"/in/deep/../only outside", "/in/deep/../../only outside",
                               "/in/deep/../../../only outside", "/in/deep/up"}) {
        EXPECT_FAILS(fs.Resolve(path), ENOENT) << path;
        EXPECT_FAILS(fs.OpenPath({.path = path}), ENOENT) << path;
        const auto target = fs.ResolveTarget(path);
        if (!target.has_value()) continue;
        ++found_way;
        EXPECT_TRUE(target->directory == in || target->directory == At("/part")) << path;
      }
    }
  });
  EXPECT_GT(found_way, 0);
}

// By number, the kernel asks for single names only.
TEST_F(ExportedPartTest, DotsAreNotLookedUpByNumber) {
  for (const char* name : {"..", ".", "in/..", "/secret", ""}) {
    EXPECT_FAILS(part_->Lookup(At("/part"), name), EINVAL) << name;
  }
}

// A file that has a name in the part is in the part, with all of its contents, and its other names
// cannot be learnt from it.
TEST_F(ExportedPartTest, AFileWithANameInThePartIsInThePart) {
  ASSERT_OK(fs_->Link(At("/secret"), At("/part"), "shared"));
  EXPECT_EQ(Contents("/shared", part_.fs.get()), "outside");
  EXPECT_EQ(part_->Resolve("/shared")->links, 2u);
  const auto why = part_->GetExtended(At("/secret"), kWhyAttribute);
  ASSERT_OK(why);
  EXPECT_EQ(why->find("secret"), why->npos) << *why;
}

// Somebody may have a part that another one lies in. By a link in the way to that one he would have
// what is outside of his own exported.
TEST_F(ExportedPartTest, TheWayToItHasNoLinks) {
  Link("/part/in/elsewhere", "/away");
  Link("/direct", "part");
  const auto open = [&](std::string exported) {
    return FileSystem::Open(*host_.cluster, {.exported = std::move(exported)});
  };
  EXPECT_FAILS(open("/part/in/elsewhere"), ELOOP);
  EXPECT_FAILS(open("/direct"), ELOOP);
  EXPECT_FAILS(open("/direct/in"), ELOOP);
  EXPECT_FAILS(open("/part/../part"), EINVAL);
  EXPECT_FAILS(open("part"), EINVAL);
  EXPECT_FAILS(open("/none"), ENOENT);
  EXPECT_FAILS(open("/secret"), ENOTDIR);
  EXPECT_FAILS(open("/secret/x"), ENOTDIR);
  EXPECT_OK(open("//part/./in/"));

  // Also later.
  const auto nested = open("/part/in");
  ASSERT_OK(nested);
  EXPECT_OK((*nested)->Resolve("/deep/file"));
  ASSERT_OK(fs_->Rename(At("/part"), "in", At("/part"), "was in"));
  EXPECT_FAILS((*nested)->Resolve("/deep/file"), ENOENT);
  Link("/part/in", "/away");
  EXPECT_FAILS((*nested)->Resolve("/secret"), ELOOP);
  EXPECT_FAILS((*nested)->Resolve("/"), ELOOP);
  EXPECT_FAILS((*nested)->MakePath("/made", 0755, {}), ELOOP);
  EXPECT_FAILS((*nested)->ResolveParent("/made"), ELOOP);
  EXPECT_EQ(List(At("/away")), std::vector<std::string>{"secret"});
}

TEST_F(ExportedPartTest, WhatAnOpenMakesIsInside) {
  Link("/part/absolute", "/away/made");
  Link("/part/up", "../../made");
  for (const std::string_view path : {"/../away/made", "/absolute", "/up"}) {
    EXPECT_OK(
        part_->OpenPath({.path = path, .create = true, .parents = FileSystem::MissingParents{}}))
        << path;
  }
  EXPECT_EQ(List(At("/away")), std::vector<std::string>{"secret"});
  EXPECT_EQ(List(At("/part/away")), std::vector<std::string>{"made"});
  EXPECT_NE(At("/part/made"), 0u);
  EXPECT_EQ(At("/made"), 0u);
}

// Nobody makes it anew by the way.
TEST_F(ExportedPartTest, APartThatIsGoneIsNotMadeAgain) {
  ASSERT_OK(fs_->Rename(kRootInode, "part", kRootInode, "former"));
  EXPECT_FAILS(part_->MakePath("/x/y", 0755, {}), ENOENT);
  const FileSystem::OpenRequest creates{
      .path = "/x/y", .create = true, .parents = FileSystem::MissingParents{}};
  EXPECT_FAILS(part_->OpenPath(creates), ENOENT);
  EXPECT_FAILS(part_->Resolve("/"), ENOENT);
  EXPECT_EQ(At("/part"), 0u);
}

}  // namespace
}  // namespace pinstripe
