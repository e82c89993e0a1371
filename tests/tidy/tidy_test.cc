// The rules that hold for the text of the sources as a whole: who includes whom, where heavy
// headers and the machine's own clocks may be seen, and how a header begins.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"

namespace pinstripe {
namespace {

// Each room and what its files may include from: rooms, or single headers of the folder that a room
// lies in. Reading it top to bottom is reading the architecture (docs/ARCHITECTURE.md). The last
// ones hold programs, which also put together what they run on: drives and a cluster.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"base", {}},
    {"metrics", {"base"}},
    {"erasure", {"base"}},
    {"drive", {"base"}},
    {"kinetic", {"base", "drive"}},
    {"redis", {"base", "drive", "kinetic"}},
    {"engines", {"base", "drive"}},
    {"engines/etcd", {"base", "drive", "engines"}},
    {"engines/postgres", {"base", "drive", "engines"}},
    {"store", {"base", "drive", "kinetic"}},
    {"daemon", {"base", "drive", "kinetic", "metrics", "store"}},

    {"cluster/map", {"base", "drive"}},
    {"cluster/registers",
     {"base", "drive", "kinetic", "cluster/map", "cluster/fullness.h", "cluster/gather.h",
      "cluster/cluster.h"}},
    {"cluster/stripes",
     {"base", "drive", "kinetic", "erasure", "cluster/map", "cluster/fullness.h",
      "cluster/gather.h"}},
    {"cluster",
     {"base", "drive", "engines", "engines/etcd", "engines/postgres", "kinetic", "redis", "erasure",
      "cluster/map", "cluster/registers", "cluster/stripes", "cluster/membership"}},
    {"cluster/membership",
     {"base", "drive", "cluster/map", "cluster/registers", "cluster/stripes", "cluster/cluster.h",
      "cluster/gather.h", "cluster/map_group.h"}},

    {"fs/names",
     {"base", "cluster", "cluster/map", "cluster/registers", "fs/types.h", "fs/turn.h",
      "fs/files/block_map.h", "fs/files/layout.h"}},
    {"fs/cache", {"base", "cluster/stripes", "fs/types.h"}},
    {"fs/files",
     {"base", "cluster", "cluster/registers", "cluster/stripes", "fs/names", "fs/cache",
      "fs/types.h", "fs/turn.h", "fs/open_file.h", "fs/options.h"}},
    {"fs", {"base", "cluster", "fs/names", "fs/files"}},

    {"upkeep",
     {"base", "drive", "engines", "kinetic", "metrics", "cluster", "cluster/map",
      "cluster/membership", "cluster/registers", "cluster/stripes", "fs", "fs/names", "fs/files"}},
    {"plugin",
     {"base", "metrics", "cluster", "fs", "fs/names", "fs/files", "upkeep/host_care.h",
      "upkeep/host_metrics.h", "upkeep/slow_operations.h"}},
    {"fuse",
     {"base", "metrics", "cluster", "fs", "fs/names", "fs/files", "upkeep/host_care.h",
      "upkeep/host_metrics.h", "upkeep/slow_operations.h"}},
    {"tools",
     {"base", "drive", "kinetic", "redis", "cluster", "cluster/map", "cluster/membership",
      "cluster/stripes", "fs", "upkeep"}},
    {"console", {"base", "metrics", "cluster", "cluster/map", "fs", "upkeep", "kinetic/tls.h"}},
};

struct Header {
  std::string begins;          // the name between < and >
  std::set<std::string> only;  // the rooms that may see it
  bool in_headers = false;     // also in their .h files, so that others see it through them
};
const std::vector<Header> kOutside = {
    {"isa-l/", {"base", "erasure"}},
    {"spdlog/", {"base"}},
    {"toml++/", {"base"}},
    {"hiredis/", {"redis"}},
    {"grpc", {"engines/etcd"}},
    {"libpq-fe.h", {"engines/postgres"}},
    {"rocksdb/", {"store"}},
    {"leveldb/", {"store"}},
    {"prometheus/", {"metrics"}},
    {"civetweb", {"metrics"}},
    {"google/protobuf/", {"kinetic", "daemon", "engines/etcd"}},
    {"openssl/", {"kinetic", "store", "daemon", "tools", "console"}},
    {"httplib", {"console"}},
    {"Xrd", {"plugin"}, true},
    {"fuse", {"fuse"}, true},
};

// Time, threads and chance come from a Runtime (base/runtime.h), or no simulation is deterministic.
// base/ makes it; the others hold the loops that do real input and output.
const std::set<std::string> kMayUseTheMachine = {
    "base", "engines/etcd", "engines/postgres", "kinetic", "metrics", "store", "daemon"};
const std::regex kMachine(
    R"(std::chrono::(system|steady|high_resolution)_clock|std::(jthread|thread)\b|std::this_thread)"
    R"(|std::async|random_device|\b(usleep|nanosleep|gettimeofday|clock_gettime)\()");

std::string FolderOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : std::string(path.substr(0, slash));
}

std::string WithoutComment(const std::string& line) { return line.substr(0, line.find("//")); }

// What is wrong with an #include, "" for nothing.
std::string IncludeComplaint(const std::string& path, const std::string& line) {
  static const std::regex kProject(R"(^\s*#\s*include\s*"([^"]+)\".*)");
  static const std::regex kSystem(R"(^\s*#\s*include\s*<([^>]+)>.*)");
  const std::string folder = FolderOf(path);
  std::smatch match;
  if (std::regex_match(line, match, kProject)) {
    const std::string target = FolderOf(match[1].str());
    const auto& known = kMayInclude.at(folder);
    if (target == folder || known.contains(target) || known.contains(match[1].str())) return "";
    return fmt::format("{}/ does not know {}", folder, match[1].str());
  }
  if (!std::regex_match(line, match, kSystem)) return "";
  const std::string name = match[1].str();
  for (const Header& header : kOutside) {
    if (!name.starts_with(header.begins)) continue;
    if (!header.only.contains(folder)) return fmt::format("<{}> has no place in {}/", name, folder);
    if (!header.in_headers && path.ends_with(".h")) {
      return fmt::format("<{}> belongs into a .cc file: it is heavy", name);
    }
  }
  return "";
}

// Everything that is wrong with a file, as "path:line: why".
std::vector<std::string> Complaints(const std::string& path, const std::string& text) {
  std::vector<std::string> complaints;
  const bool is_header = path.ends_with(".h");
  if (is_header && !text.starts_with("//")) {
    complaints.push_back(path + ":1: a header begins by saying what it is");
  }
  if (is_header && text.find("\n#pragma once\n") == std::string::npos) {
    complaints.push_back(path + ":1: a header is included once");
  }
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = fmt::format("{}:{}: ", path, ++number);
    if (const std::string why = IncludeComplaint(path, line); !why.empty()) {
      complaints.push_back(where + why);
    }
    if (!kMayUseTheMachine.contains(FolderOf(path)) &&
        std::regex_search(WithoutComment(line), kMachine)) {
      complaints.push_back(where + "time, threads and chance come from a Runtime");
    }
  }
  return complaints;
}

TEST(Tidy, EverySourceKeepsTheRules) {
  const std::filesystem::path root = PINSTRIPE_SOURCE_DIR;
  for (const auto& [folder, known] : kMayInclude) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h") continue;
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      ASSERT_FALSE(text.str().empty()) << entry.path();
      const std::string path = entry.path().lexically_relative(root);
      EXPECT_THAT(Complaints(path, text.str()), testing::IsEmpty());
      ++files;
    }
    EXPECT_GT(files, 0) << folder << "/ holds nothing: does the table name it rightly?";
  }
}

TEST(Tidy, EveryFolderWithSourcesIsInTheTable) {
  const std::filesystem::path root = PINSTRIPE_SOURCE_DIR;
  for (const auto& top : std::filesystem::directory_iterator(root)) {
    const std::string name = top.path().filename();
    // What is not part of the product may include anything.
    if (!top.is_directory() || name == "tests" || name == "bench" || name == "build" ||
        name == ".venv")
      continue;
    for (const auto& file : std::filesystem::recursive_directory_iterator(top.path())) {
      if (file.path().extension() != ".cc") continue;
      const std::string path = file.path().lexically_relative(root);
      EXPECT_TRUE(kMayInclude.contains(FolderOf(path))) << path;
    }
  }
}

// All names of tests (`Suite.Name`) and of scripts (`12-what.sh`) in such a text.
std::set<std::string> TestsNamedIn(const std::string& text) {
  static const std::regex kName(R"(`([A-Z]\w*\.[A-Z]\w*|[0-9]{2}-[a-z0-9-]+\.sh)`)");
  std::set<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), kName), end; match != end; ++match) {
    names.insert((*match)[1].str());
  }
  return names;
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// What is said to protect is shown by a test that is there.
TEST(Tidy, NamesInTheSecurityPageAreThoseOfTests) {
  static const std::regex kTest(R"(\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\))");
  const std::filesystem::path root = PINSTRIPE_SOURCE_DIR;
  std::set<std::string> there;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "tests")) {
    if (entry.path().extension() == ".sh") there.insert(entry.path().filename());
    if (entry.path().extension() != ".cc") continue;
    const std::string text = ReadAll(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), kTest), end; match != end; ++match) {
      there.insert(fmt::format("{}.{}", (*match)[1].str(), (*match)[2].str()));
    }
  }
  const std::set<std::string> named = TestsNamedIn(ReadAll(root / "SECURITY.md"));
  EXPECT_GT(named.size(), 20u);
  for (const std::string& name : named) EXPECT_TRUE(there.contains(name)) << "no test " << name;
}

// ---- Tests of the test ----

TEST(Tidy, FindsTheNamesOfTestsInAText) {
  EXPECT_THAT(
      TestsNamedIn("it holds (`FrameTest.IsCut`, `29-exported-part.sh`), `ca` and `x.toml`; "
                   "`drive/hmac.h`"),
      testing::ElementsAre("29-exported-part.sh", "FrameTest.IsCut"));
}

TEST(Tidy, FindsAnIncludeThatGoesUp) {
  EXPECT_THAT(Complaints("cluster/x.cc", "\n#include \"fs/file_system.h\"\n"),
              testing::ElementsAre("cluster/x.cc:2: cluster/ does not know fs/file_system.h"));
  EXPECT_THAT(Complaints("fs/x.cc", "#include \"erasure/codec.h\"\n"),
              testing::ElementsAre("fs/x.cc:1: fs/ does not know erasure/codec.h"));
  EXPECT_THAT(Complaints("fs/x.cc", "#include \"codec.h\"\n"),
              testing::ElementsAre("fs/x.cc:1: fs/ does not know codec.h"));
  EXPECT_THAT(Complaints("base/x.cc", "  #  include \"tests/support/gen.h\"\n"),
              testing::SizeIs(1));
  EXPECT_THAT(Complaints("cluster/stripes/x.cc", "#include \"cluster/cluster.h\"\n"),
              testing::ElementsAre("cluster/stripes/x.cc:1: cluster/stripes/ does not know "
                                   "cluster/cluster.h"));
  EXPECT_THAT(Complaints("cluster/stripes/x.cc", "#include \"cluster/gather.h\"\n"),
              testing::IsEmpty());
  EXPECT_THAT(Complaints("cluster/x.cc", "#include \"base/status.h\"\n#include \"cluster/y.h\"\n"),
              testing::IsEmpty());
}

TEST(Tidy, FindsAHeavyHeaderInTheWrongPlace) {
  EXPECT_THAT(Complaints("cluster/x.cc", "#include <rocksdb/db.h>\n"),
              testing::ElementsAre("cluster/x.cc:1: <rocksdb/db.h> has no place in cluster/"));
  EXPECT_THAT(Complaints("fs/x.cc", "#include <XrdOss/XrdOss.hh>\n"), testing::SizeIs(1));
  EXPECT_THAT(Complaints("plugin/x.cc", "#include <fuse3/fuse_lowlevel.h>\n"), testing::SizeIs(1));
  EXPECT_THAT(
      Complaints("kinetic/x.h", "// X.\n#pragma once\n#include <google/protobuf/message.h>\n"),
      testing::ElementsAre("kinetic/x.h:3: <google/protobuf/message.h> belongs into a .cc file: "
                           "it is heavy"));
  EXPECT_THAT(Complaints("store/x.cc", "#include <rocksdb/db.h>\n"), testing::IsEmpty());
}

TEST(Tidy, FindsTimeThreadsAndChanceThatPassTheRuntimeBy) {
  for (const char* line :
       {"auto t = std::chrono::steady_clock::now();", "std::thread t(f);",
        "std::this_thread::sleep_for(1s);", "std::random_device d;", "usleep(1000);"}) {
    EXPECT_THAT(
        Complaints("cluster/x.cc", line),
        testing::ElementsAre("cluster/x.cc:1: time, threads and chance come from a Runtime"));
    EXPECT_THAT(Complaints("store/x.cc", line), testing::IsEmpty());
  }
  EXPECT_THAT(Complaints("cluster/x.cc", "// unlike std::thread\n"), testing::IsEmpty());
}

TEST(Tidy, FindsAHeaderThatDoesNotSayWhatItIs) {
  EXPECT_THAT(Complaints("fs/x.h", "#pragma once\n"), testing::SizeIs(2));
  EXPECT_THAT(Complaints("fs/x.h", "// X holds.\n\n#pragma once\n"), testing::IsEmpty());
}

}  // namespace
}  // namespace pinstripe
