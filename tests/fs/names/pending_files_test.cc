// Files that appear for others when they are closed (FileSystem::CreateOptions::appears_later), and
// for the process that made them at once.

#include "fs/pending_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fs/files/layout.h"
#include "fs/names/acl.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class PendingFilesTest : public FsTest {
 protected:
  void SetUp() override {
    FsTest::SetUp();
    other_ = NewHost();
  }

  std::unique_ptr<OpenFile> Create(std::string_view name, InodeId directory = kRootInode,
                                   FileSystem::CreateOptions options = {.mode = 0640}) {
    options.appears_later = true;
    auto file = fs_->Create(directory, name, options);
    EXPECT_OK(file);
    return *std::move(file);
  }
  std::unique_ptr<OpenFile> CreateWith(std::string_view name, std::string_view contents,
                                       InodeId directory = kRootInode) {
    auto file = Create(name, directory);
    EXPECT_OK(file->Write(0, AsBytes(contents)));
    return file;
  }

  // What the other host finds; null: nothing.
  std::optional<std::string> Elsewhere(std::string_view name, InodeId directory = kRootInode) {
    const auto found = other_->Lookup(directory, name);
    if (!found.has_value()) {
      EXPECT_FAILS(found, ENOENT);
      return std::nullopt;
    }
    auto file = other_->Open(found->inode, FileSystem::Access::kRead);
    EXPECT_OK(file);
    return ReadAll(**file);
  }
  std::vector<std::string> ListElsewhere(InodeId directory = kRootInode) {
    return List(directory, other_.fs.get());
  }

  // Whether nothing is wrong and nothing left, once what nobody needs has had time to go.
  void ExpectNothingLeft() {
    sim_.Sleep(std::chrono::minutes(2));
    Checker checker(*host_.cluster, {});
    ExpectClean(checker.Run());
  }
  void SetAllDown(bool down) {
    for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, down);
  }

  Host other_;
  const std::string contents_ = Pattern(1, 3 * kTestBlock + 5);
};

TEST_F(PendingFilesTest, AppearWithTheirContentsWhenTheyAreClosed) {
  auto file = CreateWith("file", "contents");
  EXPECT_EQ(Elsewhere("file"), std::nullopt);
  EXPECT_THAT(ListElsewhere(), IsEmpty());
  ASSERT_OK(file->Close());
  EXPECT_EQ(Elsewhere("file"), "contents");
  EXPECT_THAT(ListElsewhere(), ElementsAre("file"));

  auto large = CreateWith("large", contents_);
  EXPECT_EQ(Elsewhere("large"), std::nullopt);
  ASSERT_OK(large->Close());
  EXPECT_EQ(Elsewhere("large"), contents_);

  ASSERT_OK(Create("empty")->Close());
  EXPECT_EQ(Elsewhere("empty"), "");
  ExpectNothingLeft();
}

TEST_F(PendingFilesTest, AreThereAtOnceForTheirOwnHost) {
  auto file = CreateWith("file", "contents");
  const auto found = fs_->Lookup(kRootInode, "file");
  ASSERT_OK(found);
  EXPECT_EQ(found->inode, file->inode());
  for (const auto& attributes : {found, file->Stat(), fs_->GetAttributes(found->inode)}) {
    ASSERT_OK(attributes);
    EXPECT_EQ(attributes->kind, FileKind::kRegular);
    EXPECT_EQ(attributes->mode, 0640u);
    EXPECT_EQ(attributes->size, 8u);
    EXPECT_EQ(attributes->links, 1u);
  }
  auto reader = fs_->Open(found->inode, FileSystem::Access::kRead);
  ASSERT_OK(reader);
  EXPECT_EQ(ReadAll(**reader), "contents");
  auto writer = fs_->Create(kRootInode, "file", {});
  ASSERT_OK(writer);
  EXPECT_EQ((*writer)->inode(), file->inode());
  ASSERT_OK((*writer)->Append(AsBytes("!")));
  EXPECT_EQ(ReadAll(**reader), "contents!");
  EXPECT_EQ(Elsewhere("file"), std::nullopt);
  ASSERT_OK((*writer)->Close());
  EXPECT_EQ(Elsewhere("file"), "contents!") << "any close of a writer commits";
  ASSERT_OK(file->Close());
  ASSERT_OK((*reader)->Close());
}

TEST_F(PendingFilesTest, AreListedInTheirPlacesOnce) {
  for (const char* name : {"b", "d", "f"}) Make(name, "x");
  std::vector<std::unique_ptr<OpenFile>> files;
  for (const char* name : {"a", "c", "e", "g", "h"}) files.push_back(CreateWith(name, "12"));
  ASSERT_OK(files[1]->Commit());
  EXPECT_THAT(List(), ElementsAre("a", "b", "c", "d", "e", "f", "g", "h"));
  EXPECT_THAT(ListElsewhere(), ElementsAre("b", "c", "d", "f"));
  for (const size_t at_once : {1, 2, 3}) {
    std::string names;
    std::string after;
    for (;;) {
      const auto entries = fs_->ReadDirectory(kRootInode, after, at_once, at_once == 2);
      ASSERT_OK(entries);
      EXPECT_LE(entries->size(), at_once);
      for (const DirectoryEntry& entry : *entries) {
        names += entry.name;
        EXPECT_EQ(entry.attributes.has_value(), at_once == 2);
        EXPECT_EQ(entry.inode, fs_->Lookup(kRootInode, entry.name)->inode);
      }
      if (entries->size() < at_once) break;
      after = entries->back().name;
    }
    EXPECT_EQ(names, "abcdefgh");
  }
}

TEST(MergeListing, HasWhatIsListedAndWhatBelongsInBetween) {
  const auto merge = [](const std::string& listed, const std::string& pending, bool is_end,
                        size_t max) {
    const auto entries = [](const std::string& names, InodeId inode) {
      std::vector<DirectoryEntry> result;
      for (const char name : names) {
        result.push_back({std::string(1, name), inode, FileKind::kRegular, std::nullopt});
      }
      return result;
    };
    std::string names;
    for (const auto& entry : MergeListing(entries(listed, 1), entries(pending, 2), is_end, max)) {
      names += entry.name;
      EXPECT_EQ(entry.inode == 1, listed.find(entry.name) != std::string::npos);
    }
    return names;
  };
  EXPECT_EQ(merge("ac", "", true, 9), "ac");
  EXPECT_EQ(merge("", "b", true, 9), "b");
  EXPECT_EQ(merge("ac", "bcd", true, 9), "abcd");
  EXPECT_EQ(merge("ac", "bcd", false, 9), "abc") << "d may not be the next one";
  EXPECT_EQ(merge("ac", "b", false, 2), "ab") << "c comes with the next part";
}

TEST_F(PendingFilesTest, AppearWhenTheyOrTheirDirectoryAreSynced) {
  auto first = CreateWith("first", "1");
  ASSERT_OK(first->Sync());
  EXPECT_EQ(Elsewhere("first"), "1");
  const InodeId d = MakeDirectory("d");
  std::vector<std::unique_ptr<OpenFile>> files;
  for (int i = 0; i < 40; ++i) files.push_back(CreateWith(fmt::format("{}", i), "2", d));
  auto outside = CreateWith("outside", "3");
  ASSERT_OK(fs_->SyncDirectory(d));
  EXPECT_EQ(ListElsewhere(d).size(), 40u);
  EXPECT_EQ(Elsewhere("7", d), "2");
  EXPECT_EQ(Elsewhere("outside"), std::nullopt);
}

// And go on as any other file.
TEST_F(PendingFilesTest, AppearAfterASecondAlthoughNobodyClosesThem) {
  auto early = CreateWith("early", "first");
  sim_.Sleep(milliseconds(500));
  auto late = CreateWith("late", "x");
  EXPECT_EQ(Elsewhere("early"), std::nullopt);
  sim_.Sleep(milliseconds(500));
  EXPECT_EQ(Elsewhere("early"), "first");
  EXPECT_EQ(Elsewhere("late"), std::nullopt);
  sim_.Sleep(milliseconds(500));
  EXPECT_EQ(Elsewhere("late"), "x");
  ASSERT_OK(early->Write(0, AsBytes("again")));
  EXPECT_EQ(Elsewhere("early"), "first") << "what is written later waits for its own commit";
  ASSERT_OK(early->Close());
  EXPECT_EQ(Elsewhere("early"), "again");
  ASSERT_OK(late->Close());
  // It can all begin anew.
  sim_.Sleep(seconds(10));
  auto next = Create("next");
  sim_.Sleep(seconds(1));
  EXPECT_EQ(Elsewhere("next"), "");
  ExpectNothingLeft();
}

// Its contents were not promised to anybody when they were committed, so what is written after them
// need not be safer than they are. (A close promises them: then it must.)
TEST_F(PendingFilesTest, ThatAppearWhileTheyAreWrittenAreNotFlushedAtTheirClose) {
  const auto flushes = [&] {
    uint64_t all = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) all += machines_.drive(id).requests().flush;
    return all;
  };
  for (const bool is_promised : {false, true}) {
    const std::string name = fmt::format("file {}", is_promised);
    auto file = CreateWith(name, contents_);
    sim_.Sleep(seconds(1));
    EXPECT_EQ(Elsewhere(name), contents_);
    if (is_promised) {
      ASSERT_OK(file->Commit());
    }
    ASSERT_OK(file->Append(AsBytes(contents_)));
    const uint64_t before = flushes();
    ASSERT_OK(file->Close());
    EXPECT_EQ(flushes() > before, is_promised);
    EXPECT_EQ(Elsewhere(name), contents_ + contents_);
  }
}

TEST_F(PendingFilesTest, ManyAppearAfterASecondAtOnce) {
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = milliseconds(5), .most_latency = milliseconds(5)});
  }
  std::vector<std::unique_ptr<OpenFile>> files;
  ASSERT_FAILS(fs_->Lookup(kRootInode, "none"), ENOENT);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FAILS(fs_->Lookup(kRootInode, fmt::format("{}", i)), ENOENT);
    files.push_back(CreateWith(fmt::format("{}", i), "x"));
  }
  sim_.Sleep(seconds(1));
  EXPECT_EQ(ListElsewhere().size(), 100u);
}

TEST_F(PendingFilesTest, NeverExistIfTheyAreRemovedBefore) {
  auto file = CreateWith("file", contents_);
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_FAILS(fs_->Lookup(kRootInode, "file"), ENOENT);
  EXPECT_THAT(List(), IsEmpty());
  EXPECT_FAILS(fs_->Unlink(kRootInode, "file"), ENOENT);
  // It can be used on, as any removed file.
  EXPECT_EQ(file->Stat()->links, 0u);
  ASSERT_OK(file->Write(0, AsBytes("x")));
  EXPECT_EQ(ReadAll(*file).substr(1), contents_.substr(1));
  auto second = CreateWith("file", "another");
  sim_.Sleep(seconds(2));
  EXPECT_EQ(Elsewhere("file"), "another");
  ASSERT_OK(file->Sync());
  ASSERT_OK(file->Close());
  ASSERT_OK(second->Close());
  EXPECT_EQ(Elsewhere("file"), "another");
  // One that has appeared is removed as ever.
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_EQ(Elsewhere("file"), std::nullopt);
  file.reset();
  second.reset();
  ExpectNothingLeft();
}

TEST_F(PendingFilesTest, AreRenamedLinkedAndReplacedAsOthers) {
  const InodeId d = MakeDirectory("d");
  auto file = CreateWith("file", "1");
  ASSERT_OK(fs_->Rename(kRootInode, "file", d, "moved"));
  EXPECT_EQ(Elsewhere("moved", d), "1");
  EXPECT_EQ(Elsewhere("file"), std::nullopt);
  ASSERT_OK(file->Write(0, AsBytes("2")));
  ASSERT_OK(file->Close());
  EXPECT_EQ(Elsewhere("moved", d), "2");

  Make("there", "3");
  auto target = CreateWith("target", "4");
  EXPECT_FAILS(fs_->Rename(kRootInode, "there", kRootInode, "target", /*no_replace=*/true), EEXIST);
  ASSERT_OK(fs_->Rename(kRootInode, "there", kRootInode, "target"));
  EXPECT_EQ(Elsewhere("target"), "3");
  EXPECT_EQ(target->Stat()->links, 0u);
  ASSERT_OK(target->Close());
  EXPECT_EQ(Elsewhere("target"), "3");

  auto one = CreateWith("one", "5");
  auto two = CreateWith("two", "6");
  ASSERT_OK(fs_->Exchange(kRootInode, "one", kRootInode, "two"));
  EXPECT_EQ(Elsewhere("one"), "6");
  EXPECT_EQ(Elsewhere("two"), "5");

  auto linked = CreateWith("linked", "7");
  ASSERT_OK(fs_->Link(linked->inode(), d, "second"));
  EXPECT_EQ(Elsewhere("second", d), "7");
  EXPECT_EQ(linked->Stat()->links, 2u);
}

TEST_F(PendingFilesTest, HaveTheirNames) {
  auto file = Create("file");
  const InodeId there = Make("there", "x");
  EXPECT_FAILS(fs_->MakeDirectory(kRootInode, "file", 0755, {}), EEXIST);
  EXPECT_FAILS(fs_->MakeNode(kRootInode, "file", FileKind::kRegular, 0644, {}, {}), EEXIST);
  EXPECT_FAILS(fs_->MakeSymlink(kRootInode, "file", "x", {}), EEXIST);
  EXPECT_FAILS(fs_->Link(there, kRootInode, "file"), EEXIST);
  auto unnamed = fs_->CreateUnnamed(kRootInode, 0600, {});
  ASSERT_OK(unnamed);
  EXPECT_FAILS(fs_->Link((*unnamed)->inode(), kRootInode, "file"), EEXIST);
  for (const bool later : {false, true}) {
    EXPECT_FAILS(fs_->Create(kRootInode, "file", {.exclusive = true, .appears_later = later}),
                 EEXIST);
    EXPECT_FAILS(fs_->Create(kRootInode, "there", {.exclusive = true, .appears_later = later}),
                 EEXIST);
  }
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "file"), ENOTDIR);
  EXPECT_EQ(Elsewhere("file"), std::nullopt) << "none of this has made it appear";
  // What is there already is opened.
  EXPECT_EQ(Create("there")->inode(), there);
  auto emptied = Create("there", kRootInode, {.truncate = true});
  EXPECT_EQ(emptied->Stat()->size, 0u);
  EXPECT_EQ(Elsewhere("there"), "x");
  ASSERT_OK(emptied->Close());
  EXPECT_EQ(Elsewhere("there"), "");
}

TEST_F(PendingFilesTest, OpenWhatTheirNamesWereGivenToSinceTheLook) {
  Make("file", "x");
  EXPECT_FAILS(fs_->Lookup(kRootInode, "name"), ENOENT);  // which would be recalled
  ASSERT_OK(fs_->Rename(kRootInode, "file", kRootInode, "name"));
  EXPECT_EQ(ReadAll(*Create("name")), "x");
  auto unnamed = fs_->CreateUnnamed(kRootInode, 0600, {});
  EXPECT_FAILS(fs_->Lookup(kRootInode, "second"), ENOENT);
  ASSERT_OK(fs_->Link((*unnamed)->inode(), kRootInode, "second"));
  EXPECT_EQ(Create("second")->inode(), (*unnamed)->inode());
}

TEST_F(PendingFilesTest, KeepTheirDirectoryFromBeingRemovedOrReplaced) {
  const InodeId d = MakeDirectory("d");
  MakeDirectory("e");
  const InodeId f = MakeDirectory("f");
  auto file = CreateWith("file", "1", d);
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "d"), ENOTEMPTY);
  EXPECT_EQ(Elsewhere("file", d), "1");
  auto second = CreateWith("file", "2", f);
  EXPECT_FAILS(fs_->Rename(kRootInode, "e", kRootInode, "f"), ENOTEMPTY);
  // One that is removed again is in nobody's way.
  auto third = CreateWith("third", "3", f);
  ASSERT_OK(fs_->Unlink(f, "file"));
  ASSERT_OK(fs_->Unlink(f, "third"));
  ASSERT_OK(fs_->Rename(kRootInode, "e", kRootInode, "f"));
  // Nor is one that goes along when its directory gets another name.
  const InodeId g = MakeDirectory("g");
  auto moved = CreateWith("file", "4", g);
  ASSERT_OK(fs_->Rename(kRootInode, "g", kRootInode, "h"));
  EXPECT_EQ(Elsewhere("file", g), std::nullopt);
  ASSERT_OK(moved->Close());
  EXPECT_EQ(Contents("/h/file", other_.fs.get()), "4");
}

TEST_F(PendingFilesTest, HaveAttributesThatComeAlong) {
  auto file = CreateWith("file", "contents");
  const InodeId id = file->inode();
  ASSERT_OK(file->SetAttributes({.mode = 0604, .modified = 5}));
  ASSERT_OK(fs_->SetAttributes(id, {.user = 7, .group = 8}));
  ASSERT_OK(fs_->SetExtended(id, "user.a", "b"));
  EXPECT_EQ(fs_->GetExtended(id, "user.a").value_or("none"), "b");
  EXPECT_EQ(fs_->ListExtended(id)->size(), 1u);
  ASSERT_OK(file->Truncate(4));
  EXPECT_EQ(fs_->GetAttributes(id)->size, 4u);
  ASSERT_OK(file->SetAttributes({.modified = 5}));
  EXPECT_EQ(Elsewhere("file"), std::nullopt);
  ASSERT_OK(file->Close());
  const auto found = other_->Lookup(kRootInode, "file");
  ASSERT_OK(found);
  EXPECT_EQ(found->mode, 0604u);
  EXPECT_EQ(found->owner, (Owner{7, 8}));
  EXPECT_EQ(found->modified, 5);
  EXPECT_EQ(found->size, 4u);
  EXPECT_EQ(other_->GetExtended(id, "user.a").value_or("none"), "b");

  // A truncation by name commits, as ever; and so does what needs to know where the data is.
  auto cut = CreateWith("cut", "contents");
  ASSERT_OK(fs_->SetAttributes(cut->inode(), {.size = 3}));
  EXPECT_EQ(Elsewhere("cut"), "con");
  auto where = CreateWith("where", "contents");
  EXPECT_OK(fs_->GetExtended(where->inode(), kWhyAttribute));
  EXPECT_EQ(Elsewhere("where"), "contents");
  auto layout = CreateWith("layout", "contents");
  EXPECT_FAILS(fs_->SetExtended(layout->inode(), kLayoutAttribute, "1+2"), ENOTEMPTY);
}

TEST_F(PendingFilesTest, HaveWhatTheirDirectoryHandsOnWhenTheyAreCreated) {
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 02775, {5, 6}));
  const InodeId d = fs_->Lookup(kRootInode, "d")->inode;
  ASSERT_OK(fs_->SetExtended(d, kLayoutAttribute, "1+2 inline=0"));
  auto masked = Create("masked", d, {.mode = 0666, .umask = 027, .owner = {1, 2}});
  ASSERT_OK(fs_->SetExtended(d, kDefaultAcl, EncodeAcl(AclOf(0750))));
  auto listed = Create("listed", d, {.mode = 0666, .umask = 027, .owner = {1, 2}});
  ASSERT_OK(fs_->SetAttributes(d, {.mode = 0755, .group = 9}));
  for (auto* file : {&masked, &listed}) {
    ASSERT_OK((*file)->Close());
    const auto found = other_->GetAttributes((*file)->inode());
    ASSERT_OK(found);
    EXPECT_EQ(found->owner, (Owner{1, 6}));
    EXPECT_EQ(found->mode, 0640u);
    EXPECT_EQ(other_->GetExtended(found->inode, kLayoutAttribute).value_or("").substr(0, 3), "1+2");
  }
}

TEST_F(PendingFilesTest, MoveTheTimeOfTheirDirectoryAtOnce) {
  const InodeId d = MakeDirectory("d");
  const auto time = [&](Host* host = nullptr) {
    const auto found = host ? (*host)->GetAttributes(d) : fs_->GetAttributes(d);
    EXPECT_OK(found);
    EXPECT_EQ(found->modified, found->changed);
    return found->modified;
  };
  const int64_t before = time();
  sim_.Sleep(milliseconds(20));
  auto file = Create("file", d);
  const int64_t created = time();
  EXPECT_GT(created, before);
  EXPECT_EQ(time(&other_), before);
  sim_.Sleep(milliseconds(20));
  ASSERT_OK(fs_->Unlink(d, "file"));
  EXPECT_GT(time(), created);
  sim_.Sleep(seconds(1));
  auto second = Create("file", d);
  ASSERT_OK(second->Close());
  sim_.Sleep(seconds(1));
  EXPECT_EQ(time(), time(&other_));
}

TEST_F(PendingFilesTest, TakeNoNameThatAnotherHostHasGivenMeanwhile) {
  auto file = CreateWith("file", "ours");
  auto theirs = other_->Create(kRootInode, "file", {});
  ASSERT_OK(theirs);
  ASSERT_OK((*theirs)->Write(0, AsBytes("theirs")));
  ASSERT_OK((*theirs)->Close());
  EXPECT_EQ(fs_->Lookup(kRootInode, "file")->inode, file->inode());
  EXPECT_FAILS(file->Commit(), EEXIST);
  EXPECT_EQ(fs_->Lookup(kRootInode, "file")->inode, (*theirs)->inode());
  EXPECT_EQ(ReadAll(*file), "ours") << "who has it open can bring it elsewhere";
  EXPECT_FAILS(file->Sync(), EEXIST);
  EXPECT_FAILS(file->Close(), EEXIST);
  EXPECT_EQ(Elsewhere("file"), "theirs");

  // Whoever of two such hosts closes first has it; and the others hear of it although it was found
  // out behind their backs.
  auto first = CreateWith("both", "first");
  auto second = other_->Create(kRootInode, "both", {.appears_later = true});
  ASSERT_OK(second);
  ASSERT_OK((*second)->Write(0, AsBytes("second")));
  ASSERT_OK((*second)->Close());
  sim_.Sleep(seconds(2));
  EXPECT_EQ(Contents("/both"), "second");
  EXPECT_FAILS(first->Close(), EEXIST);
  // A directory sync is told, too.
  auto synced = CreateWith("synced", "ours");
  ASSERT_OK(other_->MakeDirectory(kRootInode, "synced", 0755, {}));
  EXPECT_FAILS(fs_->SyncDirectory(kRootInode), EEXIST);
  EXPECT_OK(fs_->SyncDirectory(kRootInode));
  EXPECT_FAILS(synced->Close(), EEXIST);
  file.reset();
  first.reset();
  synced.reset();
  ExpectNothingLeft();
}

TEST_F(PendingFilesTest, GoWithADirectoryThatAnotherHostHasRemoved) {
  const InodeId d = MakeDirectory("d");
  auto file = CreateWith("file", contents_, d);
  ASSERT_OK(other_->RemoveDirectory(kRootInode, "d"));
  EXPECT_FAILS(file->Close(), ENOENT);
  EXPECT_FAILS(fs_->Lookup(d, "file"), ENOENT);
  file.reset();
  ExpectNothingLeft();
}

TEST_F(PendingFilesTest, ThatCannotBeStoredWaitForWhoeverClosesThem) {
  auto file = CreateWith("file", "contents");
  SetAllDown(true);
  sim_.Sleep(seconds(20));  // longer than one attempt takes
  EXPECT_EQ(fs_->Lookup(kRootInode, "file")->inode, file->inode());
  SetAllDown(false);
  sim_.Sleep(seconds(20));
  EXPECT_EQ(Elsewhere("file"), "contents") << "nobody need close it";

  auto lost = CreateWith("lost", "contents");
  SetAllDown(true);
  EXPECT_FAILS(lost->Close(), EIO);
  lost.reset();
  SetAllDown(false);
  sim_.Sleep(seconds(60));
  EXPECT_FAILS(fs_->Lookup(kRootInode, "lost"), ENOENT);
}

// The drives have taken the first commit, and did not say so.
TEST_F(PendingFilesTest, KeepWhatIsSetAfterACommitOfWhichNobodyLearned) {
  auto file = CreateWith("file", "contents");
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({.lose_answer = 1});
  EXPECT_FAILS(file->Commit(), EIO);
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
  ASSERT_OK(fs_->SetAttributes(file->inode(), {.mode = 0600, .user = 7}));
  ASSERT_OK(fs_->SetExtended(file->inode(), "user.a", "b", ExtendedMode::kSet));
  ASSERT_OK(file->Close());
  EXPECT_EQ(Elsewhere("file"), "contents");
  const auto attributes = other_->GetAttributes(file->inode(), {});
  ASSERT_OK(attributes);
  EXPECT_EQ(attributes->mode & 07777, 0600u);
  EXPECT_EQ(attributes->owner.user, 7u);
  EXPECT_EQ(other_->GetExtended(file->inode(), "user.a", {}).value_or("none"), "b");
}

// Whatever directory had that name when this host saw it last.
TEST_F(PendingFilesTest, KeepTheDirectoryThatHasTheNameNow) {
  const InodeId d = MakeDirectory("d");
  const InodeId e = MakeDirectory("e");
  ASSERT_OK(fs_->Lookup(kRootInode, "d"));
  ASSERT_OK(other_->Exchange(kRootInode, "d", kRootInode, "e"));
  auto file = CreateWith("file", "contents", e);
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "d"), ENOTEMPTY);
  ASSERT_OK(file->Close());
  EXPECT_EQ(Elsewhere("file", e), "contents");
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "e"));
  EXPECT_FAILS(other_->GetAttributes(d, {}), ENOENT);
}

// (Made at once, such a file is there, and empty.)
TEST_F(PendingFilesTest, ThatFindNoRoomForTheirContentsAreNotThere) {
  auto file = CreateWith("file", "contents");
  const auto room = std::make_shared<std::atomic<int64_t>>(0);
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({.room = room});
  EXPECT_FAILS(file->Close(), ENOSPC);
  file.reset();
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
  EXPECT_EQ(Elsewhere("file"), std::nullopt);
  EXPECT_FAILS(fs_->Lookup(kRootInode, "file"), ENOENT);
  ExpectNothingLeft();
}

TEST_F(PendingFilesTest, OfAProcessThatDiesNeverExisted) {
  const auto life = std::make_shared<ClientLife>();
  Host dying;
  dying.cluster = *machines_.Open(life);
  dying.fs = *FileSystem::Open(*dying.cluster, {});
  auto file = dying->Create(kRootInode, "file", {.appears_later = true});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes("contents")));
  life->Crash();
  sim_.Sleep(seconds(30));
  EXPECT_EQ(Elsewhere("file"), std::nullopt);
  file->reset();
  dying = Host();
  ExpectNothingLeft();
}

TEST_F(PendingFilesTest, OfOneNameAreOneWhoeverCreatesThem) {
  constexpr int kThreads = 8;
  std::unique_ptr<OpenFile> files[kThreads];
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = milliseconds(1), .most_latency = milliseconds(9)});
  }
  RunTogether(kThreads, [&](int i) {
    files[i] = Create("file");
    EXPECT_OK(files[i]->Append(AsBytes("x")));
  });
  for (auto& file : files) {
    EXPECT_EQ(file->inode(), files[0]->inode());
    EXPECT_EQ(ReadAll(*file), "xxxxxxxx");
  }
  RunTogether(kThreads, [&](int i) { EXPECT_OK(files[i]->Close()); });
  EXPECT_EQ(Elsewhere("file"), "xxxxxxxx");
}

// Ways by paths, as gateways go them, find what kernels do.
TEST_F(PendingFilesTest, AreFoundByPath) {
  const InodeId d = MakeDirectory("d");
  auto file = CreateWith("file", "contents", d);
  EXPECT_EQ(Contents("/d/file"), "contents");
}

}  // namespace
}  // namespace pinstripe
