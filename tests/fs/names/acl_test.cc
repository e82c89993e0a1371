// Access control lists: what they say of modes, and what becomes of them in a file system.

#include "fs/names/acl.h"

#include <gtest/gtest.h>

#include "fs/names/extended.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using namespace std::string_literals;
using Names_ = std::vector<std::string>;

const Acl kPlain = {{AclTag::kOwner, 6}, {AclTag::kOwningGroup, 4}, {AclTag::kOther, 0}};
// user::rw-,user:77:r-x,group::r--,group:5:-w-,mask::rwx,other::--x
const Acl kNamed = {{AclTag::kOwner, 6},    {AclTag::kUser, 5, 77}, {AclTag::kOwningGroup, 4},
                    {AclTag::kGroup, 2, 5}, {AclTag::kMask, 7},     {AclTag::kOther, 1}};

// ---- Bytes

std::string Entry(uint16_t tag, uint16_t permissions, uint32_t id = UINT32_MAX) {
  std::string bytes;
  for (const int shift : {0, 8}) bytes.push_back(static_cast<char>(tag >> shift));
  for (const int shift : {0, 8}) bytes.push_back(static_cast<char>(permissions >> shift));
  for (const int shift : {0, 8, 16, 24}) bytes.push_back(static_cast<char>(id >> shift));
  return bytes;
}

const std::string kHead = "\2\0\0\0"s;
const std::string kOwner = Entry(1, 6);
const std::string kUser = Entry(2, 5, 77);
const std::string kOwningGroup = Entry(4, 4);
const std::string kGroup = Entry(8, 2, 5);
const std::string kMask = Entry(16, 7);
const std::string kOther = Entry(32, 1);

// What setfacl gives an ext4.
TEST(Acl, TheBytesAreTheKernels) {
  EXPECT_EQ(EncodeAcl(kNamed),
            "\x02\0\0\0"
            "\x01\0\x06\0\xff\xff\xff\xff"
            "\x02\0\x05\0\x4d\0\0\0"
            "\x04\0\x04\0\xff\xff\xff\xff"
            "\x08\0\x02\0\x05\0\0\0"
            "\x10\0\x07\0\xff\xff\xff\xff"
            "\x20\0\x01\0\xff\xff\xff\xff"s);
  EXPECT_EQ(EncodeAcl(kNamed), kHead + kOwner + kUser + kOwningGroup + kGroup + kMask + kOther);
  for (const Acl& acl : {kPlain, kNamed}) EXPECT_EQ(*ParseAcl(EncodeAcl(acl)), acl);
}

TEST(Acl, WithoutEntriesThereIsNone) {
  EXPECT_EQ(*ParseAcl(""), Acl());
  EXPECT_EQ(*ParseAcl(kHead), Acl());
}

TEST(Acl, AnIdThatMeansNothingIsNotKept) {
  const auto acl = ParseAcl(kHead + Entry(1, 6, 4711) + kOwningGroup + kOther);
  ASSERT_OK(acl);
  EXPECT_EQ(acl->front().id, UINT32_MAX);
}

TEST(Acl, WhatIsNoneIsRefused) {
  const std::string rest = kOwningGroup + kMask + kOther;
  for (const std::string& bytes :
       {"\2"s,
        "\2\0\0"s,
        "\1\0\0\0"s + kOwner + rest,
        "\0\0\0\2"s + kOwner + rest,
        kHead + kOwner + rest + "\0"s,
        (kHead + kOwner + rest).substr(0, 27),
        kHead + rest,                          // no owner
        kHead + kOwner + kMask + kOther,       // no group
        kHead + kOwner + kOwningGroup,         // no others
        kHead + kOwner + kOwner + rest,        // two owners
        kHead + kOwner + kOwningGroup + rest,  // two groups
        kHead + kOwner + rest + kOther,        // two others
        kHead + kOwner + kOwningGroup + kMask + kMask + kOther,
        kHead + kOwner + kUser + kOwningGroup + kOther,  // no mask
        kHead + kOwner + kOwningGroup + kGroup + kOther,
        kHead + kOwner + kOwningGroup + kUser + kMask + kOther,  // out of order
        kHead + kOwningGroup + kOwner + kOther,
        kHead + kOwner + kOwningGroup + kOther + kMask,
        kHead + Entry(1, 8) + rest,
        kHead + Entry(1, 0x106) + rest,
        kHead + kOwner + Entry(2, 7) + rest,  // nobody
        kHead + kOwner + Entry(0, 7) + rest,
        kHead + kOwner + Entry(3, 7, 1) + rest,
        kHead + kOwner + rest + Entry(64, 7),
        kHead + kOwner + rest + Entry(0x8000, 7)}) {
    EXPECT_FAILS(ParseAcl(bytes), EINVAL) << testing::PrintToString(bytes);
  }
}

TEST(Acl, AsManyEntriesAsAPageHolds) {
  Acl acl = kNamed;
  acl.insert(acl.begin() + 1, kMaxAclEntries - acl.size(), {AclTag::kUser, 4, 1});
  EXPECT_EQ(EncodeAcl(acl).size(), 4092u);
  EXPECT_EQ(*ParseAcl(EncodeAcl(acl)), acl);
  acl.insert(acl.begin() + 1, {AclTag::kUser, 4, 1});
  EXPECT_FAILS(ParseAcl(EncodeAcl(acl)), EINVAL);
}

TEST(Acl, AnyChangeOfAByteIsRefusedOrKept) {
  const std::string good = EncodeAcl(kNamed);
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      const auto acl = ParseAcl(bytes);
      if (!acl.has_value()) continue;
      EXPECT_EQ(*ParseAcl(EncodeAcl(*acl)), *acl) << at << " " << value;
    }
    const bool is_none = at == 0 || at == kHead.size();
    EXPECT_EQ(ParseAcl(good.substr(0, at)).has_value(), is_none) << at;
  }
}

// ---- Modes

TEST(Acl, OnlyThreeEntriesAreTheMode) {
  EXPECT_FALSE(SaysMoreThanMode({}));
  EXPECT_FALSE(SaysMoreThanMode(kPlain));
  EXPECT_TRUE(SaysMoreThanMode(kNamed));
  Acl masked = kPlain;
  masked.insert(masked.end() - 1, {AclTag::kMask, 7});
  EXPECT_TRUE(SaysMoreThanMode(masked));
}

TEST(Acl, TheModeIsOwnerMaskOrGroupAndOthers) {
  EXPECT_EQ(ModeOf(kPlain, 07777), 07640u);
  EXPECT_EQ(ModeOf(kNamed, 02000), 02671u);
  EXPECT_EQ(ModeOf({}, 0751), 0751u);
}

TEST(Acl, AModeThatIsSetIsTheModeThenAndNothingElseChanges) {
  for (uint32_t mode = 0; mode < 01000; ++mode) {
    for (const Acl& before : {kPlain, kNamed}) {
      const Acl after = Chmod(before, mode);
      EXPECT_EQ(ModeOf(after, 0), mode);
      EXPECT_EQ(Chmod(after, ModeOf(before, 0)), before);
      EXPECT_TRUE(ParseAcl(EncodeAcl(after)).has_value());
    }
    EXPECT_EQ(Chmod(kNamed, mode)[2], kNamed[2]);  // the group's own, where there is a mask
  }
}

TEST(Acl, WhatIsInheritedIsNoMoreThanEitherGives) {
  for (uint32_t given = 0; given < 01000; ++given) {
    for (uint32_t asked = 0; asked < 01000; ++asked) {
      const Acl acl = InheritAcl(Chmod(kNamed, given), asked);
      EXPECT_EQ(ModeOf(acl, 0), given & asked);
      EXPECT_EQ(acl, Chmod(kNamed, given & asked));
    }
  }
}

// ---- In a file system

class AclsTest : public FsTest {
 protected:
  uint32_t ModeOfInode(InodeId inode) { return fs_->GetAttributes(inode)->mode; }
  InodeId MakeSharedDirectory(const Acl& acl) {
    const InodeId d = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
    EXPECT_OK(fs_->SetExtended(d, kDefaultAcl, EncodeAcl(acl)));
    return d;
  }
  void ExpectAcl(InodeId inode, const Acl& acl) {
    const auto bytes = fs_->GetExtended(inode, kAccessAcl);
    ASSERT_OK(bytes);
    EXPECT_EQ(*bytes, EncodeAcl(acl));
    EXPECT_TRUE(fs_->GetAttributes(inode)->has_acl);
  }
  void ExpectNoAcl(InodeId inode) {
    EXPECT_FAILS(fs_->GetExtended(inode, kAccessAcl), ENODATA);
    EXPECT_FALSE(fs_->GetAttributes(inode)->has_acl);
  }
};

TEST_F(AclsTest, ToSetOneSetsTheMode) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetAttributes(file, {.mode = 06755}));
  const int64_t before = fs_->GetAttributes(file)->changed;
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
  EXPECT_EQ(ModeOfInode(file), 06671u);
  EXPECT_GT(fs_->GetAttributes(file)->changed, before);
  EXPECT_EQ(*fs_->ListExtended(file), Names_{std::string(kAccessAcl)});
  ExpectAcl(file, kNamed);
  EXPECT_EQ(*NewHost()->GetExtended(file, kAccessAcl), EncodeAcl(kNamed));
}

TEST_F(AclsTest, ToSetTheModeChangesIt) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
  ASSERT_OK(fs_->SetAttributes(file, {.mode = 0604}));
  ExpectAcl(file, Chmod(kNamed, 0604));
  auto open = fs_->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  ASSERT_OK((*open)->Write(0, AsBytes("y")));
  ASSERT_OK((*open)->SetAttributes({.mode = 0770}));
  ASSERT_OK((*open)->Close());
  ExpectAcl(file, Chmod(kNamed, 0770));
  EXPECT_EQ(ModeOfInode(file), 0770u);
}

TEST_F(AclsTest, OneThatTheModeSaysIsNotKept) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kPlain)));
  ExpectNoAcl(file);
  EXPECT_EQ(ModeOfInode(file), 0640u);
  EXPECT_EQ(fs_->ListExtended(file)->size(), 0u);
}

TEST_F(AclsTest, RemovedOrEmptyItLeavesTheMode) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->RemoveExtended(file, kAccessAcl));
  for (const std::string& nothing : {""s, kHead}) {
    ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
    ASSERT_OK(fs_->SetExtended(file, kAccessAcl, nothing));
    ExpectNoAcl(file);
    EXPECT_EQ(ModeOfInode(file), 0671u);
    EXPECT_EQ(fs_->ListExtended(file)->size(), 0u);
  }
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
  ASSERT_OK(fs_->RemoveExtended(file, kAccessAcl));
  ExpectNoAcl(file);
  EXPECT_EQ(ModeOfInode(file), 0671u);
}

// As ext4 says it, so that `ls -l` shows a "+" for those that have one, and for no others.
TEST_F(AclsTest, ThereIsNoneWhereTheModeSaysAll) {
  const InodeId file = Make("file", "x");
  ExpectNoAcl(file);
  ExpectNoAcl(kRootInode);
  ExpectNoAcl(fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode);
  ExpectNoAcl(fs_->MakeNode(kRootInode, "fifo", FileKind::kFifo, 0666, {}, {})->inode);
  ExpectNoAcl(fs_->MakeSymlink(kRootInode, "l", "x", {})->inode);
}

// Whoever has the file open is told what others are: that the bits are a list's, or are not.
TEST_F(AclsTest, AnOpenFileTellsTheBitsWithTheirList) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetAttributes(file, {.mode = 0640}));
  auto open = fs_->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  ASSERT_OK((*open)->Write(0, AsBytes("y")));
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
  for (const Attributes& told : {*(*open)->Stat(), (*open)->Known()}) {
    EXPECT_TRUE(told.has_acl);
    EXPECT_EQ(told.mode, 0671u);
  }
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kPlain)));
  for (const Attributes& told : {*(*open)->Stat(), (*open)->Known()}) {
    EXPECT_FALSE(told.has_acl);
    EXPECT_EQ(told.mode, 0640u);
  }
  ASSERT_OK((*open)->Close());
}

TEST_F(AclsTest, WhatIsNoneChangesNothing) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
  EXPECT_FAILS(fs_->SetExtended(file, kAccessAcl, kHead + kOwner), EINVAL);
  ExpectAcl(file, kNamed);
  EXPECT_FAILS(fs_->SetExtended(file, kDefaultAcl, EncodeAcl(kPlain)), EACCES);
  ASSERT_OK(fs_->RemoveExtended(file, kDefaultAcl));
  const InodeId link = fs_->MakeSymlink(kRootInode, "l", "x", {})->inode;
  EXPECT_FAILS(fs_->SetExtended(link, kAccessAcl, EncodeAcl(kNamed)), EOPNOTSUPP);
}

TEST_F(AclsTest, TheSetGroupBitGoesWhenItIsToldTo) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetAttributes(file, {.mode = 02755}));
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed), FileSystem::ExtendedMode::kSet,
                             FileSystem::SetGroupBit::kGoes));
  EXPECT_EQ(ModeOfInode(file), 0671u);
}

TEST_F(AclsTest, EverythingThatIsMadeInADirectoryInherits) {
  const InodeId d = MakeSharedDirectory(kNamed);
  EXPECT_EQ(ModeOfInode(d), 0755u);
  const InodeId made = fs_->MakeDirectory(d, "made", 0750, {}, 0777)->inode;
  ExpectAcl(made, Chmod(kNamed, 0650));
  EXPECT_EQ(ModeOfInode(made), 0650u);
  EXPECT_EQ(*fs_->GetExtended(made, kDefaultAcl), EncodeAcl(kNamed));

  const auto fifo = fs_->MakeNode(d, "fifo", FileKind::kFifo, 0666, {}, {}, 0777);
  ASSERT_OK(fifo);
  EXPECT_EQ(fifo->mode, 0660u);
  ExpectAcl(fifo->inode, Chmod(kNamed, 0660));
  EXPECT_FAILS(fs_->GetExtended(fifo->inode, kDefaultAcl), ENODATA);

  auto file = fs_->Create(d, "file", {.mode = 0604, .umask = 0777});
  ASSERT_OK(file);
  EXPECT_EQ((*file)->Known().mode, 0600u);
  ExpectAcl((*file)->inode(), Chmod(kNamed, 0600));

  auto upload = fs_->Create(d, "upload", {.mode = 0644, .publish_at_commit = true});
  ASSERT_OK(upload);
  ASSERT_OK((*upload)->Write(0, AsBytes("x")));
  ASSERT_OK((*upload)->Close());
  ExpectAcl(fs_->Resolve("/d/upload")->inode, Chmod(kNamed, 0640));

  auto unnamed = fs_->CreateUnnamed(d, 0666, {}, 0777);
  ASSERT_OK(unnamed);
  ExpectAcl((*unnamed)->inode(), Chmod(kNamed, 0660));
  ASSERT_OK(fs_->SetExtended((*unnamed)->inode(), kAccessAcl, EncodeAcl(kNamed)));
  ASSERT_OK(fs_->Link((*unnamed)->inode(), d, "named"));
  ExpectAcl(fs_->Resolve("/d/named")->inode, kNamed);
  EXPECT_EQ(fs_->Resolve("/d/named")->mode, 0671u);

  const InodeId link = fs_->MakeSymlink(d, "l", "x", {})->inode;
  EXPECT_EQ(fs_->ListExtended(link)->size(), 0u);
  EXPECT_EQ(ModeOfInode(link), 0777u);
}

TEST_F(AclsTest, APlainDefaultIsInheritedAsAMode) {
  const InodeId d = MakeSharedDirectory(kPlain);
  auto file = fs_->Create(d, "file", {.mode = 0777, .umask = 0777});
  ASSERT_OK(file);
  EXPECT_EQ((*file)->Known().mode, 0640u);
  EXPECT_EQ(fs_->ListExtended((*file)->inode())->size(), 0u);
  const InodeId made = fs_->MakeDirectory(d, "made", 0777, {}, 0777)->inode;
  EXPECT_EQ(*fs_->ListExtended(made), Names_{std::string(kDefaultAcl)});
}

TEST_F(AclsTest, WithoutADefaultTheUmaskHolds) {
  EXPECT_EQ(fs_->MakeDirectory(kRootInode, "d", 01777, {}, 027)->mode, 01750u);
  EXPECT_EQ(fs_->MakeNode(kRootInode, "n", FileKind::kFifo, 0666, {}, {}, 022)->mode, 0644u);
  EXPECT_EQ((*fs_->Create(kRootInode, "f", {.mode = 0666, .umask = 077}))->Known().mode, 0600u);
  EXPECT_EQ((*fs_->CreateUnnamed(kRootInode, 04777, {}, 077))->Known().mode, 04700u);
  const InodeId d = fs_->Resolve("/d")->inode;
  ASSERT_OK(fs_->SetExtended(d, kDefaultAcl, EncodeAcl(kNamed)));
  ASSERT_OK(fs_->RemoveExtended(d, kDefaultAcl));
  EXPECT_EQ(fs_->MakeDirectory(d, "e", 0777, {}, 022)->mode, 0755u);
}

TEST_F(AclsTest, AnUploadOverAFileKeepsItsAcl) {
  const InodeId d = MakeSharedDirectory(kNamed);
  const Acl own = Chmod({{AclTag::kOwner, 6},
                         {AclTag::kUser, 6, 9},
                         {AclTag::kOwningGroup, 0},
                         {AclTag::kMask, 6},
                         {AclTag::kOther, 0}},
                        0660);
  for (const std::string& acl : {EncodeAcl(own), EncodeAcl(kPlain)}) {
    const InodeId file = Make("file", "old", d);
    ASSERT_OK(fs_->SetExtended(file, kAccessAcl, acl));
    const Attributes before = *fs_->GetAttributes(file);
    auto upload = fs_->Create(d, "file", {.truncate = true, .publish_at_commit = true});
    ASSERT_OK(upload);
    ASSERT_OK((*upload)->Write(0, AsBytes("new")));
    ASSERT_OK((*upload)->Close());
    const Attributes after = *fs_->Resolve("/d/file");
    EXPECT_NE(after.inode, before.inode);
    EXPECT_EQ(after.mode, before.mode);
    if (acl == EncodeAcl(own)) {
      ExpectAcl(after.inode, own);
    } else {
      ExpectNoAcl(after.inode);
    }
  }
}

TEST_F(AclsTest, ItStaysWithAFileThatIsWrittenMeanwhile) {
  const InodeId file = Make("file", "old");
  auto open = fs_->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  ASSERT_OK((*open)->Write(0, AsBytes(Pattern(1, kTestBlock))));
  ASSERT_OK(NewHost()->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
  ASSERT_OK((*open)->Close());
  ExpectAcl(file, kNamed);
  EXPECT_EQ(ModeOfInode(file), 0671u);
}

// Who sets one and who sets the mode at the same time leave what goes together.
TEST_F(AclsTest, ModeAndListNeverDiffer) {
  const InodeId file = Make("file", "x");
  std::vector<Host> hosts;
  for (int i = 0; i < 3; ++i) hosts.push_back(NewHost());
  RunTogether(3, [&](int i) {
    for (uint32_t n = 0; n < 10; ++n) {
      if (i == 0) {
        EXPECT_OK(hosts[i]->SetExtended(file, kAccessAcl, EncodeAcl(Chmod(kNamed, n * 7))));
      } else {
        EXPECT_OK(hosts[i]->SetAttributes(file, {.mode = n * 11 + static_cast<uint32_t>(i)}));
      }
    }
  });
  const auto acl = ParseAcl(*fs_->GetExtended(file, kAccessAcl));
  ASSERT_OK(acl);
  EXPECT_EQ(ModeOf(*acl, 0), ModeOfInode(file));
}

// The kernel asks for the list of what it has just looked up, to see who may open it.
TEST_F(AclsTest, OfWhatWasLookedUpJustNowNobodyIsAsked) {
  const InodeId file = Make("file", "x");
  const InodeId d = MakeSharedDirectory(kNamed);
  ASSERT_OK(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)));
  Host other = NewHost();
  ASSERT_OK(other->Lookup(kRootInode, "file"));
  ASSERT_OK(other->Lookup(kRootInode, "d"));
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, true);
  EXPECT_EQ(*other->GetExtended(file, kAccessAcl, std::chrono::seconds(1)), EncodeAcl(kNamed));
  EXPECT_FAILS(other->GetExtended(d, kAccessAcl, std::chrono::seconds(1)), ENODATA);
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, false);
}

// For who is in it still, and whose next step the kernel checks.
TEST_F(AclsTest, ARemovedDirectoryHasItsListStill) {
  const InodeId d = MakeSharedDirectory(kNamed);
  ASSERT_OK(fs_->SetExtended(d, kAccessAcl, EncodeAcl(kNamed)));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  ExpectAcl(d, kNamed);
}

TEST_F(AclsTest, AFullInodeTakesNone) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetExtended(file, "user.big", std::string(64 << 10, 'x')));
  ASSERT_OK(fs_->SetExtended(file, "user.more", std::string(16'300, 'x')));
  EXPECT_FAILS(fs_->SetExtended(file, kAccessAcl, EncodeAcl(kNamed)), ENOSPC);
  EXPECT_EQ(ModeOfInode(file), 0644u);
}

}  // namespace
}  // namespace pinstripe
