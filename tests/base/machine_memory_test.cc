// The least limit counts, wherever in the tree of control groups it is.

#include "base/machine_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

class MachineMemoryTest : public testing::Test {
 protected:
  void Write(const std::string& path, std::string_view text) {
    const std::filesystem::path whole = root_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << '\n';
  }
  std::optional<uint64_t> Limit(std::string_view groups) { return GroupMemoryLimit(groups, root_); }

  const TemporaryDirectory directory_;
  const std::string root_ = directory_.path();
};

TEST_F(MachineMemoryTest, AUnitOrAContainerHasALimit) {
  Write("system.slice/mount.service/memory.max", "1000");
  EXPECT_EQ(Limit("0::/system.slice/mount.service\n"), 1000u);
  EXPECT_EQ(Limit("0::/system.slice\n"), std::nullopt);
}

TEST_F(MachineMemoryTest, TheLeastOfThoseAroundItCounts) {
  Write("memory.max", "5000");
  Write("a/memory.max", "700");
  Write("a/b/memory.max", "max");
  EXPECT_EQ(Limit("0::/a/b\n"), 700u);
  EXPECT_EQ(Limit("0::/\n"), 5000u);
  EXPECT_EQ(Limit("0::/elsewhere/b\n"), 5000u) << "a container that sees its own group as the root";
}

TEST_F(MachineMemoryTest, TheFirstVersionHasAHierarchyOfItsOwn) {
  Write("memory/process/memory.limit_in_bytes", "9000");
  Write("memory/memory.limit_in_bytes", "9223372036854771712");
  Write("process/memory.max", "1");
  EXPECT_EQ(Limit("5:devices:/process\n4:cpu,memory:/process\n0::/\n"), 9000u);
  EXPECT_EQ(Limit("5:devices,memoryless:/process\n"), std::nullopt);
}

TEST_F(MachineMemoryTest, WhereNothingIsSaidThereIsNoLimit) {
  Write("odd/memory.max", "many");
  for (const char* groups : {"", "\n", ":", "0:", "0::", "0::/", "0::/odd", "nonsense\n\n0::/x/"}) {
    EXPECT_EQ(Limit(groups), std::nullopt) << groups;
  }
}

TEST_F(MachineMemoryTest, AProcessHasNoMoreThanTheMachine) {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  EXPECT_LE(MachineMemory(), pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)));
  EXPECT_GT(MachineMemory(), uint64_t{16} << 20);
}

}  // namespace
}  // namespace pinstripe
