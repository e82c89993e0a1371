// A new, empty directory that is removed with everything in it: in $STORE_TEST_DIRECTORY, so that
// the tests can be run on any file system, else in memory where there is such a file system: nobody
// cuts the power of a test, and syncing is most of what it would wait for.

#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace pinstripe {

class TemporaryDirectory {
 public:
  static constexpr uint64_t kLeastSpace = uint64_t{2} << 30;  // containers often have 64 MiB

  TemporaryDirectory() {
    const char* const chosen = getenv("STORE_TEST_DIRECTORY");
    struct statvfs space {};
    const bool memory = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &space) == 0 &&
                        space.f_bavail * space.f_frsize >= kLeastSpace;
    std::string name = chosen != nullptr ? std::string(chosen) + "/"
                       : memory          ? "/dev/shm/"
                                         : testing::TempDir();
    name += "pinstripe-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace pinstripe
