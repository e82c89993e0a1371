// Whose pages the kernel keeps when a file is opened again.

#include "fuse/kept_pages.h"

#include <gtest/gtest.h>

namespace pinstripe {
namespace {

constexpr InodeId kFile = 7;

class KeptPagesTest : public testing::Test {
 protected:
  // Opens, reads, and says whether what the kernel had was kept.
  bool Read(uint64_t version, InodeId file = kFile) {
    const KeptPages::Opened opened = Open(version, file);
    pages_.ReadBegins(file, opened);
    return opened.keep;
  }
  void Write() {
    pages_.OpenToWrite(kFile);
    pages_.CloseWritten(kFile);
  }

  KeptPages::Opened Open(uint64_t version, InodeId file = kFile) {
    return pages_.OpenToRead(file, version, pages_.Writers());
  }

  KeptPages pages_{3};
};

TEST_F(KeptPagesTest, WhatHasNotChangedIsKept) {
  EXPECT_FALSE(Read(1));
  EXPECT_TRUE(Read(1));
  EXPECT_TRUE(Read(1));
}

TEST_F(KeptPagesTest, WhatOthersChangedIsNot) {
  EXPECT_FALSE(Read(1));
  EXPECT_FALSE(Read(2));
  EXPECT_TRUE(Read(2));
}

TEST_F(KeptPagesTest, OnlyWhoReadsKnowsThatThePagesAreGone) {
  Open(1);  // its opener may not have come to drop them
  EXPECT_FALSE(Open(1).keep);
  const KeptPages::Opened first = Open(1);
  const KeptPages::Opened second = Open(2);
  pages_.ReadBegins(kFile, first);
  EXPECT_FALSE(Open(2).keep) << "some may be of version 1";
  pages_.ReadBegins(kFile, second);
  EXPECT_TRUE(Open(2).keep);
  pages_.ReadBegins(kFile, first);  // late
  EXPECT_FALSE(Open(2).keep);
}

TEST_F(KeptPagesTest, WhatWasWrittenHereIsNot) {
  EXPECT_FALSE(Read(1));
  Write();  // perhaps in vain: then the version is the same, and pages have what was lost
  EXPECT_FALSE(Read(1));
  EXPECT_TRUE(Read(1));

  pages_.OpenToWrite(kFile);
  pages_.OpenToWrite(kFile);
  EXPECT_FALSE(Read(1));
  pages_.CloseWritten(kFile);
  EXPECT_FALSE(Read(1));
  EXPECT_FALSE(Read(1));
  pages_.CloseWritten(kFile);
  EXPECT_FALSE(Read(1));
  EXPECT_TRUE(Read(1));

  const KeptPages::Opened opened = Open(2);
  Write();
  pages_.ReadBegins(kFile, opened);  // of pages that were there before the writer
  EXPECT_FALSE(Open(2).keep);
}

TEST_F(KeptPagesTest, WhatAWriterLostIsNotKeptByWhoOpenedBesideIt) {
  pages_.OpenToWrite(kFile);
  const KeptPages::Opened beside = Open(1);
  pages_.CloseWritten(kFile);  // in vain: the version stays
  pages_.ReadBegins(kFile, beside);
  EXPECT_FALSE(Open(1).keep);

  const uint64_t writers = pages_.Writers();
  Write();  // in vain, after the version was asked for
  const KeptPages::Opened late = pages_.OpenToRead(kFile, 1, writers);
  pages_.ReadBegins(kFile, late);
  EXPECT_FALSE(Open(1).keep);
}

TEST_F(KeptPagesTest, OfManyFilesSomeAreForgotten) {
  for (InodeId file = 1; file <= 4; ++file) EXPECT_FALSE(Read(1, file));
  int kept = 0;
  for (InodeId file = 1; file <= 4; ++file) kept += Open(1, file).keep ? 1 : 0;
  EXPECT_EQ(kept, 3);
  for (InodeId file = 1; file <= 1000; ++file) {
    pages_.OpenToWrite(file);
    pages_.CloseWritten(file);
  }
  EXPECT_FALSE(Read(1));
}

}  // namespace
}  // namespace pinstripe
