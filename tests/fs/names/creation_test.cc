// A file is made together with its name: the inode lies beside the entry, and both are changed at
// once. Whoever wants a name whose inode was never written sees to it that nobody else gets it.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "fs/names/names.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

template <typename T>
Status WhyNot(const Result<T>& result) {
  return result.has_value() ? Status() : result.error();
}

class CreationTest : public FsTest {
 protected:
  // As a maker leaves it whose change of the inode did not come, or has not come yet.
  InodeId PutEntryOfNothing(std::string_view name) {
    const InodeId id = records().NewInodeIdBeside(kRootInode, "new");
    PutEntry(kRootInode, name,
             pinstripe::Entry{.inode = id, .kind = FileKind::kRegular, .nonce = {}});
    return id;
  }
  // Ways to make something of a new name, which fail where it is taken.
  using Way = std::function<Status(std::string_view name)>;
  std::map<std::string, Way> Ways() {
    return {{"create",
             [this](std::string_view name) -> Status {
               return WhyNot(fs_->Create(kRootInode, name, {.exclusive = true}));
             }},
            {"upload",
             [this](std::string_view name) -> Status {
               auto file =
                   fs_->Create(kRootInode, name, {.exclusive = true, .publish_at_commit = true});
               if (!file.has_value()) return file.error();
               return (*file)->Close();
             }},
            {"mkdir",
             [this](std::string_view name) -> Status {
               return WhyNot(fs_->MakeDirectory(kRootInode, name, 0755, {}));
             }},
            {"link",
             [this](std::string_view name) -> Status {
               return WhyNot(fs_->Link(Make(fmt::format("{} 2", name), "x"), kRootInode, name));
             }},
            {"rename", [this](std::string_view name) -> Status {
               Make("moved", "x");
               return fs_->Rename(kRootInode, "moved", kRootInode, name, /*no_replace=*/true);
             }}};
  }
  // "contents" were committed, and nobody has told the client so.
  std::unique_ptr<OpenFile> UploadWithoutAnAnswer(Host& host, std::string_view name) {
    auto file = host->Create(kRootInode, name, {.publish_at_commit = true});
    EXPECT_OK(file);
    EXPECT_OK((*file)->Write(0, AsBytes("contents")));
    for (DriveId d = 1; d <= machines_.size(); ++d) machines_.drive(d).Set({.lose_answer = 1});
    EXPECT_FAILS((*file)->Commit(), EIO);
    for (DriveId d = 1; d <= machines_.size(); ++d) machines_.drive(d).Set({});
    return *std::move(file);
  }
  // He goes on.
  bool WriteInode(InodeId id) {
    Inode inode;
    inode.named = GivenName{kRootInode, "file"};
    const auto written = records().ChangeInode(id, 0, inode);
    EXPECT_OK(written.why);
    return written.applied();
  }
  bool HasEntry(std::string_view name) {
    const auto stored = records().FindEntry(kRootInode, name);
    EXPECT_OK(stored);
    return stored->entry.has_value();
  }
  Records& records() {
    if (!records_) records_.emplace(*host_.cluster);
    return *records_;
  }

 private:
  std::optional<Records> records_;
};

TEST_F(CreationTest, WhatIsMadeLiesBesideItsEntryButDirectoriesLieAnywhere) {
  const Cluster& cluster = *host_.cluster;
  std::set<uint32_t> groups;
  for (int i = 0; i < 30; ++i) {
    const InodeId d = MakeDirectory(fmt::format("{}", i));
    groups.insert(cluster.GroupOfObject(d));
    const uint32_t group = cluster.GroupOfObject(d);
    EXPECT_EQ(cluster.GroupOfObject(Make("file", "x", d)), group);
    const auto link = fs_->MakeSymlink(d, "link", "file", {});
    ASSERT_OK(link);
    EXPECT_EQ(cluster.GroupOfObject(link->inode), group);
    auto upload = fs_->Create(d, "upload", {.publish_at_commit = true});
    ASSERT_OK(upload);
    EXPECT_EQ(cluster.GroupOfObject((*upload)->inode()), group);
  }
  EXPECT_GT(groups.size(), 10u) << "of 64";
}

TEST_F(CreationTest, ItIsOneRequestForEachHome) {
  EXPECT_FAILS(fs_->Lookup(kRootInode, "file"), ENOENT);
  sim_.Sleep(std::chrono::milliseconds(10));
  uint64_t puts = 0;
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).ForgetRequests();
  ASSERT_OK(fs_->MakeSymlink(kRootInode, "file", "target", {}));
  for (DriveId id = 1; id <= machines_.size(); ++id) puts += machines_.drive(id).requests().put;
  EXPECT_EQ(puts, 3u);
}

// Another one was uploaded, or removed, since the name was looked up.
TEST_F(CreationTest, AnUploadWhoseNameIsTakenMeanwhileReplacesIt) {
  for (const bool durably : {false, true}) {
    const std::string name = durably ? "durable" : "file";
    auto first = fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = true});
    auto second = fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = true});
    ASSERT_OK(first);
    ASSERT_OK(second);
    ASSERT_OK((*first)->Write(0, AsBytes("first")));
    ASSERT_OK((*second)->Write(0, AsBytes("second")));
    ASSERT_OK(durably ? (*first)->Sync() : (*first)->Commit());
    EXPECT_EQ(Contents("/" + name), "first");
    ASSERT_OK(durably ? (*second)->Sync() : (*second)->Commit());
    EXPECT_EQ(Contents("/" + name), "second");
    EXPECT_OK((*first)->Close());
    EXPECT_OK((*second)->Close());
  }
  Checker checker(*host_.cluster, {});
  EXPECT_EQ(checker.Run().lost_inodes, 0u);
}

// Inode and name were written, and nobody could tell. Others have found the file since.
TEST_F(CreationTest, AnUploadThatWasRenamedMeanwhileDoesNotGetASecondName) {
  const std::map<std::string, std::function<Status(InodeId)>> ways = {
      {"renamed", [&](InodeId) { return fs_->Rename(kRootInode, "f", kRootInode, "g", false); }},
      {"linked", [&](InodeId id) -> Status {
         EXPECT_OK(fs_->Link(id, kRootInode, "g"));
         return fs_->Unlink(kRootInode, "f");
       }}};
  for (const auto& [name, move] : ways) {
    Host other = NewHost();
    const auto file = UploadWithoutAnAnswer(other, "f");
    const InodeId id = file->inode();
    ASSERT_OK(fs_->Lookup(kRootInode, "f")) << name;
    ASSERT_OK(move(id)) << name;
    EXPECT_OK(file->Close()) << name;
    EXPECT_EQ(List(), std::vector<std::string>{"g"}) << name;
    EXPECT_EQ(InodeOf(id).links, 1u) << name;
    EXPECT_EQ(Contents("/g"), "contents") << name;
    ASSERT_OK(fs_->Unlink(kRootInode, "g"));
  }
}

// Others have found it, and the name that they were about to give it did not come about. Then the
// first one was taken back. It gets its name all the same, and says where that is.
TEST_F(CreationTest, AnUploadThatNobodyGaveAnotherNameGetsItsOwn) {
  for (const bool renamed : {false, true}) {
    const std::string name = renamed ? "renamed" : "linked";
    Host other = NewHost();
    const auto file = UploadWithoutAnAnswer(other, name);
    const InodeId id = file->inode();
    ASSERT_OK(fs_->Lookup(kRootInode, name));
    ChangeInode(id, [&](Inode& inode) {
      if (renamed) {
        inode.renames = {{{7}, /*done=*/false}};
      } else {
        inode.named = GivenName{kRootInode, "elsewhere"};
      }
    });
    PutEntry(kRootInode, name, std::nullopt);
    EXPECT_OK(file->Close()) << name;
    EXPECT_EQ(Contents("/" + name), "contents");
    EXPECT_EQ(InodeOf(id).named, (GivenName{kRootInode, name}));
  }
}

// Somebody else's fence is there first.
TEST_F(CreationTest, AnUploadWhoseInodeWasFencedFails) {
  auto file = fs_->Create(kRootInode, "file", {.publish_at_commit = true});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes("contents")));
  ASSERT_TRUE(*records().FenceNew((*file)->inode()));
  EXPECT_FAILS((*file)->Commit(), ESTALE);
  EXPECT_FAILS(fs_->Lookup(kRootInode, "file"), ENOENT);
  (void)(*file)->Close();
  Make("file", "another");
  EXPECT_EQ(Contents("/file"), "another");
}

TEST_F(CreationTest, AnEntryWhoseInodeWasNeverWrittenIsNoName) {
  const InodeId id = PutEntryOfNothing("file");
  EXPECT_FAILS(fs_->Lookup(kRootInode, "file"), ENOENT);
  EXPECT_FAILS(fs_->Unlink(kRootInode, "file"), ENOENT);
  EXPECT_FAILS(fs_->Rename(kRootInode, "file", kRootInode, "other", false), ENOENT);
  EXPECT_EQ(List(), std::vector<std::string>());
  EXPECT_TRUE(HasEntry("file")) << "the inode may be lost: who looks takes nothing away";
  EXPECT_TRUE(WriteInode(id));
  EXPECT_EQ(fs_->Lookup(kRootInode, "file")->inode, id);
}

// However he wants it. The one who was at it learns that it is another's.
TEST_F(CreationTest, WhoWantsTheNameLeavesItToNobodyElse) {
  for (const auto& [name, take] : Ways()) {
    const InodeId id = PutEntryOfNothing(name);
    EXPECT_OK(take(name)) << name;
    EXPECT_FALSE(WriteInode(id)) << name;
    const auto found = fs_->Lookup(kRootInode, name);
    ASSERT_OK(found);
    EXPECT_NE(found->inode, id) << name;
  }
}

// It was written between the look and the attempt.
TEST_F(CreationTest, WhoFindsItWrittenAfterAllFindsTheFile) {
  for (const auto& [name, take] : Ways()) {
    const InodeId id = PutEntryOfNothing(name);
    // What was looked up just now counts for what is made next.
    EXPECT_FAILS(fs_->Lookup(kRootInode, name), ENOENT);
    EXPECT_TRUE(WriteInode(id));
    EXPECT_FAILS(take(name), EEXIST) << name;
    EXPECT_EQ(fs_->Lookup(kRootInode, name)->inode, id);
  }
}

class DyingMakersTest : public CreationTest {
 protected:
  // Makes it, and tells its inode.
  using Make = std::function<Result<InodeId>(FileSystem&, std::string_view name)>;

  void ExpectOneAtMost(const Make& make, uint64_t requests);
};

// Hosts that all want the same name, and two of which die after some request. Where one of them was
// told that it has the name it is there, and told to one alone.
void DyingMakersTest::ExpectOneAtMost(const Make& make, uint64_t requests) {
  constexpr int kHosts = 3;
  {
    const std::string name = fmt::format("file {}", requests);
    std::vector<InodeId> told;
    std::vector<std::shared_ptr<ClientLife>> lives;
    std::vector<std::unique_ptr<Cluster>> clusters;
    std::vector<std::unique_ptr<FileSystem>> systems;
    for (int i = 0; i < kHosts; ++i) {
      lives.push_back(std::make_shared<ClientLife>());
      auto cluster = machines_.Open(lives.back());
      ASSERT_OK(cluster);
      clusters.push_back(*std::move(cluster));
      auto fs = FileSystem::Open(*clusters.back(), {});
      ASSERT_OK(fs);
      systems.push_back(*std::move(fs));
    }
    lives[0]->CrashAfter(requests);
    lives[1]->CrashAfter(requests + 3);
    RunTogether(kHosts, [&](int i) {
      for (int attempt = 0; attempt < 3; ++attempt) {
        const auto made = make(*systems[static_cast<size_t>(i)], name);
        if (made.has_value()) told.push_back(*made);
      }
    });
    EXPECT_LE(told.size(), 1u) << requests;
    const auto found = fs_->Lookup(kRootInode, name);
    ASSERT_OK(found) << "the last one lives";
    if (!told.empty()) {
      EXPECT_EQ(found->inode, told[0]) << requests;
    }
    systems.clear();
    clusters.clear();
  }
}

TEST_F(DyingMakersTest, NoTwoMakeALinkOfOneName) {
  for (uint64_t requests = 0; requests < 24; ++requests) {
    ExpectOneAtMost(
        [](FileSystem& fs, std::string_view name) -> Result<InodeId> {
          const auto made = fs.MakeSymlink(kRootInode, name, "x", {});
          if (!made.has_value()) return tl::unexpected(made.error());
          return made->inode;
        },
        requests);
  }
}

TEST_F(DyingMakersTest, NoTwoUploadAFileOfOneName) {
  for (uint64_t requests = 0; requests < 24; ++requests) {
    ExpectOneAtMost(
        [](FileSystem& fs, std::string_view name) -> Result<InodeId> {
          auto file = fs.Create(kRootInode, name, {.exclusive = true, .publish_at_commit = true});
          if (!file.has_value()) return tl::unexpected(file.error());
          const InodeId id = (*file)->inode();
          (void)(*file)->Write(0, AsBytes("contents"));
          const Status closed = (*file)->Close();
          if (!closed.ok()) return tl::unexpected(closed);
          return id;
        },
        requests);
  }
}

TEST_F(DyingMakersTest, NoTwoMakeAFileOfOneNameThatAppearsLater) {
  for (uint64_t requests = 0; requests < 24; ++requests) {
    ExpectOneAtMost(
        [](FileSystem& fs, std::string_view name) -> Result<InodeId> {
          auto file = fs.Create(kRootInode, name, {.exclusive = true, .appears_later = true});
          if (!file.has_value()) return tl::unexpected(file.error());
          const InodeId id = (*file)->inode();
          (void)(*file)->Write(0, AsBytes("contents"));
          const Status closed = (*file)->Close();
          if (!closed.ok()) return tl::unexpected(closed);
          return id;
        },
        requests);
  }
}

// A drive that has no room for the inode does not take the entry either.
TEST_F(CreationTest, FullDrivesLeaveNothingBehind) {
  const auto room = std::make_shared<std::atomic<int64_t>>(0);
  for (int64_t left = 0; left < 6; ++left) {
    const std::string name = fmt::format("file {}", left);
    room->store(left);
    for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({.room = room});
    const auto made = fs_->MakeSymlink(kRootInode, name, "x", {});
    for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
    if (made.has_value()) {
      EXPECT_OK(fs_->Lookup(kRootInode, name));
    } else if (made.error().code() == ENOSPC) {
      EXPECT_FAILS(fs_->Lookup(kRootInode, name), ENOENT);
    }
  }
  Checker checker(*host_.cluster, {});
  EXPECT_EQ(checker.Run().lost_inodes, 0u);
}

}  // namespace
}  // namespace pinstripe
