// What tests of holes begin with: where a file has data, and how much it takes.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {

class HolesTest : public FsTest {
 protected:
  std::unique_ptr<OpenFile> Open(std::string_view path, FileSystem* fs = nullptr) {
    if (!fs) fs = fs_;
    auto file = fs->Open(fs->Resolve(path)->inode, FileSystem::Access::kWrite);
    EXPECT_OK(file);
    return *std::move(file);
  }

  uint64_t StoredBytes(std::string_view path) { return fs_->Resolve(path)->stored_bytes; }

  // What of a file is data, as "first-end ...".
  static std::string DataOf(OpenFile& file) {
    std::string text;
    for (uint64_t at = 0;;) {
      const auto data = file.Seek(at, OpenFile::Contents::kData);
      if (!data.has_value()) return text;
      const auto hole = file.Seek(*data, OpenFile::Contents::kHole);
      EXPECT_OK(hole);
      text += fmt::format("{}{}-{}", text.empty() ? "" : " ", *data, *hole);
      at = *hole;
    }
  }

  std::string DataOf(std::string_view path) {
    auto file = fs_->Open(fs_->Resolve(path)->inode, FileSystem::Access::kRead);
    EXPECT_OK(file);
    return DataOf(**file);
  }

  void ExpectNothingLeftOver() {
    sim_.Sleep(std::chrono::minutes(2));
    Checker checker(*host_.cluster, {});
    ExpectClean(checker.Run());
  }
};

}  // namespace pinstripe
