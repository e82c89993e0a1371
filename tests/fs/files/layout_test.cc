// Layouts: as text, as bytes, handed on by directories, and what files then are on the drives.

#include "fs/files/layout.h"

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"
#include "upkeep/checker.h"

namespace pinstripe {
namespace {

using Mode = FileSystem::ExtendedMode;
using Names_ = std::vector<std::string>;

const std::string kName(kLayoutAttribute);

ClusterConfig ConfigWith(StripeLayout layout, size_t drives) {
  ClusterConfig config;
  config.layout = layout;
  config.drives.resize(drives);
  return config;
}

TEST(FileLayout, IsTextThatSaysEverything) {
  const ClusterConfig config = ConfigWith({4, 2, 1 << 20}, 8);
  EXPECT_EQ(FileLayout::Default(config).Text(),
            "4+2 shard=1MiB copies=3 inline=512 replicate=64KiB");
  const std::pair<const char*, const char*> cases[] = {
      {"4+2", "4+2 shard=1MiB copies=3 inline=512 replicate=64KiB"},
      {"6+2", "6+2 shard=704KiB copies=3 inline=512 replicate=64KiB"},
      {"1+0", "1+0 shard=1MiB copies=1 inline=512 replicate=64KiB"},
      {" 1+2,inline=0\treplicate=0 ", "1+2 shard=1MiB copies=3 inline=0 replicate=0"},
      {"2+1 replicate=1MiB shard=65536 inline=1000 copies=4",
       "2+1 shard=64KiB copies=4 inline=1000 replicate=1MiB"},
  };
  for (const auto& [text, whole] : cases) {
    const auto layout = FileLayout::Parse(text, config);
    ASSERT_OK(layout) << text;
    EXPECT_EQ(layout->Text(), whole);
    EXPECT_EQ(*FileLayout::Parse(layout->Text(), config), *layout);
  }
}

TEST(FileLayout, WhatCannotBeIsRefused) {
  const ClusterConfig config = ConfigWith({4, 2, 1 << 20}, 8);
  for (const char* text : {"",
                           " ",
                           "x",
                           "4",
                           "4+",
                           "0+2",
                           "7+2",
                           "shard=64KiB",
                           "shard=64KiB 4+2",
                           "4+2 shard=1000",
                           "4+2 shard=0",
                           "4+2 shard=2MiB",
                           "4+2 shard=",
                           "4+2 shard",
                           "4+2 shard=64KiB shard=64KiB",
                           "4+2 copies=0",
                           "4+2 copies=9",
                           "4+2 copies=256",
                           "4+2 copies=3x",
                           "4+2 inline=33KiB",
                           "4+2 inline=-1",
                           "4+2 inline=99999999999",
                           "4+2 replicate=2MiB",
                           "4+2 5+1",
                           "4+2 colour=1",
                           "4+2 =1"}) {
    EXPECT_FAILS(FileLayout::Parse(text, config), EINVAL) << text;
  }
  const auto refused = FileLayout::Parse("10+2", config);
  EXPECT_NE(refused.error().message().find("needs 12 drives; the cluster has 8"),
            std::string_view::npos)
      << refused.error().message();
}

TEST(FileLayout, SmallFilesAreOneRecordWithCopies) {
  const ClusterConfig config = ConfigWith({4, 2, 1 << 20}, 8);
  FileLayout layout = *FileLayout::Parse("4+2 copies=2 replicate=100000", config);
  EXPECT_EQ(layout.small(), (StripeLayout{1, 1, 128 << 10}));
  EXPECT_EQ(layout.SmallLimit(), 100'000u);
  EXPECT_EQ(layout.PageParity(), 2);
  layout = *FileLayout::Parse("1+0 shard=64KiB copies=3 replicate=1MiB", config);
  EXPECT_EQ(layout.small(), (StripeLayout{1, 2, 64 << 10}));
  EXPECT_EQ(layout.SmallLimit(), 64u << 10) << "a file has no block larger than its blocks";
  EXPECT_EQ(layout.PageParity(), 2);
}

// Pins docs/format.md, "Inode".
TEST(FileLayout, IsASectionOfTheInode) {
  Inode inode;
  inode.layout = FileLayout{{4, 2, 1 << 20}, 3, 4096, 65536};
  const std::string bytes = inode.Encode(7);
  EXPECT_EQ(Hex(AsBytes(bytes.substr(bytes.size() - 17))),
            "820f0402001000000300001000"
            "00010000");
  EXPECT_EQ(*Inode::Decode(bytes, 7), inode);
  // Damaged: no data shards; a layout of a symbolic link.
  std::string damaged = bytes;
  damaged[bytes.size() - 15] = 0;
  EXPECT_FAILS(Inode::Decode(damaged, 7), EBADMSG);
  EXPECT_FAILS(Inode::Decode(bytes.substr(0, bytes.size() - 1), 7), EBADMSG);
  inode.kind = FileKind::kSymlink;
  inode.symlink = "x";
  EXPECT_FAILS(Inode::Decode(inode.Encode(7), 7), EBADMSG);
}

class LayoutTest : public FsTest {
 protected:
  InodeId Directory(const char* name, const char* layout, InodeId parent = kRootInode) {
    const auto made = fs_->MakeDirectory(parent, name, 0755, {});
    EXPECT_OK(made);
    if (layout) {
      EXPECT_OK(fs_->SetExtended(made->inode, kName, layout));
    }
    return made->inode;
  }

  std::string LayoutOf(InodeId id, FileSystem* fs = nullptr) {
    return (fs ? fs : fs_)->GetExtended(id, kName).value_or("none");
  }
};

TEST_F(LayoutTest, ADirectoryHandsItOnToWhatIsMadeInIt) {
  const std::string usual = LayoutOf(kRootInode);
  EXPECT_EQ(usual, "2+1 shard=64KiB copies=2 inline=512 replicate=64KiB");
  const InodeId d = Directory("d", "1+2 inline=0");
  const std::string wanted = "1+2 shard=1MiB copies=3 inline=0 replicate=64KiB";
  EXPECT_EQ(LayoutOf(d), wanted);
  const InodeId below = Directory("below", nullptr, d);
  EXPECT_EQ(LayoutOf(below), wanted);
  const InodeId file = Make("f", "contents", below);
  EXPECT_EQ(LayoutOf(file), wanted);
  EXPECT_TRUE(InodeOf(file).inline_data.empty()) << "inline=0: even the smallest is a record";
  EXPECT_EQ(InodeOf(file).map->Find(0)->layout, (StripeLayout{1, 2, 64 << 10}));
  EXPECT_EQ(Contents("/d/below/f"), "contents");

  // What is there stays as it is, wherever it goes.
  ASSERT_OK(fs_->Rename(below, "f", kRootInode, "f"));
  ASSERT_OK(fs_->RemoveExtended(d, kName));
  EXPECT_EQ(LayoutOf(d), usual);
  EXPECT_EQ(LayoutOf(below), wanted);
  EXPECT_EQ(LayoutOf(file), wanted);
  EXPECT_EQ(LayoutOf(Make("g", "contents", d)), usual);
  // A file that replaces another is a new one of its directory.
  EXPECT_EQ(LayoutOf(Make("f", "contents")), wanted) << "truncated: it is the same file";
  auto upload = fs_->Create(kRootInode, "f", {.truncate = true, .publish_at_commit = true});
  ASSERT_OK(upload);
  ASSERT_OK((*upload)->Close());
  EXPECT_EQ(LayoutOf(fs_->Resolve("/f")->inode), usual);
}

TEST_F(LayoutTest, IsAnAttributeAsFarAsItCanBe) {
  const InodeId d = Directory("d", nullptr);
  EXPECT_EQ(*fs_->ListExtended(d), Names_{}) << "it has none of its own";
  EXPECT_FAILS(fs_->RemoveExtended(d, kName), ENODATA);
  EXPECT_FAILS(fs_->SetExtended(d, kName, "2+1", Mode::kReplace), ENODATA);
  ASSERT_OK(fs_->SetExtended(d, kName, "2+1", Mode::kCreate));
  EXPECT_FAILS(fs_->SetExtended(d, kName, "2+1", Mode::kCreate), EEXIST);
  EXPECT_EQ(*fs_->ListExtended(d), Names_{kName});
  EXPECT_FAILS(fs_->SetExtended(d, kName, "5+1"), EINVAL) << "six shards on five drives";
  EXPECT_EQ(LayoutOf(d), "2+1 shard=64KiB copies=2 inline=512 replicate=64KiB");

  const InodeId file = Make("f", "contents", d);
  EXPECT_EQ(*fs_->ListExtended(file), Names_{});
  EXPECT_FAILS(fs_->SetExtended(file, kName, "1+1"), ENOTEMPTY);
  EXPECT_FAILS(fs_->RemoveExtended(file, kName), ENOTEMPTY);
  EXPECT_OK(fs_->SetExtended(file, kName, LayoutOf(file))) << "the one that it has";
  EXPECT_EQ(Contents("/d/f"), "contents");

  const InodeId link = fs_->MakeSymlink(kRootInode, "l", "x", {})->inode;
  EXPECT_FAILS(fs_->SetExtended(link, kName, "2+1"), EPERM);
  EXPECT_FAILS(fs_->GetExtended(link, kName), ENODATA);
}

TEST_F(LayoutTest, AnEmptyFileCanBeGivenOne) {
  const InodeId file = Make("f", "");
  ASSERT_OK(fs_->SetExtended(file, kName, "3+2 shard=64KiB"));
  Host other = NewHost();
  EXPECT_EQ(LayoutOf(file, other.fs.get()), "3+2 shard=64KiB copies=3 inline=512 replicate=64KiB");
  const std::string data = Pattern(1, 500'000);
  auto open = other->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK((*open)->Write(0, AsBytes(data)));
  ASSERT_OK((*open)->Close());
  EXPECT_EQ(InodeOf(file).map->layout(), (StripeLayout{3, 2, 64 << 10}));
  EXPECT_EQ(Contents("/f"), data);
}

// All forms of a file under all kinds of layouts, written at once, in pieces, and cut.
TEST_F(LayoutTest, FilesAreWhatWasWrittenUnderAnyLayout) {
  const char* layouts[] = {"1+0 inline=0",
                           "1+4 shard=128KiB",
                           "2+1 copies=1 replicate=1MiB",
                           "3+2 shard=64KiB copies=5 replicate=0",
                           "4+1 shard=192KiB inline=32KiB",
                           "4+0 shard=64KiB inline=0 replicate=1MiB"};
  const size_t sizes[] = {1, 4096, 4097, 32'768, 65'536, 65'537, 262'144, 1'048'577, 1'700'000};
  int number = 0;
  for (const char* layout : layouts) {
    const std::string directory = fmt::format("d{}", number++);
    const InodeId d = Directory(directory.c_str(), layout);
    for (const size_t size : sizes) {
      const std::string name = fmt::format("f{}", size);
      std::string data = Pattern(size, size);
      const InodeId file = Make(name, data, d);
      ASSERT_EQ(Contents(fmt::format("/{}/{}", directory, name)), data) << layout << " " << size;
      auto open = fs_->Open(file, FileSystem::Access::kWrite);
      ASSERT_OK(open);
      const std::string more = Pattern(7, 70'000);
      data.resize(std::max(data.size(), size / 2 + more.size()));
      data.replace(size / 2, more.size(), more);
      ASSERT_OK((*open)->Write(size / 2, AsBytes(more)));
      ASSERT_OK((*open)->Commit());
      data.resize(data.size() / 3);
      ASSERT_OK((*open)->Truncate(data.size()));
      ASSERT_OK((*open)->Close());
      Host other = NewHost();
      ASSERT_EQ(Contents(fmt::format("/{}/{}", directory, name), other.fs.get()), data)
          << layout << " " << size;
    }
  }
}

// What was small when it was written stays as it is kept, though nothing as large would be kept so
// today; and a host that finds the inode changed meanwhile has nothing of its own to put on top.
TEST_F(LayoutTest, ASmallFileBeyondTodaysLimitIsSyncedAsItIs) {
  const std::string data = Pattern(1, 3000);
  const InodeId file = Make("f", data);
  ASSERT_FALSE(InodeOf(file).map) << "it is kept in the inode";
  machines_.config().inline_limit = 100;
  Host host = NewHost();
  auto open = host->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  for (const bool by_other : {false, true}) {
    AttributeChange change;
    change.mode = by_other ? 0600 : 0640;
    if (by_other) {
      ASSERT_OK(fs_->SetAttributes(file, change));
    } else {
      ASSERT_OK((*open)->SetAttributes(change));
    }
    ASSERT_OK((*open)->Sync());
    EXPECT_EQ(ReadAll(**open), data);
    EXPECT_FALSE(InodeOf(file).map);
    EXPECT_EQ(InodeOf(file).mode, *change.mode);
  }
  ASSERT_OK((*open)->Close());
  EXPECT_EQ(Contents("/f"), data);
}

// One host writes into an empty file to which another gives a layout meanwhile.
TEST_F(LayoutTest, BlocksInMemoryStayAsTheyAre) {
  const InodeId file = Make("f", "");
  Host other = NewHost();
  auto open = other->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  const std::string data = Pattern(1, 100);
  ASSERT_OK((*open)->Write(150'000, AsBytes(data)));
  ASSERT_OK(fs_->SetExtended(file, kName, "3+2 shard=64KiB"));
  ASSERT_OK(other->Open(file, FileSystem::Access::kRead)) << "now it knows of the layout";
  ASSERT_OK((*open)->Write(300'000, AsBytes(data)));
  ASSERT_OK((*open)->Close());
  EXPECT_EQ(Contents("/f"), std::string(150'000, '\0') + data + std::string(149'900, '\0') + data);
  EXPECT_EQ(InodeOf(file).map->layout(), (StripeLayout{2, 1, 64 << 10}));
  EXPECT_EQ(LayoutOf(file), "2+1 shard=64KiB copies=3 inline=512 replicate=64KiB");
}

}  // namespace
}  // namespace pinstripe
