// The files that comments and documents name are there, and so are the sections that they cite.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"

namespace pinstripe {
namespace {

const std::filesystem::path kRoot = PINSTRIPE_SOURCE_DIR;

// Files that are named and are not ours: of other projects, of users, or made when something runs.
const std::set<std::string> kNotOurs = {
    "a.cc",
    "build_stamp.cc",
    "linux/fuse.h",
    "plots/old.svg",
};

struct Tree {
  std::set<std::string> paths;    // from the root
  std::set<std::string> names;    // of files
  std::set<std::string> folders;  // from the root
};

const Tree& OurTree() {
  static const Tree tree = [] {
    Tree tree;
    std::filesystem::recursive_directory_iterator entry(kRoot);
    for (; entry != std::filesystem::recursive_directory_iterator(); ++entry) {
      const std::string path = entry->path().lexically_relative(kRoot);
      if (path == "build" || path == ".git" || path == ".venv") entry.disable_recursion_pending();
      if (entry->is_directory()) {
        tree.folders.insert(path);
      } else {
        tree.paths.insert(path);
        tree.names.insert(entry->path().filename());
      }
    }
    tree.paths.insert("kinetic/kinetic.pb.h");
    tree.names.insert("kinetic.pb.h");
    return tree;
  }();
  return tree;
}

// Names of sources in a text, with or without folders. A path is looked for from the root and from
// the folder of the file that names it.
std::vector<std::string> PathsIn(const std::string& text) {
  static const std::regex kPath(
      R"((^|[^\w/.<*{}$~-])((?:[\w-]+/)*[\w-]+\.(?:h|cc|proto|pml|sh|py|cmake|md|svg))(?![\w/*(-]))");
  std::vector<std::string> paths;
  for (std::sregex_iterator match(text.begin(), text.end(), kPath), end; match != end; ++match) {
    paths.push_back((*match)[2].str());
  }
  return paths;
}

bool IsThere(const std::string& path, const std::filesystem::path& from) {
  const Tree& tree = OurTree();
  if (path.find('/') == path.npos) return tree.names.contains(path) || kNotOurs.contains(path);
  if (tree.paths.contains(path) || kNotOurs.contains(path)) return true;
  return tree.paths.contains((from / path).lexically_normal());
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

bool IsScript(const std::string& path) {
  return path == "dev" || path.ends_with(".sh") || path.ends_with(".py");
}

bool IsBuildFile(const std::string& path) {
  return path.ends_with("CMakeLists.txt") || path.ends_with(".cmake");
}

bool IsSource(const std::string& path) { return path.ends_with(".h") || path.ends_with(".cc"); }

// What a file says of others: its comments. A model says it in comments of several lines, and a
// script also in its messages and calls, so they are read as a whole.
std::string CommentsOf(const std::string& path, const std::string& text) {
  if (path.ends_with(".pml") || IsScript(path)) return text;
  const std::string mark = IsBuildFile(path) ? "#" : "//";
  std::string comments;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(mark);
    if (at != line.npos && line.find("#include") == line.npos) {
      comments += line.substr(at + mark.size()) + "\n";
    }
  }
  return comments;
}

std::vector<std::string> Missing(const std::string& path, const std::string& text) {
  std::vector<std::string> missing;
  for (const std::string& named : PathsIn(text)) {
    if (!IsThere(named, std::filesystem::path(path).parent_path())) {
      missing.push_back(path + " names " + named);
    }
  }
  return missing;
}

struct Citation {
  std::string document;
  std::string section;
};

// What a text says as: docs/format.md, "Name". It may break the line there, in a comment also.
std::vector<Citation> CitationsIn(const std::string& text) {
  static const std::regex kBreak(R"(\s*\n[\s#*]*)");
  static const std::regex kCitation(R"(((?:[\w-]+/)*[\w-]+\.md)`?, "([^"]{3,80})\")");
  const std::string line = std::regex_replace(text, kBreak, " ");
  std::vector<Citation> citations;
  for (std::sregex_iterator match(line.begin(), line.end(), kCitation), end; match != end;
       ++match) {
    citations.push_back({(*match)[1].str(), (*match)[2].str()});
  }
  return citations;
}

std::string InLowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// A section begins with a heading, or with bold words: **Name.**
bool HasSection(const std::string& document, const std::string& section) {
  std::istringstream lines(InLowerCase(document));
  const std::string name = InLowerCase(section);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find_first_not_of('#');
    if (at != line.npos && at > 0 && line.substr(at).starts_with(" " + name)) return true;
    if (line.starts_with("**" + name)) return true;
  }
  return false;
}

// A document is named from the root, from docs/, or from the folder of the file that names it.
std::vector<std::string> SectionsMissing(const std::string& path, const std::string& text) {
  std::vector<std::string> missing;
  for (const auto& [document, section] : CitationsIn(text)) {
    bool is_there = false;
    for (const auto& from : {std::filesystem::path(), std::filesystem::path("docs"),
                             std::filesystem::path(path).parent_path()}) {
      is_there = is_there || HasSection(ReadAll(kRoot / from / document), section);
    }
    if (!is_there) missing.push_back(fmt::format("{} cites {}, \"{}\"", path, document, section));
  }
  return missing;
}

TEST(Paths, WhatCommentsNameIsThere) {
  int looked_at = 0;
  for (const std::string& path : OurTree().paths) {
    const bool is_looked_at =
        IsSource(path) || IsScript(path) || IsBuildFile(path) || path.ends_with(".pml");
    if (!is_looked_at || path.ends_with("paths_test.cc") || path.ends_with("tidy_test.cc"))
      continue;
    ++looked_at;
    const std::string comments = CommentsOf(path, ReadAll(kRoot / path));
    EXPECT_THAT(Missing(path, comments), testing::IsEmpty());
    EXPECT_THAT(SectionsMissing(path, comments), testing::IsEmpty());
  }
  EXPECT_GT(looked_at, 300);
}

TEST(Paths, WhatDocumentsNameIsThere) {
  int looked_at = 0;
  for (const std::string& path : OurTree().paths) {
    // The log tells of the past, and so do its files.
    if (!path.ends_with(".md") || path.starts_with("docs/log/") || path == "CHANGELOG.md") continue;
    ++looked_at;
    const std::string text = ReadAll(kRoot / path);
    EXPECT_THAT(Missing(path, text), testing::IsEmpty());
    EXPECT_THAT(SectionsMissing(path, text), testing::IsEmpty());
  }
  EXPECT_GT(looked_at, 8);
}

// ---- Tests of the test ----

TEST(Paths, ReadsModelsAndScriptsWhole) {
  EXPECT_EQ(CommentsOf("m.pml", "/* see\n * x.h */"), "/* see\n * x.h */");
  EXPECT_EQ(CommentsOf("dev", "x.sh  # y.sh\n"), "x.sh  # y.sh\n");
  EXPECT_EQ(CommentsOf("x.cmake", "include(a.cmake)  # b.cmake\n"), " b.cmake\n");
  EXPECT_EQ(CommentsOf("x.cc", "\"a.cc\";  // b.cc\n"), " b.cc\n");
}

TEST(Paths, SeesWhatATextNames) {
  EXPECT_THAT(PathsIn("see cluster/registers/call.h, `names.cc` and (fs/turn.h). <fuse.h> no"),
              testing::ElementsAre("cluster/registers/call.h", "names.cc", "fs/turn.h"));
  EXPECT_THAT(PathsIn("https://a.b/c.md ${x}.sh *.cc a.hidden"), testing::IsEmpty());
  EXPECT_TRUE(IsThere("fs/turn.h", "docs"));
  EXPECT_TRUE(IsThere("format.md", "docs"));
  EXPECT_TRUE(IsThere("man/pinstripe.8", "docs"));
  EXPECT_FALSE(IsThere("fs/register_call.h", "docs"));
  EXPECT_FALSE(IsThere("register_call.h", "docs"));
}

TEST(Paths, SeesWhichSectionsATextCites) {
  EXPECT_THAT(SectionsMissing("x.h", " (docs/format.md, \"Drive\n map\"), `format.md`, \"map\""),
              testing::ElementsAre("x.h cites format.md, \"map\""));
  EXPECT_THAT(SectionsMissing("docs/x.md", "`operations.md`, \"HTTP\"\nformat.md,\n\"History\""),
              testing::IsEmpty());
}

}  // namespace
}  // namespace pinstripe
