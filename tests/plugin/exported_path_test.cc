#include "plugin/exported_path.h"

#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

TEST(ExportedPath, IsWhatAClientNames) {
  EXPECT_EQ(*ExportedPath("/a/b"), "/a/b");
  EXPECT_EQ(*ExportedPath("/"), "/");
}

TEST(ExportedPath, NeverLeadsUp) {
  for (const char* path : {"/..", "/../", "/a/../b", "/a//..", "/a/..", "..", "../a"}) {
    EXPECT_FAILS(ExportedPath(path), EACCES) << path;
  }
  for (const char* path : {"/...", "/a..", "/..a", "/a/.../b", "/.", "/a.b"}) {
    EXPECT_OK(ExportedPath(path)) << path;
  }
}

}  // namespace
}  // namespace pinstripe
