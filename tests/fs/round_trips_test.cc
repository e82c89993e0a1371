// How often an operation waits for the drives, on an idle cluster. Every request and every answer
// is on its way for exactly as long, so simulated time counts round trips.

#include <gtest/gtest.h>

#include "cluster/membership/epoch_change.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

class RoundTripsTest : public FsTest {
 protected:
  static constexpr auto kOneWay = std::chrono::milliseconds(50);

  void SetUp() override {
    FsTest::SetUp();
    for (size_t id = 1; id <= machines_.size(); ++id) {
      machines_.drive(static_cast<DriveId>(id))
          .Set({.least_latency = kOneWay, .most_latency = kOneWay});
    }
  }

  int64_t Count(const std::function<void()>& body) {
    const Time start = sim_.Now();
    body();
    return (sim_.Now() - start) / (2 * kOneWay);
  }

  // How many requests that takes; answers that nobody waited for included.
  uint64_t CountRequests(const std::function<void()>& body) {
    const auto all = [&] {
      uint64_t requests = 0;
      for (size_t id = 1; id <= machines_.size(); ++id) {
        requests += machines_.drive(static_cast<DriveId>(id)).requests().total();
      }
      return requests;
    };
    const uint64_t before = all();
    body();
    sim_.Sleep(2 * kOneWay);
    return all() - before;
  }

  void Write(std::string_view name, size_t size, bool publish_at_commit) {
    auto file =
        fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = publish_at_commit});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, size))));
    ASSERT_OK((*file)->Close());
  }
};

TEST_F(RoundTripsTest, AStatIsOneOnceTheNameWasSeen) {
  Make("file", "x");
  Host other = NewHost();
  EXPECT_EQ(Count([&] { ASSERT_OK(other->Lookup(kRootInode, "file")); }), 2);
  EXPECT_EQ(Count([&] { ASSERT_OK(other->Lookup(kRootInode, "file")); }), 1);
  EXPECT_EQ(
      Count([&] { ASSERT_OK(other->GetAttributes(other->Lookup(kRootInode, "file")->inode)); }), 2);
  EXPECT_EQ(Count([&] { EXPECT_FAILS(other->Lookup(kRootInode, "none"), ENOENT); }), 1);
}

// A guess that has become wrong costs what no guess costs.
TEST_F(RoundTripsTest, AStatOfANameThatWasGivenToAnotherFileIsTwo) {
  Make("file", "x");
  ASSERT_OK(fs_->Lookup(kRootInode, "file"));
  Host other = NewHost();
  ASSERT_OK(other->Unlink(kRootInode, "file"));
  auto file = other->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  const InodeId inode = (*file)->inode();
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(Count([&] { EXPECT_EQ(fs_->Lookup(kRootInode, "file")->inode, inode); }), 2);
  EXPECT_EQ(Count([&] { EXPECT_EQ(fs_->Lookup(kRootInode, "file")->inode, inode); }), 1);
}

// Entry and inode at once, as the name was seen before; the contents of a small file come along.
TEST_F(RoundTripsTest, OpeningAPathIsOneAndSeesWhatOthersCommitted) {
  Make("file", "before");
  Host other = NewHost();
  const auto opens = [&](std::string_view contents) {
    const auto file = other->OpenPath({.path = "/file"});
    ASSERT_OK(file);
    EXPECT_EQ(ReadAll(**file), contents);
  };
  ASSERT_OK(other->Lookup(kRootInode, "file"));
  EXPECT_EQ(Count([&] { opens("before"); }), 1);
  auto handle =
      fs_->OpenPath({.path = "/file", .access = FileSystem::Access::kWrite, .truncate = true});
  ASSERT_OK(handle);
  ASSERT_OK((*handle)->Write(0, AsBytes("after")));
  ASSERT_OK((*handle)->Close());
  EXPECT_EQ(Count([&] { opens("after"); }), 1);
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {}));
  EXPECT_FAILS(other->OpenPath({.path = "/d"}), EISDIR);
  EXPECT_FAILS(other->OpenPath({.path = "/"}), EISDIR);
  EXPECT_FAILS(other->OpenPath({.path = "/none"}), ENOENT);
}

// A directory that was seen less than a second ago is not read again for what is in it.
TEST_F(RoundTripsTest, AStatInAKnownDirectoryAsksForEntryAndInode) {
  constexpr uint64_t kReplicas = 3;
  Make("file", "x");
  Host other = NewHost();
  ASSERT_OK(other->Lookup(kRootInode, "file"));
  const auto stat = [&] { ASSERT_OK(other->Lookup(kRootInode, "file")); };
  EXPECT_EQ(CountRequests(stat), 2 * kReplicas);
  EXPECT_EQ(CountRequests([&] { EXPECT_FAILS(other->Lookup(kRootInode, "no"), ENOENT); }),
            kReplicas);
  sim_.Sleep(std::chrono::seconds(1));
  EXPECT_EQ(CountRequests(stat), 3 * kReplicas);
}

// Nor for the next part of a listing of it.
TEST_F(RoundTripsTest, AListingThatGoesOnAsksForEntriesOnly) {
  for (const char* name : {"a", "b", "c"}) Make(name, "x");
  Host other = NewHost();
  const auto list = [&](std::string_view after) {
    const auto entries = other->ReadDirectory(kRootInode, after, 1, /*with_attributes=*/false);
    ASSERT_OK(entries);
    EXPECT_EQ(entries->size(), 1u);
  };
  EXPECT_EQ(Count([&] { list(""); }), 2);
  EXPECT_EQ(Count([&] { list("a"); }), 1);
  EXPECT_EQ(Count([&] { list(""); }), 2) << "who begins hears of it if it is gone";
  sim_.Sleep(std::chrono::seconds(1));
  EXPECT_EQ(Count([&] { list("b"); }), 2);
  const InodeId file = other->Lookup(kRootInode, "a")->inode;
  EXPECT_FAILS(other->ReadDirectory(file, "a", 1, false), ENOTDIR);
}

// However deep a file lies, if the way was gone before.
// A listing tells which inode a name stands for, so both are asked for at once.
TEST_F(RoundTripsTest, AStatOfANameThatWasListedIsOne) {
  Host other = NewHost();
  for (int i = 0; i < 3; ++i) {
    auto file = other->Create(kRootInode, "file" + std::to_string(i), {});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Close());
  }
  ASSERT_OK(fs_->ReadDirectory(kRootInode, "", 10, /*with_attributes=*/false));
  sim_.Sleep(std::chrono::seconds(2));
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->Lookup(kRootInode, "file1")); }), 1);
}

TEST_F(RoundTripsTest, TheWholeWayIsAskedForAtOnce) {
  ASSERT_OK(fs_->MakePath("/a/b/c", 0755, {}));
  ASSERT_OK(fs_->MakeSymlink(kRootInode, "short", "a/b", {}));
  const InodeId directory = fs_->Resolve("/a/b/c")->inode;
  Make("file", "x", directory);
  Host other = NewHost();
  const auto resolve = [&](std::string_view path) {
    return Count([&] { ASSERT_OK(other->Resolve(path)); });
  };
  EXPECT_EQ(resolve("/a/b/c/file"), 8);
  EXPECT_EQ(resolve("/a/b/c/file"), 1);
  EXPECT_EQ(resolve("/a/./b//c/../c/file"), 2);
  EXPECT_EQ(resolve("/short/c/file"), 4);
  EXPECT_EQ(resolve("/short/c/file"), 3);  // up to the link; where it leads; what is there

  const auto upload = [&] {
    auto file = other->OpenPath({.path = "/a/b/c/new", .create = true, .publish_at_commit = true});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Close());
  };
  EXPECT_EQ(Count(upload), 2);
  const auto remove = [&] {
    const auto place = other->ResolveParent("/a/b/c/new");
    ASSERT_OK(place);
    ASSERT_OK(other->Unlink(place->directory, place->name));
  };
  EXPECT_EQ(Count(remove), 3);
  EXPECT_EQ(Count([&] { EXPECT_FAILS(other->Resolve("/a/b/none/file"), ENOENT); }), 1);

  // What another one has done to the way is seen.
  ASSERT_OK(fs_->Rename(kRootInode, "a", kRootInode, "z"));
  EXPECT_FAILS(other->Resolve("/a/b/c/file"), ENOENT);
  ASSERT_OK(other->Resolve("/z/b/c/file"));
  ASSERT_OK(fs_->MakePath("/a/b/c", 0755, {}));
  EXPECT_FAILS(other->Resolve("/a/b/c/file"), ENOENT);
}

// The way is gone once, and what it ends at is looked up with it, whatever is to be done there.
TEST_F(RoundTripsTest, AnOpenThatCreatesGoesTheWayOnce) {
  ASSERT_OK(fs_->MakePath("/a/b/c", 0755, {}));
  ASSERT_OK(fs_->MakeSymlink(fs_->Resolve("/a/b/c")->inode, "link", "other", {}));
  Make("there", "x", fs_->Resolve("/a/b/c")->inode);
  ASSERT_OK(fs_->Resolve("/a/b/c/there"));
  const auto opens = [&](std::string_view path, bool truncate = true) {
    return Count([&] {
      ASSERT_OK(fs_->OpenPath({.path = path,
                               .truncate = truncate,
                               .create = true,
                               .publish_at_commit = true,
                               .parents = FileSystem::MissingParents{}}));
    });
  };
  EXPECT_EQ(opens("/a/b/c/there"), 1);
  EXPECT_EQ(opens("/a/b/c/there", /*truncate=*/false), 2);  // what it is is asked once it is open
  EXPECT_EQ(opens("/a/b/c/new"), 1);
  EXPECT_FAILS(fs_->Resolve("/a/b/c/link"), ENOENT);
  EXPECT_EQ(opens("/a/b/c/link"), 2);  // and what it leads to

  // The directory is missing; it is made, in three; its new name is looked up in it.
  EXPECT_EQ(opens("/a/b/c/d/new"), 1 + 3 + 1);
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->MakePath("/a/b/c/d", 0755, {})); }), 1);
}

// Look the name up; write inode, contents and entry, and hear that the directory is there still.
TEST_F(RoundTripsTest, AnUploadOfASmallFileIsTwo) {
  EXPECT_EQ(Count([&] { Write("new", 1000, /*publish_at_commit=*/true); }), 2);
}

// The name appears at once, with the inode, and the contents with the close.
TEST_F(RoundTripsTest, ASmallFileThatAppearsAtOnceIsOneMore) {
  EXPECT_EQ(Count([&] { Write("new", 1000, /*publish_at_commit=*/false); }), 3);
}

// Each alone takes two. They do not change the directory one after the other: its time is noted
// for all of them, while nobody waits for that.
TEST_F(RoundTripsTest, ManyUploadsAtOnceNoteTheirDirectoryTogether) {
  constexpr int kUploads = 16;
  const auto upload_all = [&] {
    int left = kUploads;
    const auto done = sim_.NewSignal();
    for (int i = 0; i < kUploads; ++i) {
      sim_.Spawn(fmt::format("upload {}", i), [&, i] {
        sim_.Sleep(i * kOneWay / 10);
        Write(fmt::format("file {}", i), 1000, /*publish_at_commit=*/true);
        if (--left == 0) done->Set();
      });
    }
    while (left > 0) done->WaitUntil(Time::max());
  };
  EXPECT_FAILS(fs_->Lookup(kRootInode, "file"), ENOENT);
  const Time start = sim_.Now();
  const uint64_t requests = CountRequests([&] { EXPECT_LE(Count(upload_all), 4); });
  // Entry twice, once with the inode; and the time three times.
  EXPECT_LE(requests, kUploads * 3 * 2u + 3 * 3u);
  EXPECT_EQ(List().size(), 16u);
  // It was noted after the last of them had its name.
  const auto passed = std::chrono::nanoseconds(
      fs_->GetAttributes(kRootInode)->modified -
      fs_->GetAttributes(fs_->Lookup(kRootInode, "file 15")->inode)->modified);
  EXPECT_GE(passed, 2 * kOneWay);
  EXPECT_LE(passed, sim_.Now() - start);
}

// Where others make files, too, nobody waits for them.
TEST_F(RoundTripsTest, ADirectoryThatOthersChangeCostsNoMore) {
  Host other = NewHost();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Count([&] { Write(fmt::format("ours {}", i), 1000, true); }), 2);
    auto theirs = other->Create(kRootInode, fmt::format("theirs {}", i), {});
    ASSERT_OK(theirs);
    ASSERT_OK((*theirs)->Close());
  }
}

// As a mount does it: the kernel looks up each name just before.
TEST_F(RoundTripsTest, AFileWhoseNameWasJustLookedUpIsOneLess) {
  EXPECT_FAILS(fs_->Lookup(kRootInode, "new"), ENOENT);
  std::unique_ptr<OpenFile> file;
  EXPECT_EQ(Count([&] { file = *fs_->Create(kRootInode, "new", {.exclusive = true}); }), 1);
  EXPECT_EQ(Count([&] { EXPECT_EQ(file->Known().links, 1u); }), 0);
  ASSERT_OK(file->Write(0, AsBytes("x")));
  EXPECT_EQ(Count([&] { ASSERT_OK(file->Close()); }), 1);
  EXPECT_FAILS(fs_->Lookup(kRootInode, "d"), ENOENT);
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {})); }), 3);
  ASSERT_OK(fs_->Lookup(kRootInode, "new"));
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->Unlink(kRootInode, "new")); }), 2);
  ASSERT_OK(fs_->Lookup(kRootInode, "d"));
  sim_.Sleep(std::chrono::seconds(1));
  // Look it up, mark it, see that it is empty, remove it and its name, change what it was in.
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d")); }), 6);
}

// As a mount does it with dirops=async: look, and make all of it when it is closed.
TEST_F(RoundTripsTest, AFileThatAppearsLaterIsMadeInOneWaitAtItsClose) {
  constexpr uint64_t kReplicas = 3;
  std::unique_ptr<OpenFile> file;
  const auto create = [&] {
    EXPECT_EQ(Count([&] { EXPECT_FAILS(fs_->Lookup(kRootInode, "new"), ENOENT); }), 1);
    EXPECT_EQ(Count([&] {
                file = *fs_->Create(kRootInode, "new", {.appears_later = true});
                ASSERT_OK(file->Write(0, AsBytes(Pattern(1, 4096))));
                ASSERT_OK(file->SetAttributes({.mode = 0600, .modified = 1}));
                ASSERT_OK(fs_->Lookup(kRootInode, "new"));
                ASSERT_OK(fs_->GetAttributes(file->inode()));
                EXPECT_FAILS(fs_->GetExtended(file->inode(), "user.a"), ENODATA);
              }),
              0);
    EXPECT_EQ(Count([&] { ASSERT_OK(file->Close()); }), 1);
  };
  EXPECT_FAILS(fs_->Lookup(kRootInode, "none"), ENOENT);  // the directory is known from now on
  EXPECT_EQ(CountRequests(create), 3 * kReplicas) << "both, and the time of the directory";

  // One that is removed before costs nothing but the look.
  file = *fs_->Create(kRootInode, "removed", {.appears_later = true});
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->Unlink(kRootInode, "removed")); }), 0);
  EXPECT_EQ(Count([&] { ASSERT_OK(file->Close()); }), 0);
}

// As `rm -r` does it: entry and inode are known from the listing.
TEST_F(RoundTripsTest, ToRemoveWhatWasListedIsOneLess) {
  constexpr uint64_t kReplicas = 3;
  for (const char* name : {"a", "b"}) Make(name, "x");
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {}));
  Host other = NewHost();
  EXPECT_EQ(List(kRootInode, other.fs.get()).size(), 3u);
  EXPECT_EQ(Count([&] { ASSERT_OK(other->Unlink(kRootInode, "a")); }), 2);
  const auto remove = [&] { ASSERT_OK(other->Unlink(kRootInode, "b")); };
  EXPECT_EQ(CountRequests(remove), 3 * kReplicas) << "entry, time of the directory, inode";
  EXPECT_EQ(Count([&] { ASSERT_OK(other->RemoveDirectory(kRootInode, "d")); }), 5);
}

TEST_F(RoundTripsTest, ADirectoryThatWasJustLookedUpIsOneLess) {
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {}));
  ASSERT_OK(fs_->Lookup(kRootInode, "d"));
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d")); }), 5);
  // What was removed from it since has changed it, which costs a look, as ever.
  const InodeId d = MakeDirectory("d");
  Make("file", "x", d);
  ASSERT_OK(fs_->Lookup(kRootInode, "d"));
  ASSERT_OK(fs_->Unlink(d, "file"));
  sim_.Sleep(4 * kOneWay);
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d")); }), 6);
}

// As a mount does it, which looks both names up just before: the link is counted, and gets its
// name.
TEST_F(RoundTripsTest, ALinkToAFileThatWasJustLookedUpIsTwo) {
  constexpr uint64_t kReplicas = 3;
  const InodeId file = Make("file", "x");
  const auto look_up = [&](std::string_view name) {
    ASSERT_OK(fs_->Lookup(kRootInode, "file"));
    EXPECT_FAILS(fs_->Lookup(kRootInode, name), ENOENT);
  };
  const auto link = [&](std::string_view name) { ASSERT_OK(fs_->Link(file, kRootInode, name)); };
  constexpr auto kQuick = std::chrono::milliseconds(1);
  for (size_t id = 1; id <= machines_.size(); ++id) {
    machines_.drive(static_cast<DriveId>(id))
        .Set({.least_latency = kQuick, .most_latency = kQuick});
  }
  sim_.Sleep(std::chrono::seconds(1));  // until what notes the directory's time is over
  look_up("one");
  const Time start = sim_.Now();
  link("one");
  EXPECT_EQ((sim_.Now() - start) / (2 * kQuick), 2);
  look_up("two");
  EXPECT_EQ(CountRequests([&] { link("two"); }), 3 * kReplicas) << "with the directory's time";
  // What others have done to it since costs a look.
  Host other = NewHost();
  look_up("three");
  ASSERT_OK(other->Link(file, kRootInode, "theirs"));
  link("three");
  EXPECT_EQ(fs_->GetAttributes(file)->links, 5u);
}

// What is there is read and written once more with what is new, and is safe from power loss before
// the inode names it. Nobody reads what was written here just before, and nobody flushes it.
TEST_F(RoundTripsTest, AnAppendToASmallFileIsTwo) {
  const InodeId file = Make("file", Pattern(1, 10'000));
  const auto append = [&](FileSystem& fs) {
    auto open = fs.Open(file, FileSystem::Access::kWrite);
    ASSERT_OK(open);
    EXPECT_EQ(Count([&] { ASSERT_OK((*open)->Append(AsBytes("more"))); }), 0);
    ASSERT_OK((*open)->Close());
  };
  const auto flushes = [&] {
    uint64_t all = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      all += machines_.drive(id).requests().flush;
    }
    return all;
  };
  EXPECT_EQ(Count([&] { append(*fs_); }), 1 + 2) << "with the open";
  EXPECT_EQ(Count([&] { append(*fs_); }), 1 + 2);
  Host other = NewHost();
  EXPECT_EQ(Count([&] { append(*other.fs); }), 1 + 3) << "it was written by others";
  EXPECT_EQ(flushes(), 0u);
  EXPECT_EQ(Contents("/file"), Pattern(1, 10'000) + "moremoremore");
}

// As a database does it. The first fsync flushes what was there before.
TEST_F(RoundTripsTest, AnOverwriteWithFsyncIsTwo) {
  const InodeId file = Make("file", Pattern(1, 4 * kTestBlock));
  auto open = fs_->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  const auto overwrite = [&](uint64_t block) {
    ASSERT_OK((*open)->Write(block * kTestBlock, AsBytes("new")));
    ASSERT_OK((*open)->Sync());
  };
  overwrite(0);
  EXPECT_EQ(Count([&] { overwrite(1); }), 2);
  EXPECT_EQ(Count([&] { overwrite(1); }), 2);
  ASSERT_OK((*open)->Close());
}

TEST_F(RoundTripsTest, UnlinkIsThree) {
  Make("file", "x");
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->Unlink(kRootInode, "file")); }), 3);
}

// Look both names up, then the steps of fs/names/rename.cc that concern a file and one directory.
TEST_F(RoundTripsTest, ARenameInADirectoryIsSix) {
  Make("file", "x");
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->Rename(kRootInode, "file", kRootInode, "new")); }), 6);
}

// Names begin new slots there, whether they are new, were removed before, or are there.
TEST_F(RoundTripsTest, InALaterEpochTheyAreAsMany) {
  const auto prepare = [&](const std::string& mark) {
    Make("there" + mark, "x");
    Make("removed" + mark, "x");
    ASSERT_OK(fs_->Unlink(kRootInode, "removed" + mark));
  };
  const auto measure = [&](const std::string& mark) {
    std::vector<int64_t> counts;
    const auto rename = [&](const std::string& from, const std::string& to) {
      counts.push_back(Count([&] { ASSERT_OK(fs_->Rename(kRootInode, from, kRootInode, to)); }));
    };
    for (const std::string& name : {"new" + mark, "removed" + mark}) {
      counts.push_back(Count([&] { Write(name, 1000, /*publish_at_commit=*/true); }));
    }
    rename("there" + mark, "moved" + mark);
    rename("moved" + mark, "there" + mark);
    for (const std::string& name : {"new" + mark, "removed" + mark, "there" + mark}) {
      counts.push_back(Count([&] { ASSERT_OK(fs_->Unlink(kRootInode, name)); }));
    }
    return counts;
  };
  prepare(" 1");
  prepare(" 2");
  const std::vector<int64_t> first = measure(" 1");
  ASSERT_OK(RenewEpoch(*host_.cluster));
  EXPECT_EQ(measure(" 2"), first);
}

// What an operation costs on names: round trips, requests, and of the drives' puts those that have
// to be durable before they are answered. (Flushes are in the requests, and so is what notes a
// directory's time afterwards, once for all that is done to it in 50 ms.) The table is in
// docs/decisions/0035-power-and-names.md; what is safe for it in docs/format.md, "What a loss of
// power leaves".
TEST_F(RoundTripsTest, WhatSafetyCosts) {
  struct Cost {
    int64_t trips = 0;
    uint64_t requests = 0;
    uint64_t durable = 0;
    bool operator==(const Cost&) const = default;
  };
  const auto count_durable = [&] {
    uint64_t durable = 0;
    for (size_t id = 1; id <= machines_.size(); ++id) {
      durable += machines_.drive(static_cast<DriveId>(id)).requests().durable_put;
    }
    return durable;
  };
  const auto measure = [&](const std::function<Status()>& body) {
    Cost cost;
    const uint64_t durable = count_durable();
    cost.requests = CountRequests([&] { cost.trips = Count([&] { ASSERT_OK(body()); }); });
    cost.durable = count_durable() - durable;
    sim_.Sleep(std::chrono::seconds(30));  // what goes on in the background
    return cost;
  };
  const InodeId a = fs_->MakeDirectory(kRootInode, "a", 0755, {})->inode;
  const InodeId b = fs_->MakeDirectory(kRootInode, "b", 0755, {})->inode;
  for (const char* name : {"1", "2", "3", "4", "5", "6", "7", "8", "linked"}) Make(name, "x", a);
  for (const char* name : {"d1", "d2", "d3"}) ASSERT_OK(fs_->MakeDirectory(a, name, 0755, {}));
  const InodeId linked = fs_->Lookup(a, "linked")->inode;
  sim_.Sleep(std::chrono::minutes(2));
  std::vector<std::pair<std::string, Cost>> costs;
  const auto add = [&](const std::string& what, const std::function<Status()>& body) {
    costs.emplace_back(what, measure(body));
  };
  add("create, close", [&] { return StatusOf(fs_->Create(a, "new", {})); });
  add("upload", [&] {
    auto file = fs_->Create(a, "uploaded", {.truncate = true, .publish_at_commit = true});
    if (!file.has_value()) return file.error();
    const auto written = (*file)->Write(0, AsBytes("x"));
    return written.ok() ? (*file)->Close() : Status(written);
  });
  add("mkdir", [&] { return StatusOf(fs_->MakeDirectory(a, "made", 0755, {})); });
  add("link", [&] { return StatusOf(fs_->Link(linked, a, "link")); });
  add("unlink of one of two names", [&] { return fs_->Unlink(a, "link"); });
  add("unlink", [&] { return fs_->Unlink(a, "1"); });
  add("rmdir", [&] { return fs_->RemoveDirectory(a, "made"); });
  add("rename", [&] { return fs_->Rename(a, "2", a, "renamed"); });
  add("rename over a file", [&] { return fs_->Rename(a, "3", a, "4"); });
  add("rename into another directory", [&] { return fs_->Rename(a, "5", b, "5"); });
  add("the same once more", [&] { return fs_->Rename(a, "6", b, "6"); });
  add("rename of a directory", [&] { return fs_->Rename(a, "d1", a, "d4"); });
  add("rename of a directory into another", [&] { return fs_->Rename(a, "d2", b, "d2"); });
  add("exchange", [&] { return fs_->Exchange(a, "7", a, "8"); });
  const std::vector<std::pair<std::string, Cost>> expected = {
      {"create, close", {2, 12, 0}},
      {"upload", {2, 12, 0}},
      {"mkdir", {4, 15, 0}},
      {"link", {5, 23, 6}},  // one less once the directory was met
      {"unlink of one of two names", {3, 18, 3}},
      {"unlink", {3, 18, 0}},
      {"rmdir", {6, 24, 3}},
      {"rename", {6, 30, 9}},
      {"rename over a file", {8, 39, 9}},
      {"rename into another directory", {7, 41, 9}},
      {"the same once more", {6, 36, 9}},
      {"rename of a directory", {6, 30, 9}},
      {"rename of a directory into another", {13, 51, 9}},
      {"exchange", {10, 45, 12}}};
  ASSERT_EQ(costs.size(), expected.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    const auto& [what, cost] = costs[i];
    EXPECT_EQ(what, expected[i].first);
    EXPECT_EQ(cost.trips, expected[i].second.trips) << what;
    EXPECT_EQ(cost.requests, expected[i].second.requests) << what;
    EXPECT_EQ(cost.durable, expected[i].second.durable) << what;
  }
}

TEST_F(RoundTripsTest, MkdirIsFour) {
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {})); }), 4);
}

}  // namespace
}  // namespace pinstripe
