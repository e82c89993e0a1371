// Names: directories, entries, renames, alone and against another host.

#include "fs/names/names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using NamesTest = FsTest;
using Names_ = std::vector<std::string>;

TEST_F(NamesTest, ADirectoryHoldsWhatWasMadeInIt) {
  const auto directory = fs_->MakeDirectory(kRootInode, "d", 0750, {3, 4});
  ASSERT_OK(directory);
  EXPECT_EQ(directory->mode, 0750u);
  EXPECT_EQ(directory->kind, FileKind::kDirectory);
  Make("file", "in it", directory->inode);
  EXPECT_EQ(List(), Names_{"d"});
  EXPECT_EQ(List(directory->inode), Names_{"file"});
  EXPECT_EQ(Contents("/d/file"), "in it");
  EXPECT_EQ(*fs_->ParentOf(directory->inode), kRootInode);
  EXPECT_EQ(*fs_->ParentOf(kRootInode), kRootInode);
}

TEST_F(NamesTest, FailuresAreThoseOfPosix) {
  Make("file", "x");
  const InodeId file = fs_->Lookup(kRootInode, "file")->inode;
  const InodeId directory = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  Make("inside", "y", directory);
  EXPECT_FAILS(fs_->Lookup(kRootInode, "none"), ENOENT);
  EXPECT_FAILS(fs_->Lookup(file, "none"), ENOTDIR);
  EXPECT_FAILS(fs_->Lookup(12345, "none"), ENOENT);
  EXPECT_FAILS(fs_->Lookup(kRootInode, std::string(256, 'x')), ENAMETOOLONG);
  EXPECT_FAILS(fs_->Lookup(kRootInode, "a/b"), EINVAL);
  EXPECT_FAILS(fs_->MakeDirectory(kRootInode, "file", 0755, {}), EEXIST);
  EXPECT_FAILS(fs_->MakeDirectory(file, "x", 0755, {}), ENOTDIR);
  EXPECT_FAILS(fs_->Create(kRootInode, "file", {.exclusive = true}), EEXIST);
  EXPECT_FAILS(fs_->Create(kRootInode, "d", {}), EISDIR);
  EXPECT_FAILS(fs_->Create(12345, "x", {}), ENOENT);
  EXPECT_FAILS(fs_->Unlink(kRootInode, "d"), EISDIR);
  EXPECT_FAILS(fs_->Unlink(kRootInode, "none"), ENOENT);
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "file"), ENOTDIR);
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "d"), ENOTEMPTY);
  EXPECT_FAILS(fs_->Open(directory, FileSystem::Access::kRead), EISDIR);
  EXPECT_FAILS(fs_->Rename(kRootInode, "file", kRootInode, "d"), EISDIR);
  EXPECT_FAILS(fs_->Rename(kRootInode, "d", kRootInode, "file"), ENOTDIR);
  EXPECT_FAILS(fs_->Rename(kRootInode, "d", directory, "e"), EINVAL);
  EXPECT_FAILS(fs_->Rename(kRootInode, "none", kRootInode, "e"), ENOENT);
  EXPECT_FAILS(fs_->Rename(kRootInode, "file", directory, "inside", true), EEXIST);
  EXPECT_FAILS(fs_->Resolve("/file/x"), ENOTDIR);
  EXPECT_FAILS(fs_->ResolveParent("/"), EINVAL);
  EXPECT_FAILS(fs_->ReadDirectory(file, "", 10, false), ENOTDIR);
}

// Defect 13 of the ancestor: such names collided, or vanished from listings.
TEST_F(NamesTest, StrangeNamesAreNamesLikeOthers) {
  Names_ names;
  for (const char* name :
       {"a", "a:", "a:b", "a_b", "a~", "ab", "A", " ", "...", "\xff\xfe", "\x01"}) {
    names.push_back(name);
  }
  names.push_back(std::string(255, '\xff'));
  for (const std::string& name : names) Make(name, name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(List(), names);
  for (const std::string& name : names) EXPECT_EQ(Contents("/" + name), name);
}

TEST_F(NamesTest, AListingComesInPages) {
  Names_ names;
  for (int i = 0; i < 57; ++i) {
    names.push_back(fmt::format("n{:03}", i));
    Make(names.back(), "");
  }
  for (const size_t page : {1ul, 7ul, 57ul, 100ul}) {
    Names_ listed;
    while (true) {
      const auto entries =
          fs_->ReadDirectory(kRootInode, listed.empty() ? "" : listed.back(), page, false);
      ASSERT_OK(entries);
      ASSERT_LE(entries->size(), page);
      if (entries->empty()) break;
      for (const auto& entry : *entries) listed.push_back(entry.name);
    }
    EXPECT_EQ(listed, names);
  }
}

// All drives answer after 100 ms. With one register after the other this would take minutes.
TEST_F(NamesTest, AListingOfManyFilesWithAttributesTakesFewRoundTrips) {
  constexpr size_t kFiles = 10'000;
  for (size_t i = 0; i < kFiles; ++i) {
    ASSERT_OK(
        fs_->MakeNode(kRootInode, fmt::format("file-{:05}", i), FileKind::kRegular, 0644, {}, {}));
  }
  Host other = NewHost();
  const Duration one_way = std::chrono::milliseconds(50);
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = one_way, .most_latency = one_way});
  }
  const Time start = sim_.Now();
  const auto listed = other->ReadDirectory(kRootInode, "", 2 * kFiles, true);
  const auto round_trips = (sim_.Now() - start) / (2 * one_way);
  ASSERT_OK(listed);
  EXPECT_EQ(listed->size(), kFiles);
  for (const auto& entry : *listed) ASSERT_TRUE(entry.attributes);
  // The directory, the ranges, and the inodes, of which 2048 are read at once.
  EXPECT_LE(round_trips, 1 + 3 + 5);
}

TEST_F(NamesTest, MakePathMakesWhatIsMissing) {
  ASSERT_OK(fs_->MakePath("/a/b/c", 0755, {}));
  ASSERT_OK(fs_->MakePath("/a/b/d", 0755, {}));
  EXPECT_EQ(List(fs_->Resolve("/a/b")->inode), (Names_{"c", "d"}));
  Make("file", "");
  EXPECT_FAILS(fs_->MakePath("/file/x", 0755, {}), ENOTDIR);
}

TEST_F(NamesTest, ADirectorysTimesFollowItsEntries) {
  const InodeId d = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  int64_t last = fs_->GetAttributes(d)->modified;
  const auto moved_on = [&] {
    const int64_t now = fs_->GetAttributes(d)->modified;
    const bool later = now > last;
    last = now;
    return later;
  };
  Make("file", "x", d);
  EXPECT_TRUE(moved_on());
  ASSERT_OK(fs_->Rename(d, "file", d, "file2"));
  EXPECT_TRUE(moved_on());
  ASSERT_OK(fs_->Unlink(d, "file2"));
  EXPECT_TRUE(moved_on());
  Make("file", "x");
  ASSERT_OK(fs_->Rename(kRootInode, "file", d, "file"));
  EXPECT_TRUE(moved_on());
  ASSERT_OK(fs_->Rename(d, "file", kRootInode, "file"));
  EXPECT_TRUE(moved_on());
}

TEST_F(NamesTest, WhatIsNoFileHasANameAndAttributes) {
  for (const FileKind kind : {FileKind::kFifo, FileKind::kSocket, FileKind::kCharacterDevice,
                              FileKind::kBlockDevice, FileKind::kRegular}) {
    const auto made = fs_->MakeNode(kRootInode, "n", kind, 04640, {1, 2}, {8, 17});
    ASSERT_OK(made);
    const auto found = NewHost()->Lookup(kRootInode, "n");
    ASSERT_OK(found);
    EXPECT_EQ(found->kind, kind);
    EXPECT_EQ(found->mode, 04640u);
    EXPECT_EQ(found->owner, (Owner{1, 2}));
    const bool device = kind == FileKind::kCharacterDevice || kind == FileKind::kBlockDevice;
    EXPECT_EQ(found->device, device ? (DeviceNumber{8, 17}) : DeviceNumber());
    EXPECT_EQ(fs_->ReadDirectory(kRootInode, "", 10, false)->front().kind, kind);
    if (kind != FileKind::kRegular) {
      EXPECT_FAILS(fs_->Open(made->inode, FileSystem::Access::kRead), EINVAL);
    }
    ASSERT_OK(fs_->Unlink(kRootInode, "n"));
  }
  EXPECT_FAILS(fs_->MakeNode(kRootInode, "n", FileKind::kDirectory, 0, {}, {}), EINVAL);
}

TEST_F(NamesTest, TheGroupOfASetGroupDirectoryIsInherited) {
  const InodeId d = fs_->MakeDirectory(kRootInode, "d", 02755, {1, 77})->inode;
  const auto below = fs_->MakeDirectory(d, "below", 0700, {3, 4});
  EXPECT_EQ(below->owner, (Owner{3, 77}));
  EXPECT_EQ(below->mode, 02700u);
  auto file = fs_->Create(below->inode, "f", {.mode = 0640, .owner = {3, 4}});
  EXPECT_EQ((*file)->Stat()->owner, (Owner{3, 77}));
  EXPECT_EQ((*file)->Stat()->mode, 0640u);
  auto upload = fs_->Create(d, "u", {.owner = {3, 4}, .publish_at_commit = true});
  ASSERT_OK((*upload)->Close());
  EXPECT_EQ(fs_->Lookup(d, "u")->owner, (Owner{3, 77}));
  EXPECT_EQ(fs_->MakeSymlink(d, "l", "x", {3, 4})->owner, (Owner{3, 77}));
  EXPECT_EQ(fs_->MakeDirectory(kRootInode, "other", 0700, {3, 4})->owner, (Owner{3, 4}));
}

// A change of the directory's mode at the same time is no reason to leave its time as it was.
TEST_F(NamesTest, ADirectorysTimeMovesWhateverElseIsChanged) {
  const InodeId d = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  std::vector<Host> hosts;
  for (int i = 0; i < 3; ++i) hosts.push_back(NewHost());
  for (int round = 0; round < 20; ++round) {
    ASSERT_OK(fs_->SetAttributes(d, {.modified = 5}));
    RunTogether(3, [&](int i) {
      if (i == 0) {
        EXPECT_OK(hosts[0]->Create(d, fmt::format("f{}", round), {}));
        return;
      }
      for (int n = 0; n < 5; ++n) EXPECT_OK(hosts[i]->SetAttributes(d, {.mode = 0700u + n}));
    });
    sim_.Sleep(std::chrono::milliseconds(100));
    EXPECT_NE(fs_->GetAttributes(d)->modified, 5) << round;
  }
}

TEST_F(NamesTest, ARenameReplacesFilesAndEmptyDirectories) {
  Make("a", "old a");
  Make("b", "old b");
  ASSERT_OK(fs_->Rename(kRootInode, "a", kRootInode, "b"));
  EXPECT_EQ(List(), Names_{"b"});
  EXPECT_EQ(Contents("/b"), "old a");
  ASSERT_OK(fs_->Rename(kRootInode, "b", kRootInode, "b"));
  EXPECT_EQ(Contents("/b"), "old a");

  ASSERT_OK(fs_->MakePath("/from/x/y", 0755, {}));
  ASSERT_OK(fs_->MakePath("/to/x", 0755, {}));
  const InodeId from = fs_->Resolve("/from")->inode;
  const InodeId to = fs_->Resolve("/to")->inode;
  ASSERT_OK(fs_->Rename(from, "x", to, "x"));
  EXPECT_EQ(List(from), Names_{});
  EXPECT_OK(fs_->Resolve("/to/x/y"));
  EXPECT_EQ(*fs_->ParentOf(fs_->Resolve("/to/x")->inode), to);
  ASSERT_OK(fs_->MakePath("/from/x", 0755, {}));
  EXPECT_FAILS(fs_->Rename(from, "x", to, "x"), ENOTEMPTY);
  ASSERT_OK(fs_->RemoveDirectory(from, "x"));
}

TEST_F(NamesTest, AReplacedFileThatIsOpenCanStillBeRead) {
  const std::string bytes = Pattern(1, 3 * kTestBlock);
  Make("a", "new");
  const InodeId old = Make("b", bytes);
  auto file = fs_->Open(old, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK(fs_->Rename(kRootInode, "a", kRootInode, "b"));
  EXPECT_TRUE(ReadAll(**file) == bytes);
  EXPECT_EQ((*file)->Stat()->links, 0u);
  ASSERT_OK((*file)->Write(0, AsBytes("x")));
  EXPECT_EQ(ReadAll(**file, 0, 1), "x");
  EXPECT_OK((*file)->Close());
  EXPECT_EQ(Contents("/b"), "new");
}

// The intent is there and nothing else: its owner died at once. Whoever comes by finishes it.
TEST_F(NamesTest, ARenameWhoseOwnerDiedIsFinishedByWhoeverMeetsIt) {
  for (const bool taken_away : {false, true}) {
    SCOPED_TRACE(taken_away);
    const InodeId id = Make("a", "contents");
    Records records(*host_.cluster);
    auto stored = **records.FindInode(id);
    const auto source = *records.FindEntry(kRootInode, "a");
    const auto target = *records.FindEntry(kRootInode, "b");
    stored.inode.intent = RenameIntent{.nonce = records.NewRenameNonce(),
                                       .source = kRootInode,
                                       .source_name = "a",
                                       .source_slot = source.slot,
                                       .target = kRootInode,
                                       .target_name = "b",
                                       .target_slot = target.slot};
    if (taken_away) {  // before the rename had rewritten it
      ASSERT_OK(records.ChangeEntry(kRootInode, "a", source.slot, source.entry));
    }
    ASSERT_OK(records.ChangeInode(id, stored.slot, stored.inode));
    const std::string expected = taken_away ? "a" : "b";
    EXPECT_EQ(fs_->GetAttributes(id)->inode, id);
    EXPECT_EQ(List(), Names_{expected});
    EXPECT_EQ(Contents("/" + expected), "contents");
    EXPECT_FALSE((*records.FindInode(id))->inode.intent);
    ASSERT_OK(fs_->Unlink(kRootInode, expected));
  }
}

TEST_F(NamesTest, AMoveOfADirectoryWhoseOwnerDiedDoesNotStopTheNextOne) {
  ASSERT_OK(fs_->MakePath("/a/x", 0755, {}));
  ASSERT_OK(fs_->MakePath("/b", 0755, {}));
  Records records(*host_.cluster);
  const InodeId a = fs_->Resolve("/a")->inode;
  const InodeId b = fs_->Resolve("/b")->inode;
  ASSERT_TRUE(records.ChangeMover(0, b).applied());
  ASSERT_OK(fs_->Rename(a, "x", b, "x"));
  EXPECT_EQ(records.FindMover()->directory, 0u);
  EXPECT_OK(fs_->Resolve("/b/x"));
}

TEST_F(NamesTest, AnEntryWhoseInodeIsGoneIsNoName) {
  const InodeId id = Make("ghost", "x");
  Records records(*host_.cluster);
  ASSERT_OK(records.ChangeInode(id, (*records.FindInode(id))->slot, std::nullopt));
  EXPECT_FAILS(fs_->Lookup(kRootInode, "ghost"), ENOENT);
  EXPECT_EQ(List(), Names_{});
  Make("ghost", "new");
  EXPECT_EQ(Contents("/ghost"), "new");
}

TEST_F(NamesTest, AnExchangeGivesEachTheOthersName) {
  ASSERT_OK(fs_->MakePath("/p/d/below", 0755, {}));
  ASSERT_OK(fs_->MakePath("/q/e", 0755, {}));
  const auto at = [&](const char* path) { return fs_->Resolve(path).value_or(Attributes()).inode; };
  const InodeId p = at("/p"), q = at("/q"), d = at("/p/d"), e = at("/q/e");
  const InodeId f = Make("f", "f", p);
  const InodeId g = Make("g", "g", p);

  ASSERT_OK(fs_->Exchange(p, "f", p, "g"));
  EXPECT_EQ(Contents("/p/f"), "g");
  EXPECT_EQ(Contents("/p/g"), "f");
  ASSERT_OK(fs_->Exchange(p, "f", q, "e"));  // a file and a directory, in this order and the other
  EXPECT_EQ(at("/q/e"), g);
  EXPECT_EQ(at("/p/f"), e);
  EXPECT_EQ(*fs_->ParentOf(e), p);
  ASSERT_OK(fs_->Exchange(p, "f", q, "e"));
  EXPECT_EQ(at("/q/e"), e);
  EXPECT_EQ(*fs_->ParentOf(e), q);
  ASSERT_OK(fs_->Exchange(p, "d", q, "e"));  // directories need not be empty
  EXPECT_EQ(at("/q/e"), d);
  EXPECT_EQ(at("/p/d"), e);
  EXPECT_EQ(*fs_->ParentOf(d), q);
  EXPECT_EQ(*fs_->ParentOf(e), p);
  EXPECT_OK(fs_->Resolve("/q/e/below"));
  const auto listed = fs_->ReadDirectory(p, "", 10, true);
  for (const auto& entry : *listed) EXPECT_EQ(entry.kind, entry.attributes->kind) << entry.name;
  EXPECT_EQ(List(p), (Names_{"d", "f", "g"}));
  EXPECT_EQ(List(q), Names_{"e"});

  EXPECT_FAILS(fs_->Exchange(q, "e", d, "below"), EINVAL);
  EXPECT_FAILS(fs_->Exchange(d, "below", q, "e"), EINVAL);
  EXPECT_FAILS(fs_->Exchange(p, "none", q, "e"), ENOENT);
  EXPECT_FAILS(fs_->Exchange(q, "e", p, "none"), ENOENT);
  ASSERT_OK(fs_->Link(f, q, "h"));
  ASSERT_OK(fs_->Exchange(p, "g", q, "h"));  // one file
  EXPECT_EQ(fs_->GetAttributes(f)->links, 2u);
  EXPECT_EQ(fs_->GetAttributes(g)->links, 1u);
  for (const char* name : {"f", "g"}) ASSERT_OK(fs_->Unlink(p, name));
  for (const char* name : {"e", "h"}) (void)fs_->Unlink(q, name);
  ASSERT_OK(fs_->RemoveDirectory(p, "d"));
  EXPECT_EQ(List(p), Names_{});
}

// A client dies before its n-th request, for every n: both are there, under one name each.
TEST_F(NamesTest, AnExchangeWhoseOwnerDiedHappensOrDoesNot) {
  bool happened = false;
  bool remained = false;
  bool done = false;
  for (uint64_t n = 0; !done; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 1000u);
    const std::string path = fmt::format("/{}", n);
    ASSERT_OK(fs_->MakePath(path + "/p/d", 0755, {}));
    ASSERT_OK(fs_->MakePath(path + "/q/e", 0755, {}));
    const auto at = [&](const std::string& name) {
      return fs_->Resolve(path + name).value_or(Attributes()).inode;
    };
    const InodeId p = at("/p"), q = at("/q"), d = at("/p/d"), e = at("/q/e");
    const auto life = std::make_shared<ClientLife>();
    {
      auto cluster = machines_.Open(life);
      ASSERT_OK(cluster);
      auto fs = FileSystem::Open(**cluster, {});
      ASSERT_OK(fs);
      life->CrashAfter(n);
      done = (*fs)->Exchange(p, "d", q, "e").ok() && !life->crashed();
    }
    sim_.Sleep(std::chrono::seconds(30));  // what was on its way arrives
    {
      // What a minority has accepted is decided now, and not by who looks last.
      Records records(*host_.cluster);
      for (const InodeId id : {p, q, d, e}) ASSERT_OK(records.FindInode(id));
    }
    const InodeId in_p = at("/p/d");
    const InodeId in_q = at("/q/e");
    const bool exchanged = in_p == e && in_q == d;
    ASSERT_TRUE(exchanged || (in_p == d && in_q == e));
    ASSERT_EQ(*fs_->ParentOf(in_p), p);
    ASSERT_EQ(*fs_->ParentOf(in_q), q);
    ASSERT_EQ(List(p), Names_{"d"});
    ASSERT_EQ(List(q), Names_{"e"});
    for (const InodeId id : {d, e}) {  // nothing is left to be done
      Records records(*host_.cluster);
      const auto stored = records.FindInode(id);
      ASSERT_FALSE((*stored)->inode.intent);
      ASSERT_FALSE((*stored)->inode.mark);
      ASSERT_OK(fs_->MakeDirectory(id, "new", 0755, {}));
    }
    (exchanged ? happened : remained) = true;
  }
  EXPECT_TRUE(happened && remained);
}

TEST_F(NamesTest, WhoLooksDuringExchangesFindsBothNames) {
  std::vector<Host> hosts;
  for (int i = 0; i < 4; ++i) hosts.push_back(NewHost());
  ASSERT_OK(fs_->MakePath("/p/d", 0755, {}));
  ASSERT_OK(fs_->MakePath("/q", 0755, {}));
  const InodeId p = fs_->Resolve("/p")->inode;
  const InodeId q = fs_->Resolve("/q")->inode;
  const InodeId d = fs_->Resolve("/p/d")->inode;
  const InodeId f = Make("f", "x", q);
  RunTogether(4, [&](int i) {
    for (int n = 0; n < 20; ++n) {
      if (i < 2) {
        const Status status = hosts[i]->Exchange(p, "d", q, "f");
        if (status.code() == EIO) {
          EXPECT_NE(status.message().find("may have happened"), std::string::npos)
              << status.message();
        } else {
          EXPECT_OK(status);
        }
        continue;
      }
      const auto one = hosts[i]->Lookup(p, "d");
      const auto other = hosts[i]->Lookup(q, "f");
      ASSERT_OK(one);
      ASSERT_OK(other);
      for (const InodeId found : {one->inode, other->inode}) EXPECT_TRUE(found == d || found == f);
    }
  });
  EXPECT_NE(fs_->Lookup(p, "d")->inode, fs_->Lookup(q, "f")->inode);
  EXPECT_EQ(*fs_->ParentOf(d), fs_->Lookup(p, "d")->inode == d ? p : q);
}

// Hosts that do the same things to the same few names at the same time: one of them wins each time,
// nothing is lost, and the tree is whole afterwards.
TEST_F(NamesTest, HostsThatFightOverNamesLeaveAWholeTree) {
  constexpr int kHosts = 4;
  std::vector<Host> hosts;
  for (int i = 0; i < kHosts; ++i) hosts.push_back(NewHost());
  for (const char* path : {"/p", "/q"}) ASSERT_OK(fs_->MakePath(path, 0755, {}));
  RunTogether(kHosts, [&](int i) {
    FileSystem& fs = *hosts[i].fs;
    const InodeId dirs[] = {kRootInode, fs.Resolve("/p")->inode, fs.Resolve("/q")->inode};
    const auto any_dir = [&] { return dirs[sim_.Below(3)]; };
    const auto name = [&] { return std::string(1, static_cast<char>('a' + sim_.Below(3))); };
    for (int step = 0; step < 60; ++step) {
      Status status;
      switch (sim_.Below(5)) {
        case 0: status = StatusOf(fs.Create(any_dir(), name(), {})); break;
        case 1: status = StatusOf(fs.MakeDirectory(any_dir(), name(), 0755, {})); break;
        case 2: status = fs.Unlink(any_dir(), name()); break;
        case 3: status = fs.RemoveDirectory(any_dir(), name()); break;
        case 4: status = fs.Rename(any_dir(), name(), any_dir(), name()); break;
      }
      // A rename that others ended, and whose trace others then wiped out, may say so.
      if (status.code() == EIO) {
        EXPECT_NE(status.message().find("may have happened"), std::string::npos)
            << status.message();
      }
    }
  });
  std::set<InodeId> seen;
  for (const char* path : {"/", "/p", "/q"}) {
    const InodeId directory = fs_->Resolve(path)->inode;
    const auto entries = fs_->ReadDirectory(directory, "", 100, false);
    ASSERT_OK(entries);
    const auto is_directory = [](const auto& entry) { return entry.kind == FileKind::kDirectory; };
    EXPECT_EQ(fs_->GetAttributes(directory)->links,
              2 + std::ranges::count_if(*entries, is_directory))
        << path;
    for (const auto& entry : *entries) {
      const auto attributes = fs_->Lookup(directory, entry.name);
      ASSERT_OK(attributes);
      EXPECT_EQ(attributes->inode, entry.inode);
      EXPECT_TRUE(seen.insert(entry.inode).second) << "two names for one inode";
      if (entry.kind == FileKind::kDirectory) {
        EXPECT_EQ(*fs_->ParentOf(entry.inode), directory);
      }
    }
  }
}

// The number is in the directory's inode and changes with its entries; nobody lists them to know
// it.
TEST_F(NamesTest, ADirectoryCountsItsSubdirectories) {
  const auto links = [&](InodeId id) {
    return Records(*host_.cluster).FindInode(id).value()->inode.links;
  };
  EXPECT_EQ(links(kRootInode), 2u);
  const InodeId p = fs_->MakeDirectory(kRootInode, "p", 0755, {})->inode;
  const InodeId q = fs_->MakeDirectory(kRootInode, "q", 0755, {})->inode;
  EXPECT_EQ(links(kRootInode), 4u);
  for (const char* name : {"a", "b", "c"}) ASSERT_OK(fs_->MakeDirectory(p, name, 0755, {}));
  const InodeId file = Make("file", "x", p);
  ASSERT_OK(fs_->MakeSymlink(p, "symlink", "a", {}));
  EXPECT_EQ(links(p), 5u);
  ASSERT_OK(fs_->RemoveDirectory(p, "a"));
  ASSERT_OK(fs_->Unlink(p, "symlink"));
  EXPECT_EQ(links(p), 4u);

  ASSERT_OK(fs_->Rename(p, "b", p, "d"));
  ASSERT_OK(fs_->Rename(p, "file", q, "file"));
  EXPECT_EQ(links(p), 4u);
  EXPECT_EQ(links(q), 2u);
  ASSERT_OK(fs_->Rename(p, "d", q, "d"));
  EXPECT_EQ(links(p), 3u);
  EXPECT_EQ(links(q), 3u);
  ASSERT_OK(fs_->Rename(p, "c", q, "d"));  // over an empty one
  EXPECT_EQ(links(p), 2u);
  EXPECT_EQ(links(q), 3u);
  ASSERT_OK(fs_->MakeDirectory(q, "e", 0755, {}));
  ASSERT_OK(fs_->Rename(q, "d", q, "e"));
  EXPECT_EQ(links(q), 3u);

  // A directory against a file is so rare that whoever asks next counts.
  Make("f", "y", p);
  ASSERT_OK(fs_->Exchange(p, "f", q, "e"));
  EXPECT_EQ(fs_->Lookup(kRootInode, "q")->links, 2u);
  EXPECT_EQ(fs_->Resolve("/p")->links, 3u);
  EXPECT_EQ(links(p), 3u);
  EXPECT_EQ(fs_->GetAttributes(file)->links, 1u);
}

TEST_F(NamesTest, AnUncountedDirectoryIsCountedByWhoeverDescribesIt) {
  const InodeId id = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  ASSERT_OK(fs_->MakeDirectory(id, "below", 0755, {}));
  Records records(*host_.cluster);
  const auto forget = [&] {
    StoredInode stored = **records.FindInode(id);
    stored.inode.links = 1;
    ASSERT_TRUE(records.ChangeInode(id, stored.slot, stored.inode).applied());
  };
  forget();
  const auto listed = fs_->ReadDirectory(kRootInode, "", 10, /*with_attributes=*/true);
  ASSERT_OK(listed);
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_FALSE(listed->front().attributes.has_value()) << "who wants them asks for them";
  EXPECT_EQ(fs_->SetAttributes(id, {.mode = 0700})->links, 3u);
  EXPECT_EQ(InodeOf(id).links, 3u);

  forget();
  for (const DriveConfig& drive : machines_.config().drives) {
    machines_.drive(drive.id).Set({.full = true});
  }
  EXPECT_EQ(fs_->GetAttributes(id)->links, 3u) << "though that cannot be noted";
  EXPECT_EQ(InodeOf(id).links, 1u);
}

// Someone may have counted an entry whose writer comes to the number later.
TEST_F(NamesTest, WhoCountsBetweenAnEntryAndItsNumberCountsItOnce) {
  const auto count = [](Records& records, Names& names) {
    return names.CountSubdirectories(kRootInode, **records.FindInode(kRootInode)).value();
  };
  Records records(*host_.cluster);
  Names names(records, [](InodeId, const Inode&, uint64_t) {});
  const Names::Place place = names.Look(kRootInode, "d").value();
  StoredInode root = place.directory;
  root.inode.links = 1;
  ASSERT_TRUE(records.ChangeInode(kRootInode, root.slot, root.inode).applied());
  const Entry entry{.inode = 77, .kind = FileKind::kDirectory, .nonce = std::nullopt};
  const auto written = records.ChangeEntry(kRootInode, "early", 0, entry);
  ASSERT_TRUE(written.applied());
  EXPECT_EQ(count(records, names).inode.links, 3u);
  ASSERT_TRUE(records.ChangeEntry(kRootInode, "early", written.now.slot, std::nullopt).applied());
  // What was read before the count cannot say whether that has met the change.
  Inode directory;
  directory.kind = FileKind::kDirectory;
  directory.parent = kRootInode;
  directory.links = kLinksOfEmptyDirectory;
  ASSERT_TRUE(names.Make(kRootInode, "d", place, directory)->has_value());
  EXPECT_EQ(records.FindInode(kRootInode).value()->inode.links, 1u);
  EXPECT_EQ(fs_->GetAttributes(kRootInode)->links, 3u);
}

// Of many who create one name exclusively, one succeeds.
TEST_F(NamesTest, AnExclusiveCreateHasOneWinner) {
  std::vector<Host> hosts;
  for (int i = 0; i < 4; ++i) hosts.push_back(NewHost());
  int winners = 0;
  RunTogether(4, [&](int i) {
    const auto file = hosts[i]->Create(kRootInode, "lock", {.exclusive = true});
    if (file.has_value()) {
      ++winners;
    } else {
      EXPECT_EQ(file.error().code(), EEXIST);
    }
  });
  EXPECT_EQ(winners, 1);
}

// Those who make directories change the one that they are in, so whether one's change of it has
// happened is soon not to be told any more. That somebody's has is enough.
TEST_F(NamesTest, ManyHostsMayCrowdADirectory) {
  constexpr int kHosts = 24;
  std::vector<Host> hosts;
  for (int i = 0; i < kHosts; ++i) hosts.push_back(NewHost());
  for (DriveId id = 1; id <= 5; ++id) machines_.drive(id).Set({.lose_answer = 0.01});
  RunTogether(kHosts, [&](int i) {
    Host& host = hosts[static_cast<size_t>(i)];
    for (int round = 0; round < 20; ++round) {
      const std::string name = fmt::format("{}-{}", i, round);
      auto file = host->Create(kRootInode, name, {});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Close());
      ASSERT_OK(host->Unlink(kRootInode, name));
      ASSERT_OK(host->MakeDirectory(kRootInode, name, 0755, {}));
      if (round % 4 != 0) {
        ASSERT_OK(host->RemoveDirectory(kRootInode, name));
      }
    }
  });
  for (DriveId id = 1; id <= 5; ++id) machines_.drive(id).Set({});
  EXPECT_EQ(List().size(), 24u * 5);
  EXPECT_EQ(fs_->GetAttributes(kRootInode)->links, 2u + 24 * 5);
}

// A file that was made in a directory keeps that from being removed, though making it changes
// nothing of the directory; and while others change that, too.
TEST_F(NamesTest, NobodyRemovesADirectoryInWhichAFileWasMade) {
  constexpr int kMakers = 4;
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = std::chrono::milliseconds(1),
                             .most_latency = std::chrono::milliseconds(6)});
  }
  Host remover = NewHost();
  Host others[] = {NewHost(), NewHost()};  // that change the directory's time, too
  InodeId directory = 0;
  int made = 0;
  int removed = 0;
  int busy = kMakers;
  RunTogether(kMakers + 3, [&](int i) {
    if (i > kMakers) {
      while (busy > 0) {
        (void)others[i - kMakers - 1]->SetAttributes(directory, {.modified = sim_.WallClock()});
      }
      return;
    }
    if (i == kMakers) {
      while (busy > 0) {
        const auto it = remover->MakeDirectory(kRootInode, "d", 0755, {});
        if (it.has_value()) directory = it->inode;
        sim_.Sleep(sim_.Between(std::chrono::milliseconds(0), std::chrono::milliseconds(100)));
        if (remover->RemoveDirectory(kRootInode, "d").ok()) ++removed;
      }
      return;
    }
    const auto rest = std::shared_ptr<void>(nullptr, [&](void*) { --busy; });
    for (int round = 0; round < 300; ++round) {
      const std::string name = fmt::format("{}", i);
      const InodeId in = directory;
      sim_.Sleep(sim_.Between(std::chrono::milliseconds(0), std::chrono::milliseconds(60)));
      if (in == 0 || !fs_->Create(in, name, {}).has_value()) continue;
      ++made;
      ASSERT_OK(fs_->GetAttributes(in)) << "it is gone, with " << name << " in it";
      ASSERT_OK(fs_->Unlink(in, name));
    }
  });
  EXPECT_GT(made, 50);
  EXPECT_GT(removed, 5);
}

// What was looked up a moment ago saves a look, and never decides anything.
TEST_F(NamesTest, WhatOthersDidSinceANameWasLookedUpCounts) {
  Host other = NewHost();
  EXPECT_FAILS(fs_->Lookup(kRootInode, "a"), ENOENT);
  auto theirs = other->Create(kRootInode, "a", {});
  ASSERT_OK(theirs);
  EXPECT_FAILS(fs_->Create(kRootInode, "a", {.exclusive = true}), EEXIST);
  EXPECT_FAILS(fs_->Lookup(kRootInode, "b"), ENOENT);
  ASSERT_OK(other->Rename(kRootInode, "a", kRootInode, "b"));
  auto file = fs_->Create(kRootInode, "b", {});
  ASSERT_OK(file);
  EXPECT_EQ((*file)->inode(), (*theirs)->inode());

  ASSERT_OK(fs_->Lookup(kRootInode, "b"));
  ASSERT_OK(other->Unlink(kRootInode, "b"));
  EXPECT_FAILS(fs_->Unlink(kRootInode, "b"), ENOENT);
  Make("c", "ours");
  ASSERT_OK(fs_->Lookup(kRootInode, "c"));
  ASSERT_OK(other->Rename(kRootInode, "c", kRootInode, "d"));
  ASSERT_OK(other->MakeDirectory(kRootInode, "c", 0755, {}));
  EXPECT_FAILS(fs_->Unlink(kRootInode, "c"), EISDIR);
  EXPECT_EQ(List(), (Names_{"c", "d"}));
  EXPECT_EQ(Contents("/d"), "ours");

  ASSERT_OK(fs_->Lookup(kRootInode, "c"));
  const InodeId c = fs_->Lookup(kRootInode, "c")->inode;
  ASSERT_OK(other->MakeDirectory(c, "inside", 0755, {}));
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "c"), ENOTEMPTY);
  EXPECT_FAILS(fs_->Lookup(c, "new"), ENOENT);
  ASSERT_OK(other->RemoveDirectory(c, "inside"));
  ASSERT_OK(other->RemoveDirectory(kRootInode, "c"));
  EXPECT_FAILS(fs_->Create(c, "new", {}), ENOENT);
  EXPECT_FAILS(fs_->Link(fs_->Lookup(kRootInode, "d")->inode, c, "new"), ENOENT);

  // The directory was seen, and nothing of its names.
  const InodeId e = fs_->MakeDirectory(kRootInode, "e", 0755, {})->inode;
  ASSERT_OK(fs_->Lookup(kRootInode, "e"));
  ASSERT_OK(other->RemoveDirectory(kRootInode, "e"));
  EXPECT_FAILS(fs_->Lookup(e, "new"), ENOENT);
  auto upload = fs_->Create(e, "new", {.publish_at_commit = true});
  if (upload.has_value()) {
    EXPECT_FAILS((*upload)->Close(), ENOENT);
  } else {
    EXPECT_FAILS(upload, ENOENT);
  }
  EXPECT_FAILS(fs_->MakeDirectory(e, "below", 0755, {}), ENOENT);
}

TEST_F(NamesTest, WhatWeDidSinceANameWasLookedUpCounts) {
  const InodeId directory = fs_->MakeDirectory(kRootInode, "d", 0755, {3, 4})->inode;
  EXPECT_FAILS(fs_->Lookup(directory, "file"), ENOENT);
  ASSERT_OK(fs_->SetAttributes(directory, {.mode = 02755}));
  EXPECT_EQ((*fs_->Create(directory, "file", {}))->Known().owner.group, 4u);
}

}  // namespace
}  // namespace pinstripe
